"""Vecchia's graph of neighbours, and the sparse factor of the precision matrix on it.

Σ⁻¹ = B'B with one row of B for each location: (1 at i, -λ_i at its neighbours)/√d_i. The
conditional mean of location i is λ_i'z_N, and d_i is its conditional variance.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..covariance.neighbours import Tree, nearest_predecessors, tree_of
from ..covariance.ordering import order_points
from ..errors import NotPositiveDefinite


@dataclass(frozen=True)
class Graph:
    """Locations in the order of a tree, in which nearby ones are adjacent, and their neighbours.

    Parameters
    ----------
    tree : Tree
        `tree.order` gives the rows of the observations, `tree.ranks` their positions in Vecchia's
        order.
    neighbours : (n, m) ndarray of int32
        The nearest predecessors of each location, by number in the tree; -1 for none.
    """

    tree: Tree
    neighbours: np.ndarray

    @classmethod
    def of(cls, points, ordering, count):
        """Order points and find up to `count` neighbours of each; see `ordered_tree`."""
        tree = ordered_tree(points, ordering)
        return cls(tree, nearest_predecessors(tree, min(count, len(points) - 1)))

    @cached_property
    def sequence(self):
        """Numbers in the tree in Vecchia's order, (n,)."""
        sequence = np.empty(len(self.tree.ranks), dtype=np.int64)
        sequence[self.tree.ranks] = np.arange(len(sequence))
        return sequence


def ordered_tree(points, ordering):
    """Return the tree of points (n, d) of a Euclidean space.

    Its ranks are the positions in an ordering: a name of `covariance.ordering.order_points`, or the
    permutation itself.
    """
    order = np.asarray(ordering)
    if isinstance(ordering, str):
        order = order_points(points, ordering)
    ranks = np.empty(len(points), dtype=np.int64)
    ranks[order] = np.arange(len(points))
    return tree_of(points, ranks)


class VecchiaFactor:
    """Sparse counterpart of a Cholesky factor; L is B⁻¹.

    It has weights λ (n, m) and variances d (n,) in the order of the tree. Rows of arguments and of
    results are those of the observations, unless stated otherwise; vectors are (n,) or (n, c).
    `NotPositiveDefinite` is raised if a conditional variance is not positive; its `order` is then
    the location's number in the tree.
    """

    precision_map = order = last = moved = None
    promotions, refines, vectors, events = 0, False, 1, ()

    def __init__(self, graph, weights, variances):
        bad = ~(variances > 0)
        if bad.any():
            raise NotPositiveDefinite("a conditional variance is not positive", int(bad.argmax()))
        self.graph, self.weights, self.variances = graph, weights, variances

    @property
    def nbytes(self):
        """Bytes of weights, variances and neighbours."""
        return sum(array.nbytes for array in self._rows)

    @property
    def _rows(self):
        return self.graph.neighbours, self.weights, self.variances

    def log_determinant(self):
        """Return log|Σ| = Σ log d_i."""
        return float(np.log(self.variances).sum())

    def half_solve(self, columns):
        """Return B y, in the order of the tree."""
        from . import kernel

        y = self._columns(columns)
        out = np.empty_like(y)
        kernel.whiten(*self._rows, y, out)
        return out.reshape(np.shape(columns))

    def inner(self, a, b=None):
        """Return a'Σ⁻¹b = (Ba)'(Bb) for (n, m) and (n, k); b is a if not given."""
        half = self.half_solve(a)
        return half.T @ (half if b is None else self.half_solve(b))

    def solve(self, columns):
        """Return Σ⁻¹y = B'By."""
        from . import kernel

        white = self.half_solve(columns).reshape(len(self.variances), -1)
        out = np.empty_like(white)
        kernel.transposed(*self._rows, white, out)
        return self._restored(out, np.shape(columns))

    def precision_times(self, y):
        """Return Σ⁻¹y for (n,), both in the order of the tree."""
        from . import kernel

        half, out = np.empty((2, len(y), 1))
        kernel.whiten(*self._rows, y[:, None], half)
        kernel.transposed(*self._rows, half, out)
        return out[:, 0]

    def multiply(self, columns):
        """Return B⁻¹w: with normal w, draws of observations."""
        from . import kernel

        y, sequence = self._columns(columns), self.graph.sequence
        kernel.unwhiten(sequence, sequence, *self._rows, y)
        return self._restored(y, np.shape(columns))

    def whiten_transposed(self, columns):
        """Return B⁻ᵀy, in the order of the tree: B⁻ᵀΣ⁻¹ = B."""
        from . import kernel

        y = self._columns(columns)
        kernel.unwhiten_transposed(self.graph.sequence, *self._rows, y)
        return y.reshape(np.shape(columns))

    def inverse_diagonal(self, n):
        """Return the diagonal of Σ⁻¹ = B'B, (n,)."""
        near, d = self.graph.neighbours, self.variances
        present = near >= 0
        shares = (self.weights[present] ** 2) / np.broadcast_to(d[:, None], near.shape)[present]
        sums = 1.0 / d + np.bincount(near[present], shares, minlength=n)
        return self._restored(sums, (n,))

    def _columns(self, columns):
        """Return a copy of columns in the order of the tree, (n, c), C order."""
        y = np.asarray(columns, dtype=np.float64)
        return np.array(y.reshape(len(y), -1)[self.graph.tree.order], order="C")

    def _restored(self, columns, shape):
        """Return columns in the order of the observations."""
        out = np.empty_like(columns)
        out[self.graph.tree.order] = columns
        return out.reshape(shape)


def draw_onwards(places, neighbours, weights, variances, y):
    """Turn normal numbers at locations, (k,) rows of y, into draws given the values of neighbours.

    y_i <- λ'y_N + √d y_i, place by place in the order given; y is (n, c). `neighbours` (k, m) are
    rows of y, or -1 for none.
    """
    from . import kernel

    kernel.unwhiten(places, np.arange(len(places)), neighbours, weights, variances, y)
