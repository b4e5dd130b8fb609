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
from .term import ONE, SPACE_SHARE, TIME_SHARE

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
        method = by_table if model.tabulated and generate.loops().add_pairs else by_blocks
        totals, columns = method(model.pairs(inputs), of_field, weights, alpha, beside, products)
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
    """Return sums and products by parameter, from the polynomials of tables.

    The derivative of a term by a parameter is a sum of functions of pairs, each times a number, or
    a number for each two variables: its sums are sums of the functions' sums with these numbers.
    """
    diagonal = alpha**2 - weights.diagonal() + (beside**2).sum(axis=0)
    totals, columns = np.zeros(len(names)), np.zeros((len(names), len(alpha) if products else 0))
    for part in pairs.parts:
        found = [part.term.functions(name) for name in names]
        functions = list(dict.fromkeys(one for some in found for _, one in some))
        if not functions:
            continue
        sums, q = pairs.until_reached(_sums_of(part, functions, weights, alpha, beside, products))
        # by parameter, function and pair of variables
        factors = np.zeros((len(names), *sums.shape))
        for row, some in zip(factors, found, strict=True):
            for factor, one in some:
                row[functions.index(one)] += factor
        totals += 2 * (factors.reshape(len(names), -1) @ sums.ravel())
        # the only function that is not 0 where a place meets itself
        ((_, plain),) = part.term.functions("correlation")
        own = np.zeros((len(names), sums.shape[1]))
        if plain in functions:
            own = factors[:, functions.index(plain)].diagonal(axis1=1, axis2=2)
        kinds = np.zeros(len(alpha), dtype=int) if part.kinds is None else part.kinds[0]
        totals += own @ np.bincount(kinds, diagonal, sums.shape[1])
        if products and part.kinds is None:
            columns += factors[:, :, 0, 0] @ q[:, 0] + own * alpha
        elif products:
            for column, factor, each in zip(columns, factors, own, strict=True):
                column += np.einsum("frj,fjr->r", factor[:, kinds], q) + each[kinds] * alpha
    return dict(zip(names, totals, strict=True)), dict(zip(names, columns, strict=True))


@dataclass(frozen=True)
class _Places:
    """The locations of one variable: points, numbers among all locations, times, and vectors."""

    points: np.ndarray
    numbers: np.ndarray | None
    times: np.ndarray | None
    alpha: np.ndarray
    beside: np.ndarray

    @classmethod
    def of(cls, part, variable, alpha, beside):
        """Return the locations of a variable, all of them if the term has only one."""
        times = part.times and part.times[0]
        if part.kinds is None:
            return cls(part.x, None, times, alpha, beside)
        rows = np.flatnonzero(part.kinds[0] == variable)
        times = None if times is None else times[rows]
        points = np.ascontiguousarray(part.x[:, rows])
        return cls(points, rows, times, alpha[rows], beside[:, rows])

    def __len__(self):
        return len(self.alpha)

    @property
    def rows(self):
        """Rows of vectors of all locations."""
        return slice(None) if self.numbers is None else self.numbers


def _sums_of(part, functions, weights, alpha, beside, products):
    """Return work(further) of `TablePairs.until_reached`: sums and products of functions of pairs.

    These are (k, p, p) and (k, p, n): the sum over columns of one variable, for each row. Of
    several variables, locations are sorted by variable, so that all pairs of a call have one range
    and one table.
    """
    space = list(dict.fromkeys(one for each in functions for one, _ in each.products))
    time = list(dict.fromkeys(one for each in functions for _, one in each.products))
    turns = list(dict.fromkeys(each.turn for each in functions if each.turn is not None))
    clock, n = part.term.clock, len(alpha)
    stretch = -1
    if clock is None:
        time = [ONE, TIME_SHARE, SPACE_SHARE]
    elif clock.stretch is not None:
        time = list(dict.fromkeys([*time, clock.stretch]))
        stretch = time.index(clock.stretch)
    fields = np.full((len(functions), 5), -1)
    for row, (pairs, turn) in zip(fields, functions, strict=True):
        for k, (of_space, of_time) in enumerate(pairs):
            row[2 * k] = -1 if of_time is None else time.index(of_time)
            row[2 * k + 1] = space.index(of_space)
        row[4] = -1 if turn is None else turns.index(turn)
    changes = np.array([part.term.changes[turn].map for turn in turns])
    p = len(part.term.correlations)
    groups = [_Places.of(part, variable, alpha, beside) for variable in range(p)]
    tasks = [
        (i, j, slice(first, min(first + THREAD_COLUMNS, len(groups[j]))))
        for i, j in np.ndindex(p, p)
        if len(groups[i])
        for first in range(0, len(groups[j]), THREAD_COLUMNS)
    ]

    def work(further):
        rows, starts, length, base, end = part.tables(space, False, further)
        in_time = None
        if part.times is not None:
            tables, late, other_end = part.tables_in_time(time, False, further)
            tables = None if tables is None else np.array(tables)
            in_time, end = (part.inverse_time, tables, late, stretch), end and other_end

        own = {
            first: np.array([one[first : first + length] for one in rows])
            for first in set(starts.ravel().tolist())
        }

        def sums_of(task):
            i, j, columns = task
            ours, theirs = groups[i], groups[j]
            sums = np.zeros(len(functions))
            q_x = np.zeros((len(functions), len(ours) if products else 0))
            q_y = q_x
            if part.kinds is not None:
                q_y = np.zeros((len(functions), len(theirs) if products else 0))
            missed = generate.loops().add_pairs(
                ours,
                theirs,
                *(columns.start, columns.stop, np.atleast_2d(part.inverse)[i, j], part.mapping),
                *(
                    (own[int(starts[i, j])], base),
                    in_time,
                    fields,
                    changes,
                    weights,
                    sums,
                    q_x,
                    q_y,
                ),
            )
            return sums, q_x, q_y, missed

        found = in_threads(sums_of, tasks, n * n)
        total, q = np.zeros((len(functions), p, p)), np.zeros((len(functions), p, n))
        q = q if products else q[:, :, :0]
        for (i, j, _), (sums, q_x, q_y, _) in zip(tasks, found, strict=True):
            total[:, i, j] += sums
            if products:
                q[:, j, groups[i].rows] += q_x
                if q_y is not q_x:
                    q[:, i, groups[j].rows] += q_y
        return (total, q), not end and any(missed for *_, missed in found)

    return work


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
