"""Places among observations: which are to be drawn, and which are observed already."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..covariance.matern import Matern
from ..covariance.neighbours import Tree, nearest, tree_of
from ..data import frames
from ..data.observations import Observations, checked_places
from ..data.places import spread
from ..errors import InvalidInput, NotPositiveDefinite
from ..estimation.result import check_fit, z_value
from ..likelihood.factorize import coincidence
from ..likelihood.trend import fit_trend
from ..runtime.dask import is_cluster
from ..runtime.devices import blas_threads, gpu_memory
from ..runtime.progress import Line
from ..runtime.tasks import Tasks
from ..vecchia.blocks import Blocks
from .supports import Points, blocks_of

if TYPE_CHECKING:
    from .._typing import Block, Columns, Floats, Frame, Grid, Of
    from ..data.observations import Places
    from ..estimation.result import Fit


def different(seen, model, places):
    """Return which places to draw, and where each place then stands in (observations, drawn ones).

    A place is drawn once, and not where an observation without noise already tells its value.

    Parameters
    ----------
    seen : Observations
    model : Matern
    places : (m, d) ndarray

    Returns
    -------
    once : (k,) ndarray of int
        Rows of `places`.
    back : (m,) ndarray of int
        Below len(seen) an observation, above it `once`.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [3.0]], [1.0, 2.0, 0.5])
    >>> once, back = different(seen, gx.Matern(1.0, 1.0, 0.5), np.array([[2.0], [1.0], [2.0]]))
    >>> once.tolist(), back.tolist()
    ([0], [3, 1, 3])
    """
    n = len(seen)
    points = model.isotropic(places, seen.metric)
    _, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    back = n + np.arange(len(first))
    if model.nugget == 0:
        tree = tree_of(model.isotropic(seen.locations, seen.metric))
        near = nearest(tree, points[first], 1)[:, 0]
        known = (tree.points[near] == points[first] / tree.unit).all(axis=1)
        back = np.where(known, tree.order[near], n + np.cumsum(~known) - 1)
        first = first[~known]
    return first, back[inverse]


def through_observations(fit, draws, design, here, betas, back):
    """Put observed values where draws are at observed places: z + (x₀ - x)'β, to the bit.

    Parameters
    ----------
    fit : Fit
    draws : (draws, m) ndarray
    design, here : (m, p), (n, p) ndarray
        The trend's, at the places and the observations.
    betas : (draws, p) ndarray
    back : (m,) ndarray of int
        As `different` returns it.

    Returns
    -------
    (draws, m) ndarray
    """
    seen, draws = fit.observations, np.ascontiguousarray(draws)
    known = np.flatnonzero(back < len(seen))
    rows = back[known]
    # at an observed place, but with other covariates, the trend is another
    draws[:, known] = seen.values[rows] + betas @ (design[known] - here[rows]).T
    return draws


# Kriging from the nearest observations only, for fits of any kind.
#
# Neighbours are the nearest where the model is isotropic: along the longest range of an
# anisotropic one they reach further.


CHUNK = 1 << 16
"""Targets predicted at one time."""

LEAST_CHUNK = 1 << 12
"""Targets of a task on a cluster: fewer would take less time than what a task costs."""

LEAST = 1e-12
"""Smallest eigenvalue of X_N'Σ⁻¹X_N, scaled to a unit diagonal, that still is an inverse's."""


def krige(fit, targets, design, neighbours=None, local_trend=False, line=None):
    """Return means and variances of targets, each from its nearest observations.

    E f = x₀'β + λ'(z_N - X_N β) with Σ_NN λ = k, and the variance c - k'λ + d'Cov(β)d with
    d = x₀ - X_N'λ; c is the target's own variance. β and its covariance are those of all
    observations, or generalised least squares on the neighbours. With all observations for
    neighbours both are kriging.

    Parameters
    ----------
    fit : Fit
    targets : Points or Blocks
        The neighbours of a block are those of its centre.
    design : (k, p) ndarray
        The trend's x₀'.
    neighbours : int, optional
        Twice those of the fit if not given, which must then be by `Vecchia`.
    local_trend : bool
        Whether β is that of the neighbours.
    line : Line, optional
        Told how many targets are done.

    Returns
    -------
    mean, variance : (k,) ndarray

    Raises
    ------
    InvalidInput
        If the neighbours of a target do not determine their own trend.
    NotPositiveDefinite
    """
    known, trend, design = _known(fit, design, neighbours, local_trend)
    mean, variance = np.empty(len(targets)), np.empty(len(targets))
    line = line or Line("predicting", shown=False)
    line.expect(len(targets), "places")
    tasks = Tasks(fit.method.on if is_cluster(fit.method.on) else "cpu")
    step = min(CHUNK, max(LEAST_CHUNK, -(-len(targets) // (4 * tasks.threads))))
    starts = range(0, len(targets), step)
    parts = [slice(first, min(first + step, len(targets))) for first in starts]
    cut = [(targets.part(part), design[part], part.start) for part in parts]
    for part, found in zip(parts, tasks.over(krige_part, known, cut), strict=True):
        mean[part], variance[part] = found
        line.advance(part.stop - part.start)
    return mean + trend, variance


@dataclass(frozen=True)
class Known:
    """What all predictions from neighbours read.

    Parameters
    ----------
    model : Matern
    metric : str
    tree : geomxp.covariance.neighbours.Tree
        Of the observations, where the model is isotropic.
    locations : (n, d) ndarray
        In the order of the tree, as the columns.
    columns : (1 + p, n) ndarray
        z - Xβ̂, and X'.
    count : int
        How many neighbours.
    spread : (p, p) ndarray or None
        Covariance of β̂; None for coefficients of the neighbours themselves.
    """

    model: Matern
    metric: str
    tree: Tree
    locations: np.ndarray
    columns: np.ndarray
    count: int
    spread: np.ndarray | None


def _known(fit, design, neighbours, local_trend):
    """Return `Known`, the trend at the targets, (k,), and their design for it."""
    seen, model = fit.observations, fit.model
    count = count_of(fit, neighbours)
    model.check_tabulated("Predict from all observations, without `neighbours`.")
    tree = tree_of(model.isotropic(seen.locations, seen.metric))
    here = fit.trend.design(seen.locations, seen.covariates)
    residuals, trend = seen.values - here @ fit.coefficients, design @ fit.coefficients
    if local_trend and here.shape[1]:
        here, design = _orthogonal(here, design)
    columns = np.vstack((residuals, here.T))[:, tree.order]
    spread = fit.coefficient_covariance if not local_trend else None
    known = Known(model, seen.metric, tree, seen.locations[tree.order], columns, count, spread)
    return known, trend, design


def krige_part(known, part):
    """Return the means about the trend at β̂ and the variances of some targets, (k,).

    Parameters
    ----------
    known : Known
    part : (Points or Blocks, (k, p) ndarray, int)
        The targets, their design, and the number of the first, for messages.
    """
    targets, design, first = part
    model, metric, tree = known.model, known.metric, known.tree
    near = nearest(tree, model.isotropic(targets.places, metric), known.count)
    blocks = Blocks(model, metric, known.locations, targets.places)
    noise = np.full(len(known.locations), model.nugget)
    grams = blocks.grams(near, noise, known.columns, _covariances(known, targets, near))
    _check(grams, first)
    mean, less = _from_grams(grams, design, known.spread, first)
    return mean, targets.variances(model, metric) - less


def _from_grams(grams, design, spread, first):
    """Return λ'(z_N - X_N β̂) and what the target's own variance is reduced by, (k,).

    Parameters
    ----------
    grams : (k, 2 + p, 2 + p) ndarray
        Of the whitened k, z_N - X_N β̂ and X_N.
    design : (k, p) ndarray
    spread : (p, p) ndarray or None
        Covariance of β̂; None for coefficients of the neighbours themselves.
    first : int
        Number of the first target, for messages.
    """
    mean, less = grams[:, 0, 1].copy(), grams[:, 0, 0].copy()
    apart = design - grams[:, 0, 2:]
    if spread is not None:
        return mean, less - np.einsum("ij,jk,ik->i", apart, spread, apart)
    if not design.shape[1]:
        return mean, less
    # β of the neighbours is β̂ + (X_N'Σ⁻¹X_N)⁻¹X_N'Σ⁻¹(z_N - X_N β̂)
    weights = np.linalg.solve(_determined(grams[:, 2:, 2:], first), apart[..., None])[..., 0]
    mean += np.einsum("ij,ij->i", weights, grams[:, 2:, 1])
    return mean, less - np.einsum("ij,ij->i", weights, apart)


def _determined(information, first):
    """Return X_N'Σ⁻¹X_N of all targets if each has an inverse."""
    scale = np.sqrt(np.einsum("ijj->ij", information))
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = information / (scale[:, :, None] * scale[:, None, :])
    unit = np.where(np.isfinite(unit), unit, 0.0)
    bad = np.flatnonzero(np.linalg.eigvalsh(unit)[:, 0] < LEAST)
    if len(bad):
        raise InvalidInput(
            f"the neighbours of place {first + bad[0] + 1} do not determine the trend's "
            f"coefficients ({len(bad)} such places): use more `neighbours`, or local_trend=False."
        )
    return information


def _orthogonal(here, there):
    """Return the design at observations with orthonormal columns, and that of targets alike."""
    q, r = np.linalg.qr(here)
    # well enough apart on all places, they mostly are on a few
    return q, scipy.linalg.solve_triangular(r, there.T, trans="T").T


def _covariances(known, targets, near):
    """Return covariances of targets that are no points with their neighbours, else None."""
    if isinstance(targets, Points):
        return None
    return np.vstack(
        [
            targets.covariances(known.model, known.locations[n], known.metric, slice(b, b + 1))[
                :, 0
            ]
            for b, n in enumerate(near)
        ]
    )


def _check(grams, first):
    bad = np.flatnonzero(~np.isfinite(grams).all(axis=(1, 2)))
    if len(bad):
        raise NotPositiveDefinite(
            f"the covariance matrix of the observations near place {first + bad[0] + 1} is not "
            "positive definite in FP64: use fewer neighbours or a larger nugget."
        )


def count_of(fit, neighbours):
    """Return how many observations a place is predicted from; refuse fits with twin places."""
    seen = fit.observations
    if fit.model.nugget == 0 and seen.duplicate():
        raise NotPositiveDefinite(coincidence(seen))
    if neighbours is None:
        neighbours = 2 * fit.method.neighbours
    elif not (isinstance(neighbours, Integral) and neighbours >= 1):
        raise InvalidInput(
            f"`neighbours` must be a whole number of at least 1. Got {neighbours!r}."
        )
    return min(int(neighbours), len(seen))


# Kriging: the mean and variance of the field at new places, given a fit.


CHUNK_ENTRIES = 1 << 22
"""Covariances between places and observations held at one time."""

GPU_CHUNK_ENTRIES = 1 << 27
"""As many for a GPU, which wants long products: 1.1 GB, and three times that on the device."""


@dataclass(frozen=True)
class Prediction:
    """Kriging predictions.

    Parameters
    ----------
    places : (m, d) ndarray
        Of blocks the centres.
    mean : (m,) ndarray
    variance : (m,) ndarray
        Of the prediction error of the noiseless field (of blocks: of its average), with the
        trend's uncertainty.
    nugget : float or None
        None for blocks: an observation is of a point.
    given : geomxp.data.frames.Table or None
        What the places came in, where that was a frame or a grid.
    """

    places: Floats
    mean: Floats
    variance: Floats
    nugget: float | None
    given: frames.Table | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        what = "places" if self.nugget is not None else "blocks"
        m, d = self.places.shape
        return f"<Prediction at {m:,} {what} in {d} dimension{'s' if d > 1 else ''}>"

    def __str__(self) -> str:
        columns = {"mean": self.mean, "standard error": np.sqrt(self.variance)}
        if self.nugget is None:
            return f"Averages over {len(self.mean):,} blocks\n\n{spread(columns)}"
        columns["of an observation"] = np.sqrt(self.variance_of_observation)
        return f"Predictions at {len(self.mean):,} places\n\n{spread(columns)}"

    @property
    def variance_of_observation(self) -> Floats:
        """Variance of the prediction error of a new observation, (m,)."""
        if self.nugget is None:
            raise InvalidInput('blocks have no new observations: predict the field, of="field".')
        return self.variance + self.nugget

    def interval(self, level: float = 0.95, of: Of = "field") -> tuple[Floats, Floats]:
        """Return the bounds of prediction intervals.

        Parameters
        ----------
        level : float
            Probability that an interval covers.
        of : {"field", "observation"}
            The noiseless field, or a new observation.

        Returns
        -------
        lower, upper : (m,) ndarray
        """
        if of not in ("field", "observation"):
            raise InvalidInput(f'`of` must be "field" or "observation". Got {of!r}.')
        variance = self.variance if of == "field" else self.variance_of_observation
        half = z_value(level) * np.sqrt(variance)
        return self.mean - half, self.mean + half

    def to_frame(self, level: float = 0.95, of: Of = "field") -> Frame:
        """Return a frame of the predictions.

        They stand beside the columns of the frame that the places came in, pandas or geopandas,
        with its index; of a grid the cells are rows.

        Parameters
        ----------
        level : float
            Probability that an interval covers.
        of : {"field", "observation"}

        Returns
        -------
        pandas.DataFrame or geopandas.GeoDataFrame
            Columns mean, variance, lower, upper and (but for blocks) variance_of_observation; for
            a new observation mean, variance, variance_of_observation, lower_of_observation,
            upper_of_observation: `variance`, `lower` and `upper` are always the field's.
        """
        import pandas as pd

        results = pd.DataFrame(self._columns(level, of))
        return results if self.given is None else frames.beside(self.given, results)

    def to_xarray(self, level: float = 0.95, of: Of = "field") -> Grid:
        """Return an xarray Dataset of the predictions, on the grid that the places came in.

        Its variables are the columns of `to_frame`.
        """
        from ..data.grids import on_grid

        return on_grid(self.given, self._columns(level, of))

    def _columns(self, level, of):
        lower, upper = self.interval(level, of)
        columns = {"mean": self.mean, "variance": self.variance}
        if of == "observation":
            return columns | {
                "variance_of_observation": self.variance_of_observation,
                "lower_of_observation": lower,
                "upper_of_observation": upper,
            }
        columns |= {"lower": lower, "upper": upper}
        if self.nugget is not None:
            columns["variance_of_observation"] = self.variance_of_observation
        return columns


@gpu_memory()
def predict(
    fit: Fit,
    places: Places | None = None,
    covariates: Columns | None = None,
    *,
    block: Block | None = None,
    discretisation: int | None = None,
    neighbours: int | None = None,
    local_trend: bool = False,
    progress: bool = True,
) -> Prediction:
    """Predict the field at places, or its averages over blocks.

    Simple kriging with a zero trend, ordinary with a constant one, universal with any other. A fit
    by Vecchia's approximation predicts each place from its nearest observations; an exact one from
    all of them, or from the nearest if `neighbours` says so.

    Parameters
    ----------
    fit : Fit
    places : (m, d) array_like, Observations, frame or xarray grid, optional
        A pandas frame has the columns that the observations' coordinates are called. Points of a
        geopandas frame and cells of a grid are reprojected to the coordinate reference system of
        the observations. Covariates are taken from a frame or a grid by name. `to_frame` and
        `to_xarray` of the predictions give the kind back. May be left out for blocks that know
        where they are.
    covariates : (m, q) array_like or frame, optional
        For a trend with covariates; by name in a frame, where they may be text. Of blocks, their
        averages.
    block : float, (d,) sequence, sequence of polygons or (m, k, d) ndarray, optional
        Predict averages: over rectangles of these sides about the places (in units of the
        coordinates; degrees on the sphere); over polygons (arrays of corners (c, 2), shapely's, or
        a geopandas frame); or over sets of k points.
    discretisation : int, optional
        Take a block for so many points, evenly spread, along its (longer) side. If not given,
        covariances are integrals over blocks, exact to 1e-8 σ², in one and two Euclidean
        dimensions; elsewhere 6 points along a side.
    neighbours : int, optional
        Observations that each place is predicted from: the nearest where the model is isotropic.
        All of them if not given; for a fit by `Vecchia` twice those of the fit.
    local_trend : bool
        With neighbours: estimate the trend's coefficients from the neighbours of each place, as
        gstat's moving neighbourhoods do, not from all observations.
    progress : bool
        Show a line where standard error is a terminal, after two seconds.

    Returns
    -------
    Prediction

    Examples
    --------
    Without a nugget kriging returns the observations:

    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [3.0], [4.0]], [1.0, 2.0, 0.5, 0.0])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> fit = gx.fit(seen, model, fixed=("variance", "range", "smoothness", "nugget"))
    >>> there = gx.predict(fit, seen.locations)
    >>> bool(np.allclose(there.mean, seen.values)), bool(np.allclose(there.variance, 0.0))
    (True, True)

    An average is better known than a point:

    >>> bool(gx.predict(fit, [[2.0]], block=1.0).variance < gx.predict(fit, [[2.0]]).variance)
    True
    """
    check_fit(fit)
    places, covariates, given = frames.targets(fit, places, covariates)
    if block is not None:
        if given is None and frames.is_geographic_frame(block):
            given = frames.of_polygons(block)
            covariates = given.columns if covariates is None else covariates
        targets, there = _checked_blocks(fit, places, covariates, block, discretisation)
    elif places is None or discretisation is not None:
        missing = "`places` must be given" if places is None else "`discretisation` is for blocks"
        raise InvalidInput(f"{missing}, or `block`.")
    else:
        places, there = checked_targets(fit, places, covariates)
        targets = Points(places)
    local = fit.method.approximate or neighbours is not None
    if local_trend and not local:
        raise InvalidInput("`local_trend` needs `neighbours`.")
    with Line("predicting", shown=progress) as line:
        if local:
            mean, variance = krige(fit, targets, there, neighbours, local_trend, line)
        else:
            mean, variance = _krige(fit, targets, there, line)
    nugget = fit.model.nugget if block is None else None
    # rounding may leave a little less than 0 where a place is an observed one
    return Prediction(targets.places, mean, np.maximum(variance, 0.0), nugget, given)


def checked_targets(fit, places, covariates=None):
    """Return places, (m, d), and the trend's design there, (m, p); see `predict`."""
    places, covariates = _checked_places(fit, places, covariates)
    return places, fit.trend.design(places, covariates)


def _checked_places(fit, places, covariates):
    """Return places, (m, d), and covariates as a design takes them."""
    seen = fit.observations
    places, covariates, _ = frames.targets(fit, places, covariates)
    if isinstance(places, Observations):
        if places.metric != seen.metric:
            raise InvalidInput(f"`places` must be {seen.metric}. Got {places.metric}.")
        covariates = places if covariates is None else covariates
        places = places.locations
    places = checked_places(places, seen.metric)
    if places.shape[1] != seen.dimensions:
        raise InvalidInput(
            f"`places` must have {seen.dimensions} columns of coordinates, as the observations "
            f"have. Got {places.shape[1]}."
        )
    return places, covariates


def _checked_blocks(fit, places, covariates, block, discretisation):
    """Return blocks, and the averages of the trend's design over them, (m, p)."""
    if places is not None:
        places, covariates = _checked_places(fit, places, covariates)
    blocks = blocks_of(block, places, discretisation, fit.observations)
    return blocks, blocks.design(fit.trend, covariates)


def _krige(fit, targets, there, line):
    """Return means and variances of the targets, (m,), from all observations."""
    seen, model = fit.observations, fit.model
    here = fit.trend.design(seen.locations, seen.covariates)
    evaluator = fit.method.prepare(seen, here, fit.reml)
    with blas_threads(len(seen)):
        factor = evaluator.factorize(model)
        known = fit_trend(factor, seen.values, here)
        weights = factor.solve(known.residual)
        root = known.root
        explained = factor.explained_by(here)
        mean, variance = np.empty(len(targets)), targets.variances(model, seen.metric)
        index = evaluator.device.index
        entries = CHUNK_ENTRIES if index is None else GPU_CHUNK_ENTRIES
        step = max(1, entries // len(seen) // factor.vectors)
        line.expect(len(targets), "places")
        for first in range(0, len(targets), step):
            part = slice(first, first + step)
            k = targets.covariances(model, seen.locations, seen.metric, part, index)
            mean[part] = there[part] @ known.coefficients + _product(k, weights)
            # σ² - k'Σ⁻¹k + d'(X'Σ⁻¹X)⁻¹d with d = x₀ - X'Σ⁻¹k
            squares, cross = explained(k)
            variance[part] -= squares
            if root.size:
                variance[part] += (((there[part] - cross) @ root) ** 2).sum(axis=1)
            line.advance(len(mean[part]))
    return mean, variance


def _product(k, weights):
    """Return k'w as a NumPy array, for k in RAM or on a GPU."""
    if isinstance(k, np.ndarray):
        return k.T @ weights
    import cupy

    with k.device:
        return (k.T @ cupy.asarray(weights)).get()


def grid_over(observations, cells):
    """Return the cell centres of a regular grid over the bounding box of the observations.

    Parameters
    ----------
    observations : Observations
    cells : int
        Along the longer side; cells are square.

    Returns
    -------
    (m, d) ndarray

    Examples
    --------
    >>> seen = Observations([[0, 0], [4, 0], [4, 2], [0, 2]], [1.0, 2.0, 3.0, 5.0])
    >>> grid_over(seen, 2).tolist()
    [[1.0, 1.0], [3.0, 1.0]]
    """
    low, high = observations.locations.min(axis=0), observations.locations.max(axis=0)
    width = (high - low).max() / cells
    counts = np.maximum(np.round((high - low) / width), 1).astype(int)
    axes = [
        a + (np.arange(k) + 0.5) * (b - a) / k for a, b, k in zip(low, high, counts, strict=True)
    ]
    # the first coordinate runs fastest, as in a raster
    mesh = np.meshgrid(*axes[::-1], indexing="ij")
    return np.column_stack([axis.ravel() for axis in mesh[::-1]])
