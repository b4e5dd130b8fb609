"""Passes over Vecchia's blocks: sums for the likelihood, weights and Gram matrices for kriging.

A block is a location and its neighbours; S is its covariance matrix. Derivatives of S by the
parameters are combinations of a few bases: S itself, the diagonals of the noise, and the
derivatives by the parameters of the field (`field_names`; of one term but for a factor), in this
order. D is the number of bases.
"""

from collections import OrderedDict
from itertools import product

import numpy as np

from ..covariance.base import ANGLE, RANGE, RATIO
from ..covariance.generate import aligned
from ..covariance.ordering import order_points
from ..covariance.term import ONE, SPACE_SHARE, TIME_SHARE
from ..runtime.devices import in_threads
from .factor import Graph

COMPARED_INPUTS, MOST_HALF_OCTAVES, KEPT_MODELS = 2000, 16, 64
"""Inputs for which neighbours are compared; largest distance of a key from the first guess, in half
powers of two; models whose neighbours are kept."""

SLICE_LOCATIONS = 1024
"""Locations whose blocks one thread reduces at a time: their sums are added in one fixed order."""


def check_tabulated(model):
    """Raise `InvalidInput` if the model has no table of polynomials."""
    model.check_tabulated("Vecchia's approximation needs a table of the correlation: use Exact().")


def basis_of(model, noise):
    """Return the number of the basis of each parameter, besides S.

    Examples
    --------
    >>> from geomxp import Inputs, Matern
    >>> model = Matern(1.0, 0.1, 0.5)
    >>> basis_of(model, model.noise(Inputs(np.zeros((2, 1)))))["range"]
    3
    """
    check_tabulated(model)
    shape = 1 + len(noise)
    found = {model.scaling: 1} if model.scaling else {}
    found |= {name: 1 + k for k, name in enumerate(noise.names)}
    return found | {name: shape + k for k, name in enumerate(model.field_names)}


def count_of(model, noise):
    """Return the number of bases, D."""
    return 1 + len(noise) + len(model.field_names)


def wanted_for(model, names, noise):
    """Return which bases the derivatives by some parameters need, (D,) of bool."""
    basis = basis_of(model, noise)
    wanted = np.zeros(count_of(model, noise), dtype=bool)
    for name in names:
        wanted[[0, basis[name]]] = True
    if model.scaling in names:
        wanted[1 : 1 + len(noise)] = True
    turns = [basis[name] for name in (ANGLE.name, RATIO.name) if name in basis]
    if wanted[turns].any():
        # a GPU computes them together, from the derivative by the range
        wanted[[basis.get(RANGE.name, turns[0]), *turns]] = True
    return wanted


class Sums:
    """Sums over all blocks as `kernel.likelihood_slice` writes them: log|Σ|, W'W, derivatives.

    W are the `count` whitened columns, and `names` the parameters whose derivatives are known.
    """

    def __init__(self, out, count, model, names, noise):
        self.names, self._model, self._coefficients = names, model, noise.coefficients
        self._basis, self._factors = basis_of(model, noise), factors_of(model)
        bases = self._bases = count_of(model, noise)
        self.log_determinant = float(out[0])
        gram, self._traces, information, changes = np.split(
            out[1:], np.cumsum((count**2, bases, bases**2))
        )
        self.gram = _symmetric(gram.reshape(count, count))
        self._information = _symmetric(information.reshape(bases, bases))
        changes = changes.reshape(bases, count, count)
        self._changes = changes + changes.transpose(0, 2, 1)

    def derivative(self, name):
        """Return ∂ log|Σ| and ∂(W'W), (c, c), by a parameter."""
        row = self._combination(name)
        return float(row @ self._traces), np.tensordot(row, self._changes, 1)

    def information(self, names):
        """Return the expected information of some parameters, (k, k)."""
        rows = np.array([self._combination(name) for name in names]).reshape(-1, self._bases)
        return rows @ self._information @ rows.T

    def _combination(self, name):
        """Return the coefficients of the bases in ∂S by a parameter, (D,)."""
        row, model = np.zeros(self._bases), self._model
        row[self._basis[name]] = self._factors.get(name, 1.0)
        if name == model.scaling:
            # S = σ²R + Σ_k c_k diag(d_k)
            row[0] = 1.0 / model.parameters()[name]
            row[1 : 1 + len(self._coefficients)] = -self._coefficients * row[0]
        return row


def _symmetric(lower):
    """Return the symmetric matrix of a lower triangle."""
    lower = np.tril(lower)
    return lower + np.tril(lower, -1).T


def is_mixed(terms):
    """Whether each derivative is a sum over terms, variables or functions of pairs.

    Otherwise there is one term, and each derivative is one function of pairs times a number.
    """
    return len(terms) > 1 or any(
        term.by_variable or any(change.parts > 1 for change in term.changes.values())
        for term in terms
    )


def factors_of(model):
    """Return by what the basis of each parameter of the field is multiplied, without 1."""
    terms = model.terms(2)
    if is_mixed(terms):
        return {}
    (term,) = terms
    named = {name: term.functions(name) for name in model.field_names}
    return {name: one[0][0] / term.amplitude for name, one in named.items() if one}


class TermNumbers:
    """What kernels read of the terms between inputs, for derivatives by some parameters.

    `points` are the coordinates of rows and columns, for each linear map of a term, and the times;
    `fields` and `maps` are as of `kernel._changes`, for the parameters `names` of all `known` ones.
    All terms have the same functions of time.
    """

    def __init__(self, pairs, known=(), names=()):
        self._pairs, self._parts, parts = pairs, pairs.parts, pairs.parts
        first, *_ = parts
        self._clock, self._named = first.term.clock, names
        self.mixed = is_mixed([part.term for part in parts])
        axes = {id(part.x): part for part in parts}
        starts = dict(zip(axes, range(0, len(axes) * len(first.x), len(first.x)), strict=True))
        self._first = np.array([starts[id(part.x)] for part in parts])
        folded = [bool(part.mapping & 2) for part in parts]
        self._folded = np.array(folded) if any(folded) else None
        points = [[part.x for part in axes.values()], [part.y for part in axes.values()]]
        if first.times is not None:
            points = [[*one, times[None]] for one, times in zip(points, first.times, strict=True)]
        self.points = tuple(one[0] if len(one) == 1 else np.vstack(one) for one in points)
        self.variances = 0.0, 0.0
        if self.mixed:
            kinds = first.kinds or tuple(np.zeros(one.shape[1], np.int64) for one in self.points)
            own = sum(np.diag(np.atleast_2d(part.term.amplitude)) for part in parts)
            self._kinds, self.variances = kinds, tuple(own[one] for one in kinds)
        self._find_functions(known)

    def _find_functions(self, known):
        """Find the functions of pairs, of space and of time that the derivatives need."""
        first, terms = self._parts[0], [part.term for part in self._parts]
        found = {name: [term.functions(name) for term in terms] for name in self._named}
        whole = dict.fromkeys(terms[0].functions("correlation")[0][1:])
        functions = list(
            dict.fromkeys(one for parts in found.values() for some in parts for _, one in some)
        )
        if self.mixed and found:
            functions = list(dict.fromkeys([*whole, *functions]))
        elif not self.mixed:
            functions = [some[0][1] for (some,) in found.values()]
        pairs = [pair for one in functions for pair in one.products]
        self._space = list(dict.fromkeys(["correlation", *(one for one, _ in pairs)]))
        self._time, self._stretch = [ONE, TIME_SHARE, SPACE_SHARE], -1
        if self._clock is not None:
            kept = [self._clock.decay] + ([self._clock.stretch] if self._clock.stretch else [])
            self._stretch = len(kept) - 1 or -1
            self._time = list(dict.fromkeys([*kept, *(one for _, one in pairs)]))
        turns = list(dict.fromkeys(one.turn for one in functions if one.turn is not None))
        rows = []
        for one in functions:
            numbers = [-1, -1, -1, -1]
            for k, (space, time) in enumerate(one.products):
                numbers[2 * k] = -1 if time is None else self._time.index(time)
                numbers[2 * k + 1] = self._space.index(space)
            rows.append((*numbers, -1 if one.turn is None else turns.index(one.turn)))
        # of one term, functions are those of `names`
        order = (known.index(name) for name in self._named) if not self.mixed else [-1] * len(rows)
        rows = [(*row, basis) for row, basis in zip(rows, order, strict=True)]
        self.fields = np.array(rows, dtype=np.int64).reshape(-1, 6)
        dimensions = len(first.x)
        self.maps = np.zeros((len(turns), len(terms), dimensions * (dimensions + 1) // 2))
        for k, c in product(range(len(turns)), range(len(terms))):
            if turns[k] in terms[c].changes:
                self.maps[k, c] = turning_form(terms[c].changes[turns[k]].map)
        # functions of space, one for each derivative, and then the last of them, turned
        count = sum(one.turn is None for one in functions)
        alone = all(
            (row[1], row[4] >= 0) == (min(k, count), k > count)
            for k, row in enumerate(rows, start=1)
        )
        self.plain = not self.mixed and first.times is None and alone
        # which parameter and which function of pairs each factor is of
        self._factors, entries = [], []
        if self.mixed:
            for name, parts in found.items():
                for f, one in enumerate(functions):
                    each = [sum(x for x, other in some if other == one) for some in parts]
                    if any(np.any(x) for x in each):
                        entries.append((known.index(name), f))
                        self._factors.append(each)
        self._entries = np.array(entries, dtype=np.int64).reshape(-1, 2)
        # a term whose correlation has no such function does not need it
        self._spaces = [self._space]
        if self.mixed:
            self._spaces = [
                [one if has(term, one) else "correlation" for one in self._space] for term in terms
            ]

    def read(self, further):
        """Return `field`, `mixed` and `clock` of kernels, and whether there is no lower octave.

        Tables reach `further` octaves below those expected.
        """
        tables = [
            part.tables(space, False, further)
            for part, space in zip(self._parts, self._spaces, strict=True)
        ]
        rows, starts, length, base, end = _stacked(tables)
        first, *_ = self._parts
        arc = bool(first.mapping & 1) or None
        scales = (1.0, 0.0) if self.mixed else (first.inverse, first.term.amplitude)
        whole = rows.size // len(rows)
        table = rows.reshape(-1), 8 * length, whole, base
        field = len(first.x), scales[0], arc, self._folded, scales[1], *table
        clock = late = None
        if first.times is not None:
            clock = 1.0 if self.mixed else first.inverse_time, None, 8, 8, 0, 0, -1
            if self._clock is not None:
                found = [part.tables_in_time(self._time, False, further) for part in self._parts]
                lasting = [
                    (one, np.zeros((1, 1), np.uint64), len(one[0]), base_in_time, low)
                    for one, base_in_time, low in found
                ]
                times, late, count, base_in_time, low = _stacked(lasting)
                end &= low
                sizes = 8 * count, times.size // len(times), base_in_time
                clock = clock[0], times.reshape(-1), *sizes, 0, self._stretch
        mixed = self._numbers(starts, late) if self.mixed else None
        return field, mixed, clock, end

    def _numbers(self, starts, late):
        """Return `mixed` of kernels, for where tables of space and of time begin."""
        count, p = len(self._parts), len(np.atleast_2d(self._parts[0].term.amplitude))
        rows = -(-(5 + len(self._entries)) // 8)
        numbers = np.zeros((p, p, count, rows * 8))
        for c, part in enumerate(self._parts):
            numbers[:, :, c, 0], numbers[:, :, c, 1] = part.inverse, part.term.amplitude
            numbers[:, :, c, 2] = starts[c]
            if part.times is not None:
                numbers[:, :, c, 3] = part.inverse_time
                numbers[:, :, c, 4] = 0.0 if late is None else late[c]
            for e, factors in enumerate(self._factors):
                numbers[:, :, c, 5 + e] = factors[c]
        return *self._kinds, p, self._first, numbers.reshape(-1), rows, count, self._entries


def has(term, function):
    """Whether the correlation of a term has a function of space."""
    shapes = {shape.name for shape in term.correlations[0][0].shapes}
    return function in {"correlation", "slope"} | shapes


def _stacked(tables):
    """Return the tables of several terms below each other: (F, rows, 8), and as of each."""
    base = max(base for *_, base, _ in tables)
    length = max(length - (base - each) for _, _, length, each, _ in tables)
    stacks, starts, before = [], [], 0
    for rows, own, count, each, _ in tables:
        parts = len(rows[0]) // count
        blocks = [
            aligned(one[k * count : (k + 1) * count], base - each, length)
            for one in rows
            for k in range(parts)
        ]
        stacks.append(np.array(blocks).reshape(len(rows), parts * length, -1))
        starts.append(own // np.uint64(count) * np.uint64(length) + np.uint64(before))
        before += parts * length
    whole = stacks[0] if len(stacks) == 1 else np.concatenate(stacks, axis=1)
    return whole, starts, length, base, all(end for *_, end in tables)


def turning_form(change):
    """Return the entries of M + M' on and above the diagonal, of M itself on it."""
    both = change + change.T - np.diag(np.diag(change))
    return both[np.triu_indices(len(change))]


class Blocks:
    """The blocks of inputs in memory under one model.

    With targets, each block is a target and its neighbours among the inputs; otherwise the inputs
    are the targets. For `box` see `TablePairs`.
    """

    def __init__(self, model, inputs, targets=None, box=None):
        check_tabulated(model)
        self.model = model
        self.pairs = model.pairs(inputs, targets, box)
        self.noise = model.noise(inputs)

    def reduce(self, neighbours, columns, wanted, local=None):
        """Return the `Sums` over all locations, and the first one without a factor, or None."""
        parts, failed = self.slices(neighbours, columns, wanted, local)
        return parts.sum(axis=0), failed

    def slices(self, neighbours, columns, wanted, local=None):
        """As `reduce`, but return the sums of each of the k / `SLICE_LOCATIONS` slices, rounded up.

        They are the same however locations are shared. `neighbours` (k, m) are those of the first
        k locations; `columns` (c, n) are to be whitened. For `local` see `kernel.likelihood_slice`.
        """
        from .kernel import likelihood_slice

        k, count, bases = len(neighbours), len(columns) + (local is not None), len(wanted)
        length = 1 + count * count + bases * (1 + bases + count * count)
        known, used = self.model.field_names, wanted.copy()
        changing = {name for part in self.pairs.parts for name in part.term.changes}
        # derivatives by parameters that the model could have, but has not, are 0
        used[bases - len(known) :] &= [name in changing for name in known]
        names = [name for name, bit in zip(known, used[bases - len(known) :], strict=True) if bit]
        numbers = TermNumbers(self.pairs, known, names)
        noise = self.noise.variances + numbers.variances[0]

        def one_slice(first, last, field, mixed, clock):
            out = np.zeros(length)
            failed, missed = likelihood_slice(
                numbers.points[0],
                neighbours,
                first,
                last,
                noise,
                field=field,
                mixed=mixed,
                clock=clock,
                columns=columns,
                diagonals=self.noise.diagonals,
                maps=numbers.maps.reshape(-1) if numbers.maps.size else None,
                fields=None if numbers.plain else numbers.fields,
                wanted=used,
                out=out,
                local=local,
            )
            return out, failed if failed < last else k, missed

        results = self._over_slices(neighbours, numbers, one_slice)
        failed = min(failed for _, failed, _ in results)
        return np.array([out for out, _, _ in results]), failed if failed < k else None

    def weights(self, neighbours, noise=None, at_target=None):
        """Return the weights (k, m) and the variances (k,) of all targets' conditional means.

        `noise` (n,) and `at_target` (k,) are variances beside the field's, by default those of the
        locations.
        A variance is NaN where the matrix of the neighbours is not positive definite.
        """
        from .kernel import weights_slice

        noise = self.noise.variances if noise is None else noise
        at_target = noise if at_target is None else at_target
        numbers = TermNumbers(self.pairs)
        noise, at_target = noise + numbers.variances[0], at_target + numbers.variances[1]
        weights, variances = np.empty(neighbours.shape), np.empty(len(neighbours))
        arrays = at_target, weights, variances
        self._for_targets(weights_slice, neighbours, numbers, noise, *arrays)
        return weights, variances

    def grams(self, neighbours, noise, columns, given=None):
        """Return the Gram matrices of the whitened [k, columns] of targets, (k, c + 1, c + 1).

        `noise` (n,) are variances beside the field's. `given` (k, m) are the covariances of targets
        that are not points with their neighbours. A Gram matrix is NaN where the matrix of the
        neighbours is not positive definite.
        """
        from .kernel import gram_slice

        k, m = neighbours.shape
        grams = np.empty((k, len(columns) + 1, len(columns) + 1))
        given = np.empty((0, m)) if given is None else given
        numbers = TermNumbers(self.pairs)
        noise = noise + numbers.variances[0]
        self._for_targets(gram_slice, neighbours, numbers, noise, columns, given, grams)
        return grams

    def _for_targets(self, kernel, neighbours, numbers, noise, *arrays):
        """Call a kernel that reads the correlation only, for all targets."""

        def one_slice(first, last, field, mixed, clock):
            own = first, last, noise, field, mixed, clock
            return (kernel(*numbers.points, neighbours, *own, *arrays),)

        self._over_slices(neighbours, numbers, one_slice)

    def _over_slices(self, neighbours, numbers, call):
        """Return [call(first, last, field, mixed, clock)] of all slices; see `kernel`."""

        def work(further):
            *read, end = numbers.read(further)
            results = self._threaded(neighbours, call, *read)
            return results, not end and any(missed for *_, missed in results)

        return self.pairs.until_reached(work)

    def _threaded(self, neighbours, call, field, mixed, clock):
        """Return [call(first, last, field, mixed, clock)] of all slices, from threads."""
        k, m = neighbours.shape
        return in_threads(
            lambda first: call(first, min(first + SLICE_LOCATIONS, k), field, mixed, clock),
            range(0, k, SLICE_LOCATIONS),
            entries=k * (m + 1) ** 2,
        )


class Neighbours:
    """The neighbours that suit a model best, among some inputs.

    The divergence of Vecchia's approximation from the exact model is ½(log|Σ_V| - log|Σ|) (Guinness
    2018, Technometrics 60:415, section 2). How much times or variables count beside distances, the
    key of `Covariance.neighbour_key`, is chosen where log|Σ_V| is smallest: for at most
    `COMPARED_INPUTS` inputs that are near each other, and so as dense as all.
    """

    def __init__(self, inputs, count, ordering="maximin"):
        self._inputs, self._count = inputs, min(count, len(inputs) - 1)
        self._ordering = ordering if isinstance(ordering, str) else "maximin"
        self._known = OrderedDict()

    def key_of(self, model):
        """Return the best key for a model; None if its neighbours are the nearest inputs."""
        if self._known.get(model) is None:
            self._known[model] = self._best(model)
            if len(self._known) > KEPT_MODELS:
                self._known.popitem(last=False)
        self._known.move_to_end(model)
        return self._known[model]

    def loss(self, model, key):
        """Return the divergence of another key less that of the best one, for each input."""
        if key == self.key_of(model):
            return 0.0
        window = self._window(model)
        other, best = (self._log_determinant(model, window, k) for k in (key, self.key_of(model)))
        return 0.5 * (other - best) / len(window) if np.isfinite(best) else 0.0

    def _best(self, model):
        first = model.neighbour_key(self._inputs)
        if first is None or self._count < 1 or self._count >= len(self._inputs) - 1:
            return first
        window, values = self._window(model), {}
        # less is rounding
        least = 1e-9 * len(window)

        def value(halves):
            if halves not in values:
                key = model.moved_key(first, halves)
                values[halves] = self._log_determinant(model, window, key)
            return values[halves]

        best = 0
        for step in (-2, 2, -1, 1):
            while (
                abs(best + step) <= MOST_HALF_OCTAVES and value(best + step) < value(best) - least
            ):
                best += step
        return model.moved_key(first, best)

    def _window(self, model):
        """Return inputs around the middle one, as near each other as neighbours are."""
        inputs = self._inputs
        if len(inputs) <= COMPARED_INPUTS:
            return inputs
        points = model.neighbour_points(inputs, model.neighbour_key(inputs))
        middle = np.median(points, axis=0)
        for _ in range(2):
            # the second time around an input: the median may be where there are none
            squares = ((points - middle) ** 2).sum(axis=1)
            middle = points[squares.argmin()]
        return inputs[np.sort(np.argpartition(squares, COMPARED_INPUTS)[:COMPARED_INPUTS])]

    def _log_determinant(self, model, inputs, key):
        """Return log|Σ_V| of the inputs; infinity where a block has no factor."""
        points, ordering = model.neighbour_points(inputs, key), self._ordering
        if inputs.variable is not None:
            ordering = order_points(inputs.points, ordering)
        passes = LocalPasses(inputs, ordering, self._count, points)
        passes.know(np.empty((0, len(inputs))))
        out, failed = passes.reduce(model, wanted_for(model, (), model.noise(inputs)))
        return float(out[0]) if failed is None and np.isfinite(out[0]) else np.inf


class LocalPasses:
    """Passes over the blocks of one data set in this process, on the CPU; see `Graph.of`.

    `tree` is the tree of the graph; rows of arrays are in its order. `points`, by default those of
    the metric, decide which locations are neighbours.
    """

    def __init__(self, inputs, ordering, count, points=None):
        self.graph = Graph.of(inputs.points if points is None else points, ordering, count)
        self.tree = self.graph.tree
        self._inputs = inputs[self.tree.order]

    def know(self, columns):
        """Keep the columns to whiten, (c, n)."""
        self._columns = columns

    def reduce(self, model, wanted):
        """Return the `Sums` over all blocks, and the first location without a factor, or None."""
        return self._blocks(model).reduce(self.graph.neighbours, self._columns, wanted)

    def weights(self, model):
        """Return the weights (n, m) and the variances (n,) of the conditional means."""
        return self._blocks(model).weights(self.graph.neighbours)

    def neighbours_of(self, i):
        """Return the neighbours of a location, (m,); -1 for none."""
        return self.graph.neighbours[i]

    def _blocks(self, model):
        return Blocks(model, self._inputs)
