"""Maximum likelihood: from observations to a model with standard errors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy

from ..covariance.base import FAMILIES, Covariance, family_of
from ..covariance.distance import metric_of
from ..covariance.noise import variances_in
from ..covariance.responses import Binomial, Hurdle, Response, hurdle_of, response_of
from ..covariance.transformation import (
    ByVariable,
    Transformation,
    by_label,
    started,
    transformation,
)
from ..data import tables
from ..data.observations import Observations
from ..errors import (
    DuplicateLocations,
    Ending,
    FitFailed,
    GeomxpWarning,
    InvalidInput,
    Outcome,
    check_flags,
    naming,
    with_article,
)
from ..likelihood.automatic import (
    AUTO,
    MOST_EXACT_LOCATIONS,
    automatic,
    choice_in_words,
    response_choice_in_words,
)
from ..likelihood.base import (
    DIFFERENT_REPLICATES,
    check_gaussian,
    coincidence,
    noiseless_twins,
)
from ..likelihood.censored import MOST_CENSORED, error_of_laplace
from ..likelihood.exact import Exact, caution, check_model_and_method
from ..likelihood.latent import check_response, check_values, data_of
from ..likelihood.replicates import Groups, determine_microscale
from ..likelihood.trend import Trend
from .hurdle import (
    HurdleFit,
    check_hurdle,
    observations_of,
    options_of,
    responses_of,
)
from .names import (
    MICROSCALE,
    NOISE,
    NUGGET,
    RANGE,
    map_of,
    of_nuggets,
    titles,
    with_titles,
)
from .options import FIT_OPTIONS
from .parameters import ParameterTable, check_bounds, template, unknown
from .problem import Monitor, Problem, Solution, fingerprint
from .result import Fit
from .small_sample import sandwich
from .starts import LEAST_COMMON_LOCATIONS, by_place, searched
from .units import Units

if TYPE_CHECKING:
    from .._typing import Client, Fixed, Interval, Mapping, PathLikeText, Sequence, TrendLike
    from ..likelihood.base import Likelihood
    from .result import Model

FAILED_ENDINGS = (Ending.NO_FINITE_MAXIMUM, Ending.STALLED)
"""Outcomes without an estimate."""

LARGEST_LAPLACE_ERROR = 3.0
"""Error of the log-likelihood of censored values above which estimates may be misleading."""

SEPARATION_TOLERANCE, LEAST_SEPARATED = 1e-7, 500
"""Gain of the linear program, for each value, above which a trend separates values; number of
values that are examined first."""

PLACEMENT_OPTIONS = ("on", "memory", "device_memory", "tiled")
"""Options of a method that may differ when a run resumes from a checkpoint."""


def fit(
    observations: Observations,
    model: Model | None = None,
    method: Likelihood | Literal["auto"] | None = None,
    *,
    family: str | type[Model] | None = None,
    fixed: Fixed = (),
    start: Mapping[str, float] | None = None,
    bounds: Mapping[str, Interval] | None = None,
    trend: TrendLike = "constant",
    reml: bool = False,
    anisotropy: bool = False,
    axis_ranges: bool = False,
    microscale: bool | None = None,
    nugget_covariance: bool = False,
    transform: str
    | Transformation
    | Sequence[str | Transformation | None]
    | Mapping[str, str | Transformation]
    | None = None,
    response: str | Response | Hurdle | None = None,
    search: str = "scoring",
    starts: int = 1,
    starts_on: str | Client = "cpu",
    tolerance: float = 1e-6,
    evaluations: int = 1000,
    checkpoint: PathLikeText | None = None,
    progress: bool = True,
    seed: int = 0,
    raise_on_failure: bool = True,
    strict: bool = False,
) -> Fit[Model]:
    """Estimate a covariance model by maximum likelihood.

    Parameters
    ----------
    observations : Observations
    model : Covariance, optional
        Start of the search, and its family. Without it, and for parameters that `start` does not
        name, the start comes from the data.
    method : Likelihood or "auto", optional
        "auto", also if not given: `Exact()` up to 6,000 locations if their dense matrix fits the
        memory, otherwise `Vecchia(30)`; a `GeomxpWarning` then says so, with the predicted cost of
        both. With a response the limit is 500 locations. `Exact()` for families without a table of
        the correlation, such as families of your own that read the time. `Fit.method` is the method
        that was used.
    family : str or class, optional
        Covariance family if no model is given: "matern" (the default), "gaussian",
        "powered-exponential", "cauchy", "rational-quadratic", "spherical", "wendland"; for times
        "matern-space-time", "separable", "gneiting"; for several variables "independent",
        "parsimonious-matern", "flexible-matern", "coregionalization"; a combination of these, such
        as "separable-spherical" or "gneiting-parsimonious-matern"; or a subclass of
        `geomxp.covariance.base.Covariance`.
    fixed : sequence of str, or dict of str to float
        Parameters held fixed: at the value in `model`, or at the value given here. All others are
        estimated, the nugget too.
    start : dict of str to float, optional
        Start values of some of the parameters.
    bounds : dict of str to (float, float), optional
        In the units of the data.
    trend : str or dict
        "zero", "constant", "linear", "covariates", or a formula such as "elev + poly(x, 2)". Of
        several variables also a dict with a trend for each.
    reml : bool
        Maximise the restricted likelihood.
    anisotropy : bool
        Estimate geometric anisotropy (also if `model` has one), for Euclidean locations in 2 or 3
        dimensions: an ellipse or an ellipsoid of any direction. With chordal distances the
        ellipsoid is one in the space around the earth.
    axis_ranges : bool
        Estimate one range for each axis of Euclidean locations in 2 or 3 dimensions: the ratio of
        each further one to `range`, that along the first axis.
    microscale : bool, optional
        Whether to estimate a microscale variance, shared by replicates at one location, in
        addition to the nugget, which is independent for each value. Default: only if there are at
        least 10 repeated observations, not all with equal values, and those at one location have
        the same error variance and covariates. Otherwise the nugget includes microscale variation.
    nugget_covariance : bool
        Of several variables: estimate the covariances of their nuggets at one location, even if
        `model` has none. Otherwise the noise is independent, unless `model`, `fixed`, `start` or
        `bounds` have such covariances.
    transform : str, Transformation, tuple or dict, optional
        Transformation of the values to the Gaussian scale: "log", "sqrt", "boxcox", "logit",
        "tukey-gh", or one of your own. Its parameters are estimated too. Predictions are
        back-transformed, and the log-likelihood and the AIC are those of the values themselves.
        With a name, constants such as a scale come from the values; an instance keeps its own. Of
        several variables one for all, a tuple with one for each (None for none), or a dict by the
        names of variables: {"zinc": "log"}.
    response : str, Response or Hurdle, optional
        Distribution of the values, if it is not Gaussian: "poisson", "negative-binomial",
        "zero-inflated-poisson", "truncated-poisson", "bernoulli", "binomial", "gamma",
        "log-normal", "tweedie", "beta", "student-t", "censored"; or one of `geomxp.responses`, with
        its link and start values. The log-likelihood is Laplace's approximation. The nugget is then
        one of the latent field: it is estimated for Poisson responses (also zero-inflated or
        truncated), binomial ones with several trials and Student's t, and 0 for the others unless
        `start` or `bounds` name it. "hurdle", or
        `gx.responses.Hurdle(amount, link)`, for values of which many are 0, has two independent
        models, of the presence of a value other than 0 and of its amount: "truncated-poisson" if
        all values are whole numbers, else "gamma". All options hold for both models; parameters of
        the distribution of amounts are those of the amount alone. A dict with the keys "presence"
        and "amount" gives each its own: trend={"presence": "elev", "amount": "constant"}.
    search : {"scoring", "bobyqa", "lbfgs", "slsqp"}
        Fisher scoring, followed by BOBYQA if it does not converge; or one of NLopt's algorithms.
    starts : int
        Minimum number of starting points, at most 1000. A grid of models is evaluated first, and
        one search starts near each of its main local maxima; further points are taken from the
        grid. Of several variables two searches start at models of each variable alone, and further
        points are random ones near the first. If `start` gives all parameters, it is the only
        starting point. A run that resumes from a checkpoint starts at its best model only.
    starts_on : str or dask.distributed.Client
        "cpu": one start after the other, in this process. Or a Dask cluster: the address of its
        scheduler, "tcp://host:8786", or a client; the searches are then its tasks, each by
        `method` on a worker. If `method` itself is on a cluster the starts follow one another.
    tolerance : float
        Absolute, on the log-likelihood: converged means that one more Newton step promises less.
    evaluations : int
        Limit on evaluations of the likelihood, for each start and each run.
    checkpoint : path, optional
        File that keeps the best model after every improvement (with `starts_on`: after every
        start, at first). The same call resumes from it.
    progress : bool
        Show a progress line if standard error is a terminal.
    seed : int
        Of the subsample on which starts are compared.
    raise_on_failure : bool
        Raise if there is no estimate, instead of returning the end of the search with its outcome.
    strict : bool
        Raise also if the supremum of the likelihood is at a limit of a parameter (AT_LIMIT).
        Otherwise this is a warning.

    Returns
    -------
    Fit, or for a hurdle HurdleFit

    Raises
    ------
    FitFailed
        If the likelihood is unbounded, or the search stalled; with `strict` also at a limit. (When
        `evaluations` are used up the fit is returned with the outcome EVALUATION_LIMIT.)
    NotPositiveDefinite
        If no model within the bounds has a covariance matrix with a Cholesky factor.
    InvalidInput, NotEnoughMemory, MissingDevice, LostCluster

    Examples
    --------
    >>> import geomxp as gx
    >>> fit = gx.fit(gx.datasets.load("meuse"), family="spherical", trend="sqrt_dist")
    >>> fit.model.family, str(fit.outcome.ending)
    ('spherical', 'CONVERGED')
    """
    given = {name: value for name, value in locals().items() if name in FIT_OPTIONS}
    return fit_with(
        observations,
        model,
        method,
        given,
        progress=progress,
        raise_on_failure=raise_on_failure,
    )


def fit_with(observations, model, method, options, *, progress=True, raise_on_failure=True):
    """Estimate a covariance model as `fit` does, with any of `FIT_OPTIONS` by name."""
    hurdle = hurdle_of(options.get("response"))
    if hurdle is not None:
        given = options | {"model": model, "method": method}
        return _of_hurdle(hurdle, observations, given, progress, raise_on_failure)
    began = time.perf_counter()
    _check_types(observations, model, method)
    check_flags(progress=progress, raise_on_failure=raise_on_failure)
    asked = SimpleNamespace(**FIT_OPTIONS.checked(options))
    chosen = None if isinstance(method, str) else method
    request = _request_of(observations, model, chosen, asked)
    method, n = request.method, observations.distinct_inputs
    tasks = _tasks(asked.starts_on, method)
    of_response = request.template.response is not None
    if chosen is None and of_response and method.approximate:
        warnings.warn(response_choice_in_words(method, n), GeomxpWarning, stacklevel=3)
    elif chosen is None and (method.approximate or n > MOST_EXACT_LOCATIONS):
        said = choice_in_words(method, n, observations.dimensions, tabulated=_has_table(request))
        warnings.warn(said, GeomxpWarning, stacklevel=3)
    problem, resumed = _problem(request, asked, progress)
    solution = _without_maximum(request, problem)
    with problem.monitor if solution is None else nullcontext():
        first = request.start if resumed is None else resumed
        first = request.units.inward(request.template, first)
        if solution is None:
            ends = searched(problem, first, asked.starts, asked.seed, asked.evaluations, tasks)
            solution = problem.solve(ends)
    result = _fit_of(request, problem, solution, time.perf_counter() - began)
    result = replace(result, options=FIT_OPTIONS.own(vars(asked)))
    at_limit = result.outcome.ending is Ending.AT_LIMIT
    changes = {"strict": False} if asked.strict and at_limit else solution.remedy
    if changes:
        outcome = replace(result.outcome, remedy=_call(request, result, changes), options=changes)
        result = replace(result, outcome=outcome)
    result = _with_accuracy(request, problem, solution, result)
    if of_response:
        result = _with_caution(problem, solution, result)
    if raise_on_failure:
        if result.outcome.ending in FAILED_ENDINGS or (asked.strict and at_limit):
            raise FitFailed(str(result.outcome), result)
        if at_limit:
            warnings.warn(str(result.outcome), GeomxpWarning, stacklevel=3)
    return result


def _of_hurdle(hurdle, observations, options, progress, raise_on_failure):
    """Return the fits of the presence and of the amount of values."""
    check_hurdle(observations, hurdle)
    if options.get("transform") is not None:
        raise InvalidInput(
            "a hurdle has no transformation: leave `transform` (--transform) out, or use "
            'log-normal amounts, response=gx.responses.Hurdle("log-normal").'
        )
    fits, responses = {}, responses_of(hurdle, observations)
    said = {"progress": progress, "raise_on_failure": raise_on_failure}
    of_amount = tuple(responses["amount"].parameters())
    for name, seen in observations_of(observations).items():
        own = options_of(options, name, of_amount) | {"response": responses[name]}
        given = own.pop("model", None), own.pop("method", None)
        with naming(name):
            fits[name] = fit_with(seen, *given, own, **said)
    return HurdleFit(**fits, observations=observations)


def _request_of(observations, model, chosen, asked):
    """Return the `FitRequest` of the options of a fit; without a chosen method it has the usual."""
    fixed, start, bounds = asked.fixed, asked.start, asked.bounds
    mean = Trend.of(observations, asked.trend)
    design = mean.design(observations.locations, observations.covariates, observations.variable)
    mean.check_full_rank(design)
    held = [name for name in fixed if isinstance(name, str)] if isinstance(fixed, Iterable) else []
    named = [*held, *(start or {}), *(bounds or {})]
    reduced = chosen is None or chosen.replicates
    asked = SimpleNamespace(**vars(asked) | {"response": response_of(asked.response)})
    latent = asked.response is not None or (model is not None and model.response is not None)
    if latent and not asked.microscale:
        # replicates are values of their own
        asked.microscale = False
    microscale = _microscale(asked.microscale, model, named, held, reduced, observations, design)
    start_model = _start_model(observations, model, asked, microscale)
    if asked.microscale and MICROSCALE not in start_model.optional:
        raise InvalidInput(
            f"the family {start_model.family!r} has no microscale variance: leave `microscale` "
            "out; the nugget includes it."
        )
    start_model = _with_response(start_model, model, asked, observations)
    start_model = _with_transform(start_model, model, asked.transform, observations, design)
    optional = {p.name for p in start_model.optional_for(start_model.variables)}
    if asked.nugget_covariance or optional & set(named):
        start_model = _with_nugget_covariances(start_model)
    return _request(
        observations,
        start_model,
        model,
        method=chosen,
        trend=mean,
        design=design,
        reml=asked.reml,
        fixed=fixed,
        start=start,
        bounds=bounds,
    )


def _with_accuracy(request, problem, solution, result):
    """Warn of rounding and of a missed target; return the fit with divergence and warnings."""
    evaluation, method = solution.evaluation, request.method
    if evaluation.rounding is None:
        evaluation = problem.evaluator.carefully(solution.model)
    caution(method, evaluation)
    divergence = problem.evaluator.divergence_at(solution.model)
    if divergence is None:
        return result
    missed = divergence.missed(method.precision)
    if missed:
        warnings.warn(missed, GeomxpWarning, stacklevel=4)
    told = result.outcome.message, problem.evaluator.notice, missed or divergence.noticeable()
    outcome = replace(result.outcome, message=" ".join(text for text in told if text))
    return replace(result, divergence=divergence, outcome=outcome)


def _with_caution(problem, solution, result):
    """Warn where the approximation of a response's likelihood is poor; return the fit with that.

    A fit whose outcome is a warning in any case warns once.
    """
    response, ending = result.model.response, result.outcome.ending
    said = response.caution(any(p.value > 0 for p in variances_in(result.model)))
    compared = getattr(response, "integral", "") == "laplace"
    if not said and compared and ending is not Ending.NO_FINITE_MAXIMUM:
        said = _error_in_words(problem, solution)
    if not said:
        return result
    if ending is not Ending.AT_LIMIT:
        warnings.warn(said, GeomxpWarning, stacklevel=4)
    # other findings are those of the approximation
    message = " ".join(text for text in (said, result.outcome.message) if text)
    return replace(result, outcome=replace(result.outcome, message=message))


def _error_in_words(problem, solution):
    """Say that Laplace's ℓ of censored values is far from the integral; or ""."""
    given = problem.observations, problem.design, Exact(), solution.model
    error, count = error_of_laplace(*given, solution.evaluation.coefficients)
    if abs(error) <= LARGEST_LAPLACE_ERROR:
        return ""
    whole = int(problem.observations.censored.sum())
    of = f"{count} of the {whole} censored values" if count < whole else "the censored values"
    found = f"is {abs(error):.3g} {'above' if error > 0 else 'below'} the integral over {of}"
    if np.isnan(error):
        found = f"cannot be compared with the integral over {of}"
    exact = (
        'use response=gx.responses.Censored(integral="exact"), or '
        if whole <= MOST_CENSORED
        else ""
    )
    return (
        "Laplace's approximation is not reliable here: at the estimates its log-likelihood "
        f"{found}. Estimates, and what else is said of them, may be wrong: {exact}hold the error "
        "variance at a larger value, such as a tenth of the variance of the values."
    )


@dataclass(frozen=True)
class FitRequest:
    """A validated request for a fit, in the user's units."""

    observations: Observations
    # any model of the family, with anisotropy if that is estimated or fixed
    template: Covariance
    method: Likelihood
    trend: Trend
    design: np.ndarray
    reml: bool
    fixed: dict[str, float]
    start: dict[str, float]
    bounds: dict[str, tuple[float, float]]
    # of the scaled problem
    units: Units

    def outward(self, model, log_likelihood):
        """Return a model of the scaled problem and its log-likelihood in the user's units."""
        shift = self.units.shift(self.design, self.reml)
        return self.units.outward(model), log_likelihood + shift


def _call(request, result, remedy):
    """Return the call of `fit` for the same problem with some other options, as text."""
    fixed = request.fixed | remedy.get("fixed", {})
    bounds = {name: box for name, box in request.bounds.items() if name not in fixed}
    values = FIT_OPTIONS.kept(result.options, result)
    values |= {"fixed": fixed or None, "bounds": bounds or None}
    options = FIT_OPTIONS.changed(values)
    options |= {name: value for name, value in remedy.items() if name != "fixed"}
    usual = automatic(request.observations.distinct_inputs, _has_table(request))
    words = ["observations", *([] if request.method == usual else ["method=method"])]
    words += [f"{name}={value!r}" for name, value in options.items()]
    return f"gx.fit({', '.join(words)})"


def _microscale(requested, model, named, held, reduced, observations, design):
    """Return whether the model has microscale variation; raise `InvalidInput` if it cannot have.

    `named` are the parameters that the caller names, `held` those that are fixed, and `reduced`
    tells whether the method reduces replicates.
    """
    given = MICROSCALE in named or (model is not None and model.microscale is not None)
    if requested is None and not given:
        return reduced and determine_microscale(observations, design)
    if requested is False:
        if given:
            raise InvalidInput(
                "`microscale` is False, and a microscale variance is given in `model`, `fixed`, "
                "`start` or `bounds`: leave one of them out."
            )
        return False
    if MICROSCALE not in held and not (reduced and observations.duplicate_inputs):
        raise InvalidInput(
            "a microscale variance can be estimated only from replicates (several values at one "
            "location), and these observations have none: leave it out; the nugget then includes "
            "it."
        )
    if reduced and Groups.of_inputs(observations.inputs, design).split:
        raise InvalidInput(DIFFERENT_REPLICATES)
    return True


def _start_model(observations, model, asked, microscale=False):
    """Return a model of the requested family at its declared values."""
    family = asked.family
    if model is not None and family is not None and family_of(family) is not type(model):
        raise InvalidInput(
            f"`model` is of the family {model.family!r} and `family` is {family!r}: leave one out."
        )
    kind = family_of("matern" if family is None else family) if model is None else type(model)
    dimensions = metric_of(observations.metric).dimensions(observations.dimensions)
    turned = map_of(asked.anisotropy, asked.axis_ranges, dimensions)
    if model is not None and getattr(model, "anisotropy", None) is not None:
        turned = turned or type(model.anisotropy)
        if turned is not type(model.anisotropy):
            raise InvalidInput(
                f"`model` has {type(model.anisotropy).__name__}, and `anisotropy` or `axis_ranges` "
                f"asks for {turned.__name__}: leave one of them out."
            )
    options = {"microscale": microscale and MICROSCALE in kind.optional}
    if model is not None and "variable" in kind.uses and not turned:
        return model
    if observations.variable is not None:
        options["variables"] = len(observations.variable_labels)
    elif "variable" in kind.uses:
        raise InvalidInput(
            f"{with_article(kind.family)} model needs the variable of each value: give `variable` "
            "(--variable)."
        )
    return template(kind, turned, **options)


def _with_nugget_covariances(base):
    """Return the model with covariances of its nuggets, 0 if it has none."""
    names = base.optional_for(base.variables)
    if not names:
        known = [name for name, kind in FAMILIES.items() if kind.optional_for(2)]
        raise InvalidInput(
            f"nugget covariances need a family of several variables ({', '.join(known)}). Got "
            f"{base.family!r}: leave them out."
        )
    missing = {one.name: 0.0 for one in names} if base.nugget_covariance is None else {}
    return base.from_parameters(base.parameters() | missing, base.transform, base.response)


def _check_common(observations, base, fixed):
    """Raise `InvalidInput` if variables with a free nugget covariance share few locations."""
    base.check_observations(observations.inputs)
    known = np.isfinite(by_place(observations, observations.values, base.variables)).astype(int)
    both, names = known.T @ known, titles(base, observations)
    for (i, j), one in zip(
        combinations(range(base.variables), 2), base.optional_for(base.variables), strict=True
    ):
        if one.name not in fixed and both[i, j] < LEAST_COMMON_LOCATIONS:
            raise InvalidInput(
                f"the {names[one.name]} needs at least {LEAST_COMMON_LOCATIONS} locations with "
                f"both values. Got {both[i, j]}: hold it at 0 (fixed={{{one.name!r}: 0.0}}, "
                f"--fix {one.name}=0), or leave the nugget covariances out."
            )


def _with_response(base, model, asked, observations):
    """Return the model with its response."""
    given = None if model is None else model.response
    if asked.response is None:
        return base if given is None else replace(base, response=given)
    if given is not None:
        raise InvalidInput(
            f"`model` has the response {given.name!r} and `response` is given: leave one out."
        )
    return replace(base, response=asked.response)


def _latent_nuggets(base, observations, named):
    """Return the nuggets of a response's field that are 0, because nobody names them."""
    response, trials = base.response, observations.trials
    wanted = response.latent_nugget
    if wanted and isinstance(response, Binomial) and (trials is None or (trials == 1).all()):
        # one binary value says nothing about noise
        wanted = observations.duplicate_inputs
    return {} if wanted else {p.name: 0.0 for p in variances_in(base) if p.name not in named}


def _with_transform(base, model, transform, observations, design):
    """Return the model with its transformation, which is adapted to the values if only named.

    Parameters start where values would be most likely if they were independent.
    """
    given = None if model is None else model.transform
    if transform is None:
        return base if given is None else replace(base, transform=given)
    if given is not None:
        raise InvalidInput(
            f"`model` has the transformation {given.name!r} and `transform` is given: leave one "
            "out."
        )
    if observations.variable is None:
        return replace(base, transform=_started(transform, observations.values, design))
    labels, each = observations.variable_labels, []
    transform = by_label(transform, labels)
    # raises for another number of them
    checked = replace(base, transform=transform).transform
    checked.of(observations.variable).check(observations.values)
    if isinstance(transform, ByVariable):
        transform = transform.transforms
    given = transform if isinstance(transform, (list, tuple)) else [transform] * len(labels)
    for k, one in enumerate(given):
        rows = np.flatnonzero(observations.variable == k)
        own = design[rows][:, (design[rows] != 0).any(axis=0)]
        each.append(one and _started(one, observations.values[rows], own))
    return replace(base, transform=tuple(each))


def _started(transform, values, design):
    """Return a transformation, with start values and constants that suit the values if named."""
    chosen = transformation(transform)
    chosen.check(values)
    return chosen if chosen is transform else started(chosen.adapted(values), values, design)


def _request(observations, base, model, *, method, trend, design, reml, fixed, start, bounds):
    """Return the validated request; raise `InvalidInput` if no model can satisfy it."""
    if base.transform is not None:
        base.transform.of(observations.variable).check(observations.values)
    fixed, start = _values(base, model, fixed, start)
    if base.response is None:
        check_gaussian(observations)
    else:
        fixed |= _latent_nuggets(base, observations, {*fixed, *start, *(bounds or {})})
        base, start = _started_response(base, observations, fixed, start, reml, method)
    count = len(observations.variable_labels)
    if (
        observations.variable is not None
        and base.variables > count
        and set(fixed) < set(base.parameters())
    ):
        raise InvalidInput(
            f"the model has {base.variables} variables and the observations have {count}: give a "
            f"model of {count} variables, or fix all parameters."
        )
    units = Units.of(observations, design, base)
    if base.nugget_covariance is not None:
        for name in [p.name for p in variances_in(base) if fixed.get(p.name) == 0]:
            fixed = base.vanishing(name) | fixed
        _check_common(observations, base, fixed)
    bounds = check_bounds(bounds, start, fixed, base)
    if model is None:
        base = _with_valid_shapes(observations, base, fixed | start, bounds)
    _check_validity(observations, base, fixed | start, bounds)
    noise = {p.name: 1.0 for p in variances_in(base)}
    twins = noiseless_twins(base.replace(**(noise | fixed)), observations)
    if twins and base.response is None:
        raise DuplicateLocations(coincidence(observations, twins))
    request = FitRequest(
        observations,
        template=base,
        method=method,
        trend=trend,
        design=design,
        reml=reml,
        fixed=fixed,
        start=start,
        bounds=bounds,
        units=units,
    )
    if method is None:
        n = observations.distinct_inputs
        method = automatic(n, _has_table(request), response=base.response)
        request = replace(request, method=method)
    return request


def _without_maximum(request, problem):
    """Return the `Solution` where a response's values leave ℓ without a maximum; None elsewhere."""
    response, table = request.template.response, problem.table
    if response is None or not table.free:
        return None
    data, _ = data_of(problem.observations, request.template.transform)
    said = response.extreme(data) or _separated(request, response, data)
    if not said:
        return None
    variances = {p.name: table.variance for p in table.model.table if p.unit == "value²"}
    lengths = {p.name: table.extent.longest / 8 for p in table.model.table if p.unit == "length"}
    guess = {name: x for name, x in (variances | lengths).items() if name in table.free}
    model = table.model.replace(**guess)
    eta = np.clip(response.guess(data), -10.0, 10.0)
    coefficients = np.linalg.lstsq(problem.design, eta, rcond=None)[0]
    evaluation = problem.evaluator.at(model, coefficients)
    errors = dict.fromkeys(model.parameters())
    outcome = Outcome(Ending.NO_FINITE_MAXIMUM, f"{said[:1].upper()}{said[1:]}")
    return Solution(model, evaluation, outcome, (), errors)


def _separated(request, response, data):
    """Say that a linear combination of the trend's columns separates the values; or "".

    Along it no density falls and some rise, without end (Albert and Anderson 1984, Biometrika
    71:1). By a linear program.
    """
    pulls, x = response.pulls(data), request.design
    if pulls is None or x.shape[1] < 2 or not pulls.any():
        return ""
    x = x / np.abs(x).max(axis=0)
    # what separates all values separates some of them
    order, count = np.random.default_rng(0).permutation(len(x)), LEAST_SEPARATED
    while (along := _separating(pulls[order[:count]], x[order[:count]])) is not None:
        if count >= len(x):
            break
        count *= 8
    if along is None:
        return ""
    names = [
        name
        for name, b in zip(request.trend.names, along, strict=True)
        if abs(b) > SEPARATION_TOLERANCE
    ]
    return (
        f"the trend's terms {', '.join(names)} separate the values: the likelihood increases as "
        "their coefficients go to infinity. Leave a term out, or merge classes."
    )


def _separating(pulls, x):
    """Return coefficients that separate values, (p,), or None."""
    one_sided = pulls != 0
    # where η may not change at all
    _, sizes, turned = np.linalg.svd(np.linalg.qr(x[~one_sided], mode="r"))
    rank = int((sizes > SEPARATION_TOLERANCE * sizes.max(initial=0.0)).sum())
    free = turned[rank:].T
    if not free.shape[1] or not one_sided.any():
        return None
    gains = np.unique(pulls[one_sided, None] * x[one_sided], axis=0) @ free
    found = scipy.optimize.linprog(
        -gains.sum(axis=0), A_ub=-gains, b_ub=np.zeros(len(gains)), bounds=(-1, 1)
    )
    separated = found.status == 0 and -found.fun > SEPARATION_TOLERANCE * len(gains)
    return free @ found.x if separated else None


def _started_response(base, observations, fixed, start, reml, method):
    """Return the model with a response that suits the values, and the start values.

    Raises `InvalidInput` for values that it cannot have.
    """
    check_response(Exact() if method is None else method, observations, base, reml)
    check_values(observations, base)
    data, _ = data_of(observations, base.transform)
    suited = base.response
    if suited.parameters() == {one.name: one.value for one in suited.declared}:
        suited = suited.started(data)
    given = {name: value for name, value in (fixed | start).items() if name in suited.parameters()}
    return replace(base, response=suited.with_values(given)), start


def _has_table(request):
    """Whether the requested models have a table of the correlation."""
    return request.template.replace(**(request.fixed | request.start)).tabulated


def _problem(request, asked, progress):
    """Return the scaled problem, and the start values in its checkpoint or None.

    `asked` has the options of the search.
    """
    observations, units, base = request.observations, request.units, request.template
    scaled = units.scaled(observations)
    of_problem = base
    if base.response is not None:
        # a response starts from values in the user's units
        of_problem = base.replace(**units.inward(base, base.response.parameters()))
    table = ParameterTable(
        of_problem,
        units.inward(base, request.fixed),
        units.inward(base, request.bounds),
        scaled,
        units.variance,
    )
    described = request.method.describe(0).items()
    method = {name: what for name, what in described if name not in PLACEMENT_OPTIONS}
    settings = request.reml, table.anisotropic, sorted(request.fixed.items())
    settings = *settings, sorted(request.bounds.items()), method
    if base.transform is not None:
        settings = *settings, base.transform.name, sorted(base.transform.constants().items())
    if base.response is not None:
        settings = *settings, base.response.name, base.response.used_link
    if base.family != "matern":
        # a checkpoint that names no family is of a Matérn model
        settings = *settings, base.family
    if base.nugget_covariance is not None:
        settings = *settings, "nugget covariances"
    mark = fingerprint(observations, request.design, settings)
    resumed, count = _resume(asked.checkpoint, mark, base)
    limit = count + asked.evaluations * asked.starts
    monitor = Monitor(limit, request.outward, asked.checkpoint, mark, progress)
    monitor.count = count
    if resumed is not None:
        resumed = {name: resumed.parameters()[name] for name in table.free}
    problem = Problem(
        scaled,
        request.design,
        request.reml,
        request.method,
        table,
        monitor,
        asked.tolerance,
        asked.search,
    )
    return problem, resumed


def _fit_of(request, problem, solution, seconds):
    """Return the fit of a solution, in the user's units."""
    units, evaluation = request.units, solution.evaluation
    within_fit = evaluation.coefficient_covariance
    attained = solution.outcome.ending is not Ending.NO_FINITE_MAXIMUM
    if request.template.response is not None and attained:
        evaluation = problem.evaluator.reported(solution.model)
        if solution.information is not None:
            free = tuple(solution.free)
            within_fit = problem.evaluator.coefficient_covariance(solution.model, free)
    with np.errstate(over="ignore"):
        p = len(evaluation.coefficients)
        of_coefficients = np.broadcast_to(units.columns, p)
        covariance = within_fit * np.outer(of_coefficients, of_coefficients)
    if not np.isfinite(covariance).all():
        raise InvalidInput(
            "the variances of the trend's coefficients overflow FP64: divide the values or the "
            "coordinates (covariates) by a constant."
        )
    model, log_likelihood = request.outward(solution.model, evaluation.log_likelihood)
    errors, score_variance = solution.standard_errors, None
    if solution.information is not None and solution.free:
        score_variance, errors = sandwich(problem, solution)
    information, free = solution.information, solution.free
    if solution.unidentified:
        information = score_variance = None
        free = {*free, *solution.unidentified}
        free = tuple(name for name in problem.table.free if name in free)
    return Fit(
        model=model,
        log_likelihood=log_likelihood,
        outcome=replace(
            solution.outcome,
            message=with_titles(solution.outcome.message, model, request.observations),
        ),
        evaluations=problem.monitor.count,
        history=tuple(problem.monitor.history),
        standard_errors=units.outward_values(model, errors),
        seconds=seconds,
        observations=request.observations,
        method=request.method,
        trend=request.trend,
        reml=request.reml,
        free=free,
        coefficients=evaluation.coefficients * of_coefficients,
        coefficient_covariance=covariance,
        formats=evaluation.formats,
        promotions=evaluation.promotions,
        information=information,
        boundary=tuple(name for name in problem.table.free if name not in free),
        bounds=request.bounds,
        score_variance=score_variance,
        log_likelihood_error=evaluation.error,
    )


def _tasks(starts_on, method):
    """Return the tasks that search from the starts on a cluster; None in this process."""
    if isinstance(starts_on, str) and starts_on == "cpu":
        return None
    from ..runtime.tasks import Tasks

    return Tasks(starts_on, method, "starts_on")


def _check_types(observations, model, method):
    if not isinstance(observations, Observations):
        raise InvalidInput(
            f"`observations` must be Observations. Got {type(observations).__name__}."
        )
    if isinstance(method, str):
        if method != AUTO:
            raise InvalidInput(
                f'`method` must be "{AUTO}", or a method such as gx.Exact() or gx.Vecchia(30). '
                f"Got {method!r}."
            )
        method = None
    check_model_and_method(model, method, given=model is not None)


def _values(base, model, fixed, start):
    """Return the values of the fixed parameters and the start values of the others."""
    names = list(base.parameters())
    given = {} if model is None else model.parameters()
    # a model without a nugget gives no start value for one
    held = {name: given.pop(name) for name in NOISE if given.get(name) == 0}
    result = {}
    pairs = (
        fixed.items() if isinstance(fixed, dict) else [(name, None) for name in _sequence(fixed)]
    )
    for name, value in pairs:
        if not isinstance(name, str) or name not in names:
            raise unknown("fixed", name, names)
        if value is None:
            value = given.get(name, held.get(name))
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
            raise unknown("start", name, names)
    given = {name: value for name, value in given.items() if name not in result}
    checked = base.replace(**(given | result)).parameters()
    if given.get(NUGGET) == 0:
        raise InvalidInput("the start nugget=0 must be positive: give a small one, or fix it.")
    return {name: checked[name] for name in result}, {name: checked[name] for name in given}


def _sequence(fixed):
    if isinstance(fixed, str) or not isinstance(fixed, Iterable):
        raise InvalidInput(f"`fixed` must be a sequence of names or a dict. Got {fixed!r}.")
    return fixed


def _with_valid_shapes(observations, base, values, bounds):
    """Return the template with free shapes that are valid beside the given values, if any are.

    The bounds of one shape may depend on another one (Wendland). The template's own are tried
    first, and then smaller ones.
    """
    if not base.of_distance:
        return base
    model = base.replace(**values)
    free = [p for p in base.shapes if p.name not in values]
    for share in (1.0, 0.5, 0.1, 0.0):
        for p in free:
            value = getattr(base, p.name)
            lower, upper = bounds.get(p.name, p.search or (value, value))
            value = min(max(value, lower), upper)
            model = model.replace(**{p.name: lower + share * (value - lower)})
        limits = model.limits(observations.metric, observations.dimensions)
        for p in free:
            least, most = limits[p.name][0], bounds.get(p.name, limits[p.name])[1]
            if getattr(model, p.name) < least:
                model = model.replace(**{p.name: min(least, most)})
        if model.valid_on(observations.metric, observations.dimensions):
            break
    return base.replace(**{p.name: getattr(model, p.name) for p in free})


def _check_validity(observations, base, values, bounds):
    """Raise `InvalidInput` if no model within the bounds is valid on these locations."""
    metric, dimensions = observations.metric, observations.dimensions
    # lengths and limits are in the same unit only if the length is known
    model = base.replace(**values)
    if base.nugget_covariance is not None:
        model = model.with_room([p.name for p in variances_in(base) if p.name not in values])
    model.check_inputs(observations.inputs)
    limits = model.limits(metric, dimensions)
    for name, (_, upper) in bounds.items():
        if name == RANGE or of_nuggets(base.parameter(name)):
            continue
        if name in limits and upper > limits[name][1]:
            raise InvalidInput(
                f"with {metric} distances `{name}` of a {model.family} model is at most "
                f"{limits[name][1]:g}. Got the bound {upper:g}."
            )


# Checkpoints

IMPOSSIBLE_EVALUATIONS = 10**12
"""More evaluations than any fit has made."""


def _resume(path, mark, base):
    """Return (model, evaluations) from a checkpoint, or (None, 0) if it does not exist yet."""
    if path is None or tables.kind_of(path) is None:
        return None, 0
    state = tables.read_json(path)
    foreign = InvalidInput(
        f"{path}: not a geomxp checkpoint, or an edited one: delete it or choose another file."
    )
    count = state.get("evaluations")
    known = type(count) is int and 0 <= count < IMPOSSIBLE_EVALUATIONS
    if not known or not isinstance(state.get("model"), dict):
        raise foreign
    if state.get("problem") != mark:
        raise InvalidInput(
            f"{path}: a checkpoint of another problem (data, trend, bounds or method differ): "
            "delete it or choose another file."
        )
    try:
        model = type(base).from_parameters(state["model"], base.transform, base.response)
    except (InvalidInput, KeyError, TypeError, OverflowError):
        raise foreign from None
    tables.warn_if_edited(path, state)
    return model, count
