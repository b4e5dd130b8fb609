"""A part of Vecchia's blocks for a machine that has only the places which these read.

A shard's places are one stretch of the tree, near each other in space. What else they read, its
halo, is around them, and the few places that come first in the order and lie far apart.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..covariance.neighbours import nearest
from .graph import SLICE, Field


@dataclass(frozen=True)
class Shard:
    """Who is conditioned on whom, among the places of a part and its halo.

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
    """What a shard knows of its own places and its halo.

    Parameters
    ----------
    places : (k + h, d) ndarray
    columns : (c, k + h) ndarray
        What is whitened.
    metric : str
    box : (2, d) ndarray
        Of all places; see `Generator`.
    """

    places: np.ndarray
    columns: np.ndarray
    metric: str
    box: np.ndarray

    def field(self, model):
        """Return the `Field` of a model."""
        return Field(model, self.metric, self.places, box=self.box)


def ranges(n, parts):
    """Cut n places into about so many stretches (first, last), none of which cuts a slice.

    Examples
    --------
    >>> ranges(5000, 2)
    [(0, 3072), (3072, 5000)]
    """
    slices = -(-n // SLICE)
    step = SLICE * -(-slices // max(1, parts))
    return [(first, min(first + step, n)) for first in range(0, n, step)]


def searchable(tree):
    """Return what a search for neighbours reads of a tree."""
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
    """Return the sums of a shard's slices, and its first place that has no factor, or None."""
    return data.field(model).slices(shard.neighbours, data.columns, wanted)


def weights(shard, data, model):
    """Return the weights and the variances of the conditional means of a shard's places."""
    noise = np.full(len(data.places), model.nugget)
    return data.field(model).weights(shard.neighbours, noise, noise)


def neighbours(shard, data, i=None):
    """Return the neighbours of a shard's places, or of one of them, by number in the tree."""
    k, near = len(shard.neighbours), shard.neighbours if i is None else shard.neighbours[i]
    found = np.where(near >= 0, near + np.int32(shard.first), np.int32(-1))
    found[near >= k] = shard.halo[near[near >= k] - k]
    return found
