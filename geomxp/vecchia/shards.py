"""Passes over Vecchia's blocks on a Dask cluster, by shards.

A shard is consecutive in the tree, so that its locations are near each other in space. Its halo,
the other locations that its blocks read, surrounds it and contains the few locations that are first
in Vecchia's order and lie far apart.

Each worker holds the shards and halos that it needs. The tree of all locations travels to a worker
once, for the search, and is dropped; no machine holds the neighbours of all locations. A pass
returns sums over slices of the locations, which are added here in a fixed order, so that the bits
equal those of one process.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from ..covariance.inputs import Inputs
from ..covariance.neighbours import nearest
from ..errors import NotEnoughMemory
from ..runtime.dask import DaskBackend, Parts
from ..runtime.devices import free_memory, human_bytes
from .blocks import SLICE_LOCATIONS, Blocks
from .factor import Graph, ordered_tree

SHARDS_PER_THREAD = 4
"""Shards for each thread of the cluster, so that workers finish at about the same time."""

MOST_SHARD_LOCATIONS = 1 << 18
"""Largest number of locations in a shard: a task then takes seconds."""

SEARCH_BYTES_PER_NEIGHBOUR = 32
"""Temporary bytes of the search for each neighbour."""

HALO_SHARE = 0.5
"""Assumed size of a shard's halo relative to its own locations, to check memory beforehand."""


@dataclass(frozen=True)
class Shard:
    """Neighbours of consecutive locations of a tree, from number `first` on.

    Parameters
    ----------
    first : int
    neighbours : (k, m) ndarray of int32
        Of the shard's own locations, which are rows 0, 1, …, k - 1; -1 for none.
    halo : (h,) ndarray of int64
        Numbers in the tree of the rows k, k + 1, ….
    """

    first: int
    neighbours: np.ndarray
    halo: np.ndarray


@dataclass(frozen=True)
class Data:
    """Data of a shard, its own locations first and then its halo, and the `box` of all shards."""

    inputs: Inputs
    columns: np.ndarray
    box: np.ndarray

    def blocks(self, model):
        """Return the `Blocks` under a model."""
        return Blocks(model, self.inputs, box=self.box)


def ranges(n, parts):
    """Cut n locations into about `parts` ranges (first, last) of whole slices.

    Examples
    --------
    >>> ranges(5000, 2)
    [(0, 3072), (3072, 5000)]
    """
    slices = -(-n // SLICE_LOCATIONS)
    step = SLICE_LOCATIONS * -(-slices // max(1, parts))
    return [(first, min(first + step, n)) for first in range(0, n, step)]


# What a worker does with a shard and its data


def find(tree, first, last, count):
    """Find the neighbours of the locations first ≤ i < last of a tree; return a `Shard`."""
    own = slice(first, last)
    near = nearest(tree, tree.points[own] * tree.unit, count, tree.ranks[own])
    outside = (near >= 0) & ((near < first) | (near >= last))
    halo, at = np.unique(near[outside], return_inverse=True)
    local = np.where(near >= 0, near - np.int32(first), np.int32(-1))
    local[outside] = last - first + at
    return Shard(first, local.astype(np.int32), halo.astype(np.int64))


def reduce(shard, data, model, wanted):
    """Return the sums of a shard's slices, and its first location without a factor, or None."""
    return data.blocks(model).slices(shard.neighbours, data.columns, wanted)


def weights(shard, data, model):
    """Return the weights and the variances of the conditional means of a shard's locations."""
    return data.blocks(model).weights(shard.neighbours)


def neighbours(shard, data, i=None):
    """Return the neighbours of a shard's locations, or of one, by number in the tree."""
    k, near = len(shard.neighbours), shard.neighbours if i is None else shard.neighbours[i]
    numbers = np.where(near >= 0, near + np.int32(shard.first), np.int32(-1))
    numbers[near >= k] = shard.halo[near[near >= k] - k]
    return numbers


class DaskPasses:
    """Passes over the blocks of one data set on a Dask cluster; see `blocks.LocalPasses`."""

    def __init__(self, inputs, ordering, count, points=None, *, address):
        self._backend = DaskBackend(address)
        self.tree = ordered_tree(inputs.points if points is None else points, ordering)
        self._count = min(count, len(inputs) - 1)
        self._inputs, self._box = inputs, inputs.box
        self.know(np.empty((0, len(inputs))))

    def know(self, columns):
        """See `LocalPasses.know`."""
        self._columns, self._made = columns, None

    @property
    def _parts(self):
        """The shards on their workers, created on first use."""
        if self._made is None:
            n = len(self._inputs)
            # the part of the tree that a search for neighbours reads
            tree = replace(self.tree, order=np.empty(0, dtype=np.int64))
            parts = max(SHARDS_PER_THREAD * self._backend.threads, n // MOST_SHARD_LOCATIONS)
            cut = ranges(n, parts)
            self._check_memory(tree, cut)
            searches = [(first, last, self._count) for first, last in cut]
            halo_of = attrgetter("halo")
            self._made = Parts(self._backend, searches, tree, find, halo_of, self._data)
        return self._made

    def _data(self, search, halo):
        """Return the data of a shard, given the arguments (first, last, count) of `find`."""
        first, last, _ = search
        rows = np.concatenate((np.arange(first, last), halo))
        inputs, columns = self._inputs[self.tree.order[rows]], self._columns[:, rows]
        return Data(inputs, columns, self._box)

    def _check_memory(self, tree, cut):
        """Raise `NotEnoughMemory` if a worker has no room for the tree and its shards."""
        p, d, largest = len(self._backend), self.tree.points.shape[1], cut[0][1]
        known = self._inputs.error_variance, self._inputs.replicates
        numbers = d + len(self._columns) + sum(column is not None for column in known)
        each = 4 * self._count + 8 * (1 + HALO_SHARE) * numbers
        own = [sum(last - first for first, last in cut[slot::p]) for slot in range(p)]
        self._backend.check_memory(
            [int(tree.points.nbytes + tree.ranks.nbytes + each * k) for k in own],
            SEARCH_BYTES_PER_NEIGHBOUR * self._count * largest,
        )

    def reduce(self, model, wanted):
        """See `LocalPasses.reduce`."""
        results = self._parts.over(reduce, model, wanted)
        failed = [
            first + k
            for (first, *_), (_, k) in zip(self._parts.ranges, results, strict=True)
            if k is not None
        ]
        sums = np.concatenate([parts for parts, _ in results]).sum(axis=0)
        return sums, min(failed, default=None)

    def weights(self, model):
        """See `LocalPasses.weights`; raise `NotEnoughMemory` if this process cannot hold them."""
        self._check_here(8 * (self._count + 1))
        return tuple(map(np.concatenate, zip(*self._parts.over(weights, model), strict=True)))

    @cached_property
    def graph(self):
        """The neighbours of all locations; `NotEnoughMemory` if this process cannot hold them."""
        self._check_here(4 * self._count)
        return Graph(self.tree, np.concatenate(self._parts.over(neighbours)))

    def _check_here(self, bytes_of_each):
        needed, free = bytes_of_each * len(self._inputs), free_memory()
        if needed > free:
            raise NotEnoughMemory(
                f"the {self._count} neighbours of {len(self._inputs):,} locations need "
                f"{human_bytes(needed)} in this process, {human_bytes(free)} free. Standard errors "
                "of REML, leave-one-out and the KL divergence need them all: use fewer locations."
            )

    def neighbours_of(self, i):
        """See `LocalPasses.neighbours_of`."""
        s = next(s for s, (first, last, _) in enumerate(self._parts.ranges) if first <= i < last)
        return self._parts.at(s, neighbours, i - self._parts.ranges[s][0])
