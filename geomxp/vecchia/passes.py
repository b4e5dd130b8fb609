"""Passes over all of Vecchia's blocks in this process, on the CPU or a GPU."""

import numpy as np

from .graph import Field, Graph


def passes_on(device, *about):
    """Return the passes on a device, given the arguments of `Here`."""
    if device.index is None:
        return Here(*about)
    from .gpu import OnGpu

    return OnGpu(*about, device)


class Here:
    """The blocks of one data set, and what a likelihood asks of them.

    Parameters
    ----------
    locations : (n, d) ndarray
    metric : str
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
        self._places = locations[self.tree.order]

    def know(self, columns):
        """Keep what is whitened, (c, n), in the order of the tree."""
        self._columns = columns

    def reduce(self, model, wanted):
        """Return the sums over all blocks, and the first place without a factor, or None."""
        field = self._field(model)
        return field.reduce(self.graph.neighbours, self._columns, wanted)

    def weights(self, model):
        """Return the weights (n, m) and the variances (n,) of the conditional means."""
        noise = np.full(len(self._places), model.nugget)
        return self._field(model).weights(self.graph.neighbours, noise, noise)

    def neighbours_of(self, i):
        """Return the neighbours of a place, (m,), by number in the tree; -1 for none."""
        return self.graph.neighbours[i]

    def _field(self, model):
        return Field(model, self._metric, self._places)
