"""What kriging predicts: the field at points, or its averages over blocks.

A block is a rectangle about a place, a polygon, or a set of points given outright. Its covariance
with an observation is the integral over the block; so is that of the block with itself, twice.
In one and two Euclidean dimensions both are exact to 1e-8 σ² (`geomxp.prediction.averages`, for
sides up to 100 ranges and 1,000 times each other); elsewhere, and where `discretisation` asks for
it, the block *is* a regular set of points.
"""

from numbers import Integral

import numpy as np
import scipy

from ..covariance.base import Inputs
from ..data.observations import Observations, checked_places
from ..errors import InvalidInput
from .averages import (
    Region,
    area_of,
    corners_of,
    gauss,
    in_system_of,
    inside,
    interior_rule,
    rings_of,
)

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
    return model.pairs(Inputs(a, metric), Inputs(b, metric)).covariance(index)


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


# The blocks that people describe: rectangles about places, polygons, sets of points.


REGULAR = 6
"""Points along a side where integrals are sums: on the sphere, and in three dimensions."""

GAUSS = 6
"""Nodes along a side for observations that are far away: the rule then errs by 1e-9 σ²."""


THIN = 1e-4
"""Areas are at least this part of their extent squared: of a thinner block the integrals over its
boundary, which cancel, leave fewer than eight digits."""


def blocks_of(block, places, discretisation, seen):
    """Return the blocks that a caller of `predict` describes.

    Parameters
    ----------
    block : float, sequence of float, sequence of polygons, or (b, k, d) ndarray
        Sides of a rectangle about each place; polygons (arrays of corners, (c, 2), or shapely's);
        or points, whose plain average a block is.
    places : (b, d) ndarray or None
        Centres of rectangles; what stands for the others in a result, their own centres if None.
    discretisation : int or None
        Points along the (longer) side of a block.
    seen : Observations

    Returns
    -------
    Blocks

    Raises
    ------
    InvalidInput
    """
    if discretisation is not None and not (
        isinstance(discretisation, Integral) and discretisation >= 1
    ):
        raise InvalidInput(
            f"`discretisation` must be a whole number of at least 1. Got {discretisation!r}."
        )
    exact = seen.metric == "euclidean" and seen.dimensions <= 2 and discretisation is None
    count = None if exact else int(discretisation or REGULAR)
    if isinstance(block, np.ndarray) and block.ndim == 3:
        if discretisation is not None:
            raise InvalidInput("`discretisation` is not for blocks that are points already.")
        found = _points(block, seen)
    elif _are_sides(block):
        if places is None:
            raise InvalidInput("blocks of a width and a height need `places`, their centres.")
        return _rectangles(block, places, count, seen)
    else:
        found = _polygons(block, count, seen)
    if places is not None:
        if len(places) != len(found):
            raise InvalidInput(
                f"`places` must be one for each of the {len(found)} blocks, or left out. "
                f"Got {len(places)}."
            )
        found = _shown_at(found, places)
    return found


def _are_sides(block):
    try:
        array = np.asarray(block)
    except ValueError:
        return False
    return array.ndim <= 1 and array.size > 0 and array.dtype.kind in "iuf"


def _points(block, seen):
    """Return blocks that are sets of points."""
    count, each, d = block.shape
    if d != seen.dimensions or not count or not each:
        raise InvalidInput(
            f"`block` as an array of points must be (blocks, points, {seen.dimensions}). "
            f"Got shape {block.shape}."
        )
    nodes = checked_places(block.reshape(-1, d), seen.metric).reshape(block.shape)
    weights = np.full((count, each), 1 / each)
    euclidean = seen.metric == "euclidean"
    centres = nodes.mean(axis=1) if euclidean else _middle_in_degrees(nodes)
    return Blocks.of_nodes(centres, nodes, weights)


def _middle_in_degrees(nodes):
    """Return the middles of sets of points on the sphere, (b, 2), wherever meridians are cut.

    Examples
    --------
    >>> _middle_in_degrees(np.array([[[179.0, 0.0], [-179.0, 0.0]]])).round(9).tolist()
    [[180.0, 0.0]]
    """
    lon, lat = np.radians(nodes).transpose(2, 0, 1)
    x, y = (np.cos(lat) * part(lon) for part in (np.cos, np.sin))
    x, y, z = (part.mean(axis=1) for part in (x, y, np.sin(lat)))
    return np.degrees(np.column_stack((np.arctan2(y, x), np.arctan2(z, np.hypot(x, y)))))


def _rectangles(block, places, count, seen):
    """Return equal rectangles (intervals, boxes) about places."""
    d = seen.dimensions
    sides = np.asarray(block, dtype=np.float64)
    if sides.ndim and sides.shape != (d,):
        raise InvalidInput(f"`block` must be {d} side(s), one for each coordinate. Got {block!r}.")
    sides = np.broadcast_to(sides, (d,))
    if not (np.isfinite(sides).all() and (sides > 0).all()):
        raise InvalidInput(f"the sides of `block` must be greater than 0. Got {block!r}.")
    if count is None:
        g, w = gauss(GAUSS)
        half = sides / 2
        corners = half * [[-1, -1], [1, -1], [1, 1], [-1, 1]] if d == 2 else None
        edges = np.append(-half, half) if d == 1 else _joined(corners)
        _check_thick(float(sides.prod()), float(sides.max()), "the rectangle of `block`")
    else:
        g, w, edges = _regular(count), np.full(count, 2 / count), None
    mesh = np.stack(np.meshgrid(*[g] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weights = np.prod(np.meshgrid(*[w / 2] * d, indexing="ij"), axis=0).ravel()
    euclidean = seen.metric == "euclidean"

    def rule(first, last):
        some = places[first:last]
        inside = mesh * (sides / 2)
        nodes = some[:, None] + inside if euclidean else _in_degrees(some, mesh, sides, first)
        return nodes.reshape(-1, d), np.tile(weights, len(some))

    return Blocks(places, rule, np.full(len(places), len(mesh)), edges, alike=euclidean)


def _check_thick(area, extent, name):
    """Raise `InvalidInput` for a block of the plane that is too thin to integrate over."""
    if area < THIN * extent**2:
        raise InvalidInput(
            f"{name} is too thin to integrate over (area {area:.3g}, extent {extent:.3g}): give "
            "`discretisation`, for points along it."
        )


def _regular(count):
    """Return the middles of so many equal parts of (-1, 1)."""
    return (2 * np.arange(count) + 1) / count - 1


def _in_degrees(places, mesh, sides, first=0):
    """Return nodes of equal areas on the sphere, (m, k, 2) in degrees."""
    south, north = places[:, 1] - sides[1] / 2, places[:, 1] + sides[1] / 2
    if (south < -90).any() or (north > 90).any():
        row = int(np.argmax((south < -90) | (north > 90)))
        raise InvalidInput(
            f"block {first + row + 1} reaches over a pole: use smaller blocks there."
        )
    low, high = np.sin(np.radians(south))[:, None], np.sin(np.radians(north))[:, None]
    # areas are equal where steps of the sine of the latitude are
    latitude = np.degrees(np.arcsin((low + high) / 2 + mesh[:, 1] * (high - low) / 2))
    longitude = places[:, :1] + mesh[:, 0] * sides[0] / 2
    return np.stack((longitude, latitude), axis=-1)


def _joined(corners):
    """Return the edges of a ring of corners, (c, 2, 2)."""
    return np.stack((corners, np.roll(corners, -1, axis=0)), axis=1)


def _polygons(block, count, seen):
    """Return blocks that are polygons."""
    if seen.dimensions != 2:
        raise InvalidInput(
            f"blocks that are polygons need places in the plane. Got {seen.dimensions} "
            "coordinate(s): give a block's sides, or its points as an array (b, k, d)."
        )
    places, nodes, weights, edges = [], [], [], []
    for number, polygon in enumerate(corners_of(in_system_of(block, seen)), start=1):
        rings = rings_of(polygon, f"block {number}")
        for ring in rings:
            checked_places(ring, seen.metric)
        around = np.concatenate([_joined(ring) for ring in rings])
        if count is None:
            extent = float(np.ptp(around, axis=(0, 1)).max())
            _check_thick(area_of(around), extent, f"block {number}")
            centre, points, share = interior_rule(around, GAUSS)
        else:
            centre, points, share = _points_inside(around, count, seen.metric, number)
        places.append(centre)
        nodes.append(points)
        weights.append(share)
        edges.append(around - centre)
    return Blocks.of_nodes(np.array(places), nodes, weights, edges if count is None else None)


def _points_inside(around, count, metric, number):
    """Return the mean, and a regular grid of points within a polygon."""
    low, high = around.min(axis=(0, 1)), around.max(axis=(0, 1))
    step = (high - low).max() / count
    parts = np.maximum(np.round((high - low) / step), 1).astype(int)
    middle, half = (low + high) / 2, (high - low) / 2
    mesh = np.stack(np.meshgrid(*map(_regular, parts), indexing="ij"), axis=-1).reshape(-1, 2)
    if metric == "euclidean":
        points = middle + mesh * half
    else:
        points = _in_degrees(middle[None], mesh, 2 * half)[0]
    points = points[inside(around, points)]
    if not len(points):
        raise InvalidInput(
            f"block {number}: no point of a grid of {count} lies inside: use a larger "
            "`discretisation`."
        )
    return points.mean(axis=0), points, np.full(len(points), 1 / len(points))


def _shown_at(blocks, places):
    """Return the same blocks under other places."""
    edges = blocks.edges
    if isinstance(edges, list):
        edges = [
            own + (centre - place)
            for own, centre, place in zip(edges, blocks.places, places, strict=True)
        ]
    return Blocks(places, blocks.rule, blocks.counts, edges)
