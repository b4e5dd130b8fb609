"""Kriging: the mean and variance of the field at new places, given a fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from ..exchange import frames
from ..execution.devices import blas_threads, gpu_memory
from ..observations import Observations, checked_places
from ..places import spread
from ..support.blocks import Points
from ..support.shapes import blocks_of
from .estimate import check_fit, z_value
from .gls import fit_trend
from .progress import Line
from .vecchia import Vecchia

if TYPE_CHECKING:
    from ..annotations import Block, Columns, Fit, Floats, Frame, Grid, Of, Places

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
    given : geomxp.exchange.frames.Table or None
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
        from ..exchange.grids import on_grid

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
    local = isinstance(fit.method, Vecchia) or neighbours is not None
    if local_trend and not local:
        raise InvalidInput("`local_trend` needs `neighbours`.")
    with Line("predicting", shown=progress) as line:
        if local:
            from .local import krige

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
        explained = _explained_by(factor, here)
        mean, variance = np.empty(len(targets)), targets.variances(model, seen.metric)
        index = evaluator.device.index
        entries = CHUNK_ENTRIES if index is None else GPU_CHUNK_ENTRIES
        step = max(1, entries // len(seen) // getattr(factor, "vectors", 1))
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


def _explained_by(factor, here):
    """Return k -> the diagonal of k'Σ⁻¹k, and k'Σ⁻¹X."""
    if hasattr(factor, "gram"):

        def from_solutions(k):
            w = factor.solve(k)
            # k'Σ⁻¹k = 2k'w - w'Σw + O(δw²): what w still errs by counts twice
            squares = np.einsum("ij,ij->j", 2 * k - factor.times(w), w)
            return squares, w.T @ here

        return from_solutions
    # whitened once
    white = factor.whiten(np.asfortranarray(here)) if here.shape[1] else here

    def from_halves(k):
        half = factor.whiten(k)
        return np.einsum("ij,ij->j", half, half), half.T @ white

    return from_halves


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
