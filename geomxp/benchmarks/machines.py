"""Machines on which a schedule can be played: memories, links and rates.

Those of GPUs are not measured by us. Memories, links and the peaks below FP64 are from data sheets.
FP64 rates are what the factorization of Ren et al. (2024, section V-A) reached, over its 95 % of
the product's own rate; the H200's is taken for that of the GH200. Solves, factors and generation
are guesses, which count for little in large matrices. This machine's numbers are measured.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from ..covariance.matern import Matern
from ..linalg import blas, mixed
from ..linalg.formats import FORMATS, FP64, quantize
from ..runtime.devices import blas_threads, usable_cores
from ..tiles.assemble import Originals
from ..tiles.layout import Layout
from ..tiles.memories import Disk, aligned, pages

OPERANDS = 12
"""Tiles among which measured products choose."""


@dataclass(frozen=True)
class Machine:
    """A device with its memory, over a larger and slower one.

    Parameters
    ----------
    name : str
    memory : int
        Bytes of the fast memory.
    into, out_of : float
        Bytes a second from the slow memory, and to it.
    latency : float
        Seconds before a copy.
    rates : dict of str to float
        Operations a second of products, by the format of the arithmetic: of one unit.
    solve, factor : float
        Operations a second of FP64 triangular solves and Cholesky factors of a tile.
    generation : float
        Entries of Σ a second, of one unit.
    units : int
        What computes side by side: cores, or 1 for a GPU, whose kernels take all of it.
    streams : int
        Tiles in work at one time.
    overhead : float
        Seconds that a kernel takes beside its operations.
    """

    name: str
    memory: int
    into: float
    out_of: float
    latency: float
    rates: dict = field(hash=False)
    solve: float
    factor: float
    generation: float
    units: int = 1
    streams: int = 4
    overhead: float = 1e-5


def _gpu(name, memory, link, fp64, fp32, tf32, fp16, fp8):
    # of the low formats' peaks large products reach about seven tenths
    low = {"tf32": 0.7 * tf32, "bf16": 0.7 * fp16, "fp16": 0.7 * fp16, "fp8": 0.7 * fp8}
    rates = {"fp64": fp64 * 1e12, "fp32": 0.9 * fp32 * 1e12} | {k: v * 1e12 for k, v in low.items()}
    return Machine(
        *(name, int(memory * 1e9), link * 1e9, link * 1e9, 1e-5, rates),
        *(0.5 * fp64 * 1e12, 0.1 * fp64 * 1e12, 2e10),
    )


MACHINES = {
    machine.name: machine
    for machine in (
        _gpu("A100-PCIe", 80, 25, 16.1 / 0.95, 19.5, 156, 312, 312),
        _gpu("H100-PCIe", 80, 55, 54.7 / 0.95, 51, 378, 756, 1513),
        _gpu("GH200", 96, 400, 58.9 / 0.95, 67, 494, 989, 1979),
        _gpu("H200-PCIe", 141, 55, 58.9 / 0.95, 67, 494, 989, 1979),
    )
}


def measured(tile=512, memory=2_000_000_000, directory=None, forms=("fp64",)):
    """Measure this machine: RAM over a disk, all its cores at once.

    Parameters
    ----------
    tile : int
        Rows of a tile: rates depend on it.
    memory : int
        Bytes that tiles may take.
    directory : path, optional
        Of the scratch file.
    forms : sequence of str
        Formats of the arithmetic.

    Returns
    -------
    Machine
    """
    cores = usable_cores()
    rng = np.random.default_rng(0)
    # more tiles than the caches hold, as in a factorization
    tiles = [np.asfortranarray(rng.standard_normal((tile, tile))) for _ in range(OPERANDS)]
    a = tiles[0]
    spd = np.asfortranarray(a @ a.T + tile * np.eye(tile))
    lower = quantize(np.linalg.cholesky(spd).copy(order="F"), FP64)
    originals = Originals(
        Matern(1.0, 0.1, 0.5), rng.random((2 * tile, 2)), "euclidean", Layout(2 * tile, tile)
    )

    def product(form):
        operands = [quantize(values, form) for values in tiles]
        pairs = cycle(zip(operands, operands[1:] + operands[:1], strict=True))
        return lambda c: mixed.gemm(c, [next(pairs)], form)

    with blas_threads(0):
        rates = {}
        for name in forms:
            work = np.float64 if name == "fp64" else np.float32
            c = np.zeros((tile, tile), work, "F")
            rates[name] = 2 * tile**3 / _seconds(product(FORMATS[name]), c, cores, 60)
        solve = tile**3 / _seconds(lambda c: mixed.trsm(c, lower), a, cores)
        factor = tile**3 / 3 / _seconds(lambda c: mixed.potrf(c), spd, cores)
        entries = tile**2 / _seconds(lambda c: originals.tile(1, 0, out=c), a, cores)
        with _computing(product(FP64), tile, cores):
            into, out_of = _disk_rates(tile, directory)
    return Machine(
        *("this machine", memory, into, out_of, 1e-4, rates, solve, factor, entries),
        *(cores, cores, 1e-4),
    )


def _seconds(work, array, cores, rounds=15):
    """Return the seconds of one call, with all cores at it: the best of three medians.

    Whatever else goes on here makes calls slower, never faster.
    """
    return min(_median_seconds(work, array, cores, rounds) for _ in range(3))


def _median_seconds(work, array, cores, rounds):
    copies = [[array.copy(order="F") for _ in range(rounds)] for _ in range(cores)]

    def one(mine):
        found = []
        with blas.one_core():
            for copy in mine:
                start = time.perf_counter()
                work(copy)
                found.append(time.perf_counter() - start)
        return found

    with ThreadPoolExecutor(cores) as pool:
        return float(np.median([s for mine in pool.map(one, copies) for s in mine[1:]]))


@contextmanager
def _computing(work, tile, cores):
    """Keep all cores at products, as they are while tiles move."""
    go_on = [True]

    def busy():
        c = np.zeros((tile, tile), order="F")
        with blas.one_core():
            while go_on:
                work(c)

    with ThreadPoolExecutor(cores) as pool:
        for _ in range(cores):
            pool.submit(busy)
        try:
            yield
        finally:
            go_on.clear()


def _disk_rates(tile, directory, count=64):
    """Return the bytes a second of reading and of writing tiles."""
    layout, data = Layout(count * tile, tile), aligned(pages(8 * tile**2))
    data[:] = 1
    disk, rates = Disk(layout, 0, directory), []
    try:
        for move in (disk.write, disk.read):
            start = time.perf_counter()
            for k in range(count):
                move((k, 0), data)
            rates.append(count * len(data) / (time.perf_counter() - start))
    finally:
        disk.close()
    return rates[1], rates[0]
