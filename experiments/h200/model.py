"""Predict seconds, and the limiting resource, from counted operations: a roofline model.

    python experiments/h200/model.py [--output FILE]

`recorded` lists the operations that the GPU code issues on the CUDA emulator of the tests, with
their sizes. A small problem stands for a large one with as many blocks: `scaled` multiplies its
dimensions. `predict` plays a list of operations on a `Machine`. Its constants are in constants.csv,
each with its source. They were written down before any prediction was compared with a paper, except
for two that no algorithm of the papers uses; constants.csv marks these.

`published` lists the numbers of papers 000 and 001 beside what the model predicts for the papers'
own algorithms, which `nested_potrf`, `nested_trsm`, `nested_syrk` and `tile_cholesky` enumerate.
"""

import argparse
import csv
import sys
from collections import Counter, defaultdict, deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import import_module
from math import ceil
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


# --- the machine --------------------------------------------------------------------------------


@cache
def constants():
    """Return the constants as {machine: {name: value}}, in SI units: seconds, bytes, operations."""
    units = {"TFLOP/s": 1e12, "GB/s": 1e9, "GB": 1e9, "us": 1e-6, "": 1}
    lines = (HERE / "constants.csv").read_text(encoding="utf-8").splitlines()
    found = defaultdict(dict)
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        found[row["machine"]][row["name"]] = float(row["value"]) * units[row["unit"]]
    return dict(found)


@dataclass(frozen=True)
class Machine:
    """A GPU and its host.

    Parameters
    ----------
    name : {"h200", "h100", "gh200", "a100"}
    issue : dict of str to float
        Seconds of the CPU for each kind of call; none of them cost anything if it is empty.
    streams : int
        How many operations the device can execute at one time, where one does not fill it.
    """

    name: str = "h200"
    issue: dict = field(default_factory=lambda: constants()["host"], hash=False)
    streams: int = 1

    def __getitem__(self, name):
        """Return a constant of the machine, else of all GPUs."""
        return (constants()["gpu"] | constants()[self.name])[name]

    def rate(self, form):
        """Return the operations per second of a large product; BF16 runs at the rate of FP16."""
        return self[f"gemm {'fp16' if form == 'bf16' else form}"]

    def busy(self, form, m, n, k):
        """Return the seconds of the tensor cores for an (m, n) product over k.

        Output tiles are computed in waves of one tile to each processor. A wave that is not full
        takes as long as a full one, but other streams use the processors that it leaves idle.
        """
        kind = " fp64 fp32" if form in ("fp64", "fp32") else ""
        tile = self[f"tile rows{kind}"], self[f"tile columns{kind}"]
        tiles = min(ceil(m / a) * ceil(n / b) for a, b in (tile, tile[::-1]))
        processors = self["processors"]
        waves = max(tiles / processors, ceil(tiles / processors) / self.streams)
        return 2.0 * waves * processors * tile[0] * tile[1] * k / self.rate(form)


# --- operations ---------------------------------------------------------------------------------


_ALONE = ("latency", "potrf columns")
"""What takes time but leaves nearly all processors free."""


@dataclass(frozen=True)
class Operation:
    """One operation of a device, or a wait of the host for it.

    Parameters
    ----------
    kind : str
        "gemm", "syrk", "trsm", "potrf"; "move" for all that is limited by memory; "generate";
        "to device", "to host"; "read back", "synchronize"; "record" and "wait" of an event.
    form : str
        Arithmetic.
    m, n, k : float
        gemm: C is (m, n), summed over k. syrk: C is (n, n). trsm: B is (m, n), the triangle (n, n).
        potrf: (n, n).
    bytes : float
        Of C, read and written, for products; of all operands for "move"; of a copy.
    host : str
        How the CPU issues it: a name of the host's constants, or "" if another operation did.
    name : str
        Of the kernel or the routine.
    stream : object
        Operations of a stream are executed in their order. None: streams are not distinguished.
    event : object
        What "record" records and "wait" waits for.
    """

    kind: str
    form: str = ""
    m: float = 0
    n: float = 0
    k: float = 0
    bytes: float = 0
    host: str = "library call"
    name: str = ""
    stream: object = None
    event: object = None

    def scaled(self, factor):
        """Return the operation with all dimensions but 1 multiplied."""
        m, n, k = (x if x <= 1 else x * factor for x in (self.m, self.n, self.k))
        small = self.kind in ("read back", "synchronize")
        return replace(self, m=m, n=n, k=k, bytes=self.bytes if small else self.bytes * factor**2)

    @property
    def flops(self):
        """Operations of the textbook, a multiplication and an addition counting two."""
        if self.kind == "gemm":
            return 2.0 * self.m * self.n * self.k
        if self.kind in ("syrk", "trsm"):
            return float(self.m) * self.n * (self.n if self.kind == "trsm" else self.k)
        return self.n**3 / 3 if self.kind == "potrf" else 0.0

    def seconds(self, machine):
        """Return the device's seconds by resource."""
        found = dict(_seconds(self, machine.name, machine.streams))
        for waiting in _ALONE:
            if waiting in found and self.stream is None:
                # few processors are busy: other streams go on
                found[waiting] /= machine.streams
        return found


@lru_cache(maxsize=100_000)
def _seconds(operation, name, streams):
    machine, o = Machine(name, {}, streams), operation
    memory, tensor = machine["memory"], f"flops {o.form}"
    if o.kind in ("gemm", "syrk"):
        m = o.n if o.kind == "syrk" else o.m
        return (
            ("latency", machine["product"]),
            (tensor, machine.busy(o.form, m, o.n, o.k)),
            ("memory", o.bytes / memory),
        )
    if o.kind == "trsm":
        # B_j <- (B_j - B_1..j-1 T_j,1..j-1') T_jj⁻', block columns one after the other
        found, block = Counter(), machine["trsm block"]
        for j in range(ceil(o.n / block)):
            width = min(block, o.n - j * block)
            found["latency"] += 2 * machine["product"]
            found[tensor] += machine.busy(o.form, o.m, width, j * block)
            found[tensor] += machine.busy(o.form, o.m, width, width)
            found["memory"] += 2 * 2 * o.m * width * BYTES[o.form] / memory
        return tuple(found.items())
    if o.kind == "potrf":
        return (
            ("potrf columns", o.n * machine["potrf column"]),
            (tensor, o.flops / machine.rate(o.form)),
        )
    if o.kind == "generate":
        return (
            ("latency", machine["kernel"]),
            ("generation", o.m * o.n * machine["entry"]),
            ("memory", o.bytes / memory),
        )
    if o.kind == "move":
        return ("latency", machine["kernel"]), ("memory", o.bytes / memory)
    if o.kind in ("to device", "to host"):
        return (("host link", o.bytes / machine[o.kind]),)
    return ()


@dataclass(frozen=True)
class Prediction:
    """Predicted seconds of a list of operations.

    Parameters
    ----------
    seconds : float
    shares : dict of str to float
        Seconds of the critical path, by resource; they add up to `seconds`.
    launches, synchronizations : int
    flops : float
        Of the textbook.
    """

    seconds: float
    shares: dict
    launches: int
    synchronizations: int
    flops: float

    @property
    def limit(self):
        """The resource with the largest share."""
        return max(self.shares, key=self.shares.get)


def predict(operations, machine=None):
    """Play operations on a machine.

    The CPU issues one operation after the other. An operation starts when it has been issued, those
    before it in its stream and the events that the stream waits for are done, and what it needs is
    free: one operation at a time has the processors and the memory, one the link in each direction.
    Latencies and the columns of potrf keep few processors busy: other streams go on meanwhile.

    Parameters
    ----------
    operations : iterable of Operation
    machine : Machine, optional
        An H200 if not given.

    Returns
    -------
    Prediction
    """
    machine = machine or Machine()
    launches, waits, flops, host, device = 0, 0, 0.0, _Moment(0.0), _Device(machine)
    for o in operations:
        waiting = o.kind in ("read back", "synchronize")
        if o.host in machine.issue:
            host = host.after({"synchronization" if waiting else "launches": machine.issue[o.host]})
        launches += o.host not in ("", "synchronization", "read back", "event")
        flops += o.flops
        if waiting:
            waits += 1
            host = _last(host, device.finish())
        else:
            device.queues[o.stream].append((host, o))
    end = _last(host, device.finish())
    return Prediction(end.time, end.shares(), launches, waits, flops)


class _Device:
    """What has been issued to a machine, by stream, and when each stream and resource is free."""

    def __init__(self, machine):
        self.machine, self.queues, self.events = machine, defaultdict(deque), {}
        self.ends, self.free = (defaultdict(lambda: _Moment(0.0)) for _ in range(2))

    def finish(self):
        """Execute the issued operations in order of their earliest start; return the last end."""
        while any(self.queues.values()):
            heads = {stream: self._ready(stream) for stream, queue in self.queues.items() if queue}
            able = {stream: moment for stream, moment in heads.items() if moment is not None}
            # waiting for an event that was never recorded has no effect
            stream = min(able, key=lambda s: able[s].time) if able else next(iter(heads))
            _, o = self.queues[stream].popleft()
            moment = able.get(stream, self.ends[stream])
            if o.kind == "record":
                self.events[o.event] = moment
            elif o.kind != "wait":
                moment = self._done(o, moment)
            self.ends[stream] = moment
        return _last(*self.ends.values(), _Moment(0.0))

    def _ready(self, stream):
        """Return when a stream's next operation can start; None if an event is not known yet."""
        issued, o = self.queues[stream][0]
        if o.kind == "wait":
            event = self.events.get(o.event)
            return event and _last(self.ends[stream], event)
        return self.ends[stream] if o.kind == "record" else _last(issued, self.ends[stream])

    def _done(self, o, ready):
        """Execute an operation; return when it is done."""
        seconds = o.seconds(self.machine)
        alone = {name: seconds.pop(name) for name in _ALONE if name in seconds}
        if seconds:
            needed = o.kind if o.kind in ("to device", "to host") else "processors"
            ready = self.free[needed] = _last(ready, self.free[needed]).after(seconds)
        return ready.after(alone)


@dataclass(frozen=True, eq=False)
class _Moment:
    """A point in time, its predecessor on the critical path, and the seconds in between."""

    time: float
    seconds: dict = field(default_factory=dict)
    before: object = None

    def after(self, seconds):
        """Return the moment that follows after some seconds, given by resource."""
        return _Moment(self.time + sum(seconds.values()), seconds, self) if seconds else self

    def shares(self):
        """Return the seconds by resource on the way from the start."""
        found, moment = Counter(), self
        while moment is not None:
            found.update(moment.seconds)
            moment = moment.before
        return {name: seconds for name, seconds in found.items() if seconds}


def _last(*moments):
    return max(moments, key=lambda moment: moment.time)


# --- the algorithms of paper 000 ----------------------------------------------------------------


def _product(form, m, n, k):
    """Yield C <- C - AB', with operands rescaled before and C after (section III-D)."""
    size = BYTES[form]
    if form == "fp16":
        # both operands are read for their largest entry, read again and written
        yield Operation("move", bytes=3 * (m + n) * k * size)
    yield Operation("gemm", form, m, n, k, 2 * m * n * size)
    if form == "fp16":
        yield Operation("move", bytes=2 * m * n * size)


DEEP = 20
"""More halvings than any recursion has."""


def _leaf(layers):
    return layers[-1] if layers[-1] in ("fp64", "fp32") else "fp32"


def nested_potrf(n, layers, leaf):
    """Yield the operations of paper 000's Algorithm 1.

    Parameters
    ----------
    n : int
    layers : tuple of str
        Formats of the off-diagonal blocks from the largest inwards; the last one repeats. Leaves
        are in the last one, or in FP32 if that is FP16.
    leaf : int
    """
    if n <= leaf:
        yield Operation("potrf", _leaf(layers), n=n)
        return
    half, inner = n // 2, layers[1:] or layers
    yield from nested_potrf(half, inner, leaf)
    yield from nested_trsm(half, half, inner, leaf, layers[0])
    # both operands are A21
    yield from nested_syrk(half, half, (layers[0],) * DEEP + layers[-1:], leaf)
    yield from nested_potrf(n - half, inner, leaf)


def nested_trsm(m, n, layers, leaf, target="fp16"):
    """Yield the operations of paper 000's Algorithm 2, for B of m rows and a triangle of order n.

    Products are computed in the finer one of their operands' formats.

    Parameters
    ----------
    m, n : int
    layers : tuple of str
        Formats of the triangle's off-diagonal blocks, from the largest inwards.
    leaf : int
    target : str
        Format of B.
    """
    if n <= leaf:
        yield Operation("trsm", _leaf(layers), m, n)
        return
    half, inner = n // 2, layers[1:] or layers
    form = max(layers[0], target, key=BYTES.get)
    yield from nested_trsm(m, half, inner, leaf, target)
    yield from _product(form, m, n - half, half)
    yield from nested_trsm(m, n - half, inner, leaf, target)


def nested_syrk(n, k, layers, leaf):
    """Yield the operations of paper 000's Algorithm 3, for C of order n and A of k columns.

    Parameters
    ----------
    n, k : int
    layers : tuple of str
    leaf : int
    """
    if n <= leaf:
        yield Operation("syrk", _leaf(layers), n, n, k, 2 * n * n * BYTES[_leaf(layers)])
        return
    half, inner = n // 2, layers[1:] or layers
    yield from nested_syrk(half, k, inner, leaf)
    yield from _product(layers[0], n - half, half, k)
    yield from nested_syrk(n - half, k, inner, leaf)


# --- recordings of the code's own operations ----------------------------------------------------

PRODUCTS = ("dgemm", "sgemm", "gemmEx", "cublasLtMatmul", "matmul")
GENERATES = "covariance"
"""In the names of kernels that compute covariances."""

COMBINE = ("down_a", "across_a", "down", "across", "m", "n", "lower", "scaled", "alpha", "beta")
"""Numbers among the arguments of the kernels of cuda/combine.cu."""

SECTOR = 32
"""Fewest bytes that a GPU moves at a time."""

RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
"""Ranges of paper 001's correlations, on the unit square."""

IN_TF32 = 77
"""CUBLAS_COMPUTE_32F_FAST_TF32."""

FORMATS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"} | {
    name: "fp8" for name in ("float8_e4m3fn", "uint8")
}

FIXED_SIZES = (
    ("geomxp.linalg.gpu", "LARGEST_WHOLE_PRODUCT_ORDER"),
    ("geomxp.linalg.recursive", "CUT_MULTIPLE"),
    ("geomxp.linalg.recursive", "GPU_LEAVES"),
    ("geomxp.linalg.mixed", "LARGEST_FP64_SQUARE"),
    ("geomxp.tiles.layout", "GPU_CELL"),
)
"""Block sizes of the code, numbers or dicts of them, that do not grow with the matrix. A recording
that stands for a larger problem divides them by the scale, so that the number of blocks is that of
the larger problem."""


def emulator():
    """Return the module `machine` of the CUDA emulator; from then on it is what CuPy is."""
    tests = HERE.parents[1] / "tests"
    for path in (tests / "cuda_emulator" / "packages", tests):
        if str(path) not in sys.path:
            sys.path.insert(0, str(path))
    return import_module("cuda_emulator.machine")


@contextmanager
def _fixed_sizes_divided(factor):
    """Divide `FIXED_SIZES` by a factor."""

    def divided(size):
        if isinstance(size, dict):
            return {key: divided(value) for key, value in size.items()}
        return max(1, int(size // factor))

    before = []
    for module, name in FIXED_SIZES:
        module = import_module(module)
        before.append((module, name, getattr(module, name)))
        setattr(module, name, divided(getattr(module, name)))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def recorded(work, scale=1.0, prepare=None):
    """Return the operations of a second call of work() on the emulator.

    In the first call kernels are compiled and lasting copies are made.

    Parameters
    ----------
    work : callable
    scale : float
        By how much larger the problem is for which the recording stands; see `FIXED_SIZES`.
    prepare : callable, optional
        Called before each call of work(), and not recorded.

    Returns
    -------
    list of Operation
        With the sizes of the large problem.
    """
    machine = emulator()
    with _fixed_sizes_divided(scale):
        for _ in range(2):
            if prepare:
                prepare()
            machine.synchronize_device()
            with machine.recording() as notes:
                work()
    return [operation.scaled(scale) for operation in _operations(notes)]


def _operations(notes):
    """Yield the operations of the notes of an emulator."""
    last = None
    for kind, name, operands, about, stream in notes:
        yield replace(_operation(kind, name, operands, about, last), stream=stream)
        last = kind


def _operation(kind, name, operands, about, last):
    if kind == "synchronize":
        # the copy before it is what the host waits for
        if last == "to host":
            return Operation("read back", host="read back")
        return Operation("synchronize", host="synchronization")
    if kind in ("record", "wait"):
        return Operation(kind, host="event", event=about)
    if kind in ("to device", "to host"):
        return Operation(kind, bytes=about, host="copy" if kind == "to device" else "")
    if kind == "library" or name in PRODUCTS:
        return _library(name, operands, about)
    if kind == "kernel" and GENERATES in name:
        side = max((_entries(shape) for shape, *_ in operands), default=0) ** 0.5
        about = {"m": side, "n": side, "bytes": _size(operands)}
        return Operation("generate", **about, host="kernel", name=name)
    issue = {"kernel": "kernel", "memset": "memset"}.get(kind, "universal function")
    if kind == "function":
        moved = sum(map(_traffic, operands))
    else:
        moved = _kernel_traffic(name, operands, about or ())
    return Operation("move", bytes=moved, host=issue, name=name)


def _entries(shape):
    return int(np.prod(shape))


def _size(operands):
    return sum(_entries(shape) * dtype.itemsize for shape, dtype, _ in operands)


def _traffic(operand):
    """Return the bytes that CuPy's kernels move for an operand.

    Threads follow the last axis. If entries along it are not neighbours, each moves a sector.
    """
    shape, dtype, strides = operand
    apart = len(shape) > 1 and shape[-1] > 1 and strides[-1] not in (0, dtype.itemsize)
    return _entries(shape) * (max(SECTOR, dtype.itemsize) if apart else dtype.itemsize)


def _kernel_traffic(name, operands, scalars):
    """Return the bytes that a kernel of geomxp moves; those of all its operands if not known."""
    if name.startswith("combine") and len(scalars) == len(COMBINE):
        # out <- αA + β out, of a whole matrix or its lower triangle
        given = dict(zip(COMBINE, scalars, strict=True))
        (shape, source, _), (_, target, _) = operands[:2]
        entries = _entries(shape) / (2 if given["lower"] else 1)
        reads = source.itemsize * (given["alpha"] != 0) + target.itemsize * (given["beta"] != 0)
        return entries * (reads + target.itemsize)
    return _size(operands) / (2 if "of_lower" in name else 1)


def _library(name, operands, about):
    """Return the operation of a library's routine, from the shapes of its operands."""
    if name == "matmul":
        operands = operands[1:] + operands[:1]
    shapes = [shape for shape, *_ in operands]
    dtype, last = operands[0][1], operands[-1][1]
    form = "tf32" if about == IN_TF32 else FORMATS.get(dtype.name, "fp64")
    first = _entries(shapes[0])
    if name in PRODUCTS:
        m, n = (*shapes[2], 1)[:2] if shapes[2] else (1, 1)
        target = operands[2][1].itemsize
        return Operation("gemm", form, m, n, first / max(m, 1), 2 * m * n * target, name=name)
    if name.endswith("trsm"):
        order = shapes[0][0]
        rows = _entries(shapes[1]) // max(order, 1)
        return Operation("trsm", form, rows, order, name=name)
    if name.endswith("syrk"):
        n = shapes[1][0]
        size = 2 * n * n * last.itemsize
        return Operation("syrk", form, n, n, first / max(n, 1), size, name=name)
    if name.endswith("potrf"):
        return Operation("potrf", form, n=shapes[0][0], name=name)
    return Operation("move", form, bytes=_size(operands), name=name)


# --- the algorithm of paper 001 -----------------------------------------------------------------


def tile_cholesky(tiles, tile, formats=None, rows=None):
    """Yield the operations of paper 001's left-looking tile Cholesky factorization.

    A product is computed in the format of the tile that it updates, in FP32 accumulators for FP16
    and FP8; operands in another format are cast for each product (section IV-C).

    Parameters
    ----------
    tiles : int
        Tiles per dimension.
    tile : int
    formats : callable, optional
        formats(i, k) is the name of tile (i, k)'s format; FP64 if not given.
    rows : iterable of int, optional
        Block rows of one device; all of them if not given.
    """
    formats = formats or (lambda i, k: "fp64")
    for k in range(tiles):
        for i in range(k, tiles) if rows is None else (i for i in rows if i >= k):
            form = formats(i, k)
            accumulator = 8 if form == "fp64" else 4
            for j in range(k):
                for operand in {formats(i, j), formats(k, j)} - {form}:
                    moved = tile * tile * (BYTES[operand] + BYTES[form])
                    yield Operation("move", bytes=moved, host="", name="cast")
                yield Operation(
                    "gemm", form, tile, tile, tile, 2 * accumulator * tile * tile, host=""
                )
            yield (
                Operation("potrf", "fp64", n=tile, host="")
                if i == k
                else Operation("trsm", "fp64" if form == "fp64" else "fp32", tile, tile, host="")
            )


def with_copies(operations, to_device, to_host):
    """Yield operations beside copies, which are spread evenly: none waits for another."""
    operations = list(operations)
    for o in operations:
        part = 1 / len(operations)
        yield Operation("to device", bytes=part * to_device, host="", stream="to device")
        yield o
        yield Operation("to host", bytes=part * to_host, host="", stream="to host")


# --- the papers' numbers ------------------------------------------------------------------------

N = 65_536
LEAF = 1024
"""Leaf of paper 000's recursions, which it does not state. Its deepest recursion has six layers;
six halvings of 65,536 end at 1,024."""

CUSOLVER = 43.5e12
"""cuSOLVER's FP64 rate at 65,536 on an H200: 65 % of 67 TFLOP/s (paper 000, section IV-B c)."""

LAYERS = {
    "fp64": ("fp64",),
    "fp32": ("fp32",),
    "fp16 fp32": ("fp16", "fp32"),
    "3 fp16 fp32": ("fp16",) * 3 + ("fp32",),
    "5 fp16 fp32": ("fp16",) * 5 + ("fp32",),
    "7 fp16 fp32": ("fp16",) * 7 + ("fp32",),
    "fp16": ("fp16",),
}

RECURSIONS = (
    ("fp64", CUSOLVER, "Figure 6: 65 % of the peak, as cuSOLVER"),
    ("fp32", CUSOLVER, "Figure 6: matches or slightly exceeds cuSOLVER"),
    ("3 fp16 fp32", 4 * CUSOLVER, "Figure 7: over 4 times cuSOLVER"),
    ("5 fp16 fp32", 5.32 * CUSOLVER, "Figures 7 and 10: 5.32 times cuSOLVER"),
    ("7 fp16 fp32", 0.22 * 989.4e12, "Figure 6: 22 % of the peak of FP16"),
    ("fp16", 5.32 / 0.88 * CUSOLVER, "abstract: 5.32 times cuSOLVER is 88 % of pure FP16"),
)
"""POTRF at 65,536 on an H200: layers, operations per second, source."""

OUT_OF_CORE = (
    ("a100", 16.1e12, 935.7e9, 59.3e12),
    ("h100", 54.7e12, 437.4e9, 176.3e12),
    ("gh200", 58.9e12, 480.0e9, 185.5e12),
)
"""Paper 001, Figures 6, 8 and 9: FP64 at n = 160,000, volume on one GPU, rate on four."""

PAPER_TILES = 40
"""Tiles per dimension for n = 160,000: tiles of 4,000, which paper 001 tunes and does not state."""

STREAMS = 4
"""Streams of paper 001, which uses several and does not state how many."""

MIXED = 136.1e12
"""Paper 001, Figure 11: weak correlation, ε = 1e-5, on a GH200."""


def published():
    """Yield a row for each published number that the model is compared with.

    The papers' sizes and formats are inputs, and for one GPU out of core the volumes of Figure 8 of
    paper 001; no rate is. A "rate" is n³/3 over the time. A "ratio" is a quotient of two speed-ups
    over a routine of cuBLAS whose rate the paper does not give.
    """
    quiet = Machine("h200", {})
    for name, rate, source in RECURSIONS:
        done = predict(nested_potrf(N, LAYERS[name], LEAF), Machine("h200"))
        yield _compared("000", f"POTRF {N} {name}", rate, N**3 / 3 / done.seconds, source, done)
    coarse, layered = (
        predict(nested_trsm(N, N, layers, LEAF), quiet)
        for layers in (("fp16",), ("fp16",) * 4 + ("fp32",))
    )
    yield _compared(
        "000", f"TRSM {N}: fp16 over 4 fp16 fp32", 6 / 5.3, layered.seconds / coarse.seconds,
        "Figure 5: 6 and 5.3 times cuBLAS dtrsm", coarse,
    )  # fmt: skip
    whole = predict(nested_syrk(N, N, LAYERS["fp64"], LEAF), quiet)
    for name, times in (("2 fp16 fp32", 19), ("4 fp16 fp32", 27), ("fp16", 149)):
        many = int(name[0]) if name[0].isdigit() else 1
        layers = ("fp16",) * many + (("fp32",) if "fp32" in name else ())
        part = predict(nested_syrk(N, N, layers, LEAF), quiet)
        yield _compared(
            "000", f"SYRK {N}: {name} over fp64", times / 14, whole.seconds / part.seconds,
            f"Figure 4: {times} and 14 times cuBLAS dsyrk", part,
        )  # fmt: skip
    for name, one, volume, four in OUT_OF_CORE:
        machine, tile, n = Machine(name, {}, STREAMS), 160_000 // PAPER_TILES, 160_000
        out = n * n / 2 * 8
        work = list(tile_cholesky(PAPER_TILES, tile))
        done = predict(with_copies(work, volume - out, out), machine)
        yield _compared(
            "001", f"{name} fp64 V3 out of core {n}", one, n**3 / 3 / done.seconds,
            "Figure 6; volume of Figure 8", done,
        )  # fmt: skip
        each = [
            predict(tile_cholesky(PAPER_TILES, tile, rows=range(g, PAPER_TILES, 4)), machine)
            for g in range(4)
        ]
        slowest = max(each, key=lambda x: x.seconds)
        yield _compared(
            "001", f"4 {name} fp64 V3 {n}", four, n**3 / 3 / slowest.seconds,
            "Figure 9; block rows dealt in turn", slowest,
        )  # fmt: skip
    tiles, tile = 49, 2048
    chosen = formats_by_norm(tiles, 1e-5)
    done = predict(
        tile_cholesky(tiles, tile, lambda i, k: chosen[i, k]), Machine("gh200", {}, STREAMS)
    )
    yield _compared(
        "001", f"gh200 by norms weak 1e-5 {tiles * tile}", MIXED,
        (tiles * tile) ** 3 / 3 / done.seconds, "Figure 11", done,
    )  # fmt: skip


def formats_by_norm(tiles, accuracy, correlation="weak"):
    """Return the formats of the tiles of a Matérn matrix as {(i, k): name}.

    They depend little on the tile size: the norms are computed for tiles of 128 rows.
    """
    import geomxp as gx
    from geomxp import testing
    from geomxp.covariance.ordering import hilbert
    from geomxp.tiles.placement import InMemory

    model = gx.Matern(1.0, RANGES[correlation], 0.5)
    places = testing.places(tiles * 128)
    places = places[hilbert(model.isotropic(places, "euclidean"))]
    placement = InMemory()
    layout = placement.layout(len(places), 128)
    norms = placement.originals(model, places, "euclidean", layout).norms()
    found = gx.by_tile_norm(accuracy)(norms)
    return {(i, k): found[i, k].name for i in range(tiles) for k in range(i + 1)}


def _compared(paper, case, value, predicted, source, done):
    ratio = predicted / value
    return {
        "paper": paper,
        "case": case,
        "kind": "rate" if value > 1e9 else "ratio",
        "published": value,
        "predicted": predicted,
        "predicted_over_published": ratio,
        "within_25_percent": "yes" if 0.75 <= ratio <= 1.25 else "no",
        "limit": done.limit,
        "source": source,
    }


# --- the targets --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Small:
    """A problem that stands for a larger one with as many blocks.

    Parameters
    ----------
    n : int
    large : int
        The order for which it stands.
    """

    n: int
    large: int = N

    @property
    def scale(self):
        """How much larger the other one is."""
        return self.large / self.n


NESTED, TILED = Small(2048), Small(4096)
TILES = 32
"""Tiles of 2,048, as `Exact` takes them for this n."""

GENERATED, MEMORY = Small(2048), 2**23
"""Device memory of the small problem out of core; it stands for 8.6 GB at 65,536."""


def matrices(n):
    """Yield names and positive definite matrices: paper 000's, and weakly correlated Matérn."""
    import geomxp as gx
    from geomxp import testing

    yield "random", np.random.default_rng(0).random((n, n)) + n * np.eye(n)
    places = testing.places(n)
    yield "weak", gx.Matern(1.0, RANGES["weak"], 0.5)(places, places) + 0.01 * np.eye(n)


def recorded_potrf(matrix, layers, size=NESTED, leaf=LEAF, dtype="float32"):
    """Return the operations of `geomxp.linalg.nested.potrf` for a matrix of the small order."""
    emulator()
    import cupy

    from geomxp.linalg import nested

    matrix = np.asfortranarray(matrix, dtype=dtype)
    a = cupy.asarray(matrix)
    small = max(1, round(leaf / size.scale))
    return recorded(lambda: nested.potrf(a, layers, leaf=small), size.scale, lambda: a.set(matrix))


def recorded_tiles(rule, size=TILED, tiles=TILES, memory=None):
    """Return the operations of a tile Cholesky factorization of a weakly correlated matrix."""
    emulator()
    import geomxp as gx
    from geomxp import testing
    from geomxp.likelihood.factors import tile_factor
    from geomxp.tiles.placement import Placement

    seen = testing.observations(size.n)
    model = gx.Matern(1.0, RANGES["weak"], 0.5, nugget=0.01)
    placement = Placement.of("gpu", device_memory=memory)

    def work():
        tile_factor(model, seen, rule, size.n // tiles, placement).store.close()

    return recorded(work, size.scale)


def recorded_likelihood(rule, size=TILED, tiles=TILES):
    """Return the operations of one likelihood with tiles in mixed formats."""
    emulator()
    import geomxp as gx
    from geomxp import testing

    method = gx.Exact(rule, tile=size.n // tiles, on="gpu")
    evaluator = method.prepare(testing.observations(size.n))
    variances = iter(range(1, 100))

    def work():
        # a new model each time: evaluators keep the results of the last one
        evaluator(gx.Matern(next(variances), RANGES["weak"], 0.5, 0.01))

    return recorded(work, size.scale)


def recorded_generation(size=GENERATED):
    """Return the operations that assemble a covariance matrix in FP64."""
    emulator()
    import geomxp as gx
    from geomxp import testing
    from geomxp.tiles.assemble import covariance_matrix

    model, places = gx.Matern(1.0, RANGES["weak"], 0.5), testing.places(size.n)
    return recorded(lambda: covariance_matrix(model, places, "euclidean", index=0), size.scale)


def targets():
    """Yield a row for each target: what is predicted on an H200, and what limits it."""
    import geomxp as gx

    one, several = Machine("h200"), Machine("h200", streams=STREAMS)
    for name, matrix in matrices(NESTED.n):
        for dtype in ("float32", "float64"):
            done = predict(recorded_potrf(matrix, LAYERS["5 fp16 fp32"], dtype=dtype), one)
            case = f"POTRF {name} 5 fp16 fp32, {dtype} array"
            yield _target(case, done, done.seconds, "s", 0.24, less=True)
    done = predict(recorded_tiles(gx.by_tile_norm(1e-5)), several)
    rate = N**3 / 3 / done.seconds / 1e12
    yield _target("by norms weak 1e-5", done, rate, "TFLOP/s", 250)
    small = Small(NESTED.n)
    inside = predict(recorded_tiles(gx.uniform("fp64"), small), several)
    # whose tiles are twice as large
    outside = recorded_tiles(gx.uniform("fp64"), small, TILES // 2, MEMORY)
    outside = predict(outside, several)
    share = inside.seconds / outside.seconds
    yield _target("FP64 out of core, 8.6 GB", outside, share, "of the rate in core", 0.9)
    done = predict(recorded_likelihood(gx.by_tile_norm(1e-5)), several)
    yield _target("likelihood, by norms 1e-5", done, done.seconds, "s", 0.7, less=True)
    done = predict(recorded_generation(), one)
    yield _target("generation FP64", done, N**2 / done.seconds / 1e9, "10⁹ entries/s", 100)


def _target(case, done, value, unit, wanted, less=False):
    row = {
        "case": case,
        "n": N,
        "seconds": done.seconds,
        "predicted": value,
        "target": wanted,
        "unit": unit,
        "met": "yes" if (value <= wanted if less else value >= wanted) else "no",
        "limit": done.limit,
        "launches": done.launches,
        "synchronizations": done.synchronizations,
    }
    largest = sorted(done.shares.items(), key=lambda item: -item[1])
    return row | {
        "shares": ", ".join(f"{name} {seconds / done.seconds:.0%}" for name, seconds in largest)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE / "results" / "model.csv")
    output = parser.parse_args().output
    emulator()
    from harness import Table, provenance, shown

    about = provenance() | {"device": "model of an H200, operations from the CUDA emulator"}
    papers = Table(output.with_name(f"{output.stem}_papers.csv"), about)
    for row in published():
        papers.add(row)
        print(shown(row), flush=True)
    table = Table(output, about)
    for row in targets():
        table.add(row)
        print(shown(row), flush=True)


if __name__ == "__main__":
    main()
