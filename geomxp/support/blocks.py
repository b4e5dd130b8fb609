"""What kriging predicts: the field at points, or its averages over blocks.

A block is a rectangle about a place, a polygon, or a set of points given outright. Its covariance
with an observation is the integral over the block; so is that of the block with itself, twice.
In one and two Euclidean dimensions both are exact to 1e-8 σ² (`geomxp.covariance.averages`, for
sides up to 100 ranges and 1,000 times each other); elsewhere, and where `discretisation` asks for
it, the block *is* a regular set of points.
"""

import numpy as np
import scipy

from ..covariance.averages import Region
from ..covariance.generate import Generator
from ..errors import InvalidInput
from ..observations import Observations

CHUNK_ENTRIES = 1 << 22
"""Covariances between nodes and observations held at one time."""

CHUNK_NODES = 1 << 18
"""Nodes at which a trend is evaluated at one time."""

FAR = 3.0
"""Nearer than this many radii of a block, its covariance is an integral over its boundary."""


class Points:
    """Places as targets of kriging.

    Parameters
    ----------
    places : (m, d) ndarray
    """

    def __init__(self, places):
        self.places = places

    def __len__(self):
        return len(self.places)

    def part(self, part):
        """Return some of the targets: what a slice says."""
        return Points(self.places[part])

    def design(self, trend, covariates=None):
        """Return the trend's X₀, (m, p)."""
        return trend.design(self.places, covariates)

    def covariances(self, model, locations, metric, part, index=None):
        """Return the covariances of the field there and here, (n, k) in Fortran order.

        With `index` they are generated on the GPU of that number, and stay there.
        """
        return _between(model, locations, self.places[part], metric, index)

    def variances(self, model, metric):
        """Return the field's variance at each target, (m,)."""
        return np.full(len(self.places), model.variance)


def _between(model, a, b, metric, index):
    """Return the covariances of the field between two sets of places, on the CPU or a GPU."""
    if index is None:
        return model(a, b, metric)
    return Generator(model, metric, a, b).covariance(index)


class Blocks:
    """Averages over blocks as targets of kriging; the interface of `Points`.

    Parameters
    ----------
    places : (m, d) ndarray
        The blocks' centres.
    rule : callable
        (first, last) -> nodes (N, d) and weights (N,) of the rules that integrate over these
        blocks, one block after the other; the weights of a block sum to 1.
    counts : (m,) ndarray of int
        Nodes of each block.
    edges : ndarray, list of ndarray or None
        Boundaries relative to the places, as `Region` wants them: one that all blocks share, or
        one for each; None where the nodes themselves are the block.
    alike : bool
        Whether all blocks have one shape and Euclidean distances.
    """

    def __init__(self, places, rule, counts, edges=None, alike=False):
        self.places, self.rule, self.counts = places, rule, counts
        self.edges, self.alike = edges, alike

    @classmethod
    def of_nodes(cls, places, nodes, weights, edges=None):
        """Return blocks by their rules.

        Parameters
        ----------
        places : (m, d) ndarray
        nodes : sequence of (k, d) ndarray
        weights : sequence of (k,) ndarray
        edges : list of ndarray, optional
        """

        def rule(first, last):
            return np.vstack(nodes[first:last]), np.concatenate(weights[first:last])

        return cls(places, rule, np.array([len(points) for points in nodes]), edges)

    def __len__(self):
        return len(self.places)

    def part(self, part):
        """Return some of the targets: what a slice without a step says."""
        start, stop, _ = part.indices(len(self))
        edges = self.edges[part] if isinstance(self.edges, list) else self.edges

        def rule(first, last):
            return self.rule(start + first, start + last)

        return Blocks(self.places[start:stop], rule, self.counts[start:stop], edges, self.alike)

    def design(self, trend, covariates=None):
        """Return the averages of the trend's columns, (m, p); covariates are those of blocks."""
        found = np.zeros((len(self), len(trend.names)))
        wanted = covariates is not None and len(trend.needs) > 0
        covariates = _rows(covariates, len(self)) if wanted else None
        for first, last in self._parts(slice(0, len(self)), CHUNK_NODES):
            nodes, weights = self.rule(first, last)
            counts = self.counts[first:last]
            known = None if covariates is None else covariates(first, last, counts)
            owners = np.repeat(np.arange(first, last), counts)
            np.add.at(found, owners, weights[:, None] * trend.design(nodes, known))
        return found

    def covariances(self, model, locations, metric, part, index=None):
        """Return the covariances of the averages and the field here, (n, k) in Fortran order.

        The result is a NumPy array even if a GPU generates the covariances of the nodes.
        """
        start, stop, _ = part.indices(len(self))
        found = np.zeros((len(locations), stop - start), order="F")
        most = max(1, CHUNK_ENTRIES // len(locations))
        for first, last in self._parts(slice(start, stop), most):
            nodes, weights = self.rule(first, last)
            owners = np.repeat(np.arange(first - start, last - start), self.counts[first:last])
            # a block of very many nodes comes in pieces
            for at in range(0, len(nodes), most):
                own, some = owners[at : at + most], slice(at, at + most)
                averaging = scipy.sparse.csc_array(
                    (weights[some], own - own[0], np.arange(len(own) + 1))
                )
                among = _between(model, locations, nodes[some], metric, index)
                among = among if index is None else among.get(order="A")
                found[:, own[0] : own[-1] + 1] += (averaging @ among.T).T
        if self.edges is not None:
            self._correct(model, locations, start, found)
        return found

    def variances(self, model, metric):
        """Return the variance of the field's average over each block, (m,)."""
        if self.alike and len(self):
            return np.full(len(self), self._variance(model, metric, 0))
        return np.array([self._variance(model, metric, b) for b in range(len(self))])

    def _variance(self, model, metric, b):
        if self.edges is not None:
            return model.variance * self._region(model, b).variance(model.smoothness)
        nodes, weights = self.rule(b, b + 1)
        return weights @ model(nodes, nodes, metric) @ weights

    def _correct(self, model, locations, start, found):
        """Integrate exactly over blocks that are near to an observation."""
        stop = start + found.shape[1]
        seen, centres = (
            model.isotropic(places) / model.range for places in (locations, self.places[start:stop])
        )
        tree = scipy.spatial.cKDTree(seen)
        step = len(centres) if self.alike else 1
        for b in range(0, len(centres), max(step, 1)):
            region = self._region(model, start + b)
            near = tree.query_ball_point(centres[b : b + step], FAR * region.radius)
            columns = b + np.repeat(np.arange(len(near)), [len(rows) for rows in near])
            rows = np.concatenate(near).astype(np.int64)
            apart = seen[rows] - centres[columns]
            found[rows, columns] = model.variance * region.averages(model.smoothness, apart)

    def _region(self, model, b):
        """Return a block's boundary in the units of `Region`."""
        edges = self.edges[b] if isinstance(self.edges, list) else self.edges
        points = model.isotropic(edges.reshape(-1, 1 if edges.ndim == 1 else 2))
        return Region((points / model.range).reshape(edges.shape))

    def _parts(self, part, most):
        """Yield (first, last) of blocks that have at most so many nodes together, or are one."""
        ends = np.cumsum(self.counts[part])
        first = 0
        while first < len(ends):
            before = ends[first] - self.counts[part.start + first]
            last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
            yield part.start + first, part.start + last
            first = last


def _rows(covariates, count):
    """Return (first, last, counts) -> the covariates of blocks, once for each of their nodes."""
    if isinstance(covariates, Observations):
        covariates = covariates.covariate_frame()
    if hasattr(covariates, "keys"):
        import pandas as pd

        covariates = pd.DataFrame(covariates)
    elif not hasattr(covariates, "__array__"):
        covariates = np.asarray(covariates)
    if len(covariates) != count:
        raise InvalidInput(
            f"`covariates` must have one row for each of the {count} blocks. Got {len(covariates)}."
        )
    rows = covariates.iloc if hasattr(covariates, "iloc") else np.asarray(covariates)
    return lambda first, last, counts: rows[np.repeat(np.arange(first, last), counts)]
