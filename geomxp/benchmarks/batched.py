"""`geomxp bench batched`: batches of small Cholesky factorizations against NumPy, MKL and CuPy."""

import ctypes

import numpy as np

from ..errors import InvalidInput
from ..linalg import batched, blas
from ..linalg.simd import REGISTER_BYTES
from ..runtime.devices import blas_threads
from .bench import BenchmarkDevice, interleaved

TIMED_ORDERS = (5, 8, 16, 32, 64)
MKL_COL_MAJOR, MKL_LOWER = 102, 122
"""Constants of MKL; a symmetric matrix is the same in both memory orders."""


def matrices(n, dtype, batch):
    """Return a batch of well-conditioned matrices."""
    x = np.random.default_rng(n).standard_normal((min(batch, 64), n, n))
    some = x @ x.transpose(0, 2, 1) + n * np.eye(n)
    return np.ascontiguousarray(np.resize(some, (batch, n, n)), dtype)


class Compact:
    """MKL's `mkl_?potrf_compact` on a batch (batch, n, n), with packing and unpacking.

    Forms 181, 182 and 183 are for registers of 16, 32 and 64 bytes.
    """

    def __init__(self, a, form):
        library, letter = blas.mkl(), blas.BLAS_TYPES[a.dtype][0]
        self.a, self.form = a, form
        self.batch, self.n, _ = a.shape
        size = getattr(library, f"mkl_{letter}get_size_compact")
        size.restype = ctypes.c_longlong
        self.room = np.zeros(size(self.n, self.n, form, self.batch) // a.itemsize + 16, a.dtype)
        self.members = a.ctypes.data + np.arange(self.batch, dtype=np.uint64) * a[0].nbytes
        self._potrf = getattr(library, f"mkl_{letter}potrf_compact")
        self._pack = getattr(library, f"mkl_{letter}gepack_compact")
        self._unpack = getattr(library, f"mkl_{letter}geunpack_compact")

    def _arguments(self, array):
        pointers, room = (ctypes.c_void_p(x.ctypes.data) for x in (array, self.room))
        return pointers, room, self.n, self.form, self.batch

    def pack(self):
        """Pack the matrices."""
        pointers, room, n, *rest = self._arguments(self.members)
        self._pack(MKL_COL_MAJOR, n, n, pointers, n, room, n, *rest)

    def factor(self):
        """Factor the packed matrices; return MKL's info."""
        _, room, n, *rest = self._arguments(self.members)
        info = ctypes.c_int()
        self._potrf(MKL_COL_MAJOR, MKL_LOWER, n, room, n, ctypes.byref(info), *rest)
        return info.value

    def unpack(self, out):
        """Write the transposed factors to out, (batch, n, n)."""
        members = out.ctypes.data + np.arange(self.batch, dtype=np.uint64) * out[0].nbytes
        pointers, room, n, *rest = self._arguments(members)
        self._unpack(MKL_COL_MAJOR, n, n, pointers, n, room, n, *rest)


def compact_formats():
    """Return MKL's recommended compact formats for this CPU, and that of AVX-512 registers.

    On a CPU that is not Intel's MKL recommends the smallest registers, which may not be fastest.
    """
    if blas.mkl() is None:
        return ()
    wide = (183,) if REGISTER_BYTES == 64 else ()
    return tuple(dict.fromkeys((blas.mkl().mkl_get_format_compact(), *wide)))


def tuned(n, dtype, what, on="cpu"):
    """Return the fastest known variant for the layout of a candidate of `seconds_of`."""
    layout = "interleaved" if what.startswith("interleaved") else "canonical"
    return batched.variant_for(n, dtype, on, layout=layout)


def seconds_of(n, dtype, batch=16384, rounds=5, line=None):
    """Return median seconds by candidate on one thread: NumPy, MKL, a plain copy, and ours.

    Ours are the tuned variant for the layout, and the untuned one.
    """
    a = matrices(n, dtype, batch)
    work = a.copy()
    candidates = {"numpy": lambda: np.linalg.cholesky(a), "copy": a.copy}
    fresh = {}
    for name in ("tuned", "untuned"):
        variant, inside = batched.UNTUNED, batched.UNTUNED
        if name == "tuned":
            variant, inside = (tuned(n, a.dtype, what) for what in ("potrf", "interleaved"))
        candidates[f"potrf, {name}"] = lambda v=variant: batched.potrf(a, variant=v)
        candidates[f"in place, {name}"] = lambda v=variant: batched.potrf(
            work, overwrite=True, variant=v
        )
        chunks = batched.interleave(a)
        room = chunks.copy()
        candidates[f"interleaved, {name}"] = lambda v=inside, room=room: batched.potrf_interleaved(
            room, variant=v
        )
        fresh[f"in place, {name}"] = lambda: np.copyto(work, a)
        fresh[f"interleaved, {name}"] = lambda room=room, chunks=chunks: np.copyto(room, chunks)
    for form in compact_formats():
        compact = Compact(a, form)
        candidates[f"mkl packs, {form}"] = compact.pack
        candidates[f"mkl compact, {form}"] = compact.factor
    with blas_threads(0), blas.one_core():
        return interleaved(candidates, rounds, line, fresh=fresh)


def seconds_on_gpu(device, n, dtype, batch=16384, rounds=5, line=None):
    """Return median seconds by candidate on a GPU: cuSOLVER's batches, each variant, a copy."""
    import cupy

    kind = np.dtype(dtype)
    variants = {
        "tuned": batched.variant_for(n, kind, "gpu"),
        "untuned": batched.by_blocks(n, kind, "potrf"),
    }
    with device.active():
        a = device.put(matrices(n, dtype, batch))
        candidates = {"cupy": lambda: cupy.linalg.cholesky(a), "copy": a.copy}
        for name, variant in variants.items():
            candidates[f"potrf, {name}"] = lambda v=variant: batched.potrf(a, variant=v)
        return interleaved(candidates, rounds, line, device.wait)


def batched_rates(n=None, tune=False, batch=16384, rounds=5, *, on="cpu", line=None):
    """Time batches of small factorizations against NumPy and MKL's compact routine, or CuPy.

    Without n several orders from 5 to 64 are timed. `tune` searches for the fastest variants first,
    and stores them.
    """
    device = BenchmarkDevice(on)
    kind = device.device.name.partition(":")[0]
    if n is not None and n > batched.LARGEST_ORDER:
        raise InvalidInput(f"--n must be {batched.LARGEST_ORDER} or less for batched. Got {n}.")
    rows = []
    for order in TIMED_ORDERS if n is None else (n,):
        for dtype in (np.float64, np.float32):
            if line is not None:
                line.note = f"order {order}, {np.dtype(dtype).name}"
            for layout in batched.BATCH_LAYOUTS if tune else ():
                batched.search(order, dtype, kind, layout=layout)
            if tune and device.gpu:
                batched.search(order, dtype, kind, what="solve")
            if device.gpu:
                seconds = seconds_on_gpu(device, order, dtype, batch, rounds, line)
            else:
                seconds = seconds_of(order, dtype, batch, rounds, line=line)
            rows += _rows(order, dtype, kind, seconds, batch)
    return rows


def title(n, dtype, what, on="cpu"):
    """Return the variant of a candidate in words, or nothing where it has none of its own."""
    return tuned(n, dtype, what, on).title if what.endswith(", tuned") else ""


def _rows(n, dtype, on, seconds, batch):
    baseline = next(iter(seconds))
    return [
        {
            "what": what,
            "dtype": np.dtype(dtype).name,
            "n": n,
            "variant": title(n, dtype, what, on),
            "seconds": value,
            "gflops": batch * n**3 / 3 / value / 1e9,
            f"times_{baseline}": seconds[baseline] / value,
        }
        for what, value in seconds.items()
    ]
