"""Passes over Vecchia's blocks: sums for the likelihood, weights and Gram matrices for kriging.

A block is a place and its neighbours; S is its covariance matrix. Derivatives of S by the
parameters are combinations of a few bases: S itself, the unit matrix, the derivatives by the shape
parameters of the family, by the logarithm of all distances, and by the angle and the ratio of
anisotropy, in this order.
"""

import numpy as np

from ..covariance.base import Inputs
from ..covariance.table import LOWEST, table_of
from ..runtime.devices import in_threads
from .graph import Graph

SLICE = 1024
"""Places whose blocks one thread reduces at a time: their sums are added in one fixed order."""


def check_tabulated(model):
    """Raise `InvalidInput` if the model has no table of polynomials."""
    model.check_tabulated("Vecchia's approximation needs a table of the correlation: use Exact().")


def basis_of(model):
    """Return the number of the basis that belongs to each parameter, besides S.

    Raises
    ------
    InvalidInput
        If the model has no table of polynomials.

    Examples
    --------
    >>> from geomxp import Matern
    >>> basis_of(Matern(1.0, 0.1, 0.5))["range"]
    3
    """
    check_tabulated(model)
    distance = 2 + len(model.shapes)
    return {
        "variance": 1,
        "nugget": 1,
        **{shape.name: 2 + k for k, shape in enumerate(model.shapes)},
        "range": distance,
        "anisotropy_angle": distance + 1,
        "anisotropy_ratio": distance + 2,
    }


def wanted_for(model, names):
    """Return which bases the derivatives by some parameters need, (D,) of bool."""
    basis = basis_of(model)
    distance = basis["range"]
    wanted = np.zeros(distance + 3, dtype=bool)
    for name in names:
        wanted[[0, basis[name]]] = True
    if wanted[distance + 1 :].any():
        wanted[distance:] = True
    return wanted


def tables_for(model, wanted):
    """Return the names of the tables that a pass reads: the correlation, then derivatives.

    Examples
    --------
    >>> from geomxp import Matern
    >>> model = Matern(1.0, 0.1, 0.5)
    >>> tables_for(model, wanted_for(model, ["smoothness"]))
    ['correlation', 'smoothness']
    """
    names = [*(shape.name for shape in model.shapes), "slope"]
    return ["correlation", *(name for k, name in enumerate(names, start=2) if wanted[k])]


class Sums:
    """Sums over all blocks, and their derivatives.

    Parameters
    ----------
    out : 1-D ndarray
        As `kernel.likelihood_slice` writes them.
    count : int
        Number of whitened columns, c.
    model : Isotropic
    names : set of str
        Parameters whose derivatives were wanted.

    Attributes
    ----------
    log_determinant : float
        log|Σ|.
    gram : (c, c) ndarray
        W'W of the whitened columns.
    """

    def __init__(self, out, count, model, names):
        self.names, self._model, self._basis = names, model, basis_of(model)
        bases = self._bases = self._basis["range"] + 3
        self.log_determinant = float(out[0])
        parts = np.split(out[1:], np.cumsum((count**2, bases, bases**2)))
        gram = np.tril(parts[0].reshape(count, count))
        self.gram = gram + np.tril(gram, -1).T
        self._traces = parts[1]
        information = np.tril(parts[2].reshape(bases, bases))
        self._information = information + np.tril(information, -1).T
        changes = parts[3].reshape(bases, count, count)
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
        if name == "variance":
            # S = σ²R + τ²I
            row[:2] = 1.0 / model.variance, -model.nugget / model.variance
        elif name == "range":
            # ∂C/∂a = -(σ²/a) r ρ'(r)
            row[self._basis[name]] = -1.0 / model.range
        return row


def with_table(model, pairs, names, work):
    """Call work(tables, base) until the tables reach all pairs; return its results.

    Parameters
    ----------
    model : Isotropic
    pairs : TablePairs or vecchia.gpu.Pairs
        Its `octaves` are extended as needed.
    names : sequence of str
        Tables, see `tables_for`.
    work : callable
        Takes the rows of the tables, each (K, 8), and their first interval. Returns tuples whose
        last member tells whether a pair was missed.
    """
    while True:
        table = table_of(model, *pairs.octaves)
        results = work([table.rows(name) for name in names], table.base)
        if table.low <= LOWEST or not any(missed for *_, missed in results):
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
    """The blocks of places in memory under one model.

    Parameters
    ----------
    model : Isotropic
    metric : Metric or str
    locations : (n, d) ndarray
    targets : (k, d) ndarray, optional
        Places whose neighbours are among the locations; the locations themselves if not given.
    box : (2, d) ndarray, optional
        See `TablePairs`.
    """

    def __init__(self, model, metric, locations, targets=None, box=None):
        check_tabulated(model)
        self.model = model
        targets = None if targets is None else Inputs(targets, metric)
        self.pairs = model.pairs(Inputs(locations, metric), targets, box)

    def reduce(self, neighbours, columns, wanted):
        """Return the sums over all places.

        Parameters
        ----------
        neighbours : (n, m) ndarray of int32
        columns : (c, n) ndarray
        wanted : (D,) ndarray of bool

        Returns
        -------
        sums : 1-D ndarray
            See `Sums`.
        failed : int or None
            The first place whose matrix is not positive definite.
        """
        parts, failed = self.slices(neighbours, columns, wanted)
        return parts.sum(axis=0), failed

    def slices(self, neighbours, columns, wanted):
        """Return the sums over SLICE places each, which are the same however places are shared.

        Parameters
        ----------
        neighbours : (k, m) ndarray of int32
            Of the first k places.
        columns : (c, n) ndarray
        wanted : (D,) ndarray of bool

        Returns
        -------
        sums : (⌈k / SLICE⌉, …) ndarray
        failed : int or None
            As of `reduce`.
        """
        from .kernel import likelihood_slice

        k, count, bases = len(neighbours), len(columns), len(wanted)
        length = 1 + count * count + bases * (1 + bases + count * count)
        noise, maps = np.full(self.pairs.x.shape[1], self.model.nugget), turning_forms(self.model)

        def work(tables, base):
            field = self._field(tables, base)

            def one_slice(first):
                out, last = np.zeros(length), min(first + SLICE, k)
                failed, missed = likelihood_slice(
                    *(self.pairs.x, neighbours, first, last, noise, field),
                    *(columns, maps, wanted, out),
                )
                return out, failed if failed < last else k, missed

            return self._in_threads(one_slice, neighbours)

        results = with_table(self.model, self.pairs, tables_for(self.model, wanted), work)
        failed = min(failed for _, failed, _ in results)
        return np.array([out for out, _, _ in results]), failed if failed < k else None

    def weights(self, neighbours, noise, at_target):
        """Return the weights and the variances of all targets' conditional means.

        Parameters
        ----------
        neighbours : (k, m) ndarray of int32
            Places near each target.
        noise, at_target : (n,), (k,) ndarray
            Variances of places and targets beside the field's.

        Returns
        -------
        weights : (k, m) ndarray
        variances : (k,) ndarray
            NaN where the matrix of the neighbours is not positive definite.
        """
        from .kernel import weights_slice

        weights, variances = np.empty(neighbours.shape), np.empty(len(neighbours))
        self._for_targets(weights_slice, neighbours, noise, at_target, weights, variances)
        return weights, variances

    def grams(self, neighbours, noise, columns, given=None):
        """Return the Gram matrices of the whitened [k, columns] of all targets' neighbours.

        Parameters
        ----------
        neighbours : (k, m) ndarray of int32
            Places near each target.
        noise : (n,) ndarray
            Variances of places beside the field's.
        columns : (c, n) ndarray
        given : (k, m) ndarray, optional
            Covariances with the neighbours, of targets that are not points.

        Returns
        -------
        (k, c + 1, c + 1) ndarray
            NaN where the matrix of the neighbours is not positive definite.
        """
        from .kernel import gram_slice

        k, m = neighbours.shape
        grams = np.empty((k, len(columns) + 1, len(columns) + 1))
        given = np.empty((0, m)) if given is None else given
        self._for_targets(gram_slice, neighbours, noise, columns, given, grams)
        return grams

    def _for_targets(self, kernel, neighbours, noise, *arrays):
        """Call a kernel that reads the correlation only, for all targets."""
        k, points = len(neighbours), (self.pairs.x, self.pairs.y)

        def work(tables, base):
            field = self._field(tables, base)

            def one_slice(first):
                last = min(first + SLICE, k)
                return (kernel(*points, neighbours, first, last, noise, field, *arrays),)

            return self._in_threads(one_slice, neighbours)

        with_table(self.model, self.pairs, ["correlation"], work)

    def _field(self, tables, base):
        """Return the model as compiled loops take it; see `kernel`."""
        arc, folded = (bool(self.pairs.mapping & bit) or None for bit in (1, 2))
        numbers = self.pairs.inverse, arc, folded, self.model.variance
        flat = tables[0] if len(tables) == 1 else np.concatenate(tables)
        return *numbers, flat.reshape(-1), tables[0].size, base

    def _in_threads(self, one_slice, neighbours):
        k, m = neighbours.shape
        return in_threads(one_slice, range(0, k, SLICE), k * (m + 1) ** 2)


class LocalPasses:
    """Passes over the blocks of one data set in this process, on the CPU.

    Parameters
    ----------
    locations : (n, d) ndarray
    metric : Metric or str
    ordering, count
        See `Graph.of`.

    Attributes
    ----------
    graph : Graph
    tree : geomxp.covariance.neighbours.Tree
    """

    def __init__(self, locations, metric, ordering, count):
        self.graph = Graph.of(locations, metric, ordering, count)
        self.tree, self._metric = self.graph.tree, metric
        self._locations = locations[self.tree.order]

    def know(self, columns):
        """Keep the columns to be whitened, (c, n), in the order of the tree."""
        self._columns = columns

    def reduce(self, model, wanted):
        """Return the sums over all blocks, and the first place without a factor, or None."""
        return self._blocks(model).reduce(self.graph.neighbours, self._columns, wanted)

    def weights(self, model):
        """Return the weights (n, m) and the variances (n,) of the conditional means."""
        noise = np.full(len(self._locations), model.nugget)
        return self._blocks(model).weights(self.graph.neighbours, noise, noise)

    def neighbours_of(self, i):
        """Return the neighbours of a place, (m,), by number in the tree; -1 for none."""
        return self.graph.neighbours[i]

    def _blocks(self, model):
        return Blocks(model, self._metric, self._locations)
