"""Weighted sums of the derivatives of Σ(θ), and their products with a vector.

Scores and information need Σ_ij W_ij ∂Σ_ij/∂θ and (∂Σ/∂θ)α for every parameter. One sweep over
the pairs of locations computes them and stores no derivative.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from ..linalg.backend import backend_of
from ..runtime.devices import in_threads
from . import generate
from .table import LOWEST_OCTAVE, table_of

THREAD_COLUMNS = 256
"""Columns that one thread takes at a time."""


@dataclass(frozen=True)
class Sums:
    """Sums over all pairs of locations: both orders of a pair, and the diagonal."""

    names: tuple
    quadratic: np.ndarray  # α'(∂Σ/∂θ)α, (k,)
    weighted: np.ndarray  # Σ_ij W_ij ∂Σ_ij/∂θ, (k,), with W = αα' - S + BB'
    products: np.ndarray  # (∂Σ/∂θ)α, (n, k) in Fortran order; no rows unless requested


def derivative_sums(model, inputs, names, weights, alpha, beside, *, products=True):
    """Return the `Sums` of the derivatives of Σ(θ) = C + diag(noise) with weights.

    `weights`, (n, n), holds S in the lower triangle, `alpha` is α, (n,), and `beside` is B, (n, p),
    where p may be 0.

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
    noise = model.noise(inputs)
    of_field = [name for name in names if name not in noise.names]
    totals, columns = {}, {}
    if of_field:
        pairs = model.pairs(inputs)
        method = by_table if model.tabulated and generate.loops().add_pairs else by_blocks
        if isinstance(pairs, generate.VariablePairs):
            method = by_variable if pairs.summable else by_blocks
        totals, columns = method(pairs, of_field, weights, alpha, beside, products)
    diagonal = alpha**2 - weights.diagonal() + (beside**2).sum(axis=0)
    for name in set(names).difference(of_field):
        own = noise.derivative(name)
        totals[name], columns[name] = (own * diagonal).sum(), own * alpha
    weighted = np.array([totals[name] for name in names])
    if not products:
        return Sums(names, np.full(len(names), np.nan), weighted, np.empty((0, len(names))))
    stacked = np.empty((n, len(names)), order="F")
    for k, name in enumerate(names):
        stacked[:, k] = columns[name]
    return Sums(names, alpha @ stacked, weighted, stacked)


def _columns(n):
    return [slice(j, min(j + THREAD_COLUMNS, n)) for j in range(0, n, THREAD_COLUMNS)]


def by_table(pairs, names, weights, alpha, beside, products):
    """Return sums and products by parameter, from the polynomials of tables."""
    in_time = isinstance(pairs, generate.TimePairs)
    factors, work = (_fields_in_time if in_time else _fields)(pairs, names)
    n, count, further = pairs.x.shape[1], len(factors), 0
    while True:
        add, end = work(further)

        def part(columns, add=add):
            sums, q = np.zeros(count), np.zeros((count, n if products else 0))
            where = columns.start, n, columns.start, columns.stop
            return sums, q, add(where, (weights, alpha, beside, sums, q))

        parts = in_threads(part, _columns(n), n * n)
        if end or not sum(part[2] for part in parts):
            break
        further += generate.FURTHER_OCTAVES
    sums, q = sum(part[0] for part in parts), sum(part[1] for part in parts)
    totals, columns = {}, {}
    for k, (name, factor) in enumerate(factors.items()):
        totals[name], columns[name] = 2 * factor * sums[k], factor * q[k]
    if "variance" in names:
        # the only derivative that is not 0 where a place meets itself
        totals["variance"] += (alpha**2 - weights.diagonal() + (beside**2).sum(axis=0)).sum()
        if products:
            columns["variance"] = columns["variance"] + alpha
    return totals, columns


def _fields(pairs, names):
    """Return the factors of the fields, ∂C/∂θ = factor · field, by parameter, and their work.

    work(further) returns the function of a block and of the arrays that adds the block's pairs, and
    whether the table has no lower octave.
    """
    model = pairs.model
    shapes = [shape.name for shape in model.shapes if shape.name in names]
    turned = [name for name in ("anisotropy_angle", "anisotropy_ratio") if name in names]
    fields = {"variance": ("correlation", 1.0)} if "variance" in names else {}
    fields |= {name: (name, model.variance) for name in shapes}
    if "range" in names or turned:
        # ∂C/∂a = -(σ²/a) r ρ'(r)
        fields["range"] = "slope", -model.variance / model.range
    slope_at = list(fields).index("range") if "range" in fields else -1
    change = np.zeros((0, 2, 2))
    if turned:
        kept = [("anisotropy_angle", "anisotropy_ratio").index(name) for name in turned]
        change = model.anisotropy.generators()[kept]
    low, high = pairs.octaves

    def work(further):
        table = table_of(model, low - further, high)
        tables = np.array([table.rows(what) for what, _ in fields.values()])

        def add(where, arrays):
            return generate.loops().add_pairs(
                *(pairs.x, *where, pairs.inverse, pairs.mapping, (tables, table.base, slope_at)),
                *(change, *arrays),
            )

        return add, table.low <= LOWEST_OCTAVE

    factors = {name: factor for name, (_, factor) in fields.items()}
    return factors | dict.fromkeys(turned, model.variance), work


def _fields_in_time(pairs, names):
    """As `_fields`, for a space-time family."""
    of_space, of_time, (_, stretch), fields = pairs.fields(names)

    def work(further):
        tables, end = pairs.rows_of(of_space, of_time, further)

        def add(where, arrays):
            return generate.loops().add_pairs_in_time(
                pairs.x,
                *where,
                pairs.inverse,
                pairs.mapping,
                tables[:2],
                pairs.times[0],
                (pairs.inverse_time, *tables[2:], stretch),
                fields,
                *arrays,
            )

        return add, end

    factors = {
        name: factor * pairs.model.variance for name, (factor, _) in pairs.terms(names).items()
    }
    return {name: factors[name] for name in names}, work


def by_variable(pairs, names, weights, alpha, beside, products):
    """As `by_table`, for several variables: three fields for each two variables and component.

    The derivative by a parameter has a number for each two variables and field: its sums are sums
    of the fields' sums with these numbers. Locations are sorted by variable, so that all pairs of a
    call have one range and one table.
    """
    functions, count = generate.MATERN_FUNCTIONS, len(pairs.components)
    own = [np.flatnonzero(pairs.kinds[0] == i) for i in range(pairs.model.variables)]
    p, n = len(own), len(alpha)
    points = [np.ascontiguousarray(pairs.x[:, rows]) for rows in own]
    alphas, besides = [alpha[rows] for rows in own], [beside[:, rows] for rows in own]
    tasks = [
        (k, i, j, slice(first, min(first + THREAD_COLUMNS, len(own[j]))))
        for k, i, j in np.ndindex(count, p, p)
        if len(own[i])
        for first in range(0, len(own[j]), THREAD_COLUMNS)
    ]
    further = 0
    while True:
        tables = [pairs.stacked(k, functions, further) for k in range(count)]

        def part(task, tables=tables):
            k, i, j, columns = task
            rows, base, _ = tables[k]
            sums = np.zeros(3)
            of_rows = np.zeros((3, len(own[i]) if products else 0))
            of_columns = np.zeros((3, len(own[j]) if products else 0))
            missed = generate.loops().add_pairs_of_two(
                *(points[i], own[i], points[j], own[j], columns.start, columns.stop),
                inverse=pairs.inverses[k][i, j],
                tables=rows[i, j],
                base=base,
                weights=weights,
                alpha_x=alphas[i],
                alpha_y=alphas[j],
                beside_x=besides[i],
                beside_y=besides[j],
                sums=sums,
                q_x=of_rows,
                q_y=of_columns,
            )
            return sums, of_rows, of_columns, missed

        parts = in_threads(part, tasks, n * n)
        if all(lowest for *_, lowest in tables) or not sum(one[3] for one in parts):
            break
        further += generate.FURTHER_OCTAVES
    sums = np.zeros((count, 3, p, p))
    # the sum over columns of one variable, for each row
    q = np.zeros((count, 3, p, n if products else 0))
    for (k, i, j, _), (some, of_rows, of_columns, _) in zip(tasks, parts, strict=True):
        sums[k, :, i, j] += some
        if products:
            q[k, :, j, own[i]] += of_rows.T
            q[k, :, i, own[j]] += of_columns.T
    diagonal = alpha**2 - weights.diagonal() + (beside**2).sum(axis=0)
    at_zero = np.array([diagonal[rows].sum() for rows in own])
    totals, columns, kinds = {}, {}, pairs.kinds[0]
    for name in names:
        total, column = 0.0, np.zeros(n if products else 0)
        for k, one in enumerate(pairs.components):
            for f, factors in enumerate(one.factors(name)):
                if factors is None:
                    continue
                factors = factors[:p, :p]
                total += 2 * (factors * sums[k, f]).sum()
                if f == 0:
                    total += np.diag(factors) @ at_zero
                if products:
                    column += np.einsum("ij,ji->i", factors[kinds], q[k, f])
                    column += np.diag(factors)[kinds] * alpha if f == 0 else 0.0
        totals[name], columns[name] = total, column
    return totals, columns


def by_blocks(pairs, names, weights, alpha, beside, products):
    """As `by_table`, from blocks of derivatives: without a table or without numba."""
    vectors, n = np.column_stack((alpha, beside.T)), len(alpha)

    def add(columns):
        ours = (block for block in blocks(n, THREAD_COLUMNS) if block[1] == columns)
        return _sweep(pairs, names, ours, weights, vectors, alpha if products else None)

    parts = in_threads(add, _columns(n), n * n)
    totals, q = sum(part[0] for part in parts), sum(part[1] for part in parts)
    return dict(zip(names, totals, strict=True)), dict(zip(names, q.T, strict=True))


# The same by blocks of derivatives, on the CPU or a GPU: each block is generated, multiplied,
# summed and dropped where Σ⁻¹ lives, so that nothing else of the size of Σ is stored. The blocks
# and their order are fixed, and with them the bits. On a CPU `derivative_sums` is several times
# faster.


BLOCK_ORDER = 4096
"""Rows and columns of a block: 134 MB for each of about a dozen at a time."""


def blocks(n, width=None):
    """Yield the lower triangle as slices of rows and columns, by default `BLOCK_ORDER` wide.

    Diagonal blocks are square; the others are rectangles below them.
    """
    width = width or BLOCK_ORDER
    for left in range(0, n, width):
        columns = slice(left, min(left + width, n))
        for top in range(left, n, width):
            yield slice(top, min(top + width, n)), columns


def derivative_products(model, inputs, names, alpha, index=None):
    """Return (∂Σ/∂θ)α for every parameter of Σ(θ), (n, k), from the CPU or a GPU.

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
    pairs, some = model.pairs(inputs), blocks(len(inputs))
    if set(names) <= set(model.noise(inputs).names):
        some = ()
    _, products = _sweep(pairs, tuple(names), some, alpha=alpha, index=index)
    return products


def weighted_sums(model, inputs, names, weights, vectors):
    """Return Σ_ij W_ij ∂Σ_ij/∂θ for every parameter, (k,), computed where S lives.

    W = VV' - S, with S in the lower triangle of a NumPy or CuPy array, and V, (n, p), p > 0.
    """
    index = backend_of(weights).index(weights)
    totals, _ = _sweep(
        model.pairs(inputs), tuple(names), blocks(len(inputs)), weights, vectors, index=index
    )
    return totals


def _sweep(pairs, names, some, weights=None, vectors=None, alpha=None, index=None):
    """Return Σ W ∂Σ, (k,), with weights, and (∂Σ)α, (n, k), with α, over some of the blocks."""
    noise = pairs.model.noise(pairs.a)
    of_field = [name for name in names if name not in noise.names]
    of_noise = {name: noise.derivative(name) for name in set(names) - set(of_field)}
    xp, device = _arrays_on(index)
    with device:
        n = 0 if alpha is None else len(alpha)
        totals, products = xp.zeros(len(names)), xp.zeros((n, len(names)), order="F")
        vector = None if alpha is None else xp.asarray(alpha)
        vectors = None if vectors is None else xp.asarray(vectors)
        for name, diagonal in of_noise.items() if alpha is not None else ():
            products[:, names.index(name)] = xp.asarray(diagonal) * vector
        for rows, columns in some:
            own = rows == columns
            if weights is not None:
                # entries above the diagonal may be anything, NaN included
                part = weights[rows, columns]
                part = xp.tril(part) if own else part
                # transposed twice: columns are contiguous then, as S's and the derivatives' are
                w = (vectors[columns] @ vectors[rows].T).T - part
                w = xp.tril(w) + xp.tril(w, -1).T if own else w
                for name, diagonal in of_noise.items() if own else ():
                    totals[names.index(name)] += (xp.asarray(diagonal[rows]) * w.diagonal()).sum()
            for name, block in pairs.derivatives(rows, columns, of_field, index).items():
                if alpha is not None:
                    column = products[:, names.index(name)]
                    # q_i += D_ij α_j, and q_j += D_ij'α_i for the block above the diagonal
                    column[rows] += block @ vector[columns]
                    if not own:
                        column[columns] += block.T @ vector[rows]
                if weights is not None:
                    block *= w
                    totals[names.index(name)] += (1.0 if own else 2.0) * block.sum()
        return (totals, products) if index is None else (totals.get(), products.get(order="A"))


def _arrays_on(index):
    """Return NumPy, or CuPy and the context of a GPU."""
    if index is None:
        return np, nullcontext()
    import cupy

    return cupy, cupy.cuda.Device(index)
