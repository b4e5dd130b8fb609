"""What the score of the exact log-likelihood needs of Σ⁻¹: in RAM, in place, or by columns.

In RAM Σ⁻¹ overwrites L, and one sweep over the pairs of locations computes products and sums. So it
does on a GPU, where the sums are computed by blocks. Where Σ⁻¹ does not fit, its columns are solved
for with the tiles of L, a panel of them at a time: for the columns f to l below the diagonal these
are solves with the rows and columns of L from f on, so that all of them together take no more
operations than Σ⁻¹ from L, 2n³/3, and each panel reads these tiles twice.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy

from ..covariance.sums import (
    derivative_products,
    derivative_sums,
    derivative_times,
    weighted_sums,
)
from ..linalg import recursive
from ..linalg.backend import backend_of
from ..tiles.factor import CholeskyFactor, on_host


@dataclass(frozen=True)
class InverseSums:
    """Sums with X, which is Σ⁻¹ or an approximation of it in FP32, for k parameters."""

    # (∂Σ)α, (n, k)
    products: np.ndarray
    # q'Σ⁻¹q for these q, (k, k)
    squares: np.ndarray
    # Σ W∂Σ, (k,), of each model, with W = αα' - X + BB'
    weighted: list
    # Xq, (n, k), and the diagonal of X, of an X in FP32; else None
    times: np.ndarray | None = None
    diagonal: np.ndarray | None = None


def in_ram(lower, inverted, models, places, names, alpha, beside):
    """Return the `InverseSums` of models, of which the first one is that of L.

    L is overwritten; `inverted` tells that `lower` is L⁻¹.
    """
    inverse = recursive.inverse_from(lower if inverted else recursive.inverted(lower))
    about = names, inverse, alpha, beside
    # one sweep over the pairs of locations computes both the products and the sums
    sums = derivative_sums(models[0], places, *about)
    weighted = [sums.weighted]
    for model in models[1:]:
        weighted.append(derivative_sums(model, places, *about, products=False).weighted)
    q = sums.products
    times = symmetric_product(inverse, q)
    return InverseSums(q, q.T @ times, weighted, *_of_fp32(inverse, times))


def in_place(lower, inverted, models, places, names, alpha, beside):
    """As `in_ram`, without memory of the size of Σ besides L, which Σ⁻¹ overwrites."""
    q = derivative_products(models[0], places, names, alpha, backend_of(lower).index(lower))
    # L⁻¹q, while L or its inverse is there
    if inverted:
        white = on_host(recursive.trmm(lower, backend_of(lower).put(q, lower)))
    else:
        white, lower = CholeskyFactor(lower).half_solve(q), recursive.inverted(lower)
    inverse, vectors = recursive.inverse_from(lower), np.column_stack((alpha, beside))
    weighted = [weighted_sums(model, places, names, inverse, vectors) for model in models]
    single = inverse.dtype == np.float32
    times = symmetric_product(inverse, q) if single else None
    return InverseSums(q, white.T @ white, weighted, *_of_fp32(inverse, times))


def panels_of(n, width):
    """Return slices of n columns, as equal as possible, of at most this width."""
    count = -(-n // max(1, width))
    ends = [n * part // count for part in range(count + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]


def by_columns(factor, width, dtype, models, places, names, alpha, beside):
    """As `in_ram`, with so many columns of Σ⁻¹ in memory at a time; the factor stays as it is."""
    n, single = len(places), dtype == np.float32
    found = derivative_times(models[0], places, names, alpha[:, None])
    q = np.column_stack([found[name] for name in names])
    # in the order of the locations
    solved = factor.solve(q[np.argsort(factor.order)])
    times, diagonal = np.zeros((n, len(names))), np.empty(n)
    weighted = [np.zeros(len(names)) for _ in models]
    for columns in panels_of(n, width):
        first, last = columns.start, columns.stop
        # no two panels at a time
        part = below = None
        part = factor.inverse_columns(columns, dtype)
        for total, model in zip(weighted, models, strict=True):
            total += derivative_sums(
                *(model, places, names, part, alpha, beside), products=False, columns=columns
            ).weighted
        if single:
            diagonal[columns] = part.diagonal()
            below = part[last - first :]
            times[columns] += symmetric_product(part[: last - first], q[columns])
            times[columns] += below.T @ q[last:].astype(dtype)
            times[last:] += below @ q[columns].astype(dtype)
    squares = q.T @ solved[factor.order]
    found = InverseSums(q, (squares + squares.T) / 2, weighted)
    return replace(found, times=times, diagonal=diagonal) if single else found


def _of_fp32(inverse, times):
    """Return Xq and the diagonal of an X in FP32; nothing for FP64."""
    if inverse.dtype != np.float32:
        return ()
    return times, on_host(inverse.diagonal()).astype(np.float64)


def symmetric_product(matrix, vectors):
    """Return AX, (n, m), from the lower triangle of A; on a GPU the upper one is filled in."""
    vectors = np.asfortranarray(vectors, matrix.dtype)
    backend = backend_of(matrix)
    if not backend.on_gpu:
        return blas("symm", matrix)(1.0, matrix, vectors, lower=1)
    recursive.mirror(matrix)
    with backend.on(matrix):
        return backend.get(matrix @ backend.put(vectors, matrix))


def blas(name, a):
    """Return BLAS's routine for an array of FP64 or FP32 in RAM."""
    return getattr(scipy.linalg.blas, ("s" if a.dtype == np.float32 else "d") + name)
