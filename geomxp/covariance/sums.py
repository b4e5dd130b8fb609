"""What scores and information ask of the derivatives of Σ(θ): weighted sums, and products.

Σ_ij W_ij ∂Σ_ij/∂θ and (∂Σ/∂θ)α for every parameter, in one sweep over the pairs of places that
stores no derivative.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from ..errors import MissingPackage
from ..linalg.backend import backend_of
from ..runtime.devices import in_threads
from .generate import Generator
from .table import LARGEST_SMOOTHNESS, LOWEST, correlation_table

WIDTH = 256
"""Columns that one thread takes at a time."""

FIELD = {"variance": 0, "smoothness": 1, "range": 2, "anisotropy_angle": 3, "anisotropy_ratio": 4}
"""Where a parameter's derivative stands among `sums_kernel.FIELDS`."""


@dataclass(frozen=True)
class Sums:
    """Of all pairs of places, both orders of a pair and the diagonal.

    Parameters
    ----------
    names : tuple of str
    quadratic : (k,) ndarray
        α'(∂Σ/∂θ)α.
    weighted : (k,) ndarray
        Σ_ij W_ij ∂Σ_ij/∂θ, W = αα' - S + BB'.
    products : (n, k) ndarray, Fortran order
        (∂Σ/∂θ)α; no rows where they were not asked for.
    """

    names: tuple
    quadratic: np.ndarray
    weighted: np.ndarray
    products: np.ndarray


def derivative_sums(model, locations, metric, names, weights, alpha, beside, *, products=True):
    """Sum the derivatives of Σ(θ) = C + τ²I with weights, and multiply them with α.

    Parameters
    ----------
    model : Matern
    locations : (n, d) ndarray
    metric : str
    names : sequence of str
        Parameters of the model.
    weights : (n, n) ndarray, Fortran order
        The lower triangle of a symmetric S.
    alpha : (n,) ndarray
    beside : (n, p) ndarray
        B; p may be 0.
    products : bool

    Returns
    -------
    Sums

    Examples
    --------
    With S = 0 and no B the weighted sum is α'(∂Σ/∂θ)α:

    >>> from geomxp import Matern
    >>> places, alpha = np.random.default_rng(0).random((2, 40, 2))
    >>> found = derivative_sums(
    ...     Matern(1.0, 0.3, 0.8), places, "euclidean", ("range",),
    ...     np.zeros((40, 40), order="F"), alpha[:, 0], np.zeros((40, 0)),
    ... )
    >>> bool(np.allclose(found.weighted, found.quadratic))
    True
    """
    names, n = tuple(names), len(locations)
    beside = np.ascontiguousarray(beside.T)
    diagonal = alpha**2 - weights.diagonal() + (beside**2).sum(axis=0)
    smooth = [name for name in names if name != "nugget"]
    sums, q = np.zeros(5), np.zeros((5, n if products else 0))
    if smooth:
        pairs = Generator(model, metric, locations)
        form = _by_blocks if model.smoothness > LARGEST_SMOOTHNESS else _by_table
        sums, q = form(pairs, smooth, weights, alpha, beside, products)
    factor = _factors(model)
    weighted, columns = [], np.empty((n if products else 0, len(names)), order="F")
    for k, name in enumerate(names):
        field = FIELD.get(name)
        total = 0.0 if field is None else 2 * factor[name] * sums[field]
        if name in ("variance", "nugget"):
            # the only derivatives that are not 0 where a place meets itself
            total += diagonal.sum()
        weighted.append(total)
        if products:
            columns[:, k] = alpha if name == "nugget" else factor[name] * q[field]
            if name == "variance":
                columns[:, k] += alpha
    quadratic = alpha @ columns if products else np.full(len(names), np.nan)
    return Sums(names, quadratic, np.array(weighted), columns)


def _factors(model):
    """∂C/∂θ = factor · field, by parameter."""
    variance = model.variance
    return {
        "variance": 1.0,
        "smoothness": variance,
        # ∂C/∂a = -(σ²/a) r ρ'(r)
        "range": -variance / model.range,
        "anisotropy_angle": variance,
        "anisotropy_ratio": variance,
    }


def _columns(n):
    return [slice(j, min(j + WIDTH, n)) for j in range(0, n, WIDTH)]


def _by_table(pairs, names, weights, alpha, beside, products):
    """Return the sums (5,) and products (5, n) over the pairs below the diagonal."""
    try:
        from ..covariance import sums_kernel
    except MissingPackage:
        return _by_blocks(pairs, names, weights, alpha, beside, products)
    n, model = pairs.x.shape[1], pairs.model
    wanted = np.zeros(5, dtype=np.bool_)
    wanted[[FIELD[name] for name in names]] = True
    # the angle's and the ratio's follow from the slope
    wanted[2] |= wanted[3] or wanted[4]
    change = np.zeros((2, 2, 2))
    if model.anisotropy is not None:
        back = np.linalg.inv(model.anisotropy.matrix())
        change = np.array([matrix @ back for matrix in model.anisotropy.matrix_derivatives()])
    low, high = pairs.octaves
    while True:
        table = correlation_table(model.smoothness, low, high)
        tables = (
            table.correlation,
            table.by_smoothness if wanted[1] else table.correlation,
            table.slope if wanted[2] else table.correlation,
        )

        def add(columns, tables=tables, base=table.base):
            sums, q = np.zeros(5), np.zeros((5, n if products else 0))
            missed = sums_kernel.add_pairs(
                *(pairs.x, columns.start, n, columns.start, columns.stop),
                *(pairs.inverse, pairs.metric == "great-circle", tables, wanted, base, change),
                *(weights, alpha, beside, sums, q),
            )
            return sums, q, missed

        parts = in_threads(add, _columns(n), n * n)
        if not sum(part[2] for part in parts) or table.low <= LOWEST:
            return sum(part[0] for part in parts), sum(part[1] for part in parts)
        low = table.low - 20


def _by_blocks(pairs, names, weights, alpha, beside, products):
    """As `_by_table`, from blocks of derivatives: without a table for the smoothness or numba."""
    n, factor = pairs.x.shape[1], _factors(pairs.model)

    def add(columns):
        sums, q = np.zeros(5), np.zeros((5, n if products else 0))
        rows = slice(columns.start, n)
        w = np.outer(alpha[rows], alpha[columns]) - weights[rows, columns]
        w += beside[:, rows].T @ beside[:, columns]
        for name, found in pairs.derivatives(rows, columns, names).items():
            field = np.tril(found, -1) / factor[name]
            sums[FIELD[name]] += np.vdot(np.tril(w, -1), field)
            if products:
                q[FIELD[name], columns] += alpha[rows] @ field
                q[FIELD[name], rows] += field @ alpha[columns]
        return sums, q

    parts = in_threads(add, _columns(n), n * n)
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


# The sums and products of `geomxp.covariance.sums` by blocks of derivatives, on the CPU or a GPU.
#
# There each derivative of a block is generated, multiplied, summed and dropped where Σ⁻¹ lives,
# so that nothing of the size of Σ stands beside it. The blocks and their order are fixed, and
# with them the bits. On a CPU the strips of `sums` are several times faster; there this text is
# for tests.


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
    index = backend_of(weights).index(weights)
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
