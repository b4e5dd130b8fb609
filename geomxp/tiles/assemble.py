"""Σ(θ) from locations: generated where it will live, never copied.

Only the lower triangle is written. Threads share its blocks; each entry is computed once, by the
same polynomial whatever the block.
"""

import numpy as np

from ..covariance.generate import Generator
from ..execution.devices import in_threads

WIDTH = 512
"""Rows and columns of a block: a few milliseconds of one thread's work."""


def blocks(n):
    """Yield the lower triangle as slices of rows and columns.

    Diagonal blocks are square; the others are rectangles below them.
    """
    for left in range(0, n, WIDTH):
        columns = slice(left, min(left + WIDTH, n))
        for top in range(left, n, WIDTH):
            yield slice(top, min(top + WIDTH, n)), columns


def covariance_matrix(model, locations, metric, out=None):
    """Assemble Σ = C + τ²I in memory.

    Parameters
    ----------
    model : Matern
    locations : (n, d) ndarray
    metric : str
    out : (n, n) ndarray, Fortran order, optional
        Written over, and returned.

    Returns
    -------
    (n, n) ndarray, Fortran order
        The lower triangle of Σ; what stands above it is not set.
    """
    n = len(locations)
    sigma = np.empty((n, n), order="F") if out is None else out
    pairs = Generator(model, metric, locations)

    def write(block):
        rows, columns = block
        pairs.write("correlation", rows, columns, sigma, triangle=True)

    in_threads(write, blocks(n), n * n // 2)
    sigma.reshape(-1, order="F")[:: n + 1] += model.nugget
    return sigma


def covariance_matrix_on_gpu(model, locations, metric, index):
    """Assemble Σ = C + τ²I on a GPU, where it will be factored; see `covariance_matrix`.

    Parameters
    ----------
    index : int
        Number of the GPU.

    Returns
    -------
    (n, n) cupy.ndarray, Fortran order
    """
    import cupy

    n = len(locations)
    with cupy.cuda.Device(index):
        sigma = cupy.empty((n, n), order="F")
    whole = slice(0, n)
    Generator(model, metric, locations).write_on_gpu(
        "correlation", whole, whole, sigma, triangle=True, nugget=model.nugget
    )
    return sigma


def derivative_blocks(model, locations, metric, names, work):
    """Return [work(rows, columns, derivatives)] for every block of the lower triangle.

    Parameters
    ----------
    names : sequence of str
        Parameters, the nugget left out.
    work : callable
        Receives two slices and a dict of str to ndarray; threads call it.
    """
    pairs = Generator(model, metric, locations)

    def one(block):
        return work(*block, pairs.derivatives(*block, names))

    n = len(locations)
    return in_threads(one, blocks(n), n * n // 2 * len(names))
