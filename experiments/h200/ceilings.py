"""Stages a and b: what the machine can do, and what its vendor's libraries make of it."""

from functools import partial
from itertools import product

import numpy as np
import vendor
from harness import Prediction, tried

from geomxp.linalg.backend import backend_of
from geomxp.linalg.formats import BF16, FP8, FP16, FP32, FP64, TF32

LEGACY = 46_340
"""cuSOLVER's potrf with 32-bit sizes takes no larger matrix."""

FLOPS = {"potrf": 1 / 3, "syrk": 1.0, "trsm": 1.0, "trmm": 1.0}
"""Times n³."""

DTYPES = {"fp64": np.float64, "fp32": np.float32}


def ceilings(machine, budget):
    """Stage a: rates of products in each format, of copies, and between host and device."""
    for n in machine.sizes(4096, 8192, 16_384, tiny=(64,)):
        for form in (FP64, FP32, TF32, BF16, FP16, FP8):
            yield _product_row(machine, n, form)
            machine.give_back()
        yield _emulated_row(machine, n)
        machine.give_back()
    for count in machine.sizes(2**28, 2**31, 2**33, tiny=(2**16,)):
        yield from _copy_rows(machine, count, budget)
        machine.give_back()


def _product_row(machine, n, form):
    """C <- C + AB' in place: FP64 and FP32 as they are, all others summed in FP32."""
    row = {"what": "C + AB'", "format": form.name, "n": n, "library": machine.library(form)}

    def measure():
        if form in (FP64, FP32):
            a, b, c = (vendor.empty(machine, (n, n), form.dtype) for _ in range(3))
            for seed, array in enumerate((a, b, c)):
                vendor.fill(machine, array, seed)
            seconds = machine.seconds(lambda: backend_of(c).gemm(c, a, b.T, 1.0, 1.0))
        else:
            a, b = (_rounded(machine, n, form, seed) for seed in (0, 1))
            c = vendor.empty(machine, (n, n), np.float32)
            vendor.fill(machine, c, 2)
            seconds = machine.seconds(lambda: backend_of(c).product(c, a, b, form, 1.0))
        return {"seconds": seconds, "tflops": 2 * n**3 / seconds / 1e12}

    return tried(row, measure)


def _rounded(machine, n, form, seed):
    """Return uniform random numbers in a format; of FP8 by rows, as its units want them."""
    wide = vendor.empty(machine, (n, n), np.float32)
    vendor.fill(machine, wide, seed)
    out = vendor.empty(machine, (n, n), form.dtype)
    backend_of(out).round_into(out, wide, form, 0)
    # of random numbers the transpose is as good
    return out.T if form is FP8 else out


def _emulated_row(machine, n):
    """FP64 by units for integers, and how far it is from FP64's own: 0 says that it was that."""
    row = {"what": "C + AB', emulated", "format": "fp64", "n": n, "library": machine.library()}
    if not machine.gpu:
        return row | {"note": "a CPU emulates no FP64"}

    def measure():
        a, b, c, d = (vendor.empty(machine, (n, n)) for _ in range(4))
        for seed, array in enumerate((a, b)):
            vendor.fill(machine, array, seed)
        c[...] = 0.0
        d[...] = 0.0
        vendor.emulated_gemm(c, a, b)
        backend_of(d).gemm(d, a, b.T, 1.0, 1.0)
        apart = float(abs(c - d).max() / abs(d).max())
        seconds = machine.seconds(lambda: vendor.emulated_gemm(c, a, b))
        note = "" if apart else "the same bits as dgemm: it was not emulated"
        rate = 2 * n**3 / seconds / 1e12
        return {"seconds": seconds, "tflops": rate, "error": apart, "note": note}

    return tried(row, measure)


def _copy_rows(machine, count, budget):
    """Rows of copies of so many bytes; within a memory bytes are read and written."""
    xp = machine.xp
    source, target = (xp.empty(count, np.uint8) for _ in range(2))
    source[...] = 7
    yield _copied(machine, "copy within the device", count, 2, lambda: _put(target, source))
    if not machine.gpu:
        yield {"what": "host to device", "bytes": count, "note": "a CPU has one memory"}
        return
    import cupyx

    plain = np.full(count, 7, np.uint8)
    yield _copied(machine, "host to device, pageable", count, 1, lambda: target.set(plain))
    yield _copied(machine, "device to host, pageable", count, 1, lambda: target.get(out=plain))
    if reason := budget.refuses(count / 1e9):
        yield {"what": "host to device, pinned", "bytes": count, "note": reason}
        return
    pinned = cupyx.empty_pinned(count, np.uint8)
    pinned[...] = 7
    yield _copied(machine, "host to device, pinned", count, 1, lambda: target.set(pinned))
    yield _copied(machine, "device to host, pinned", count, 1, lambda: target.get(out=pinned))


def _put(target, source):
    target[...] = source


def _copied(machine, what, count, times, work):
    def measure():
        seconds = machine.seconds(work, 5)
        return {"seconds": seconds, "gb_per_s": times * count / seconds / 1e9}

    return tried({"what": what, "bytes": count}, measure)


def libraries(machine, budget):
    """Stage b: potrf by 32-bit and 64-bit routines, syrk, trsm and trmm, n by n."""
    cases = [
        ("potrf", "fp64", "64-bit", vendor.potrf),
        ("potrf", "fp64", "legacy", vendor.legacy_potrf),
        ("potrf", "fp32", "64-bit", vendor.potrf),
        ("syrk", "fp64", "", vendor.syrk),
        ("trsm", "fp64", "", vendor.trsm),
        ("trmm", "fp64", "", vendor.trmm),
        ("syrk", "fp32", "", vendor.syrk),
        ("trsm", "fp32", "", vendor.trsm),
    ]
    known = {case[:3]: Prediction() for case in cases}
    sizes = machine.sizes(8192, 16_384, 32_768, 65_536)
    for n, (what, form, routine, work) in product(sizes, cases):
        row = {"routine": what, "format": form, "interface": routine, "n": n}
        row["library"] = _name(machine, what)
        prediction, last = known[what, form, routine], n == sizes[-1] and not machine.tiny
        # the largest once, and not before the libraries are loaded
        runs = 1 if last else 2
        if routine == "legacy" and n > LEGACY:
            yield row | {"note": "sizes of 32 bits"}
            continue
        if reason := budget.refuses(runs * prediction.of(n)):
            yield row | {"note": reason}
            continue
        found = tried(row, partial(measured, machine, what, work, n, DTYPES[form], runs))
        machine.give_back()
        if "seconds" in found:
            prediction.learn(n, found["seconds"])
        yield found


def _name(machine, what):
    if machine.gpu:
        return "cuSOLVER" if what == "potrf" else "cuBLAS"
    return machine.library()


def measured(machine, what, work, n, dtype, runs):
    """Return seconds and rate of one routine on n by n operands."""
    operands = Operands(machine, what, n, dtype)
    if runs == 1:
        seconds = machine.seconds(lambda: work(*operands.both), 1, operands.fresh, warm=False)
    else:
        seconds = machine.seconds(lambda: work(*operands.both), runs, operands.fresh)
    return {"seconds": seconds, "tflops": FLOPS[what] * n**3 / seconds / 1e12}


class Operands:
    """What a routine gets: a matrix that it overwrites, and what it reads; see `fresh`.

    Parameters
    ----------
    machine : Machine
    what : {"potrf", "syrk", "trsm", "trmm"}
    n : int
    dtype : dtype
    """

    def __init__(self, machine, what, n, dtype):
        self.machine, self.what = machine, what
        self.target = vendor.empty(machine, (n, n), dtype)
        self.source = None
        if what != "potrf":
            self.source = vendor.empty(machine, (n, n), dtype)
            # a triangle whose inverse is near the identity over n
            diagonal = n if what in ("trsm", "trmm") else 0.0
            vendor.fill(machine, self.source, 1, diagonal)

    def fresh(self):
        """Make what was overwritten anew: uniform random + n·I for potrf, as paper 000."""
        diagonal = len(self.target) if self.what == "potrf" else 0.0
        vendor.fill(self.machine, self.target, 2, diagonal)

    @property
    def both(self):
        """What the routine is called with."""
        return (self.target,) if self.what == "potrf" else (self.source, self.target)
