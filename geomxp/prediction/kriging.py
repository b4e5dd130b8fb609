"""Kriging: the mean and variance of the field at new locations, given a fit.

Simple, ordinary or universal kriging from all observations with one factor of Σ, or from the
nearest observations of each target with a small factor of its own.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy

from ..covariance.inputs import Inputs
from ..covariance.neighbours import Tree, nearest, tree_of
from ..covariance.responses import Hurdle, Response
from ..covariance.transformation import Transformation
from ..data import rasters, spatial, tables
from ..data.summaries import few, summary, summary_html
from ..data.times import as_texts
from ..errors import (
    GeomxpWarning,
    InvalidInput,
    NotPositiveDefinite,
    brief_repr,
    check_flags,
    check_whole,
    is_finite,
)
from ..estimation.hurdle import HurdleFit, check_hurdle_columns
from ..estimation.result import check_fit, design_of, z_value
from ..likelihood.cost import check_neighbours
from ..likelihood.factors import check_memory
from ..likelihood.replicates import sufficient
from ..likelihood.rounding import bound, caution_rounding
from ..likelihood.trend import fit_trend
from ..linalg.backend import backend_of
from ..runtime.devices import blas_threads, gpu_memory, is_cluster
from ..runtime.equality import by_content
from ..runtime.progress import Line
from ..runtime.tasks import Tasks
from ..vecchia.blocks import Blocks, Neighbours
from .mixtures import HurdleMixture, MeanScale, Mixture
from .simulate import averages_of_draws, scale_of
from .supports import (
    Points,
    blocks_of,
    check_of,
    check_points,
    neighbour_count,
    new_columns,
    own_coefficients,
    targets_of,
)

if TYPE_CHECKING:
    from .._typing import ArrayLike, Block, Columns, Floats, Frame, Grid, Of
    from ..covariance.base import Covariance
    from ..data.observations import NewLocations
    from ..estimation.result import Fit

CHUNK_ENTRIES, GPU_CHUNK_ENTRIES = 1 << 22, 1 << 27
"""Covariances between targets and observations held at one time; on a GPU, where long products are
faster, 1.1 GB, and three times that on the device."""

CHUNK_TARGETS, LEAST_CHUNK_TARGETS = 1 << 16, 1 << 12
"""Targets predicted from their neighbours at one time; in a task on a cluster at least so many,
since the overhead of a smaller task would exceed its work."""

LEAST_SCALED_EIGENVALUE = 1e-12
"""Smallest eigenvalue of an invertible X_N'Σ⁻¹X_N, scaled to a unit diagonal."""


ENDS_OF_OBSERVATION = "observation_lower", "observation_upper"
"""Names of the bounds of a new observation beside those of the field, `lower` and `upper`."""

PARTS_OF_HURDLE = "probability_of_presence", "mean_of_amount"
"""Names of the columns of the parts of a hurdle."""

NODES_OF_HURDLE, GOLDEN_RATIO = 400, (5**0.5 - 1) / 2
"""Pairs of quantiles of presence and amount, and the step of the lattice that pairs them."""


@by_content
@dataclass(frozen=True)
class Prediction:
    """Kriging predictions.

    Parameters
    ----------
    locations : (m, d) ndarray
        The new locations; for blocks their centres.
    mean : (m,) ndarray
        Predicted field, in the unit of the values: with a transformation the mean of the
        back-transformed field, with a response the mean of a value given the field. A mean or a
        variance that does not exist is infinite; `median`, `quantile` and `interval` do not depend
        on it.
    variance : (m,) ndarray
        Variance of the prediction error of the noiseless field (for blocks: of its average),
        with the uncertainty of the trend's coefficients; in squared units of the values.
    noise : (m,) ndarray or None
        Variance of the noise of a new observation: the nugget and its error variance; None for
        blocks. With a transformation on the Gaussian scale.
    table : Table or None
        The frame or grid that the locations came from.
    transform : Transformation or None
        Transformation of the values to the Gaussian scale.
    gaussian : ((m,) ndarray, (m,) ndarray) or None
        Mean and variance on the Gaussian scale, with a transformation.
    samples : (draws, m) ndarray or None
        Averages of back-transformed draws over blocks, from which all else is computed.
    response : Response, Hurdle or None
        Distribution of a new observation given the field, if it is not Gaussian.
    trials : (m,) ndarray or None
        Trials of a new binomial observation; 1 if not given.
    variable : (m,) ndarray or None
        Name of the variable of each row, or its number if it has no name, for a multivariate model.
    variable_name : str
        Name of the column of the variables.
    presence, amount : Prediction or None
        For a hurdle, the predictions of the probability that a value is not 0, and of the mean of
        values that are not 0; the prediction is of their product.
    """

    locations: Floats
    mean: Floats
    variance: Floats
    noise: Floats | None
    table: spatial.Table | None = field(default=None, repr=False, compare=False)
    transform: Transformation | None = None
    gaussian: tuple[Floats, Floats] | None = None
    samples: Floats | None = field(default=None, repr=False)
    variable: ArrayLike | None = field(default=None, repr=False)
    variable_name: str = "variable"
    response: Response | Hurdle | None = None
    trials: Floats | None = field(default=None, repr=False)
    presence: Prediction | None = field(default=None, repr=False)
    amount: Prediction | None = field(default=None, repr=False)

    @classmethod
    def back_transformed(cls, prediction: Prediction, transform: Transformation) -> Prediction:
        """Return a prediction on the Gaussian scale in the unit of the values."""
        mean, variance = transform.moments(prediction.mean, prediction.variance)
        gaussian = prediction.mean, prediction.variance
        return replace(
            prediction, mean=mean, variance=variance, transform=transform, gaussian=gaussian
        )

    @classmethod
    def of_hurdle(cls, presence: Prediction, amount: Prediction) -> Prediction:
        """Return the prediction of the product of independent ones of presence and amount."""
        first, mean = presence.mean, amount.mean
        return replace(
            presence,
            mean=first * mean,
            variance=presence.variance * (amount.variance + mean**2) + first**2 * amount.variance,
            noise=amount.noise,
            transform=None,
            gaussian=None,
            response=Hurdle(amount.response, presence.response.link),
            presence=presence,
            amount=amount,
        )

    def __repr__(self) -> str:
        targets = "locations" if self.noise is not None else "blocks"
        m, d = self.locations.shape
        if self.variable is not None:
            targets = f"{targets} and variables ({few(self._variables)})"
        return f"<Prediction at {m:,} {targets} in {d} dimension{'s' if d > 1 else ''}>"

    def __str__(self) -> str:
        return summary(*self._summary())

    def _repr_html_(self) -> str:
        return summary_html(*self._summary())

    def _summary(self):
        columns = {"mean": self.mean}
        if self._has_median:
            columns["median"] = self.median
        columns["standard error"] = np.sqrt(self.variance)
        count = f"{len(self.mean):,}"
        title, unit = f"Averages over {count} blocks", f"over blocks, in {count} rows"
        if self.noise is not None:
            columns["of an observation"] = np.sqrt(self.variance_of_observation)
            title, unit = f"Predictions at {count} locations", f"at {count} rows"
        if self.variable is None:
            return title, columns
        return f"{title.split()[0]} of {few(self._variables)} {unit}", {
            f"{label}: {name}": column[self.variable == label]
            for label in self._variables
            for name, column in columns.items()
        }

    @property
    def _variables(self):
        """The variables that are predicted, each once."""
        return tuple(dict.fromkeys(np.asarray(self.variable).tolist()))

    def of_variable(self, variable: str | int) -> Prediction:
        """Return the rows of one variable.

        Parameters
        ----------
        variable : str or int
            As in `Prediction.variable`.

        Raises
        ------
        InvalidInput
            If it was not predicted.
        """
        known = () if self.variable is None else self._variables
        # a number is the name if the names are codes
        variable = str(variable) if str(variable) in known else variable
        if variable not in known:
            raise InvalidInput(
                f"`variable` must be one of: {', '.join(map(str, known)) or 'none'}. "
                f"Got {variable!r:.60}."
            )
        rows = np.asarray(self.variable) == variable
        return replace(
            self,
            locations=self.locations[rows],
            mean=self.mean[rows],
            variance=self.variance[rows],
            noise=None if self.noise is None else self.noise[rows],
            table=None if self.table is None else self.table.some(rows),
            gaussian=self.gaussian and tuple(x[rows] for x in self.gaussian),
            transform=self.transform and self.transform.of_rows(rows),
            samples=None if self.samples is None else self.samples[:, rows],
            variable=np.asarray(self.variable)[rows],
            trials=None if self.trials is None else self.trials[rows],
        )

    @property
    def _has_median(self):
        """Whether the field's median may differ from its mean."""
        return self.transform is not None or self._is_sampled

    @property
    def _is_sampled(self):
        """Whether quantiles of the field are those of samples."""
        return self.samples is not None or self.amount is not None

    def _by_samples(self, statistic):
        """Return a statistic of the samples, (draws, k), of each row, (m,)."""
        if self.samples is not None:
            return statistic(self.samples)
        chunks = range(0, len(self.mean), CHUNK_ENTRIES // NODES_OF_HURDLE)
        parts = (_products(self.presence, self.amount, slice(k, k + chunks.step)) for k in chunks)
        return np.concatenate([statistic(part) for part in parts])

    @cached_property
    def _new(self):
        """The distribution of new observations of a response."""
        if self.amount is not None:
            return HurdleMixture(self.presence._new, self.amount._new)
        return Mixture(self.response, *self._normal("observation"), self.trials)

    def _is_mixed(self, of):
        """Whether the response's distribution is wanted."""
        check_of(of)
        return of == "observation" and self.response is not None and self.noise is not None

    @property
    def mean_of_observation(self) -> Floats:
        """Mean of a new observation, (m,): with a response, also over the noise of the field."""
        if self._is_mixed("observation"):
            return self._new.mean_value()
        mean, variance = self._normal("observation")
        return mean if self.transform is None else self.transform.moments(mean, variance)[0]

    @property
    def variance_of_observation(self) -> Floats:
        """Variance of the prediction error of a new observation, (m,)."""
        if self.noise is None:
            raise InvalidInput(
                'a block has no new observation to predict: predict the field, of="field".'
            )
        if self._is_mixed("observation"):
            return self._new.variance_value()
        if self.transform is None:
            return self.variance + self.noise
        return self.transform.moments(*self._normal("observation"))[1]

    @property
    def median(self) -> Floats:
        """Median of the predicted field, (m,): the mean without a transformation."""
        if self._is_sampled:
            return self._by_samples(partial(_quantile, p=0.5))
        return self.mean if self.transform is None else self.transform.inverse(self.gaussian[0])

    def _normal(self, of):
        """Return mean and variance on the Gaussian scale, of the field or a new observation."""
        check_of(of)
        mean, variance = self.gaussian or (self.mean, self.variance)
        if of == "observation":
            if self.noise is None:
                # raises: blocks have no observation
                return mean, self.variance_of_observation
            variance = variance + self.noise
        return mean, variance

    def quantile(self, p: float, of: Of = "field") -> Floats:
        """Return a quantile of the field or of a new observation, (m,).

        Parameters
        ----------
        p : float
            Between 0 and 1.
        of : {"field", "observation"}

        Raises
        ------
        InvalidInput
            If p is not between 0 and 1.
        """
        from scipy.special import ndtri

        if not (isinstance(p, Real) and not isinstance(p, bool) and 0 < p < 1):
            raise InvalidInput(f"`p` must be between 0 and 1. Got {p!r}.")
        if self._is_mixed(of):
            return self._new.quantile(p)
        mean, variance = self._normal(of)
        if self._is_sampled:
            return self._by_samples(partial(_quantile, p=p))
        z = mean + ndtri(p) * np.sqrt(variance)
        return z if self.transform is None else self.transform.inverse(z)

    def probability_above(self, threshold: float, of: Of = "field") -> Floats:
        """Return the probability that the field, or a new observation, exceeds a value, (m,).

        Parameters
        ----------
        threshold : float
            In the unit of the values.
        of : {"field", "observation"}

        Examples
        --------
        >>> Prediction(np.zeros((2, 1)), np.array([0.0, 3.0]), np.ones(2), 0.0).probability_above(3)
        array([0.0013499, 0.5      ])
        """
        from scipy.special import ndtr

        if not is_finite(threshold):
            raise InvalidInput(f"`threshold` must be a finite number. Got {brief_repr(threshold)}.")
        if self._is_mixed(of):
            return 1.0 - self._new.cumulative(float(threshold))
        mean, variance = self._normal(of)
        if self._is_sampled:
            above = self._by_samples(lambda samples: (samples > threshold).mean(axis=0))
            return np.where(np.isnan(self.mean), np.nan, above)
        z = float(threshold) if self.transform is None else self.transform.threshold(threshold)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = (mean - z) / np.sqrt(variance)
        # a known value is above or not
        return ndtr(np.where(np.isnan(score), -np.inf, score))

    def interval(self, level: float = 0.95, of: Of = "field") -> tuple[Floats, Floats]:
        """Return the bounds of prediction intervals, of equal tails.

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
        half = z_value(level)
        if self._is_mixed(of):
            tail = (1 - level) / 2
            return self._new.quantile(tail), self._new.quantile(1 - tail)
        mean, variance = self._normal(of)
        half = half * np.sqrt(variance)
        if self._is_sampled:
            tail = (1 - level) / 2
            return self.quantile(tail, of), self.quantile(1 - tail, of)
        if self.transform is None:
            return mean - half, mean + half
        return self.transform.inverse(mean - half), self.transform.inverse(mean + half)

    def to_frame(self, level: float = 0.95, of: Of = "field") -> Frame:
        """Return the predictions as a frame.

        If the locations came from a pandas or geopandas frame, the predictions are further
        columns of it, with its index; the cells of a grid are rows.

        Parameters
        ----------
        level, of :
            As of `interval`.

        Returns
        -------
        pandas.DataFrame or geopandas.GeoDataFrame
            Columns mean, variance, lower, upper of the field and, except for blocks,
            variance_of_observation, observation_lower, observation_upper of a new observation, with
            which measurements are to be compared. With of="observation" mean, variance (of the
            field), variance_of_observation, lower_of_observation, upper_of_observation. With a
            transformation there is a column median, with a response that is not normal also
            mean_of_observation; for a hurdle also probability_of_presence and mean_of_amount.
            Predictions of a multivariate model have a column of the variable first, unless the
            table has it.
        """
        import pandas as pd

        results = self._columns(level, of)
        if self.variable is not None and not self._has_variable:
            spatial.check_free(results, (self.variable_name,))
            results = {self.variable_name: self.variable} | results
        results = pd.DataFrame(results)
        return results if self.table is None else self.table.beside(results)

    @property
    def _has_variable(self):
        """Whether the table of the locations says of which variables they are."""
        return self.table is not None and self.variable_name in self.table.columns

    def to_xarray(self, level: float = 0.95, of: Of = "field") -> Grid:
        """Return the predictions as an xarray Dataset on the grid that the locations came from.

        Its variables are the columns of `to_frame`, with a dimension for the variables of a
        multivariate model if several are predicted at each cell.
        """
        columns, along = self._columns(level, of), None
        if self.table is not None and self.table.each > 1:
            along = self.variable_name, np.asarray(self.variable)[: self.table.each]
        return spatial.on_grid(self.table, columns, along)

    def _columns(self, level, of):
        lower, upper = self.interval(level, of)
        columns = {"mean": self.mean, "variance": self.variance}
        if self.amount is not None:
            columns |= dict(
                zip(PARTS_OF_HURDLE, (self.presence.mean, self.amount.mean), strict=True)
            )
        if self._has_median:
            columns["median"] = self.median
        if of == "observation":
            if self.response is not None:
                columns["mean_of_observation"] = self.mean_of_observation
            return columns | {
                "variance_of_observation": self.variance_of_observation,
                "lower_of_observation": lower,
                "upper_of_observation": upper,
            }
        columns |= {"lower": lower, "upper": upper}
        if self.noise is not None:
            if self.response is not None:
                columns["mean_of_observation"] = self.mean_of_observation
            columns["variance_of_observation"] = self.variance_of_observation
            columns |= zip(ENDS_OF_OBSERVATION, self.interval(level, "observation"), strict=True)
        return columns


@gpu_memory()
def predict(
    fit: Fit | HurdleFit,
    new_locations: NewLocations | None = None,
    covariates: Columns | None = None,
    *,
    block: Block | None = None,
    discretisation: int | None = None,
    neighbours: int | None = None,
    local_trend: bool = False,
    time: ArrayLike | None = None,
    variable: ArrayLike | None = None,
    error_variance: ArrayLike | str | None = None,
    trials: ArrayLike | str | None = None,
    offset: ArrayLike | str | None = None,
    exposure: ArrayLike | str | None = None,
    draws: int = 400,
    seed: int = 0,
    progress: bool = True,
) -> Prediction:
    """Predict the field at new locations, or its averages over blocks.

    This is simple kriging with a zero trend, ordinary kriging with a constant one and universal
    kriging with any other. A fit by `Vecchia` predicts each target from its nearest observations;
    an exact fit from all of them, or from the nearest ones if `neighbours` is given.

    Parameters
    ----------
    fit : Fit or HurdleFit
        For a hurdle, the product of the probability that a value is not 0 and of its mean where it
        is not 0 is predicted, at locations only.
    new_locations : (m, d) array_like, Inputs, Observations, frame or xarray grid, optional
        A pandas frame must have the columns of the observations' coordinates. Points of a
        geopandas frame and cells of a grid are reprojected to the coordinate reference system of
        the observations; longitudes may differ from theirs by 360 degrees. Covariates are taken
        from a frame or a grid by name. `to_frame` and
        `to_xarray` of the result return the same kind of object. Not needed for blocks that are
        polygons or sets of points.
    covariates : (m, q) array_like or frame, optional
        For a trend with covariates; in a frame by name, where they may be text. For blocks, the
        averages of the covariates.
    block : float, (d,) sequence, sequence of polygons or (m, k, d) ndarray, optional
        Predict averages: over rectangles with these sides about the locations (in units of the
        coordinates; degrees on the sphere); over polygons (arrays of corners (c, 2), shapely
        polygons, or a geopandas frame); or over sets of k points. A block has one `time` and one
        `variable`, where the model depends on them.
    discretisation : int, optional
        Approximate a block by this many regular points along its (longer) side. If not given,
        covariances are integrals over blocks, exact to 1e-8 σ² (3e-8 σ² for spherical and Wendland
        correlations), in one and two Euclidean dimensions, and averages over 6 points along a side
        elsewhere.
    neighbours : int, optional
        Number of nearest observations that each target is predicted from, where "nearest" is
        measured in coordinates in which the model is isotropic. All observations if not given;
        for a fit by `Vecchia` twice the neighbours of the fit.
    local_trend : bool
        With neighbours: estimate the trend's coefficients from the neighbours of each target, as
        gstat's moving neighbourhoods do, not from all observations.
    time : float, date or (m,) array_like, optional
        Time of the new locations or blocks, for a space-time model; one for all is enough. A date
        if the times of the observations are dates, of the same calendar; a number if they are
        numbers. Durations count from the origin of the observations' times. Dates without a time
        zone are in that of the observations, with a warning.
    variable : str, int, tuple or (m,) array_like, optional
        Variable to predict, for a multivariate model, by name or number; or one for each location.
        A tuple of different variables, ("zinc", "lead"), also a list if it has not one for each
        location, is predicted at every location: the result has a row for each location and
        variable, first all variables of the first location. If not given, the variables are those
        in the frame or of the observations; without these all variables are predicted. Blocks
        take the place of locations.
    error_variance : float, (m,) array_like or str, optional
        Known error variance of a new observation, in addition to the nugget; 0 if not given. Text
        is a column of a frame, or a function of columns: "I(zinc_se ** 2)". With a transformation
        it is a variance of transformed values. Only `variance_of_observation` and intervals of
        observations depend on it.
    trials, offset, exposure : float, (m,) array_like or str, optional
        Of new observations of a response: trials of a binomial one, 1 if not given; offset on the
        scale of the link, 0 if not given; exposure, 1 if not given. Text is a column of a frame, or
        a function of columns. If not given, columns of a frame with the names of those of the fit
        are used.
    draws, seed : int
        Number and seed of the conditional draws from which averages over blocks are predicted with
        a transformation; the average of a transformed field is not a linear combination.
    progress : bool
        Show a progress line after two seconds if standard error is a terminal.

    Returns
    -------
    Prediction

    Raises
    ------
    InvalidInput
        For locations, covariates or blocks that do not suit the fit, and columns whose row labels
        are not those of the new locations.
    NotPositiveDefinite
        If a covariance matrix has no Cholesky factor in FP64.
    NotEnoughMemory

    Notes
    -----
    Frames, Series and xarray objects among the arguments are matched to the rows of a frame or the
    cells of a grid by their labels, in any order; arrays and lists by position.

    Examples
    --------
    Without a nugget kriging returns the observations:

    >>> import geomxp as gx
    >>> observations = gx.Observations([[0.0], [1.0], [3.0], [4.0]], [1.0, 2.0, 0.5, 0.0])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> fit = gx.fit(observations, model, fixed=tuple(model.parameters()))
    >>> same = gx.predict(fit, observations.locations)
    >>> bool(np.allclose(same.mean, observations.values)), bool(np.allclose(same.variance, 0.0))
    (True, True)

    An average has a smaller variance than the field at a point:

    >>> bool(gx.predict(fit, [[2.0]], block=1.0).variance < gx.predict(fit, [[2.0]]).variance)
    True
    """
    options = dict(locals())
    for name in ("fit", "new_locations", "covariates", "draws", "seed"):
        del options[name]
    if isinstance(fit, HurdleFit):
        check_whole("draws", draws, 2)
        if block is not None:
            refuse_blocks()
        check_hurdle_columns(fit.presence.model.response.link, trials, offset, exposure)
        parts = (predict(part, new_locations, covariates, **options) for part in fit.parts.values())
        return Prediction.of_hurdle(*parts)
    check_fit(fit)
    transform = fit.model.transform
    check_whole("draws", draws)
    on_link = options | dict.fromkeys(("block", "trials", "offset", "exposure"))
    if fit.model.response is None:
        given = {"trials": trials, "offset": offset, "exposure": exposure}
        given = [name for name, value in given.items() if value is not None]
        if given:
            raise InvalidInput(f"`{given[0]}` is for fits with a response: leave it out.")
    elif block is None:
        prediction = predict(fit.gaussian, new_locations, covariates, **on_link)
        new = {"trials": trials, "offset": offset, "exposure": exposure}
        new = new_columns(fit, prediction.table, len(prediction.mean), **new)
        return _of_response(fit, prediction, *new)
    else:
        transform = scale_of(fit.model)
    if transform is not None and block is None:
        prediction = predict(fit.gaussian, new_locations, covariates, **on_link)
        numbers = _numbers(fit.observations, prediction.variable)
        prediction = Prediction.back_transformed(prediction, transform.of(numbers))
        _caution_moments(prediction)
        return prediction
    if block is not None:
        if error_variance is not None:
            raise InvalidInput("averages over blocks have no `error_variance`: leave it out.")
        targets, covariates, table = blocks_of(
            fit, block, new_locations, covariates, discretisation, time, variable
        )
        check_points(targets, discretisation)
    elif new_locations is None or discretisation is not None:
        missing = "`new_locations` are missing" if new_locations is None else "`block` is missing"
        raise InvalidInput(f"{missing}: give `new_locations`, `block` or both.")
    else:
        inputs, covariates, table = targets_of(
            fit, new_locations, covariates, time, variable, error_variance
        )
        targets = Points(inputs)
    names = {
        "variable": _labels(fit.observations, targets.inputs),
        "variable_name": fit.observations.variable_name,
    }
    if transform is not None:
        if neighbours is not None or local_trend:
            raise InvalidInput(
                "averages of a transformed field are drawn, not kriged: leave `neighbours` and "
                "`local_trend` out."
            )
        check_whole("draws", draws, 2)
        check_whole("seed", seed, 0, inf)
        with Line("drawing", shown=progress):
            samples, order = averages_of_draws(fit, targets, covariates, int(draws), seed)
        mean = np.where(order > 1, samples.mean(axis=0), np.inf)
        with np.errstate(invalid="ignore"):
            # values of some transformations are infinite
            known = np.isfinite(mean) & (order > 2)
            variance = np.where(known, samples.var(axis=0, ddof=1), np.inf)
        prediction = Prediction(
            targets.locations,
            mean,
            variance,
            noise=None,
            table=table,
            transform=transform.of(targets.inputs.variable),
            samples=samples,
            **names,
        )
        _caution_moments(prediction)
        return prediction
    check_flags(local_trend=local_trend)
    if local_trend and not (fit.method.approximate or neighbours is not None):
        raise InvalidInput("`local_trend` needs `neighbours`.")
    mean, variance = _kriged(fit, targets, covariates, neighbours, local_trend, progress)
    noise = fit.model.noise(targets.inputs).variances if block is None else None
    return Prediction(targets.locations, mean, variance, noise, table, **names)


def refuse_blocks() -> None:
    """Raise `InvalidInput` for averages of a hurdle over blocks."""
    raise InvalidInput(
        "a hurdle can only be predicted at locations: average draws at points of the block, "
        "gx.simulate(fit, points, draws=400)."
    )


def _of_response(fit, prediction, trials, offset):
    """Return a prediction of η as one of the mean of a value, and of new observations."""
    response, transform = fit.model.response, fit.model.transform
    if offset is not None:
        prediction = replace(prediction, mean=prediction.mean + offset)
    if response.normal_noise is None:
        found = Prediction.back_transformed(prediction, MeanScale(response))
        return replace(found, response=response, trials=trials)
    prediction = replace(prediction, noise=prediction.noise + response.normal_noise)
    if transform is None:
        return prediction
    numbers = _numbers(fit.observations, prediction.variable)
    prediction = Prediction.back_transformed(prediction, transform.of(numbers))
    _caution_moments(prediction)
    return prediction


def _caution_moments(prediction):
    """Warn if means or variances of back-transformed predictions are infinite."""
    columns = {"mean": prediction.mean, "variance": prediction.variance}
    if prediction.noise is not None:
        columns["variance_of_observation"] = prediction.variance_of_observation
    counts = {name: int(np.isinf(column).sum()) for name, column in columns.items()}
    lost = [f"{name} in {count:,}" for name, count in counts.items() if count]
    if not lost:
        return
    rule = prediction.transform.moment_rule or "values exceed the largest number of FP64"
    warnings.warn(
        f"moments that do not exist are infinite: {', '.join(lost)} of {len(prediction.mean):,} "
        f"rows ({rule}). Use median, quantiles and intervals, which always exist.",
        GeomxpWarning,
        # of the caller of `predict`, which has a decorator
        stacklevel=4,
    )


def _kriged(fit, targets, covariates, neighbours=None, local_trend=False, progress=False):
    """Return means and variances of the targets, (m,)."""
    design = targets.design(fit.trend, covariates)
    with Line("predicting", shown=progress) as line:
        if fit.method.approximate or neighbours is not None:
            mean, variance = _from_nearest(fit, targets, design, neighbours, local_trend, line)
        else:
            mean, variance = _from_all(fit, targets, design, line)
    # rounding may make the variance at an observed location slightly negative
    return mean, np.maximum(variance, 0.0)


def predict_left_out(
    fit: Fit, inputs: Inputs, covariates: Columns | None, progress: bool = False
) -> tuple[Floats, Floats, float | Floats]:
    """Return the field's mean and variance, (m,), and the variance of the noise of observations.

    The fit does not know the observations. Their noise is correlated with that of other variables
    at their location, if the model says so. A fit with a transformation must be on the Gaussian
    scale.
    """
    inputs, covariates, _ = targets_of(fit, inputs, covariates)
    targets = Points(inputs, measured=True)
    return *_kriged(fit, targets, covariates, progress=progress), fit.model.noise(inputs).variances


def prediction_covariance(
    fit: Fit,
    new_locations: NewLocations,
    covariates: Columns | None = None,
    *,
    time: ArrayLike | None = None,
    variable: ArrayLike | None = None,
) -> Floats:
    """Return the covariance matrix of the errors of predictions of the field at new locations.

    Σ₀₀ - K'Σ⁻¹K + D'Cov(β̂)D with K the covariances of observations and targets, D = X₀' - X'Σ⁻¹K.
    Its diagonal is `Prediction.variance`. Of several variables, also between the variables.

    Parameters
    ----------
    fit : Fit
        By an exact method; predictions from nearest observations have no joint distribution.
    new_locations, covariates, time, variable :
        As of `predict`.

    Returns
    -------
    (m, m) ndarray
        In the order of the rows of `predict`, in products of the units of the values.

    Raises
    ------
    InvalidInput
        For a fit by `Vecchia`, one with a transformation, or arguments that do not suit the fit.

    Examples
    --------
    >>> import geomxp as gx
    >>> meuse = gx.datasets.load("meuse", values=("log(zinc)", "log(lead)"))
    >>> fit = gx.fit(meuse, family="parsimonious-matern", fixed={"smoothness_1": 0.5})
    >>> errors = prediction_covariance(fit, [[180000.0, 331000.0]])
    >>> errors.shape, bool(errors[0, 1] > 0)
    ((2, 2), True)
    """
    check_fit(fit)
    if fit.model.transform is not None or fit.model.response is not None:
        raise InvalidInput(
            "errors on the measured scale have no covariance matrix in closed form: simulate with "
            "`gx.simulate(fit, ...)`."
        )
    if fit.method.approximate:
        raise InvalidInput(
            "predictions from nearest observations have no joint distribution: fit with "
            "`method=gx.Exact()`, or simulate with `gx.simulate(fit, ...)`."
        )
    inputs, covariates, _ = targets_of(fit, new_locations, covariates, time, variable)
    targets = Points(inputs)
    observations, model, own_design = fit.observations, fit.model, design_of(fit)
    design = targets.design(fit.trend, covariates)
    evaluator = fit.method.prepare(observations, own_design, fit.reml)
    check_memory(max(len(observations), len(targets)), 3, evaluator.device)
    with blas_threads(len(observations)):
        factor = evaluator.factorize(model)
        field = model.of_field(inputs)
        k = np.asfortranarray(model.matrix(observations.inputs, field))
        result = model.matrix(field, field) - factor.inner(k)
        if own_design.shape[1]:
            trend = fit_trend(factor, observations.values, own_design)
            apart = (design - factor.inner(k, own_design)) @ trend.root
            result += apart @ apart.T
    return result


def _labels(observations, inputs):
    """Return the names of the variables of inputs, their numbers without names; None for one."""
    if inputs.variable is None or not observations.variable_names:
        return inputs.variable
    return np.array(observations.variable_names)[inputs.variable]


def _numbers(observations, labels):
    """Return the numbers of variables as `_labels` names them; None for one."""
    if labels is None or not observations.variable_names:
        return labels
    known = {name: k for k, name in enumerate(observations.variable_names)}
    return np.array([known[label] for label in labels])


def _products(presence, amount, rows):
    """Return products of a probability and an amount, (`NODES_OF_HURDLE`, k), for some rows.

    They are at equally probable quantiles of both, paired by a lattice with the golden ratio.
    """
    from scipy.special import ndtri

    first = np.arange(NODES_OF_HURDLE)
    second = np.argsort(np.argsort((first + 0.5) * GOLDEN_RATIO % 1))
    fields = []
    for part, ranks in ((presence, first), (amount, second)):
        mean, variance = (one[rows] for one in part.gaussian)
        z = mean + np.multiply.outer(ndtri((ranks + 0.5) / len(ranks)), np.sqrt(variance))
        fields.append(part.transform.of_rows(rows).inverse(z))
    return fields[0] * fields[1]


def _quantile(samples, p):
    """Return a quantile of each column of samples, some of which may be infinite."""
    with np.errstate(invalid="ignore"):
        result = np.quantile(samples, p, axis=0)
    # interpolation between infinite numbers is not defined
    return np.where(np.isnan(result), np.quantile(samples, p, axis=0, method="nearest"), result)


def _from_all(fit, targets, design, line):
    """Return means and variances of the targets, (m,), from all observations.

    mean = x₀'β̂ + k'Σ⁻¹(z - Xβ̂) and variance = σ² - k'Σ⁻¹k + d'(X'Σ⁻¹X)⁻¹d with d = x₀ - X'Σ⁻¹k.
    """
    observations, model, own_design = fit.observations, fit.model, design_of(fit)
    evaluator = fit.method.prepare(observations, own_design, fit.reml)
    with blas_threads(len(observations)):
        factor = evaluator.factorize(model)
        trend = own_coefficients(fit, fit_trend(factor, observations.values, own_design))
        weights, explained = factor.solve(trend.residual), factor.explained_by(own_design)
        rounding = bound(
            factor,
            model,
            model.noise(observations.inputs),
            trend.residual,
            trend.quadratic_form,
            factor.log_determinant(),
        )
        caution_rounding(rounding, stacklevel=4)
        mean, variance = np.empty(len(targets)), targets.variances(model, observations.metric)
        index = evaluator.device.index
        # a refined factor keeps the columns of its iteration in RAM
        in_ram = index is None or factor.refines
        entries = CHUNK_ENTRIES if in_ram else GPU_CHUNK_ENTRIES
        step = max(1, entries // len(observations) // factor.vectors)
        line.expect(len(targets), "locations")
        for first in range(0, len(targets), step):
            part = slice(first, first + step)
            some = targets.part(part)
            k = some.covariances(model, observations.inputs, observations.metric, index)
            mean[part] = design[part] @ trend.coefficients + _product(k, weights)
            squares, cross = explained(k)
            variance[part] -= squares
            if trend.root.size:
                variance[part] += (((design[part] - cross) @ trend.root) ** 2).sum(axis=1)
            line.advance(len(mean[part]))
    return mean, variance


def _product(k, b):
    """Return k'b as a NumPy array, for k in RAM or on a GPU."""
    backend = backend_of(k)
    with backend.on(k):
        return backend.get(k.T @ backend.put(b, k))


# Kriging from the nearest observations


@dataclass(frozen=True)
class Neighbourhoods:
    """Data shared by all predictions from nearest observations.

    The tree is of the model's `neighbour_points`; inputs (n), columns (1 + p, n) and
    noise (n,) are in its order: the columns are z - Xβ̂ and X'. The covariance of β̂, (p, p), is None
    if the coefficients are those of the `count` neighbours.
    """

    model: Covariance
    tree: Tree
    inputs: Inputs
    columns: np.ndarray
    noise: np.ndarray
    count: int
    coefficient_covariance: np.ndarray | None
    # see `Covariance.neighbour_key`
    key: object


def _from_nearest(fit, targets, design, neighbours, local_trend, line):
    """Return means and variances of the targets, (m,), each from its nearest observations.

    mean = x₀'β + λ'(z_N - X_N β) with Σ_NN λ = k, and variance = c - k'λ + d'Cov(β)d with
    d = x₀ - X_N'λ and the target's own variance c. β and its covariance are those of all
    observations, or (`local_trend`) generalised least squares on the neighbours. The neighbours of
    a block are those of its centre. With all observations as neighbours both are kriging.
    """
    observations, model = fit.observations, fit.model
    count = neighbour_count(fit, neighbours)
    model.check_tabulated("Predict from all observations, without `neighbours`.")
    observations, own_design, _ = sufficient(observations, design_of(fit))
    count = min(count, len(observations))
    inputs = observations.inputs
    key = Neighbours(inputs, count).key_of(model)
    tree = tree_of(model.neighbour_points(inputs, key))
    with blas_threads(0):
        residuals = observations.values - own_design @ fit.coefficients
        trend = design @ fit.coefficients
        if local_trend and own_design.shape[1]:
            own_design, design = _orthogonal(own_design, design)
    known = Neighbourhoods(
        model,
        tree,
        inputs=inputs[tree.order],
        columns=np.vstack((residuals, own_design.T))[:, tree.order],
        noise=model.noise(inputs).variances[tree.order],
        count=count,
        coefficient_covariance=None if local_trend else fit.coefficient_covariance,
        key=key,
    )
    mean, variance = np.empty(len(targets)), np.empty(len(targets))
    line.expect(len(targets), "locations")
    tasks = Tasks(fit.method.on if is_cluster(fit.method.on) else "cpu")
    step = min(CHUNK_TARGETS, max(LEAST_CHUNK_TARGETS, -(-len(targets) // (4 * tasks.threads))))
    check_neighbours(len(observations), count, min(step, len(targets)))
    starts = range(0, len(targets), step)
    parts = [slice(first, min(first + step, len(targets))) for first in starts]
    pieces = [(targets.part(part), design[part], part.start) for part in parts]
    for part, result in zip(parts, tasks.over(krige_part, known, pieces), strict=True):
        mean[part], variance[part] = result
        line.advance(part.stop - part.start)
    return mean + trend, variance


@blas_threads(0)
def krige_part(known, piece):
    """Return the means about the trend at β̂ and the variances of some targets, (k,).

    `piece` holds the targets, their design (k, p), and the number of the first one, for messages.
    """
    targets, design, first = piece
    model, metric, tree = known.model, known.inputs.metric, known.tree
    own = targets.inputs_of(model)
    near = nearest(tree, model.neighbour_points(own, known.key), known.count)
    blocks = Blocks(model, known.inputs, own)
    averages = targets.covariances_with(model, known.inputs, metric, near)
    grams = blocks.grams(near, known.noise, known.columns, averages)
    bad = np.flatnonzero(~np.isfinite(grams).all(axis=(1, 2)))
    if len(bad):
        raise NotPositiveDefinite(
            f"the covariance matrix of the observations near location {first + bad[0] + 1} is not "
            "positive definite in FP64: use fewer neighbours or a larger nugget."
        )
    mean, reduction = _from_grams(grams, design, known.coefficient_covariance, first)
    return mean, targets.variances(model, metric) - reduction


def _from_grams(grams, design, coefficient_covariance, first):
    """Return λ'(z_N - X_N β̂) and the reduction of the target's own variance, (k,).

    `grams`, (k, 2 + p, 2 + p), are Gram matrices of the whitened k, z_N - X_N β̂ and X_N.
    """
    mean, reduction = grams[:, 0, 1].copy(), grams[:, 0, 0].copy()
    d = design - grams[:, 0, 2:]
    if coefficient_covariance is not None:
        return mean, reduction - np.einsum("ij,jk,ik->i", d, coefficient_covariance, d)
    if not design.shape[1]:
        return mean, reduction
    # β of the neighbours is β̂ + (X_N'Σ⁻¹X_N)⁻¹X_N'Σ⁻¹(z_N - X_N β̂)
    weights = np.linalg.solve(_determined(grams[:, 2:, 2:], first), d[..., None])[..., 0]
    mean += np.einsum("ij,ij->i", weights, grams[:, 2:, 1])
    return mean, reduction - np.einsum("ij,ij->i", weights, d)


def _determined(information, first):
    """Return X_N'Σ⁻¹X_N of all targets if each is invertible."""
    scale = np.sqrt(np.einsum("ijj->ij", information))
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = information / (scale[:, :, None] * scale[:, None, :])
    unit = np.where(np.isfinite(unit), unit, 0.0)
    bad = np.flatnonzero(np.linalg.eigvalsh(unit)[:, 0] < LEAST_SCALED_EIGENVALUE)
    if len(bad):
        raise InvalidInput(
            f"the neighbours of location {first + bad[0] + 1} do not determine the trend's "
            f"coefficients ({len(bad)} such locations): use more `neighbours`, or "
            "local_trend=False."
        )
    return information


def _orthogonal(own_design, design):
    """Return the design at observations with orthonormal columns, and that of targets alike.

    Columns that are orthogonal over all observations are mostly well separated over a few.
    """
    q, r = np.linalg.qr(own_design)
    return q, scipy.linalg.solve_triangular(r, design.T, trans="T").T


# Predictions in files

RESULT_COLUMNS = (
    *("mean", "variance", "median", "lower", "upper", "variance_of_observation"),
    *("lower_of_observation", "upper_of_observation", *ENDS_OF_OBSERVATION),
    *("mean_of_observation", *PARTS_OF_HURDLE),
)
"""Columns that `Prediction.to_frame` may add."""


def check_output(data, path):
    """Raise `InvalidInput` if a file cannot hold predictions at a frame or a grid."""
    if path:
        # all locations can be written as points
        tables.check_kind(path, True, spatial.is_grid(data))


def check_columns(data):
    """Raise `InvalidInput` if new locations have a column with the name of a result."""
    spatial.check_free(spatial.tabulate(data).columns, RESULT_COLUMNS)


def for_file(prediction, path, observations, level, of):
    """Return predictions at a frame or grid as the content of a file: grid, points or columns."""
    ending = Path(path).suffix.lower()
    if ending in (*tables.GRID_ENDINGS, *rasters.GEOTIFF_ENDINGS):
        return prediction.to_xarray(level, of)
    frame = prediction.to_frame(level, of)
    if ending not in tables.VECTOR_ENDINGS or spatial.is_geographic_frame(frame):
        return frame
    if prediction.locations.shape[1] == 1:
        raise InvalidInput(f"{path}: holds points, and these locations are 1-D: write a .csv.")
    geopandas = spatial.library("geopandas")
    system = None if observations.system is None else spatial.describe(observations.system).name
    points = geopandas.points_from_xy(*prediction.locations.T, crs=system)
    return geopandas.GeoDataFrame(tables.typed(frame), geometry=points)


def records(prediction, fit, level, of):
    """Return predictions as a list of dicts: coordinates, times, covariates, results."""
    import pandas as pd

    columns = dict(zip(fit.observations.location_names, prediction.locations.T, strict=True))
    table, time = prediction.table.columns, prediction.table.time or fit.observations.time_name
    if fit.observations.time is not None and time in table:
        columns[time] = as_texts(table[time])
    trends = [part.trend for part in getattr(fit, "parts", {"": fit}).values()]
    for name in dict.fromkeys(name for trend in trends for name in trend.needs):
        text = any(name in trend.levels for trend in trends)
        numbers = table[name] if text else tables.number_columns(table, (name,))[:, 0]
        columns[name] = np.asarray(numbers)
    results = replace(prediction, table=None).to_frame(level, of)
    return pd.DataFrame(columns).join(results).to_dict("records")
