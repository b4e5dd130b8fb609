"""Weighted sums of the derivatives of Σ(θ), and their products with a vector.

Scores and information need Σ_ij W_ij ∂Σ_ij/∂θ and (∂Σ/∂θ)α for every parameter. One sweep over
the pairs of places computes them and stores no derivative.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from ..errors import MissingPackage
from ..linalg.backend import backend_of
from ..runtime.devices import in_threads
from .table import LOWEST, table_of

WIDTH = 256
"""Columns that one thread takes at a time."""


@dataclass(frozen=True)
class Sums:
    """Sums over all pairs of places: both orders of a pair, and the diagonal.

    Parameters
    ----------
    names : tuple of str
    quadratic : (k,) ndarray
        α'(∂Σ/∂θ)α.
    weighted : (k,) ndarray
        Σ_ij W_ij ∂Σ_ij/∂θ, W = αα' - S + BB'.
    products : (n, k) ndarray, Fortran order
        (∂Σ/∂θ)α; no rows unless requested.
    """

    names: tuple
    quadratic: np.ndarray
    weighted: np.ndarray
    products: np.ndarray


def derivative_sums(model, inputs, names, weights, alpha, beside, *, products=True):
    """Sum the derivatives of Σ(θ) = C + τ²I with weights, and multiply them with α.

    Parameters
    ----------
    model : Covariance
    inputs : Inputs
    names : sequence of str
        Parameters of the model.
    weights : (n, n) ndarray, Fortran order
        The lower triangle of a symmetric S.
    alpha : (n,) ndarray
    beside : (n, p) ndarray
        B; p may be 0.
    products : bool
        Whether the products are wanted.

    Returns
    -------
    Sums

    Examples
    --------
    With S = 0 and no B the weighted sum is α'(∂Σ/∂θ)α:

    >>> from geomxp import Inputs, Matern
    >>> places, alpha = np.random.default_rng(0).random((2, 40, 2))
    >>> found = derivative_sums(
    ...     Matern(1.0, 0.3, 0.8), Inputs(places), ("range",),
    ...     np.zeros((40, 40), order="F"), alpha[:, 0], np.zeros((40, 0)),
    ... )
    >>> bool(np.allclose(found.weighted, found.quadratic))
    True
    """
    names, n = tuple(names), len(inputs)
    beside = np.ascontiguousarray(beside.T)
    of_field = [name for name in names if name != "nugget"]
    totals, columns = {}, {}
    if of_field:
        pairs = model.pairs(inputs)
        method = _by_table if model.tabulated and _numba() else _by_blocks
        totals, columns = method(pairs, of_field, weights, alpha, beside, products)
    if "nugget" in names:
        diagonal = alpha**2 - weights.diagonal() + (beside**2).sum(axis=0)
        totals["nugget"], columns["nugget"] = diagonal.sum(), alpha
    weighted = np.array([totals[name] for name in names])
    if not products:
        return Sums(names, np.full(len(names), np.nan), weighted, np.empty((0, len(names))))
    stacked = np.empty((n, len(names)), order="F")
    for k, name in enumerate(names):
        stacked[:, k] = columns[name]
    return Sums(names, alpha @ stacked, weighted, stacked)


def _numba():
    try:
        from . import pairs_numba  # noqa: F401
    except MissingPackage:
        return False
    return True


def _columns(n):
    return [slice(j, min(j + WIDTH, n)) for j in range(0, n, WIDTH)]


def _by_table(pairs, names, weights, alpha, beside, products):
    """Return sums and products by parameter, from the polynomials of a table."""
    from .pairs_numba import add_pairs

    n, model = pairs.x.shape[1], pairs.model
    # ∂C/∂θ = factor · field
    shapes = [shape.name for shape in model.shapes if shape.name in names]
    turned = [name for name in ("anisotropy_angle", "anisotropy_ratio") if name in names]
    fields = {"variance": ("correlation", 1.0)} if "variance" in names else {}
    fields |= {name: (name, model.variance) for name in shapes}
    if "range" in names or turned:
        # ∂C/∂a = -(σ²/a) r ρ'(r)
        fields["range"] = "slope", -model.variance / model.range
    slope_at = list(fields).index("range") if "range" in fields else -1
    whats, count = [what for what, _ in fields.values()], len(fields) + len(turned)
    change = np.zeros((0, 2, 2))
    if turned:
        kept = [("anisotropy_angle", "anisotropy_ratio").index(name) for name in turned]
        change = model.anisotropy.generators()[kept]
    low, high = pairs.octaves
    while True:
        table = table_of(model, low, high)
        tables = np.array([table.rows(what) for what in whats])

        def add(columns, tables=tables, base=table.base):
            sums, q = np.zeros(count), np.zeros((count, n if products else 0))
            missed = add_pairs(
                *(pairs.x, columns.start, n, columns.start, columns.stop),
                *(pairs.inverse, pairs.mapping, (tables, base, slope_at), change),
                *(weights, alpha, beside, sums, q),
            )
            return sums, q, missed

        parts = in_threads(add, _columns(n), n * n)
        if not sum(part[2] for part in parts) or table.low <= LOWEST:
            break
        low = table.low - 20
    sums, q = sum(part[0] for part in parts), sum(part[1] for part in parts)
    factors = {name: factor for name, (_, factor) in fields.items()}
    factors |= dict.fromkeys(turned, model.variance)
    totals, columns = {}, {}
    for k, (name, factor) in enumerate(factors.items()):
        totals[name], columns[name] = 2 * factor * sums[k], factor * q[k]
    if "variance" in names:
        # the only derivative that is not 0 where a place meets itself
        totals["variance"] += (alpha**2 - weights.diagonal() + (beside**2).sum(axis=0)).sum()
        if products:
            columns["variance"] = columns["variance"] + alpha
    return totals, columns


def _by_blocks(pairs, names, weights, alpha, beside, products):
    """As `_by_table`, from blocks of derivatives: without a table or without numba."""
    n = len(alpha)

    def add(columns):
        totals = dict.fromkeys(names, 0.0)
        q = {name: np.zeros(n if products else 0) for name in names}
        rows, width = slice(columns.start, n), columns.stop - columns.start
        w = np.outer(alpha[rows], alpha[columns]) - weights[rows, columns]
        w += beside[:, rows].T @ beside[:, columns]
        diagonal = w[:width].diagonal()
        for name, block in pairs.derivatives(rows, columns, names).items():
            own, below = block[:width].diagonal(), np.tril(block, -1)
            totals[name] += 2 * np.vdot(np.tril(w, -1), below) + diagonal @ own
            if products:
                q[name][columns] += alpha[rows] @ below + own * alpha[columns]
                q[name][rows] += below @ alpha[columns]
        return totals, q

    parts = in_threads(add, _columns(n), n * n)
    return tuple({name: sum(part[k][name] for part in parts) for name in names} for k in (0, 1))


# The same by blocks of derivatives, on the CPU or a GPU: each block is generated, multiplied,
# summed and dropped where Σ⁻¹ lives, so that nothing else of the size of Σ is stored. The blocks
# and their order are fixed, and with them the bits. On a CPU `derivative_sums` is several times
# faster.


BLOCK = 4096
"""Rows and columns of a block: 134 MB for each of about a dozen at a time."""


def blocks(n, width=None):
    """Yield the lower triangle as slices of rows and columns, `BLOCK` wide if not said otherwise.

    Diagonal blocks are square; the others are rectangles below them.
    """
    width = width or BLOCK
    for left in range(0, n, width):
        columns = slice(left, min(left + width, n))
        for top in range(left, n, width):
            yield slice(top, min(top + width, n)), columns


def derivative_products(model, inputs, names, alpha, index=None):
    """Multiply (∂Σ/∂θ)α for every parameter of Σ(θ) = C + τ²I.

    Parameters
    ----------
    model : Covariance
    inputs : Inputs
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

    >>> from geomxp import Inputs, Matern
    >>> places, alpha = np.random.default_rng(0).random((2, 40, 2))
    >>> of_nugget = derivative_products(
    ...     Matern(1.0, 0.3, 0.8, 0.1), Inputs(places), ("nugget",), alpha[:, 0]
    ... )
    >>> bool((of_nugget[:, 0] == alpha[:, 0]).all())
    True
    """
    names, n = tuple(names), len(inputs)
    pairs, of_field = model.pairs(inputs), [k for k in names if k != "nugget"]
    xp, device = _arrays_on(index)
    with device:
        vector = xp.asarray(alpha)
        products = xp.zeros((n, len(names)), order="F")
        if "nugget" in names:
            products[:, names.index("nugget")] = vector
        for rows, columns in blocks(n) if of_field else ():
            for name, block in pairs.derivatives(rows, columns, of_field, index).items():
                column = products[:, names.index(name)]
                # q_i += D_ij α_j, and q_j += D_ij'α_i for the block above the diagonal
                column[rows] += block @ vector[columns]
                if rows != columns:
                    column[columns] += block.T @ vector[rows]
        return products if index is None else products.get(order="A")


def weighted_sums(model, inputs, names, weights, vectors):
    """Sum Σ_ij W_ij ∂Σ_ij/∂θ for every parameter, W = VV' - S, where S lives.

    Parameters
    ----------
    model : Covariance
    inputs : Inputs
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
    names, n = tuple(names), len(inputs)
    pairs, of_field = model.pairs(inputs), [k for k in names if k != "nugget"]
    index = backend_of(weights).index(weights)
    xp, device = _arrays_on(index)
    with device:
        vectors, totals = xp.asarray(vectors), xp.zeros(len(names))
        for rows, columns in blocks(n):
            # entries above the diagonal may be anything, NaN included
            some = weights[rows, columns]
            some = xp.tril(some) if rows == columns else some
            # transposed twice: columns are contiguous then, as S's and the derivatives' are
            w = (vectors[columns] @ vectors[rows].T).T - some
            if rows == columns:
                w = xp.tril(w) + xp.tril(w, -1).T
                if "nugget" in names:
                    totals[names.index("nugget")] += w.diagonal().sum()
            for name, block in pairs.derivatives(rows, columns, of_field, index).items():
                block *= w
                totals[names.index(name)] += (1.0 if rows == columns else 2.0) * block.sum()
        return totals if index is None else totals.get()


def _arrays_on(index):
    """Return NumPy, or CuPy and the context of a GPU."""
    if index is None:
        return np, nullcontext()
    import cupy

    return cupy, cupy.cuda.Device(index)
