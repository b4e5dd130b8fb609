"""Passes over Vecchia's blocks: sums for the likelihood, weights and Gram matrices for kriging.

A block is a location and its neighbours; S is its covariance matrix. Derivatives of S by the
parameters are combinations of a few bases: S itself, the diagonals of the noise, the derivatives by
the shape parameters of the family, by the logarithm of all distances, and by the angle and the
ratio of anisotropy, in this order. D is the number of bases.
"""

from collections import OrderedDict

import numpy as np

from ..covariance.generate import FURTHER_OCTAVES
from ..covariance.multivariate import Multivariate
from ..covariance.ordering import order_points
from ..covariance.space_time import SpaceTime
from ..covariance.table import LOWEST_OCTAVE, table_of
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
    found = {name: 1 + k for k, name in enumerate(noise.names)}
    if isinstance(model, Multivariate):
        return found | {name: shape + k for k, name in enumerate(model.field_names)}
    found["variance"] = 1
    if isinstance(model, SpaceTime):
        return found | {name: shape + k for k, name in enumerate(model.field_names)}
    distance = shape + len(model.shapes)
    return found | {
        **{each.name: shape + k for k, each in enumerate(model.shapes)},
        "range": distance,
        "anisotropy_angle": distance + 1,
        "anisotropy_ratio": distance + 2,
    }


def count_of(model, noise):
    """Return the number of bases, D."""
    if isinstance(model, SpaceTime | Multivariate):
        return 1 + len(noise) + len(model.field_names)
    return basis_of(model, noise)["range"] + 3


def wanted_for(model, names, noise):
    """Return which bases the derivatives by some parameters need, (D,) of bool."""
    basis = basis_of(model, noise)
    wanted = np.zeros(count_of(model, noise), dtype=bool)
    for name in names:
        wanted[[0, basis[name]]] = True
    if isinstance(model, Multivariate):
        return wanted
    distance = basis["range"]
    if "variance" in names:
        wanted[1 : 1 + len(noise)] = True
    if wanted[distance + 1 :].any() and not isinstance(model, SpaceTime):
        wanted[distance:] = True
    return wanted


def tables_for(model, wanted):
    """Return the names of the tables that a pass reads: the correlation, then derivatives.

    Examples
    --------
    >>> from geomxp import Inputs, Matern
    >>> model = Matern(1.0, 0.1, 0.5)
    >>> noise = model.noise(Inputs(np.zeros((2, 1))))
    >>> tables_for(model, wanted_for(model, ["smoothness"], noise))
    ['correlation', 'smoothness']
    """
    names = [*(shape.name for shape in model.shapes), "slope"]
    first = len(wanted) - 2 - len(names)
    return ["correlation", *(name for k, name in enumerate(names, start=first) if wanted[k])]


class Sums:
    """Sums over all blocks as `kernel.likelihood_slice` writes them: log|Σ|, W'W, derivatives.

    W are the `count` whitened columns, and `names` the parameters whose derivatives are known.
    """

    def __init__(self, out, count, model, names, noise):
        self.names, self._model, self._coefficients = names, model, noise.coefficients
        self._basis = basis_of(model, noise)
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
        row[self._basis[name]] = 1.0
        if isinstance(model, Multivariate):
            return row
        if name == "variance":
            # S = σ²R + Σ_k c_k diag(d_k)
            row[0] = 1.0 / model.variance
            row[1 : 1 + len(self._coefficients)] = -self._coefficients / model.variance
        elif name in ("range", "time_range"):
            # ∂C/∂a = -(σ²/a) r ρ'(r)
            row[self._basis[name]] = -1.0 / getattr(model, name)
        return row


def _symmetric(lower):
    """Return the symmetric matrix of a lower triangle."""
    lower = np.tril(lower)
    return lower + np.tril(lower, -1).T


def with_table(model, pairs, names, work):
    """Call work(tables, base) until the tables reach all pairs; return its results.

    It gets the rows of the named tables, each (K, 8), and their first interval, and returns tuples
    whose last member tells whether a pair was missed. The octaves of `pairs` grow as needed.
    """
    while True:
        table = table_of(model, *pairs.octaves)
        results = work([table.rows(name) for name in names], table.base)
        if table.low <= LOWEST_OCTAVE or not any(missed for *_, missed in results):
            return results
        pairs.octaves = table.low - 20, table.high


def turning_forms(model):
    """Return the quadratic forms u'(∂A/∂φ A⁻¹)u of angle and ratio, (2, 3): u₀², u₀u₁, u₁²."""
    forms = np.zeros((2, 3))
    if model.anisotropy is not None:
        for row, change in zip(forms, model.anisotropy.generators(), strict=True):
            row[:] = change[0, 0], change[0, 1] + change[1, 0], change[1, 1]
    return forms


class Blocks:
    """The blocks of inputs in memory under one model.

    With targets, each block is a target and its neighbours among the inputs; otherwise the inputs
    are the targets. For `box` see `TablePairs`.
    """

    def __init__(self, model, inputs, targets=None, box=None):
        check_tabulated(model)
        self.model = model
        self.pairs = model.pairs(inputs, targets, box)
        self.points = self.pairs.x, self.pairs.y
        if isinstance(model, SpaceTime):
            self.points = tuple(map(np.vstack, zip(self.points, self.pairs.times, strict=True)))
        self.noise = model.noise(inputs)
        # what kernels add to the noise of points and targets: the variances of several variables
        self._own = 0.0, 0.0
        if isinstance(model, Multivariate):
            own = model.variances
            self._own = tuple(own[kinds % len(own)] for kinds in self.pairs.kinds)

    def reduce(self, neighbours, columns, wanted):
        """Return the `Sums` over all locations, and the first one without a factor, or None."""
        parts, failed = self.slices(neighbours, columns, wanted)
        return parts.sum(axis=0), failed

    def slices(self, neighbours, columns, wanted):
        """As `reduce`, but return the sums of each of the k / `SLICE_LOCATIONS` slices, rounded up.

        They are the same however locations are shared. `neighbours` (k, m) are those of the first
        k locations; `columns` (c, n) are to be whitened.
        """
        from .kernel import likelihood_slice

        k, count, bases = len(neighbours), len(columns), len(wanted)
        length = 1 + count * count + bases * (1 + bases + count * count)
        noise = self.noise.variances + self._own[0]

        def one_slice(first, last, field, mixed, clock):
            out = np.zeros(length)
            failed, missed = likelihood_slice(
                self.points[0],
                neighbours,
                first,
                last,
                noise,
                field=field,
                mixed=mixed,
                clock=clock,
                columns=columns,
                diagonals=self.noise.diagonals,
                maps=maps,
                fields=fields,
                wanted=wanted,
                out=out,
            )
            return out, failed if failed < last else k, missed

        if isinstance(self.model, Multivariate):
            maps, fields = np.zeros((2, 3)), np.zeros((0, 4), dtype=np.int64)
            known = self.model.field_names if wanted.any() else ()
            results = self._over_slices_by_variable(neighbours, known, one_slice)
        elif isinstance(self.model, SpaceTime):
            maps, known = np.zeros((2, 3)), self.model.field_names if wanted.any() else ()
            *names, fields = self.pairs.fields(known)
            results = self._over_slices_in_time(neighbours, names, one_slice)
        else:
            maps, names = turning_forms(self.model), tables_for(self.model, wanted)
            fields = np.zeros((0, 4), dtype=np.int64)
            results = self._over_slices(neighbours, names, one_slice)
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
        noise, at_target = noise + self._own[0], at_target + self._own[1]
        weights, variances = np.empty(neighbours.shape), np.empty(len(neighbours))
        self._for_targets(weights_slice, neighbours, noise, at_target, weights, variances)
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
        noise = noise + self._own[0]
        self._for_targets(gram_slice, neighbours, noise, columns, given, grams)
        return grams

    def _for_targets(self, kernel, neighbours, noise, *arrays):
        """Call a kernel that reads the correlation only, for all targets."""

        def one_slice(first, last, field, mixed, clock):
            own = first, last, noise, field, mixed, clock
            return (kernel(*self.points, neighbours, *own, *arrays),)

        if isinstance(self.model, Multivariate):
            self._over_slices_by_variable(neighbours, (), one_slice)
        elif isinstance(self.model, SpaceTime):
            *names, _ = self.pairs.fields(())
            self._over_slices_in_time(neighbours, names, one_slice)
        else:
            self._over_slices(neighbours, ["correlation"], one_slice)

    def _over_slices(self, neighbours, names, call):
        """Return [call(first, last, field, None, None)] of all slices; for `field` see `kernel`."""

        def work(tables, base):
            flat = tables[0] if len(tables) == 1 else np.concatenate(tables)
            return self._each(neighbours, call, (flat, tables[0].size, base), None)

        return with_table(self.model, self.pairs, names, work)

    def _over_slices_in_time(self, neighbours, names, call):
        """As `_over_slices` with a clock, for functions as `TimePairs.fields` returns them."""
        of_space, of_time, which = names
        further = 0
        while True:
            (space, base, time, base_time), end = self.pairs.rows_of(of_space, of_time, further)
            clock = None, 8, 0
            if time is not None:
                clock = time.reshape(-1), time[0].size, base_time
            table = space, space[0].size, base
            clock = self.pairs.inverse_time, *clock, *which
            results = self._each(neighbours, call, table, clock)
            if end or not any(missed for *_, missed in results):
                break
            further += FURTHER_OCTAVES
        if further:
            self.pairs.reach(further)
        return results

    def _over_slices_by_variable(self, neighbours, names, call):
        """As `_over_slices` for several variables, with the derivatives by some parameters."""
        further = 0
        while True:
            tables, (length, base), numbers, entries, end = self.pairs.numbers_for(names, further)
            p, _, components, rows, _ = numbers.shape
            kinds = *self.pairs.kinds, p, numbers.reshape(-1), rows, components
            mixed = *kinds, tables[0].size, entries
            flat = tables.reshape(-1), 8 * length, base
            field = 1.0, None, None, 0.0, *flat
            results = self._threaded(neighbours, call, field, mixed, None)
            if end or not any(missed for *_, missed in results):
                break
            further += FURTHER_OCTAVES
        if further:
            self.pairs.reach(further)
        return results

    def _each(self, neighbours, call, table, clock):
        """Return [call(first, last, field, None, clock)] of all slices, from threads."""
        arc, folded = (bool(self.pairs.mapping & bit) or None for bit in (1, 2))
        flat, *numbers = table
        field = self.pairs.inverse, arc, folded, self.model.variance, flat.reshape(-1), *numbers
        return self._threaded(neighbours, call, field, None, clock)

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
