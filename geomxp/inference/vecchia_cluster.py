"""Passes over Vecchia's blocks on a Dask cluster: each worker has the places its blocks read.

The tree of all places travels to a worker once, for the search, and is given up; no machine holds
the neighbours of all places. What comes back of a pass are the sums over slices of the places,
which are added here in one order: the bits are those of one process.
"""

from functools import cached_property

import numpy as np

from ..covariance.distance import embed
from ..covariance.generate import box_of
from ..errors import NotEnoughMemory
from ..execution.cluster import Crew
from ..execution.cluster_parts import Parts
from ..execution.devices import free_memory, human_bytes
from ..vecchia import shards
from ..vecchia.graph import Graph, ordered_tree

PARTS = 4
"""Shards of a thread of the cluster: fewer would leave one worker the last."""

MOST = 1 << 18
"""Places of a shard at most: what one task computes in some seconds."""

SEARCH = 32
"""Bytes that a search takes for each neighbour it finds, while it runs."""

HALO = 0.5
"""What a shard's halo is, of its own places, at most: to see beforehand that all has room."""


class There:
    """The blocks of one data set on a cluster; the interface of `geomxp.vecchia.passes.Here`.

    Parameters
    ----------
    locations, metric, ordering, count
        As of `Here`.
    address : str
        Of the scheduler.
    """

    def __init__(self, locations, metric, ordering, count, address):
        self.crew, self._metric = Crew(address), metric
        self.tree = ordered_tree(locations, metric, ordering)
        self._count = min(count, len(locations) - 1)
        self._locations, self._box = locations, box_of(embed(locations, metric))
        self.know(np.empty((0, len(locations))))

    def know(self, columns):
        """Keep what is whitened, (c, n), in the order of the tree; it travels with the places."""
        self._columns, self._made = columns, None

    @property
    def _parts(self):
        """The shards on their workers, made when they are first wanted."""
        if self._made is None:
            n, tree = len(self._locations), shards.searchable(self.tree)
            cut = shards.ranges(n, max(PARTS * self.crew.threads, n // MOST))
            self._check_memory(tree, cut)
            about = [(first, last, self._count) for first, last in cut]
            self._made = Parts(self.crew, about, tree, shards.find, shards.halo_of, self._data)
        return self._made

    def _data(self, about, halo):
        """Return what a shard is sent."""
        first, last, _ = about
        rows = np.concatenate((np.arange(first, last), halo))
        places = self._locations[self.tree.order[rows]]
        return shards.Data(places, self._columns[:, rows], self._metric, self._box)

    def _check_memory(self, tree, cut):
        """Raise `NotEnoughMemory` if a worker has no room for the tree and its shards."""
        p, d, largest = len(self.crew), self._locations.shape[1], cut[0][1]
        place = 4 * self._count + 8 * (1 + HALO) * (d + len(self._columns))
        own = [sum(last - first for first, last in cut[slot::p]) for slot in range(p)]
        self.crew.check_memory(
            [int(tree.points.nbytes + tree.ranks.nbytes + place * k) for k in own],
            SEARCH * self._count * largest,
        )

    def reduce(self, model, wanted):
        """Return the sums over all blocks, and the first place without a factor, or None."""
        found = self._parts.over(shards.reduce, model, wanted)
        failed = [
            first + k
            for (first, *_), (_, k) in zip(self._parts.ranges, found, strict=True)
            if k is not None
        ]
        sums = np.concatenate([parts for parts, _ in found]).sum(axis=0)
        return sums, min(failed, default=None)

    def weights(self, model):
        """Return the weights (n, m) and the variances (n,) of the conditional means.

        Raises
        ------
        NotEnoughMemory
            If this process cannot hold them.
        """
        self._check_here(8 * (self._count + 1))
        weights, variances = zip(*self._parts.over(shards.weights, model), strict=True)
        return np.concatenate(weights), np.concatenate(variances)

    @cached_property
    def graph(self):
        """The neighbours of all places, in this process.

        Raises
        ------
        NotEnoughMemory
        """
        self._check_here(4 * self._count)
        return Graph(self.tree, np.concatenate(self._parts.over(shards.neighbours)))

    def _check_here(self, bytes_of_place):
        needed, free = bytes_of_place * len(self._locations), free_memory()
        if needed > free:
            raise NotEnoughMemory(
                f"the {self._count} neighbours of {len(self._locations):,} places need "
                f"{human_bytes(needed)} in this process, {human_bytes(free)} free: what asks for "
                "all of them at once (standard errors of REML, leave-one-out, KL divergence) is "
                "for fewer places."
            )

    def neighbours_of(self, i):
        """Return the neighbours of a place, (m,), by number in the tree; -1 for none."""
        s = next(s for s, (first, last, _) in enumerate(self._parts.ranges) if first <= i < last)
        return self._parts.at(s, shards.neighbours, i - self._parts.ranges[s][0])
