"""Shards: parts of Vecchia's blocks for machines that hold only the places which these read.

The places of a shard are consecutive in the tree, near each other in space. Its halo, the other
places that they read, surrounds them and contains the few places that are first in Vecchia's order
and lie far apart.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..covariance.neighbours import nearest
from .blocks import SLICE, Blocks


@dataclass(frozen=True)
class Shard:
    """Neighbours of the places of a part, among these places and its halo.

    Parameters
    ----------
    first : int
        Number in the tree of the shard's first place.
    neighbours : (k, m) ndarray of int32
        Of the shard's own places, which are rows 0, 1, …, k - 1; -1 for none.
    halo : (h,) ndarray of int64
        Numbers in the tree of the rows k, k + 1, ….
    """

    first: int
    neighbours: np.ndarray
    halo: np.ndarray


@dataclass(frozen=True)
class Data:
    """Data of a shard: its own places, then its halo.

    Parameters
    ----------
    places : (k + h, d) ndarray
    columns : (c, k + h) ndarray
        Columns to be whitened.
    metric : Metric or str
    box : (2, d) ndarray
        Of the places of all shards; see `TablePairs`.
    """

    places: np.ndarray
    columns: np.ndarray
    metric: str
    box: np.ndarray

    def blocks(self, model):
        """Return the `Blocks` under a model."""
        return Blocks(model, self.metric, self.places, box=self.box)


def ranges(n, parts):
    """Cut n places into about `parts` ranges (first, last) of whole slices.

    Examples
    --------
    >>> ranges(5000, 2)
    [(0, 3072), (3072, 5000)]
    """
    slices = -(-n // SLICE)
    step = SLICE * -(-slices // max(1, parts))
    return [(first, min(first + step, n)) for first in range(0, n, step)]


def searchable(tree):
    """Return the part of a tree that a search for neighbours reads."""
    return replace(tree, order=np.empty(0, dtype=np.int64))


def find(tree, first, last, count):
    """Find the neighbours of the places first ≤ i < last of a tree; return a `Shard`."""
    own = slice(first, last)
    near = nearest(tree, tree.points[own] * tree.unit, count, tree.ranks[own])
    outside = (near >= 0) & ((near < first) | (near >= last))
    halo, at = np.unique(near[outside], return_inverse=True)
    local = np.where(near >= 0, near - np.int32(first), np.int32(-1))
    local[outside] = last - first + at
    return Shard(first, local.astype(np.int32), halo.astype(np.int64))


def halo_of(shard):
    """Return the numbers in the tree of a shard's halo."""
    return shard.halo


def reduce(shard, data, model, wanted):
    """Return the sums of a shard's slices, and its first place without a factor, or None."""
    return data.blocks(model).slices(shard.neighbours, data.columns, wanted)


def weights(shard, data, model):
    """Return the weights and the variances of the conditional means of a shard's places."""
    noise = np.full(len(data.places), model.nugget)
    return data.blocks(model).weights(shard.neighbours, noise, noise)


def neighbours(shard, data, i=None):
    """Return the neighbours of a shard's places, or of one of them, by number in the tree."""
    k, near = len(shard.neighbours), shard.neighbours if i is None else shard.neighbours[i]
    numbers = np.where(near >= 0, near + np.int32(shard.first), np.int32(-1))
    numbers[near >= k] = shard.halo[near[near >= k] - k]
    return numbers
