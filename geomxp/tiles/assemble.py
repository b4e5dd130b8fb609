"""Σ(θ) from locations: generated where it will live, never copied.

Only the lower triangle is written. Work goes by column blocks, which threads share; each entry
is computed once, by the same formula whatever the block.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..covariance.distance import between
from ..execution.devices import usable_cores

BLOCK_ENTRIES = 1 << 18
"""Entries that one thread works on at a time: its temporaries stay in cache and are few."""


def blocks(n):
    """Yield the lower triangle as slices of rows and columns, each of about BLOCK_ENTRIES.

    Diagonal blocks are square; the others are rectangles below them.
    """
    width = max(1, min(n, int(BLOCK_ENTRIES**0.5)))
    for left in range(0, n, width):
        columns = slice(left, min(left + width, n))
        for top in range(left, n, width):
            yield slice(top, min(top + width, n)), columns


def covariance_matrix(model, locations, metric):
    """Assemble Σ = C + τ²I on the CPU.

    Parameters
    ----------
    model : Matern
    locations : (n, d) ndarray
    metric : str

    Returns
    -------
    (n, n) ndarray, Fortran order
        The lower triangle of Σ (and the upper triangles of its diagonal blocks); the rest is
        not set.
    """
    points = model.isotropic(locations, metric)
    n = len(points)
    sigma = np.empty((n, n), order="F")

    def fill(block):
        rows, columns = block
        sigma[rows, columns] = model.covariance(between(points[rows], points[columns], metric))

    for_each_block(fill, n)
    sigma[np.diag_indices(n)] += model.nugget
    return sigma


def derivative_blocks(model, locations, metric, names, work):
    """Call `work(rows, columns, derivatives)` for every block of the lower triangle, in threads.

    Parameters
    ----------
    names : sequence of str
        Parameters, the nugget left out.
    work : callable
        Receives two slices and a dict of str to ndarray.
    """

    def one(block):
        rows, columns = block
        return work(
            rows, columns, model.derivatives(locations[rows], locations[columns], metric, names)
        )

    return for_each_block(one, len(locations))


def for_each_block(work, n):
    """Return [work(block) for block in blocks(n)], computed by a thread for each core."""
    threads = min(usable_cores(), 1 + n * n // (2 * BLOCK_ENTRIES))
    if threads == 1:
        return [work(block) for block in blocks(n)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, blocks(n)))
