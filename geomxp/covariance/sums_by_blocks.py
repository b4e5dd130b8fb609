"""The sums and products of `geomxp.covariance.sums` by blocks of derivatives, on the CPU or a GPU.

There each derivative of a block is generated, multiplied, summed and dropped where Σ⁻¹ lives, so
that nothing of the size of Σ stands beside it. The blocks and their order are fixed, and with them
the bits. On a CPU the strips of `sums` are several times faster; there this text is for tests.
"""

from contextlib import nullcontext

import numpy as np

from .generate import Generator

BLOCK = 4096
"""Rows and columns of a block: 134 MB for each of the dozen that are in work."""


def blocks(n, width=None):
    """Yield the lower triangle as slices of rows and columns, `BLOCK` wide if not said otherwise.

    Diagonal blocks are square; the others are rectangles below them.
    """
    width = width or BLOCK
    for left in range(0, n, width):
        columns = slice(left, min(left + width, n))
        for top in range(left, n, width):
            yield slice(top, min(top + width, n)), columns


def derivative_products(model, locations, metric, names, alpha, index=None):
    """Multiply (∂Σ/∂θ)α for every parameter of Σ(θ) = C + τ²I.

    Parameters
    ----------
    model : Matern
    locations : (n, d) ndarray
    metric : str
    names : sequence of str
        Parameters of the model.
    alpha : (n,) ndarray
    index : int, optional
        Number of the GPU that does it; the CPU if not given.

    Returns
    -------
    (n, k) ndarray, Fortran order

    Examples
    --------
    ∂Σ/∂τ² is the identity:

    >>> from geomxp import Matern
    >>> places, alpha = np.random.default_rng(0).random((2, 40, 2))
    >>> of_nugget = derivative_products(
    ...     Matern(1.0, 0.3, 0.8, 0.1), places, "euclidean", ("nugget",), alpha[:, 0]
    ... )
    >>> bool((of_nugget[:, 0] == alpha[:, 0]).all())
    True
    """
    names, n = tuple(names), len(locations)
    pairs, smooth = Generator(model, metric, locations), [k for k in names if k != "nugget"]
    xp, here = _place(index)
    with here:
        vector = xp.asarray(alpha)
        products = xp.zeros((n, len(names)), order="F")
        if "nugget" in names:
            products[:, names.index("nugget")] = vector
        for rows, columns in blocks(n) if smooth else ():
            for name, block in pairs.derivatives(rows, columns, smooth, index).items():
                column = products[:, names.index(name)]
                # q_i += D_ij α_j, and q_j += D_ij'α_i for the block above the diagonal
                column[rows] += block @ vector[columns]
                if rows != columns:
                    column[columns] += block.T @ vector[rows]
        return products if index is None else products.get(order="A")


def weighted_sums(model, locations, metric, names, weights, vectors):
    """Sum Σ_ij W_ij ∂Σ_ij/∂θ for every parameter, W = VV' - S, where S lives.

    Parameters
    ----------
    model : Matern
    locations : (n, d) ndarray
    metric : str
    names : sequence of str
        Parameters of the model.
    weights : (n, n) NumPy or CuPy array
        The lower triangle of a symmetric S.
    vectors : (n, p) ndarray
        V, p > 0.

    Returns
    -------
    (k,) ndarray
    """
    names, n = tuple(names), len(locations)
    pairs, smooth = Generator(model, metric, locations), [k for k in names if k != "nugget"]
    index = None if isinstance(weights, np.ndarray) else weights.device.id
    xp, here = _place(index)
    with here:
        vectors, totals = xp.asarray(vectors), xp.zeros(len(names))
        for rows, columns in blocks(n):
            # what stands above the diagonal may be anything, also a NaN
            some = weights[rows, columns]
            some = xp.tril(some) if rows == columns else some
            # transposed twice: columns are contiguous then, as S's and the derivatives' are
            w = (vectors[columns] @ vectors[rows].T).T - some
            if rows == columns:
                w = xp.tril(w) + xp.tril(w, -1).T
                if "nugget" in names:
                    totals[names.index("nugget")] += w.diagonal().sum()
            for name, block in pairs.derivatives(rows, columns, smooth, index).items():
                block *= w
                totals[names.index(name)] += (1.0 if rows == columns else 2.0) * block.sum()
        return totals if index is None else totals.get()


def _place(index):
    """Return NumPy, or CuPy and the context of a GPU."""
    if index is None:
        return np, nullcontext()
    import cupy

    return cupy, cupy.cuda.Device(index)
