"""Diagnose the end of a search: a maximum, a bound, a ridge, or no finite maximum."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from math import exp, inf, isfinite, log, sqrt

import numpy as np

from ..covariance.base import Covariance
from ..covariance.noise import variances_in
from ..covariance.parameter import FIELD, RESPONSE
from ..errors import Ending, InvalidInput, Outcome
from ..likelihood.trend import ordinary_residuals
from ..runtime.devices import blas_threads
from .coordinates import NUGGET_RATIO_BOUNDS, at_practical_range, practical_factor
from .names import ANISOTROPY, MICROSCALE, NUGGET, RANGE, RATIOS, VARIANCE, of_nuggets, words
from .search import FLAT_INFORMATION

NO_SLOPE = 1e-5
"""Derivative of ℓ by the logarithm of a parameter below which a search on a flat ℓ cannot go on."""

UNDETERMINED_FALL, UNCERTAIN_FALL = 0.1, 1.92
"""Log-likelihood by which a profile over all values of a parameter may fall if the data do not
determine it, and if all of its values are in a 95 % interval."""

NO_CORRELATION = 0.01
"""Correlation at the shortest distance that no data can distinguish from 0."""

DIAGNOSIS_EVALUATIONS = 300
"""Evaluations for each point of a profile that a diagnosis needs."""

LARGEST_VARIANCE_POWER = 10.0
"""Largest power of the range with which a start's variance grows: 1e-60 underflows."""

LONG_RANGE_EXTENTS = 100.0
"""Practical ranges above this many extents are checked for a supremum at infinity."""

RIDGE_CORRELATION = 0.95
"""Correlation of log σ² and log a (either sign) above which they are not separately
identifiable."""

RANGE_SUPREMUM_SLACK = 1e-3
"""Log-likelihood by which the value at a finite range may be below the supremum at infinity."""

LIMIT_SUPREMUM_SLACK = 1e-2
"""Log-likelihood by which the result at a limit may be below the supremum."""

GAUSSIAN_LIMIT = dict.fromkeys(("matern", "rational-quadratic"), ', where the family is "gaussian"')
"""What a family tends to as its shape goes to infinity, in words."""

PLURALS = ("degrees_of_freedom",)
"""Parameters whose names are plurals."""

RESPONSE_LIMITS = {
    "size": ', where the response is "poisson"',
    "degrees_of_freedom": ", where the values are Gaussian given the field",
}
"""What a response tends to as its parameter goes to infinity, in words."""

LEAST_COLLINEAR_LOCATIONS, COLLINEAR_TOLERANCE, SAME_FIELD_TOLERANCE = 10, 1e-10, 1e-4
"""Least number of common locations of collinear variables, how far the correlation of their values
may be from 1, and that of their fields, where a search has followed ℓ to this limit."""

NEGLIGIBLE_FIELD = 1e-2
"""Variance of a response's field, in units of the variance about the trend, below which the model
is compared with one without a field."""

RESPONSE_SUPREMUM_SLACK = 1e-4
"""Log-likelihood by which the value at the limit of a response's parameter may be below the end of
a search that leads there."""

ROUGH_INFILL_EXPONENT = 0.1
"""Infill exponent below which a field cannot be distinguished from a nugget."""


@dataclass(frozen=True)
class Verdict:
    """Diagnosis of the end of a search.

    `flat` tells whether the information is singular; `unidentified` names parameters without which
    it is not: standard errors of the others hold them. `held`, with AT_LIMIT, maps parameters to
    values at or near their limits: the others are to be estimated again, from `model`. `remedy`
    are options of a fit that may end better.
    """

    outcome: Outcome
    flat: bool = False
    unidentified: tuple = ()
    held: dict = field(default_factory=dict)
    model: Covariance | None = None
    remedy: dict = field(default_factory=dict)


def diagnose(problem, table, model, pinned, coordinates, summit):
    """Return the `Verdict` on the end of a search.

    `table` is that of the end of the search, with parameters fixed at their limits, such as a
    nugget of 0; `model` the best model; `pinned` maps the parameters on a bound to "lower" or
    "upper".
    """
    value = max(summit.value, problem.monitor.best[0])
    message = _nugget_vanishes(problem, table, pinned)
    if message:
        noise = {NUGGET: 0.01 * table.variance}
        remedy = _fixed(problem, model.replace(**noise), [NUGGET])
        return Verdict(Outcome(Ending.NO_FINITE_MAXIMUM, message), flat=True, remedy=remedy)
    for verdict in (
        _range_grows(problem, table, model, pinned, value),
        _response_grows(problem, table, model, value),
        _shape_grows(problem, table, model, pinned, value),
        _no_field(problem, table, model, value),
        _no_correlation(table, model, pinned),
    ):
        if verdict:
            return verdict
    falls = _falls(problem, table, model, pinned, value)
    falls |= _inner_falls(table, coordinates, summit)
    if falls and min(falls.values()) < UNDETERMINED_FALL:
        return _undetermined(problem, table, model, falls, coordinates, summit)
    ends = [
        name
        for name, side in pinned.items()
        if name not in table.bounds and not table.is_limit(name, side, model)
    ]
    names = _flat_direction(coordinates, summit)
    level = names and np.abs(summit.score).max() < NO_SLOPE
    message = None if level else _stalled(problem, model, summit)
    verdict = collinear(problem, model, open_end=bool(message or ends))
    if verdict:
        return verdict
    if message and not ends:
        remedy = {"starts": 8}
        return Verdict(Outcome(Ending.STALLED, message), flat=True, remedy=remedy)
    if ends:
        message = " ".join(_at_end(table, model, name, pinned[name]) for name in ends)
        return Verdict(Outcome(Ending.AT_LIMIT, message), flat=_singular(summit.information))
    if names:
        verb = "is" if len(names) == 1 else "are"
        message = (
            f"The log-likelihood is flat in {words(names)}, which {verb} not identifiable from "
            f"these data. Fix the {words(names[:1])}."
        )
        remedy = _fixed(problem, model, names[:1])
        # along a direction of several parameters each has an error only if another is held
        alone = names if len(names) == 1 else coordinates.names
        return _unidentified(message, alone, remedy, coordinates, summit)
    if pinned:
        notes = [_on_bound(table, model, pinned)]
        notes += [_uncertain(table, name, fall) for name, fall in falls.items()]
        return Verdict(Outcome(Ending.ON_BOUND, " ".join(notes)))
    if not problem.table.free:
        message = "All parameters were given: nothing was estimated."
        return Verdict(Outcome(Ending.COMPUTED, message))
    notes = []
    vague = _poorly_determined(coordinates, summit)
    if vague:
        verb = "is" if len(vague) == 1 else "are"
        notes.append(
            f"{words(vague).capitalize()} {verb} poorly determined (standard error exceeds the "
            "estimate)."
        )
    ours = problem.monitor.rescale(model, 0.0)[0]
    note = ridge(ours, coordinates.names, summit.information)
    if note:
        notes.append(note)
    if NUGGET in problem.table.free and model.nugget == 0:
        notes.append("The nugget is 0, its lower limit: the data show no noise.")
    if MICROSCALE in problem.table.free and model.parameters()[MICROSCALE] == 0:
        notes.append("The microscale variance is 0, its lower limit.")
    return Verdict(Outcome(Ending.CONVERGED, " ".join(notes)))


def _values_of(table, name):
    """Return the least and the largest value of a parameter, or the bounds of its search."""
    low, high = table.limits[name]
    closed = isfinite(low) and isfinite(high) and table.parameters[name].closed
    return (low, high) if closed else table.box(name)


def _falls(problem, table, model, pinned, value):
    """Return by how much ℓ falls from a bound over all values of a parameter, if by little."""
    falls, every = {}, table.coordinates(model)
    names = [
        name
        for name, side in pinned.items()
        if name in (*table.shapes, *table.of_transform) and not table.coupled(name, side, model)
    ]
    score = every.score(every.point(model), problem.evaluator, problem.monitor) if names else ()
    slopes = dict(zip(every.names, np.abs(score), strict=bool(names)))
    for name in names:
        low, high = _values_of(table, name)
        at = model.parameters()[name]
        width = max(abs(every.inward(name, end) - every.inward(name, at)) for end in (low, high))
        # ℓ is concave in most profiles, and its slope at the bound is then the least one
        if not (width >= 1 and slopes[name] * width < UNCERTAIN_FALL):
            continue
        fall = 0.0
        for other in (0.5 * (low + high), low if pinned[name] == "upper" else high):
            if fall < UNCERTAIN_FALL:
                fall = max(fall, value - _profile_at_shape(problem, table, model, name, other)[0])
        if fall < UNCERTAIN_FALL:
            falls[name] = fall
    return falls


def _inner_falls(table, coordinates, summit):
    """Return by how much ℓ falls over all values of a transformation's parameter, if by little.

    From a maximum, by the curvature of the profile.
    """
    names = [name for name in coordinates.names if name in table.of_transform]
    names = [name for name in names if table.parameters[name].transform == "identity"]
    if not names or _singular(summit.information):
        return {}
    variances = dict(
        zip(coordinates.names, np.diag(np.linalg.inv(summit.information)), strict=True)
    )
    falls = {name: np.ptp(_values_of(table, name)) ** 2 / (2 * variances[name]) for name in names}
    return {name: fall for name, fall in falls.items() if 0 <= fall < UNDETERMINED_FALL}


def _undetermined(problem, table, model, falls, coordinates, summit):
    """Return the verdict that the data do not determine parameters."""
    names = [name for name, fall in falls.items() if fall < UNDETERMINED_FALL]
    of_transform = (
        {} if model.transform is None else {p.name: p.value for p in model.transform.declared}
    )
    low, high = _values_of(table, names[0])
    verb = "is" if len(names) == 1 else "are"
    other = ", or leave the transformation out" if names[0] in of_transform else ""
    message = (
        f"The {words(names)} {verb} not identifiable from these data: the log-likelihood changes "
        f"by {max(falls[names[0]], 0.0):.2g} for a {words(names[:1])} from {low:g} to {high:g}. "
        f"Fix the {words(names[:1])}{other}."
    )
    remedy = _fixed(problem, model, names)
    remedy["fixed"] |= {name: of_transform[name] for name in names if name in of_transform}
    return _unidentified(message, names, remedy, coordinates, summit)


def _unidentified(message, names, remedy, coordinates, summit):
    """Return the verdict that parameters are not identifiable; errors of the others hold them."""
    others = ~np.isin(coordinates.names, names)
    flat = not others.any() or _singular(summit.information[np.ix_(others, others)])
    if not flat:
        message += f" Standard errors of the other parameters hold the {words(names)}."
    outcome = Outcome(Ending.UNIDENTIFIED, message)
    return Verdict(outcome, flat, () if flat else tuple(names), remedy=remedy)


def _uncertain(table, name, fall):
    """Say that all values of a parameter are in its 95 % interval."""
    low, high = _values_of(table, name)
    return (
        f"The {words([name])} is poorly determined: the log-likelihood falls by at most {fall:.2g} "
        f"from its maximum over all values from {low:g} to {high:g}."
    )


def _fixed(problem, model, names):
    """Return options of a fit that hold some parameters at the values of a model, rounded."""
    ours = problem.monitor.rescale(model, 0.0)[0].parameters()
    return {"fixed": {name: float(f"{ours[name]:.2g}") for name in names}}


def _singular(information):
    """Whether the information is not that of a maximum."""
    return not np.isfinite(information).all() or (
        len(information) > 0 and np.linalg.eigvalsh(information)[0] < FLAT_INFORMATION
    )


def _nugget_vanishes(problem, table, pinned):
    if pinned.get(NUGGET) != "lower" or NUGGET in table.bounds or table.model.response is not None:
        return None
    pair = problem.observations.duplicate()
    if pair is None:
        return None
    return (
        f"The log-likelihood increases without limit as the nugget goes to 0: rows {pair[0] + 1} "
        f"and {pair[1] + 1} have the same location and (nearly) equal values. Drop one of them, "
        "or fix the nugget."
    )


@blas_threads(0)
def collinear(problem, model, *, open_end):
    """Say whether ℓ is unbounded because two variables are collinear and may have no noise.

    That needs a search with an open end, or one that has reached a correlation of ±1.
    """
    observations, free = problem.observations, set(problem.table.free) - set(problem.table.bounds)
    if model.variables == 1 or not np.any(model.correlations - np.eye(model.variables)):
        return None
    z = problem.evaluator.values.at(model.transform).z
    z = ordinary_residuals(z, problem.design)
    place = replace(observations.inputs, variable=None, error_variance=None).first_rows()
    rows = [np.flatnonzero(observations.variable == k) for k in range(model.variables)]
    for i, j in combinations(range(model.variables), 2):
        nuggets = [p.name for p in variances_in(model) if p.where in ((i,), (j,))]
        common, of_i, of_j = np.intersect1d(place[rows[i]], place[rows[j]], return_indices=True)
        x, y = z[rows[i][of_i]], z[rows[j][of_j]]
        product, size = abs(x @ y), np.sqrt((x @ x) * (y @ y))
        if not (open_end or abs(model.correlations[i, j]) > 1 - SAME_FIELD_TOLERANCE):
            continue
        if (
            not set(nuggets) <= free
            or len(common) < LEAST_COLLINEAR_LOCATIONS
            or product < (1 - COLLINEAR_TOLERANCE) * size
        ):
            continue
        first, second = (observations.variable_labels[k] for k in (i, j))
        message = (
            f"The values of {first} and {second} are collinear at their {len(common)} common "
            "locations: the log-likelihood increases without limit as their nuggets go to 0. Leave "
            "one of the variables out, or fix their nuggets."
        )
        noise = dict.fromkeys(nuggets, 0.01 * problem.table.variance)
        remedy = _fixed(problem, model.replace(**noise), nuggets)
        return Verdict(Outcome(Ending.NO_FINITE_MAXIMUM, message), flat=True, remedy=remedy)
    return None


def _range_grows(problem, table, model, pinned, value):
    """Say whether ℓ approaches its supremum as the range goes to infinity."""
    if RANGE not in table.free or RANGE in table.bounds:
        return None
    if not model.practical_range() > LONG_RANGE_EXTENTS * table.extent.longest:
        return None
    factor = practical_factor(model)
    practical = [f * table.extent.longest for f in (10.0, 100.0, 1000.0)]
    ends = [_profile_at_range(problem, table, model, length / factor) for length in practical]
    profile = [end for end, _ in ends]
    if not _increases(profile, value, problem.tolerance, pinned.get(RANGE)):
        return None
    ours = problem.monitor.rescale(model, 0.0)[0]
    unit = ours.parameters()[RANGE] / model.parameters()[RANGE]
    shown = _profile_in_words(problem, model, profile, [x * unit for x in practical])
    if _unbounded(profile):
        message = (
            "The log-likelihood has no finite maximum: it increases without limit with the range "
            f"(profile at practical ranges: {shown}). Fix the range or a shape parameter."
        )
        near = model.replace(**{RANGE: table.extent.longest / factor})
        remedy = _fixed(problem, near, [RANGE])
        return Verdict(Outcome(Ending.NO_FINITE_MAXIMUM, message), flat=True, remedy=remedy)
    # the smallest range of nearly the same likelihood: the larger, the worse conditioned is Σ
    near = next(k for k in range(3) if profile[k] > profile[-1] - RANGE_SUPREMUM_SLACK)
    at = ends[near][1].parameters()[RANGE]
    message = (
        "The log-likelihood approaches its supremum as the range goes to infinity with "
        f"{microergodic(model)} bounded (an intrinsic random field; profile at practical ranges: "
        f"{shown}). The estimates are those at a range of {at * unit:.4g}."
    )
    return Verdict(Outcome(Ending.AT_LIMIT, message), held={RANGE: at}, model=ends[near][1])


def _shape_grows(problem, table, model, pinned, value):
    """Say whether ℓ approaches its supremum as a shape parameter without limit grows."""
    # the practical range must be free to follow
    if RANGE not in table.free or RANGE in table.bounds:
        return None
    for name in table.shapes:
        limit = table.box(name)[1]
        if name in table.bounds or table.limits[name][1] < inf:
            continue
        if table.parameters[name].role == RESPONSE:
            continue
        if model.parameters()[name] <= limit / 3:
            continue
        values = [limit / 9, limit / 3, limit]
        ends = [_profile_at_shape(problem, table, model, name, at) for at in values]
        profile = [end for end, _ in ends]
        if not _increases(profile, value, problem.tolerance, pinned.get(name)):
            continue
        shown = _profile_in_words(problem, model, profile, values)
        message = (
            f"The log-likelihood approaches its supremum as the {words([name])} goes to infinity"
            f"{GAUSSIAN_LIMIT.get(model.family, '')} (profile log-likelihood: {shown}). "
            f"The estimates are those at a {words([name])} of {limit:g}."
        )
        return Verdict(Outcome(Ending.AT_LIMIT, message), held={name: limit}, model=ends[-1][1])
    return None


def _response_grows(problem, table, model, value):
    """Say whether ℓ approaches its supremum as a response's parameter grows."""
    for name in table.free:
        limited = table.limits[name][1] < inf or name in table.bounds
        if table.parameters[name].role != RESPONSE or limited:
            continue
        limit = table.box(name)[1]
        end = model.replace(**{name: limit})
        if not problem._value(end) >= value - RESPONSE_SUPREMUM_SLACK:
            continue
        verb, at = "goes", f"a {words([name])} of {limit:g}"
        if name in PLURALS:
            verb, at = "go", f"{limit:g} {words([name])}"
        message = (
            f"The log-likelihood approaches its supremum as the {words([name])} {verb} to infinity"
            f"{RESPONSE_LIMITS.get(name, '')}. The estimates are those at {at}."
        )
        return Verdict(Outcome(Ending.AT_LIMIT, message), held={name: limit}, model=end)
    return None


def _increases(profile, value, tolerance, side):
    """Whether a profile increases to the maximum, or to the upper end where the search ended."""
    reaches = profile[-1] >= value - (LIMIT_SUPREMUM_SLACK if side == "upper" else tolerance)
    # where it is flat the field is negligible beside the noise
    return reaches and profile[-1] > profile[0] + tolerance


def _unbounded(profile):
    """Whether a profile at successive powers does not level off."""
    first, second = np.diff(profile)
    return second > 0.1 and second > 0.7 * first


def _profile_in_words(problem, model, profile, points):
    """Return log-likelihoods of the scaled problem in the user's units, and the points."""
    shift = problem.monitor.rescale(model, 0.0)[1]
    return ", ".join(f"{v + shift:.6f} at {x:.3g}" for v, x in zip(profile, points, strict=True))


def _profile_at_range(problem, table, model, length):
    """Return the profile log-likelihood at a range, and its model."""
    values = model.parameters()
    growth = (length / values[RANGE]) ** min(model.infill_exponent, LARGEST_VARIANCE_POWER)
    start = {RANGE: length}
    if VARIANCE in values:
        start[VARIANCE] = values[VARIANCE] * growth
    return _profile(problem, table.holding(**{RANGE: length}), model.replace(**start))


def _profile_at_shape(problem, table, model, name, value):
    """Return the profile log-likelihood at a shape, and its model.

    An isotropic model starts at the same practical range.
    """
    start = model.replace(**{name: value})
    if model.of_distance:
        start = at_practical_range(start, model.practical_range())
    return _profile(problem, table.holding(**{name: value}), start)


def _profile(problem, table, start):
    return problem.search(table, start, evaluations=DIAGNOSIS_EVALUATIONS)[:2]


def only_noise(table, pinned):
    """Whether the nugget takes all of the variance."""
    return pinned.get(NUGGET) == "upper" and NUGGET not in table.bounds


def _no_correlation(table, model, pinned):
    """Say whether the data show no spatial correlation."""
    isotropic = model.of_distance
    gone = isotropic and model.correlation(table.extent.shortest) < NO_CORRELATION
    gone = gone and RANGE in table.free
    noise = only_noise(table, pinned)
    if not (gone or noise):
        return None
    shapes = [name for name in table.shapes if table.parameters[name].role == FIELD]
    meaningless = [name for name in (RANGE, *shapes) if name in table.free]
    values = model.parameters()
    held = {name: values[name] for name in meaningless}
    if noise or (NUGGET in table.free and NUGGET not in table.bounds and VARIANCE in table.free):
        # only the sum of variance and nugget is identifiable
        total = values[VARIANCE] + values[NUGGET]
        held[VARIANCE] = total / (1 + NUGGET_RATIO_BOUNDS[1])
        model = model.replace(**{VARIANCE: held[VARIANCE], NUGGET: total - held[VARIANCE]})
        found = "the nugget takes all of the variance"
    else:
        found = f"the correlation at the shortest distance is below {NO_CORRELATION:g}"
    message = f"The data show no spatial correlation: {found}."
    if meaningless:
        verb = "has" if len(meaningless) == 1 else "have"
        message += f" {words(meaningless).capitalize()} {verb} no meaning."
    kind = "linear regression" if model.response is None else "generalized linear model"
    message += f" A model without a spatial field is sufficient, such as a {kind}."
    return Verdict(Outcome(Ending.AT_LIMIT, message), held=held, model=model)


def _no_field(problem, table, model, value):
    """Say whether ℓ approaches its supremum as the variance of a response's field goes to 0."""
    if model.response is None or VARIANCE not in table.free or VARIANCE in table.bounds:
        return None
    least = table.box(VARIANCE)[0]
    if model.parameters()[VARIANCE] > NEGLIGIBLE_FIELD * table.variance:
        return None
    gone = model.replace(**{VARIANCE: least})
    if problem._value(gone) < value - LIMIT_SUPREMUM_SLACK:
        return None
    shapes = [name for name in table.shapes if table.parameters[name].role == FIELD]
    meaningless = [name for name in (RANGE, *shapes) if name in table.free]
    held = {name: model.parameters()[name] for name in meaningless} | {VARIANCE: least}
    verb = "has" if len(meaningless) == 1 else "have"
    no_meaning = f" {words(meaningless).capitalize()} {verb} no meaning." if meaningless else ""
    message = (
        "The data show no spatial field: the log-likelihood approaches its supremum as the "
        f"variance goes to 0.{no_meaning} A model without a spatial field is sufficient, such as a "
        "generalized linear model."
    )
    return Verdict(Outcome(Ending.AT_LIMIT, message), held=held, model=gone)


def _at_end(table, model, name, side):
    """Say that a parameter is at an end of the search."""
    end = table.box(name)[0 if side == "lower" else 1]
    if name in table.shapes and side == "lower" and model.infill_exponent < ROUGH_INFILL_EXPONENT:
        return (
            f"The {words([name])} is at {end:g}, the lower end of the search: a field "
            "this rough cannot be distinguished from a nugget."
        )
    return (
        f"The {words([name])} is at the {side} end of the search: the data give no {side} bound "
        f"for it. Fix the {words([name])}, or set bounds."
    )


def _flat_direction(coordinates, summit):
    """Return the parameters along which the likelihood does not change; none if it does."""
    if not len(summit.score) or not np.isfinite(summit.information).all():
        return []
    values, vectors = np.linalg.eigh(summit.information)
    if values[0] >= FLAT_INFORMATION or np.abs(summit.score).max() > 1e-2:
        return []
    return [n for n, v in zip(coordinates.names, vectors[:, 0], strict=True) if abs(v) > 0.3]


def _stalled(problem, model, summit):
    if problem.converged(model, summit):
        return None
    return (
        "The search stopped before it reached a maximum (largest derivative of the log-likelihood "
        f"by the logarithm of a parameter: {np.abs(summit.score).max():.2g}). More starts, other "
        "start values or a nugget may help."
    )


def _poorly_determined(coordinates, summit):
    """Return the parameters whose logarithms have a standard error above 1."""
    errors = np.sqrt(np.diag(np.linalg.inv(summit.information)))
    return [n for n, error in zip(coordinates.names, errors, strict=True) if error > 1]


def _on_bound(table, model, pinned):
    parts = []
    for name, side in pinned.items():
        limit = table.box_at(name, model)[0 if side == "lower" else 1]
        if name in RATIOS and side == "upper" and name not in table.bounds:
            plane = not set(RATIOS) <= set(table.parameters)
            said = "the field is isotropic, and its angle has no meaning" if plane else (
                "the ranges along two axes are equal, and one of the angles has no meaning"
            )  # fmt: skip
            parts.append(f"The {words([name])} is 1: {said}.")
        elif model.transform is not None and name in model.transform.parameters():
            kind = "limit" if table.is_limit(name, side, model) else "bound"
            parts.append(f"The {words([name])} is {limit:g}, its {side} {kind}.")
        elif table.is_limit(name, side, model):
            edge = "largest" if side == "upper" else "smallest"
            if of_nuggets(table.parameters[name]) or name in table.nuggets_beside:
                beside = "covariances" if name in table.nuggets_beside else "nuggets"
                parts.append(f"The {words([name])} is at the {edge} value that the {beside} allow.")
                continue
            parts.append(
                f"The {words([name])} is at {limit:g}, the {edge} value at which the "
                f"{table.model.family} family is valid for {table.metric} distances in "
                f"{table.dimensions} dimensions."
            )
        else:
            parts.append(
                f"The {words([name])} is at its {side} bound: this is a maximum within the bounds "
                "only."
            )
    if set(table.free) > set(pinned):
        where = "its bound" if len(pinned) == 1 else "their bounds"
        parts.append(
            f"Standard errors of the other parameters hold the {words(pinned)} at {where}; profile "
            "intervals do not."
        )
    return " ".join(parts)


# Quantities derived from the parameters


@dataclass(frozen=True)
class Estimate:
    """A quantity, its standard error and its interval.

    Parameters
    ----------
    value, standard_error : float
    lower, upper : float
        Ends of the interval.
    """

    value: float
    standard_error: float
    lower: float
    upper: float

    @classmethod
    def of_logarithm(cls, logarithm: float, error: float, z: float) -> Estimate:
        """Return the estimate of exp(logarithm) by the delta method."""
        value = exp_or_inf(logarithm)
        ends = exp_or_inf(logarithm - z * error), exp_or_inf(logarithm + z * error)
        return cls(value, value * error, *ends)


def derived_logarithms(model):
    """Return {name: (log q, ∂ log q/∂ log θ by parameter)} of derived quantities q.

    "microergodic": σ²/a^k with the family's infill exponent k, if finite; "effective_range" of an
    isotropic family; "nugget_ratio": τ²/σ².
    """
    values, derived = model.parameters(), {}
    shapes = [p.name for p in model.table if not p.unit and p.name not in ANISOTROPY]
    if VARIANCE not in values:
        return derived
    if RANGE in values and isfinite(model.infill_exponent):
        k, length = model.infill_exponent, log(values[RANGE])
        slopes = {VARIANCE: 1.0, RANGE: -k}
        for name in shapes:
            growth = _slope_of(model, name, lambda other: other.infill_exponent)
            slopes[name] = -growth * length
        derived["microergodic"] = (log(values[VARIANCE]) - k * length, slopes)
    if model.of_distance:
        unit = model.replace(**{RANGE: 1.0})
        slopes = {RANGE: 1.0}
        for name in shapes:
            # there is no closed form
            slopes[name] = _slope_of(unit, name, lambda other: _log(other.effective_range()))
        logarithm = log(values[RANGE]) + _log(unit.effective_range())
        derived["effective_range"] = (logarithm, slopes)
    ratio = _log(values[NUGGET]) - log(values[VARIANCE])
    derived["nugget_ratio"] = (ratio, {NUGGET: 1.0, VARIANCE: -1.0})
    return derived


def _slope_of(model, name, function, step=1e-4):
    """Return the derivative of a function of the model by the logarithm of a parameter."""
    value, ends = model.parameters()[name], []
    for sign in (1, -1):
        try:
            ends.append((sign * step, function(model.replace(**{name: value * exp(sign * step)}))))
        except InvalidInput:
            # beyond the parameter's limit
            ends.append((0.0, function(model)))
    (above, high), (below, low) = ends
    return (high - low) / (above - below)


def ridge(model, names, information, level=0.95):
    """Say that variance and range are not separately identifiable; None where they are.

    On one realisation in a bounded region σ² and a are not consistently estimated, σ²/a^k is
    (Zhang 2004, JASA 99:250; intervals: Kaufman and Shaby 2013, Biometrika 100:473). The model is
    in the user's units; the information, (k, k), that of the logarithms of the parameters `names`.
    """
    if not {VARIANCE, RANGE} <= set(names):
        return None
    covariance = np.linalg.inv(information)
    errors = np.sqrt(np.diag(covariance))
    i, j = (list(names).index(name) for name in (VARIANCE, RANGE))
    correlation = covariance[i, j] / (errors[i] * errors[j])
    if not abs(correlation) > RIDGE_CORRELATION:
        return None
    said = f"Variance and range are not separately identifiable (log-correlation {correlation:.3f})"
    known = derived_logarithms(model).get("microergodic")
    if known is None:
        return f"{said}."
    logarithm, slopes = known
    slope = np.array([slopes.get(name, 0.0) for name in names])
    error = sqrt(slope @ covariance @ slope)
    if error > errors[i]:
        # with an unknown exponent its unit is unknown
        return f"{said}."
    estimate = Estimate.of_logarithm(logarithm, error, z_value(level))
    return (
        f"{said}; the data determine {microergodic(model)} = {estimate.value:.4g} "
        f"({100 * level:g} % interval {estimate.lower:.4g} to {estimate.upper:.4g})."
    )


def microergodic(model):
    """Return the formula of the quantity that dense data determine, such as variance/range^3."""
    k = model.infill_exponent
    return "variance/range" + (f"^{k:.3g}" if isfinite(k) and k != 1 else "")


def z_value(level):
    """Return the normal quantile of a two-sided interval, 1.96 for 0.95."""
    from scipy.special import ndtri

    if not (isinstance(level, (int, float)) and 0 < level < 1):
        raise InvalidInput(f"`level` must lie between 0 and 1. Got {level!r}.")
    return float(ndtri(0.5 + level / 2))


def exp_or_inf(x):
    """Return e^x; infinity where that overflows."""
    return exp(x) if x < 709.0 else inf


def _log(x):
    return log(x) if x > 0 else -inf
