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


def derivative_sums(model, inputs, names, weights, alpha, beside, *, products=True, columns=None):
    """Return the `Sums` of the derivatives of Σ(θ) = C + diag(noise) with weights.

    `weights`, (n, n), holds S in the lower triangle, `alpha` is α, (n,), and `beside` is B, (n, p),
    where p may be 0. With `columns`, a slice from f to l, `weights` is S[f:, f:l], and the sums are
    those of these entries and, by symmetry, of the rows f:l above the diagonal.

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
    columns = slice(0, n) if columns is None else columns
    beside = np.ascontiguousarray(beside.T)
    noise = model.noise(inputs)
    of_field = [name for name in names if name not in noise.names]
    totals, q = {}, {}
    if of_field:
        method = by_table if model.tabulated and generate.loops().add_pairs else by_blocks
        vectors = alpha, beside, products, columns
        totals, q = method(model.pairs(inputs), of_field, weights, *vectors)
    diagonal, near = _diagonal(weights, alpha, beside, columns)
    for name in set(names).difference(of_field):
        own = noise.derivative(name)
        totals[name], q[name] = (own * diagonal).sum(), own * near
    weighted = np.array([totals[name] for name in names])
    if not products:
        return Sums(names, np.full(len(names), np.nan), weighted, np.empty((0, len(names))))
    stacked = np.empty((n, len(names)), order="F")
    for k, name in enumerate(names):
        stacked[:, k] = q[name]
    return Sums(names, alpha @ stacked, weighted, stacked)


def _diagonal(weights, alpha, beside, columns):
    """Return the diagonal of W and α, (n,), both 0 outside some columns."""
    diagonal, near = np.zeros((2, len(alpha)))
    near[columns] = alpha[columns]
    diagonal[columns] = alpha[columns] ** 2 - weights.diagonal() + (beside[:, columns] ** 2).sum(0)
    return diagonal, near


def _parts(columns):
    """Return the slices of columns, or of rows, that a thread takes at a time."""
    steps = range(columns.start, columns.stop, THREAD_COLUMNS)
    return [slice(j, min(j + THREAD_COLUMNS, columns.stop)) for j in steps]


def by_table(pairs, names, weights, alpha, beside, products, columns):
    """Return sums and products by parameter, from the polynomials of tables.

    The derivative of a term by a parameter is a sum of functions of pairs, each times a number, or
    a number for each two variables: its sums are sums of the functions' sums with these numbers.
    """
    diagonal, near = _diagonal(weights, alpha, beside, columns)
    totals, rows = np.zeros(len(names)), np.zeros((len(names), len(alpha) if products else 0))
    for part in pairs.parts:
        found = [part.term.functions(name) for name in names]
        functions = list(dict.fromkeys(one for some in found for _, one in some))
        if not functions:
            continue
        vectors = alpha, beside, products, columns
        sums, q = pairs.until_reached(_sums_of(part, functions, weights, *vectors))
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
            rows += factors[:, :, 0, 0] @ q[:, 0] + own * near
        elif products:
            for row, factor, each in zip(rows, factors, own, strict=True):
                row += np.einsum("frj,fjr->r", factor[:, kinds], q) + each[kinds] * near
    return dict(zip(names, totals, strict=True)), dict(zip(names, rows, strict=True))


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

    def among(self, columns):
        """Return the slice of those that are among some columns of all locations."""
        if self.numbers is None:
            return columns
        return slice(*np.searchsorted(self.numbers, (columns.start, columns.stop)).tolist())

    @property
    def rows(self):
        """Rows of vectors of all locations."""
        return slice(None) if self.numbers is None else self.numbers


def _sums_of(part, functions, weights, alpha, beside, products, columns):
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
        (i, j, some)
        for i, j in np.ndindex(p, p)
        if len(groups[i])
        for some in _parts(groups[j].among(columns))
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
            i, j, some = task
            ours, theirs = groups[i], groups[j]
            sums = np.zeros(len(functions))
            q_x = np.zeros((len(functions), len(ours) if products else 0))
            q_y = q_x
            if part.kinds is not None:
                q_y = np.zeros((len(functions), len(theirs) if products else 0))
            missed = generate.loops().add_pairs(
                ours,
                theirs,
                *(some.start, some.stop, np.atleast_2d(part.inverse)[i, j], part.mapping),
                *(
                    (own[int(starts[i, j])], base),
                    in_time,
                    fields,
                    changes,
                    (weights, columns.start),
                    sums,
                    q_x,
                    q_y,
                ),
            )
            return sums, q_x, q_y, missed

        found = in_threads(sums_of, tasks, n * (columns.stop - columns.start))
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


def by_blocks(pairs, names, weights, alpha, beside, products, columns):
    """As `by_table`, from blocks of derivatives: without a table or without numba."""
    vectors, n = np.column_stack((alpha, beside.T)), len(alpha)
    first = columns.start

    def add(some):
        ours = [(rows, some) for rows in (some, *_parts(slice(some.stop, n)))]
        about = weights, vectors, alpha if products else None
        return _sweep(pairs, names, ours, *about, first=first)

    parts = in_threads(add, _parts(columns), n * (columns.stop - first))
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


def derivative_times(model, inputs, names, matrix, last=None, found=None):
    """Return {name: (∂Σ/∂θ)A} for an (n, m) array in RAM, in its type.

    Rows of A from `last` on are 0. Each row of a product is computed by one thread, so that sums do
    not depend on their number. Products are added to the arrays in `found`, if it is given.

    Examples
    --------
    >>> from geomxp import Inputs, Matern
    >>> places, model = np.random.default_rng(0).random((40, 2)), Matern(1.0, 0.3, 0.8)
    >>> found = derivative_times(model, Inputs(places), ("variance",), np.eye(40))
    >>> bool(np.allclose(found["variance"], model(places, places)))
    True
    """
    n, noise, pairs = len(inputs), model.noise(inputs), model.pairs(inputs)
    of_field = [name for name in names if name not in noise.names]
    known = _parts(slice(0, n if last is None else last))
    found = {name: np.zeros_like(matrix) for name in names} if found is None else found

    def add(rows):
        for some in known:
            blocks = pairs.derivatives(rows, some, of_field)
            for name, block in blocks.items():
                found[name][rows] += block.astype(matrix.dtype, copy=False) @ matrix[some]

    in_threads(add, _parts(slice(0, n)) if of_field else (), n * n)
    for name in set(names).difference(of_field):
        found[name] += noise.derivative(name).astype(matrix.dtype)[:, None] * matrix
    return found


def weighted_sums(model, inputs, names, weights, vectors):
    """Return Σ_ij W_ij ∂Σ_ij/∂θ for every parameter, (k,), computed where S lives.

    W = VV' - S, with S in the lower triangle of a NumPy or CuPy array, and V, (n, p), p > 0.
    """
    index = backend_of(weights).index(weights)
    totals, _ = _sweep(
        model.pairs(inputs), tuple(names), blocks(len(inputs)), weights, vectors, index=index
    )
    return totals


def _sweep(pairs, names, some, weights=None, vectors=None, alpha=None, index=None, first=0):
    """Return Σ W ∂Σ, (k,), with weights, and (∂Σ)α, (n, k), with α, over some of the blocks.

    The weights are S[f:, f:], or some columns of it, for the first row f.
    """
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
                part = weights[_less(rows, first), _less(columns, first)]
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


def _less(rows, first):
    return slice(rows.start - first, rows.stop - first)


def _arrays_on(index):
    """Return NumPy, or CuPy and the context of a GPU."""
    if index is None:
        return np, nullcontext()
    import cupy

    return cupy, cupy.cuda.Device(index)
