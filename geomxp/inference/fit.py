"""Maximum likelihood: from observations to a model with standard errors."""

from __future__ import annotations

import time
from math import isfinite, log
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.distance import power_of_two_near
from ..covariance.matern import Matern
from ..errors import DuplicateLocations, FitFailed, InvalidInput
from ..observations import Observations
from ..outcome import Ending
from . import progress as progress_
from .estimate import Fit
from .exact import Exact
from .factorize import coincidence
from .likelihood import caution, check_model_and_how
from .maximize import SEARCHES
from .problem import Problem
from .space import PARAMETER_NAMES, Extent, Space, check_bounds
from .trend import Trend

if TYPE_CHECKING:
    from ..annotations import Fixed, How, Interval, Mapping, PathLikeText


def fit(
    observations: Observations,
    model: Matern | None = None,
    how: How | None = None,
    *,
    fixed: Fixed = (),
    start: Mapping[str, float] | None = None,
    bounds: Mapping[str, Interval] | None = None,
    trend: str = "constant",
    reml: bool = False,
    anisotropy: bool = False,
    search: str = "scoring",
    starts: int = 1,
    tolerance: float = 1e-6,
    evaluations: int = 1000,
    checkpoint: PathLikeText | None = None,
    progress: bool = True,
    seed: int = 0,
    raise_on_failure: bool = True,
) -> Fit:
    """Estimate a Matérn model by maximum likelihood.

    Parameters
    ----------
    observations : Observations
    model : Matern, optional
        Where the search starts. Without it, and for parameters that `start` does not name, the
        start comes from the data.
    how : likelihood, optional
        `Exact()` if not given.
    fixed : sequence of str, or dict of str to float
        Parameters that are not estimated: with the value that `model` gives them, or this one.
        All others are estimated, the nugget too.
    start : dict of str to float, optional
        Start values for some of the parameters.
    bounds : dict of str to (float, float), optional
        In the units of the data.
    trend : str
        "zero", "constant", "linear", "covariates", or a formula such as "elev + poly(x, 2)".
    reml : bool
        Maximise the restricted likelihood.
    anisotropy : bool
        Estimate geometric anisotropy (also when `model` has one); for the plane.
    search : {"scoring", "bobyqa", "lbfgs", "slsqp"}
        Fisher scoring, with BOBYQA where it does not converge; or one of NLopt's algorithms.
    starts : int
        From how many points to search; a run that goes on from a checkpoint searches from its
        best model only.
    tolerance : float
        Absolute, on the log-likelihood: converged means that one more Newton step promises less.
    evaluations : int
        Limit on evaluations of the likelihood, for each start and each run.
    checkpoint : path, optional
        File that keeps the best model after every improvement; the same call goes on from it.
    progress : bool
        Show a progress line where standard error is a terminal.
    seed : int
        For the subsample on which starts are compared.
    raise_on_failure : bool
        Raise where there is no estimate, instead of returning what was reached with its outcome.

    Returns
    -------
    Fit

    Raises
    ------
    FitFailed
        If the likelihood has no finite maximum, or the search stalled. (A search that the limit
        stopped returns, with the outcome EVALUATION_LIMIT.)
    NotPositiveDefinite
        If no model within the bounds has a covariance matrix with a Cholesky factor.
    InvalidInput, NotEnoughMemory, MissingDevice
    """
    began = time.perf_counter()
    _check_types(observations, model, how, start, bounds)
    how = Exact() if how is None else how
    mean = Trend.of(observations, trend)
    design = mean.design(observations.locations, observations.covariates)
    mean.check_full_rank(design)
    check_options(search, starts, tolerance, evaluations, seed)
    units = Units.of(observations, design)
    anisotropic = anisotropy or (model is not None and model.anisotropy is not None)
    fixed, start = _values(model, fixed, start, anisotropic)
    bounds = check_bounds(bounds, start, fixed)
    _check_metric(observations, fixed | start, anisotropic)
    if observations.metric == "great-circle" and bounds.get("smoothness", (0, 0))[1] > 0.5:
        raise InvalidInput("with great-circle distances the smoothness is bounded by 0.5.")
    _check_duplicates(observations, fixed)

    scaled = units.scaled(observations)
    space = Space(
        units.inward(fixed),
        units.inward_bounds(bounds),
        Extent.of(scaled),
        observations.metric,
        units.variance,
        anisotropic,
    )
    mark = progress_.fingerprint(
        observations,
        design,
        (reml, anisotropic, sorted(fixed.items()), sorted(bounds.items()), how.describe(0)),
    )
    resumed, count = progress_.resume(checkpoint, mark)
    monitor = progress_.Monitor(
        count + evaluations * starts,
        lambda scaled_model, value: (
            units.outward(scaled_model),
            value + units.shift(design, reml),
        ),
        checkpoint,
        mark,
        progress,
    )
    monitor.count = count
    problem = Problem(scaled, design, reml, how, space, monitor, tolerance, search)
    with monitor:
        if resumed is not None:
            start = {name: resumed.parameters()[name] for name in space.free}
        found = problem.solve(units.inward(start), starts, seed)

    with np.errstate(over="ignore"):
        covariance = found.evaluation.coefficient_covariance * units.value**2
    if not np.isfinite(covariance).all():
        raise InvalidInput(
            "the trend's coefficients have variances beyond FP64: rescale the values or the "
            "coordinates (covariates) by a constant."
        )
    result = Fit(
        model=units.outward(found.model),
        log_likelihood=found.evaluation.log_likelihood + units.shift(design, reml),
        outcome=found.outcome,
        evaluations=monitor.count,
        history=tuple(monitor.history),
        standard_errors=units.outward_errors(found.standard_errors),
        seconds=time.perf_counter() - began,
        observations=observations,
        method=how,
        trend=mean,
        reml=reml,
        free=found.free,
        coefficients=found.evaluation.coefficients * units.value,
        coefficient_covariance=covariance,
        formats=getattr(found.evaluation.precision_map, "counts", lambda: {"fp64": 1})(),
        promotions=found.evaluation.promotions,
        information=found.information,
        boundary=tuple(name for name in space.free if name not in found.free),
        bounds=bounds,
    )
    caution(how, found.evaluation)
    failed = (Ending.NO_FINITE_MAXIMUM, Ending.STALLED)
    if raise_on_failure and result.outcome.ending in failed:
        raise FitFailed(str(result.outcome), result)
    return result


class Units:
    """Powers of two that bring lengths and values near 1 for the search, and back.

    Parameters
    ----------
    length, value : float
        The unit of the scaled problem in the user's units.
    variance : float
        Variance of the scaled values about the least-squares trend.
    """

    def __init__(self, length, value, variance):
        self.length = length
        self.value = value
        self.variance = variance

    @classmethod
    def of(cls, observations, design):
        """Choose; raise `InvalidInput` if the values cannot have a variance."""
        z = observations.values
        largest = float(np.abs(z).max())
        unit = power_of_two_near(largest)
        residual = z / unit
        if design.shape[1]:
            scaled = design / np.abs(design).max(axis=0)
            residual = residual - scaled @ np.linalg.lstsq(scaled, residual, rcond=None)[0]
        spread = float(np.sqrt(np.mean(residual**2)))
        # what rounding leaves of values that the trend fits exactly
        if spread <= 16 * np.finfo(float).eps * max(1.0, design.shape[1]):
            what = (
                "the values are all equal"
                if np.ptp(z) == 0
                else "the trend fits the values exactly"
            )
            raise InvalidInput(f"{what}: there is no variance to estimate.")
        value = unit * power_of_two_near(spread)
        if not 1e-145 < value < 1e145:
            raise InvalidInput(
                f"the values spread by about {value:.0e}, whose square is no FP64 number: "
                "divide them by a constant first."
            )
        length = 1.0
        if observations.metric == "euclidean":
            # quarters: the spread of coordinates near ±1e308 is a number still
            spreads = np.ptp(observations.locations / 4, axis=0)
            length = 4 * power_of_two_near(float(spreads.max()))
            length = min(max(length, 2.0**-1000), 2.0**1000)
        return cls(length, value, (spread * unit / value) ** 2)

    def scaled(self, observations):
        """Return the observations in the units of the scaled problem."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said already, about the user's own coordinates
            return Observations(
                observations.locations / self.length
                if self.length != 1
                else observations.locations,
                observations.values / self.value,
                observations.covariates,
                observations.metric,
                observations.location_names,
                observations.value_name,
                observations.covariate_names,
            )

    def _unit(self, name):
        return {"variance": self.value**2, "nugget": self.value**2, "range": self.length}.get(
            name, 1.0
        )

    def inward(self, parameters):
        """Return parameters in the units of the scaled problem."""
        return {name: value / self._unit(name) for name, value in parameters.items()}

    def inward_bounds(self, bounds):
        """Return bounds in the units of the scaled problem."""
        return {
            name: tuple(self.inward({name: value})[name] for value in box)
            for name, box in bounds.items()
        }

    def outward(self, model):
        """Return a model of the scaled problem in the user's units."""
        return Matern.from_parameters(
            {name: value * self._unit(name) for name, value in model.parameters().items()}
        )

    def outward_errors(self, errors):
        """Return standard errors in the user's units."""
        return {
            name: None if value is None else value * self._unit(name)
            for name, value in errors.items()
        }

    def shift(self, design, reml):
        """Return what to add to the scaled problem's log-likelihood."""
        n, p = design.shape
        return -(n - (p if reml else 0)) * log(self.value)


def check_options(search, starts, tolerance, evaluations, seed):
    """Raise `InvalidInput` for options of the search that make no sense."""
    if search not in SEARCHES:
        raise InvalidInput(f"`search` must be one of: {', '.join(SEARCHES)}. Got {search!r}.")
    for name, value in (("starts", starts), ("evaluations", evaluations)):
        if not (isinstance(value, Integral) and not isinstance(value, bool) and value >= 1):
            raise InvalidInput(f"`{name}` must be a whole number of at least 1. Got {value!r}.")
    if not (isinstance(tolerance, (int, float)) and tolerance > 0 and isfinite(tolerance)):
        raise InvalidInput(f"`tolerance` must be greater than 0. Got {tolerance!r}.")
    if not (isinstance(seed, Integral) and seed >= 0):
        raise InvalidInput(f"`seed` must be a whole number of at least 0. Got {seed!r}.")


def _check_types(observations, model, how, start, bounds):
    if not isinstance(observations, Observations):
        raise InvalidInput(
            f"`observations` must be Observations. Got {type(observations).__name__}."
        )
    check_model_and_how(model, how, given=model is not None)
    for name, value in (("start", start), ("bounds", bounds)):
        if value is not None and not isinstance(value, dict):
            raise InvalidInput(f"`{name}` must be a dict. Got {type(value).__name__}.")


def _values(model, fixed, start, anisotropic):
    """Return the values of the fixed parameters and the start values of the others."""
    given = {} if model is None else model.parameters()
    # a model without nugget says nothing of where to start one
    held = given.pop("nugget") if given.get("nugget") == 0 else None
    names = PARAMETER_NAMES if anisotropic else PARAMETER_NAMES[:4]
    result = {}
    pairs = (
        fixed.items() if isinstance(fixed, dict) else [(name, None) for name in _sequence(fixed)]
    )
    for name, value in pairs:
        if name not in names:
            raise InvalidInput(f"`fixed` knows the parameters {', '.join(names)}. Got {name!r}.")
        if value is None:
            value = given.get(name, held if name == "nugget" else None)
        if value is None:
            raise InvalidInput(
                f"`{name}` is fixed but has no value: give fixed={{{name!r}: value}} or a model."
            )
        result[name] = value
    for name in start or {}:
        if name in result:
            raise InvalidInput(f"`{name}` is fixed and has a start: leave one of them out.")
    given |= start or {}
    for name in given:
        if name not in names:
            raise InvalidInput(f"`start` knows the parameters {', '.join(names)}. Got {name!r}.")
    given = {name: value for name, value in given.items() if name not in result}
    probe = {"variance": 1.0, "range": 1.0, "smoothness": 0.5} | given | result
    if anisotropic:
        probe.setdefault("anisotropy_ratio", 0.5)
    checked = Matern.from_parameters(probe).parameters()
    if given.get("nugget") == 0:
        raise InvalidInput("the start nugget=0 cannot move: give a small positive one, or fix it.")
    return {name: checked[name] for name in result}, {name: checked[name] for name in given}


def _sequence(fixed):
    if isinstance(fixed, str) or not hasattr(fixed, "__iter__"):
        raise InvalidInput(f"`fixed` must be a sequence of names or a dict. Got {fixed!r}.")
    return fixed


def _check_metric(observations, fixed, anisotropic):
    """Raise early where no model can be valid."""
    values = {"variance": 1.0, "range": 1.0, "smoothness": 0.5} | fixed
    if anisotropic:
        values.setdefault("anisotropy_ratio", 0.5)
    Matern.from_parameters(values).check_valid_on(observations.metric, observations.dimensions)


def _check_duplicates(observations, fixed):
    if fixed.get("nugget") == 0 and observations.duplicate():
        raise DuplicateLocations(coincidence(observations))
