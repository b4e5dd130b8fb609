"""Graph of Vecchia's approximation: the order of the places and the neighbours of each."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..covariance.distance import embed
from ..covariance.neighbours import Tree, nearest_predecessors, tree_of
from ..covariance.ordering import order_places


@dataclass(frozen=True)
class Graph:
    """Places in the order of a tree, in which nearby places are adjacent, and their neighbours.

    Parameters
    ----------
    tree : Tree
        `tree.order` gives the rows of the observations, `tree.ranks` their positions in Vecchia's
        order.
    neighbours : (n, m) ndarray of int32
        The nearest predecessors of each place, by number in the tree; -1 for none.
    """

    tree: Tree
    neighbours: np.ndarray

    @classmethod
    def of(cls, locations, metric, ordering, count):
        """Order places and find their neighbours, in the metric's own (isotropic) coordinates.

        Parameters
        ----------
        locations : (n, d) ndarray
        metric : Metric or str
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
        sequence = np.empty(len(self.tree.ranks), dtype=np.int64)
        sequence[self.tree.ranks] = np.arange(len(sequence))
        return sequence


def ordered_tree(locations, metric, ordering):
    """Return the tree of places whose ranks are their positions in an order; see `Graph.of`."""
    order = ordering
    if isinstance(ordering, str):
        order = order_places(locations, ordering, metric)
    ranks = np.empty(len(locations), dtype=np.int64)
    ranks[order] = np.arange(len(locations))
    return tree_of(embed(locations, metric), ranks)
