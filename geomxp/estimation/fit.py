"""Maximum likelihood: from observations to a model with standard errors."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.matern import Matern
from ..data.observations import Observations
from ..errors import DuplicateLocations, Ending, FitFailed, InvalidInput
from ..estimation import monitor as progress_
from ..likelihood.evaluate import caution, check_model_and_method
from ..likelihood.exact import Exact
from ..likelihood.factorize import coincidence
from ..likelihood.trend import Trend
from ..runtime.tasks import Tasks
from .parameters import PARAMETER_NAMES, Extent, Space, Units, check_bounds
from .problem import Problem
from .result import Fit
from .search import SEARCHES

if TYPE_CHECKING:
    from .._typing import Client, Fixed, Interval, Mapping, PathLikeText
    from ..likelihood.base import Likelihood

FAILED = (Ending.NO_FINITE_MAXIMUM, Ending.STALLED)
"""Endings without an estimate."""

WHERE = ("on", "memory", "device_memory", "tiled")
"""What another run may have otherwise, and yet go on from a checkpoint: where it computes."""


def fit(
    observations: Observations,
    model: Matern | None = None,
    method: Likelihood | None = None,
    *,
    fixed: Fixed = (),
    start: Mapping[str, float] | None = None,
    bounds: Mapping[str, Interval] | None = None,
    trend: str = "constant",
    reml: bool = False,
    anisotropy: bool = False,
    search: str = "scoring",
    starts: int = 1,
    starts_on: str | Client = "cpu",
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
    method : likelihood, optional
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
    starts_on : str or dask.distributed.Client
        "cpu": one start after the other, in this process. Or a Dask cluster: the address of its
        scheduler, "tcp://host:8786", or a client of it; the searches are then its tasks, each by
        `method` on a worker. Where `method` itself is on a cluster the starts follow one another.
    tolerance : float
        Absolute, on the log-likelihood: converged means that one more Newton step promises less.
    evaluations : int
        Limit on evaluations of the likelihood, for each start and each run.
    checkpoint : path, optional
        File that keeps the best model after every improvement (with `starts_on`: after every
        start, at first); the same call goes on from it.
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
    InvalidInput, NotEnoughMemory, MissingDevice, LostCluster
    """
    began = time.perf_counter()
    _check_types(observations, model, method, start, bounds)
    method = Exact() if method is None else method
    mean = Trend.of(observations, trend)
    design = mean.design(observations.locations, observations.covariates)
    mean.check_full_rank(design)
    check_options(search, starts, tolerance, evaluations, seed)
    tasks = Tasks(starts_on, method, "starts_on")
    asked = _asked(
        observations, model, method, mean, design, reml, fixed, start, bounds, anisotropy
    )
    limit = evaluations * starts
    problem, resumed = _problem(asked, tolerance, search, limit, checkpoint, progress)
    with problem.monitor:
        first = asked.start if resumed is None else resumed
        found = problem.solve(asked.units.inward(first), starts, seed, evaluations, tasks)
    result = _answer(asked, problem, found, time.perf_counter() - began)
    caution(method, found.evaluation)
    if raise_on_failure and result.outcome.ending in FAILED:
        raise FitFailed(str(result.outcome), result)
    return result


@dataclass(frozen=True)
class Asked:
    """What a fit is asked for, checked, in the user's units.

    Parameters
    ----------
    observations : Observations
    method : likelihood
    trend : Trend
    design : (n, p) ndarray
    reml : bool
    fixed, start : dict of str to float
    bounds : dict of str to (float, float)
    anisotropic : bool
    units : Units
        Those of the search.
    """

    observations: Observations
    method: object
    trend: Trend
    design: np.ndarray
    reml: bool
    fixed: dict
    start: dict
    bounds: dict
    anisotropic: bool
    units: Units

    def outward(self, model, log_likelihood):
        """Return a model of the scaled problem, and its log-likelihood, in the user's units."""
        shift = self.units.shift(self.design, self.reml)
        return self.units.outward(model), log_likelihood + shift


def _asked(seen, model, method, mean, design, reml, fixed, start, bounds, anisotropy):
    """Return what is asked for, or raise `InvalidInput` if no model can answer it."""
    units = Units.of(seen, design)
    anisotropic = anisotropy or (model is not None and model.anisotropy is not None)
    fixed, start = _values(model, fixed, start, anisotropic)
    bounds = check_bounds(bounds, start, fixed)
    _check_metric(seen, fixed | start, anisotropic)
    if seen.metric == "great-circle" and bounds.get("smoothness", (0, 0))[1] > 0.5:
        raise InvalidInput("with great-circle distances the smoothness is bounded by 0.5.")
    _check_duplicates(seen, fixed)
    return Asked(seen, method, mean, design, reml, fixed, start, bounds, anisotropic, units)


def _problem(asked, tolerance, search, evaluations, checkpoint, progress):
    """Return the scaled problem, and the start values that a checkpoint has for it, or None."""
    seen, units = asked.observations, asked.units
    scaled = units.scaled(seen)
    space = Space(
        units.inward(asked.fixed),
        units.inward_bounds(asked.bounds),
        Extent.of(scaled),
        seen.metric,
        units.variance,
        asked.anisotropic,
    )
    settings = asked.reml, asked.anisotropic, sorted(asked.fixed.items())
    method = {name: what for name, what in asked.method.describe(0).items() if name not in WHERE}
    settings = *settings, sorted(asked.bounds.items()), method
    mark = progress_.fingerprint(seen, asked.design, settings)
    resumed, count = progress_.resume(checkpoint, mark)
    about = checkpoint, mark, progress
    monitor = progress_.Monitor(count + evaluations, asked.outward, *about)
    monitor.count = count
    if resumed is not None:
        resumed = {name: resumed.parameters()[name] for name in space.free}
    about = asked.method, space, monitor, tolerance, search
    return Problem(scaled, asked.design, asked.reml, *about), resumed


def _answer(asked, problem, found, seconds):
    """Return what a search has found, in the user's units."""
    units, evaluation = asked.units, found.evaluation
    with np.errstate(over="ignore"):
        covariance = evaluation.coefficient_covariance * units.value**2
    if not np.isfinite(covariance).all():
        raise InvalidInput(
            "the trend's coefficients have variances beyond FP64: rescale the values or the "
            "coordinates (covariates) by a constant."
        )
    model, log_likelihood = asked.outward(found.model, evaluation.log_likelihood)
    return Fit(
        model=model,
        log_likelihood=log_likelihood,
        outcome=found.outcome,
        evaluations=problem.monitor.count,
        history=tuple(problem.monitor.history),
        standard_errors=units.outward_errors(found.standard_errors),
        seconds=seconds,
        observations=asked.observations,
        method=asked.method,
        trend=asked.trend,
        reml=asked.reml,
        free=found.free,
        coefficients=evaluation.coefficients * units.value,
        coefficient_covariance=covariance,
        formats=evaluation.formats,
        promotions=evaluation.promotions,
        information=found.information,
        boundary=tuple(name for name in problem.space.free if name not in found.free),
        bounds=asked.bounds,
    )


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


def _check_types(observations, model, method, start, bounds):
    if not isinstance(observations, Observations):
        raise InvalidInput(
            f"`observations` must be Observations. Got {type(observations).__name__}."
        )
    check_model_and_method(model, method, given=model is not None)
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
    if isinstance(fixed, str) or not isinstance(fixed, Iterable):
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
