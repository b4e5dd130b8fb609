"""Who is conditioned on whom, and the passes over all blocks in threads."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..covariance.base import Inputs
from ..covariance.distance import embed
from ..covariance.neighbours import Tree, nearest_predecessors, tree_of
from ..covariance.ordering import order_places
from ..covariance.table import LOWEST, table_of
from ..runtime.devices import in_threads
from .blocks import BASES

SLICE = 1024
"""Places whose blocks one thread handles at a time: their sums are added in one fixed order."""

NONE = np.zeros(8)


@dataclass(frozen=True)
class Graph:
    """Places in an order near each other in space, and their neighbours.

    Parameters
    ----------
    tree : Tree
        `tree.order` gives the rows of the observations, `tree.ranks` their places in Vecchia's
        order.
    neighbours : (n, m) ndarray of int32
        The nearest of those before, in the numbers of the tree; -1 for none.
    """

    tree: Tree
    neighbours: np.ndarray

    @classmethod
    def of(cls, locations, metric, ordering, count):
        """Order places and find their neighbours, in the metric's own (isotropic) coordinates.

        Parameters
        ----------
        locations : (n, d) ndarray
        metric : str
        ordering : str or (n,) ndarray of int
            A name of `covariance.ordering.order_places`, or the permutation itself.
        count : int
            m; n - 1 if that is less.
        """
        tree = ordered_tree(locations, metric, ordering)
        return cls(tree, nearest_predecessors(tree, min(count, len(locations) - 1)))

    @cached_property
    def sequence(self):
        """Numbers in the tree in Vecchia's order, (n,)."""
        found = np.empty(len(self.tree.ranks), dtype=np.int64)
        found[self.tree.ranks] = np.arange(len(found))
        return found


def ordered_tree(locations, metric, ordering):
    """Return the tree of places whose ranks are their places in an order; see `Graph.of`."""
    order = ordering
    if isinstance(ordering, str):
        order = order_places(locations, ordering, metric)
    ranks = np.empty(len(locations), dtype=np.int64)
    ranks[order] = np.arange(len(locations))
    return tree_of(embed(locations, metric), ranks)


def check_tabulated(model):
    """Raise `InvalidInput` for a model without a table of polynomials."""
    model.check_tabulated("Vecchia's approximation needs a table of the correlation: use Exact().")


def with_table(model, pairs, names, work):
    """Call work(tables, base) until the tables reach all pairs; return what it returned.

    Parameters
    ----------
    model : Matern
    pairs : TablePairs
        Or what else has `octaves`, which are extended.
    names : sequence of str
        "correlation", "shape" or "slope"; in the place of a false one stands a row of zeros.
    work : callable
        Returns tuples, which end with whether a pair was missed.
    """
    while True:
        table = table_of(model, *pairs.octaves)
        shape = model.shapes[0].name if model.shapes else "correlation"
        whats = [shape if name == "shape" else name for name in names]
        tables = tuple(table.rows(what).reshape(-1) if what else NONE for what in whats)
        results = work(tables, table.base)
        if table.low <= LOWEST or not any(missed for *_, missed in results):
            return results
        pairs.octaves = table.low - 20, table.high


def turning_forms(model):
    """Return the quadratic forms u'(∂A/∂φ A⁻¹)u of angle and ratio, (2, 3): u₀², u₀u₁, u₁²."""
    forms = np.zeros((2, 3))
    if model.anisotropy is not None:
        back = np.linalg.inv(model.anisotropy.matrix())
        for row, matrix in zip(forms, model.anisotropy.matrix_derivatives(), strict=True):
            change = matrix @ back
            row[:] = change[0, 0], change[0, 1] + change[1, 0], change[1, 1]
    return forms


class Field:
    """What one model says of places in memory: points, noise, and polynomials.

    Parameters
    ----------
    model : Matern
    metric : str
    locations : (n, d) ndarray
    targets : (k, d) ndarray, optional
        Other places; the same if not given.
    box : (2, d) ndarray, optional
        See `TablePairs`.
    """

    def __init__(self, model, metric, locations, targets=None, box=None):
        check_tabulated(model)
        self.model = model
        targets = None if targets is None else Inputs(targets, metric)
        self.pairs = model.pairs(Inputs(locations, metric), targets, box)
        self.scaled = self.pairs.inverse, self.pairs.mapping

    def reduce(self, neighbours, columns, wanted):
        """Return the sums of `blocks.likelihood_slice` over all places.

        Parameters
        ----------
        neighbours : (n, m) ndarray of int32
        columns : (c, n) ndarray
        wanted : (BASES,) ndarray of bool

        Returns
        -------
        sums : 1-D ndarray
        failed : int or None
            The first place whose matrix is not positive definite.
        """
        parts, failed = self.slices(neighbours, columns, wanted)
        return parts.sum(axis=0), failed

    def slices(self, neighbours, columns, wanted):
        """Return the sums over SLICE places each, which all machines cut alike.

        Parameters
        ----------
        neighbours : (k, m) ndarray of int32
            Of the first k places.
        columns : (c, n) ndarray
        wanted : (BASES,) ndarray of bool

        Returns
        -------
        sums : (⌈k / SLICE⌉, …) ndarray
        failed : int or None
            As of `reduce`.
        """
        from .blocks import likelihood_slice

        k, count = len(neighbours), len(columns)
        length = 1 + count * count + BASES * (1 + BASES + count * count)
        noise, maps = np.full(self.pairs.x.shape[1], self.model.nugget), turning_forms(self.model)

        def all_slices(tables, base):
            def work(first):
                out, last = np.zeros(length), min(first + SLICE, k)
                failed, missed = likelihood_slice(
                    *(self.pairs.x, neighbours, first, last, columns, noise, self.scaled),
                    *(self.model.variance, tables, base, maps, wanted, out),
                )
                return out, failed if failed < last else k, missed

            return in_threads(work, range(0, k, SLICE), k * (neighbours.shape[1] + 1) ** 2)

        names = "correlation", wanted[2] and "shape", wanted[3] and "slope"
        results = with_table(self.model, self.pairs, names, all_slices)
        failed = min(failed for _, failed, _ in results)
        return np.array([out for out, _, _ in results]), failed if failed < k else None

    def weights(self, neighbours, noise, at_target):
        """Return the weights and the variances of all targets' conditional means.

        Parameters
        ----------
        neighbours : (k, m) ndarray of int32
            Places near each target.
        noise, at_target : (n,), (k,) ndarray
            Variances beside the field's, of places and targets.

        Returns
        -------
        weights : (k, m) ndarray
        variances : (k,) ndarray
            NaN where the matrix of the neighbours is not positive definite.
        """
        from .blocks import weights_slice

        k = len(neighbours)
        weights, variances = np.empty(neighbours.shape), np.empty(k)

        def all_slices(tables, base):
            def work(first):
                missed = weights_slice(
                    *(self.pairs.x, self.pairs.y, neighbours, first, min(first + SLICE, k)),
                    *(noise, at_target, self.scaled, self.model.variance, tables[0], base),
                    *(weights, variances),
                )
                return (missed,)

            return in_threads(work, range(0, k, SLICE), k * (neighbours.shape[1] + 1) ** 2)

        with_table(self.model, self.pairs, ("correlation",), all_slices)
        return weights, variances

    def grams(self, neighbours, noise, columns, given=None):
        """Return the Gram matrices of the whitened [k, columns] of all targets' neighbours.

        Parameters
        ----------
        neighbours : (k, m) ndarray of int32
            Places near each target.
        noise : (n,) ndarray
            Variances beside the field's, of places.
        columns : (c, n) ndarray
        given : (k, m) ndarray, optional
            Covariances with the neighbours, for targets that are no points.

        Returns
        -------
        (k, c + 1, c + 1) ndarray
            NaN where the matrix of the neighbours is not positive definite.
        """
        from .blocks import gram_slice

        k, m = neighbours.shape
        grams = np.empty((k, len(columns) + 1, len(columns) + 1))
        given = np.empty((0, m)) if given is None else given

        def all_slices(tables, base):
            def work(first):
                missed = gram_slice(
                    *(self.pairs.x, self.pairs.y, neighbours, first, min(first + SLICE, k)),
                    *(noise, self.scaled, self.model.variance, tables[0], base),
                    *(columns, given, grams),
                )
                return (missed,)

            return in_threads(work, range(0, k, SLICE), k * (m + 1) ** 2)

        with_table(self.model, self.pairs, ("correlation",), all_slices)
        return grams
