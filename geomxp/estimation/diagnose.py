"""What a search's end means: an estimate, a bound, a parameter that the data do not know."""

import numpy as np

from ..covariance.matern import practical_range
from ..errors import Ending, Outcome
from .intervals import ridge
from .parameters import NUGGET_RATIO, SMOOTHNESS

NEAR = 1e-3
"""In logarithms: so near a bound is on it."""

FLAT = 1e-4
"""Information (curvature in the logarithm of a parameter) below which the data say nothing."""

NO_CORRELATION = 0.01
"""A correlation at the shortest distance that no data can see."""

JUDGING = 300
"""Evaluations for each point of a profile that a verdict needs, beside those of the search."""

STEEPEST = 10.0
"""Largest power of the range with which a start's variance grows: 1e-60 is no variance."""

FAR = 100.0
"""Practical ranges of more than so many extents are looked at with suspicion."""


def _boxes(space, model):
    """Yield (parameter, value, lower, upper) of every free parameter, as it is bounded."""
    for name in space.free:
        if name == "anisotropy_angle" and name not in space.bounds:
            continue
        value = model.parameters()[name]
        if name == "range" and "range" not in space.bounds:
            yield name, practical_range(value, model.smoothness), *space.practical_range_bounds()
        elif name == "nugget" and space.profiled:
            yield name, value / model.variance, *NUGGET_RATIO
        elif not (name == "variance" and space.profiled):
            yield name, value, *space.box(name)


def on_bounds(space, model):
    """Return the parameters that lie on a bound, as a dict of name to "lower" or "upper"."""
    pinned = {}
    for name, value, lower, upper in _boxes(space, model):
        near = NEAR * (1.0 if name == "anisotropy_angle" else value)
        if value <= lower + near:
            pinned[name] = "lower"
        elif value >= upper - near:
            pinned[name] = "upper"
    return pinned


def outside(space, model):
    """Return the names of the parameters that lie outside their bounds."""
    return [
        name
        for name, value, lower, upper in _boxes(space, model)
        if value < lower - 1e-12 * abs(lower) or value > upper + 1e-12 * abs(upper)
    ]


def judge(problem, space, model, pinned, natural, summit):
    """Say how a search ended.

    Parameters
    ----------
    problem : Problem
    space : Space
        Where the search ended (the nugget fixed at 0 if that was best).
    model : Matern
        The best model.
    pinned : dict of str to str
        Parameters on a bound.
    natural : Natural
    summit : Summit

    Returns
    -------
    outcome : Outcome
    flat : bool
        Whether the information cannot be inverted.
    """
    runaway = _runaway(problem, space, model, pinned, summit)
    if runaway:
        return Outcome(Ending.NO_FINITE_MAXIMUM, runaway), True
    unknown = _unidentified(space, model, pinned)
    if unknown:
        return Outcome(Ending.UNIDENTIFIED, unknown), True
    flat = _flat_direction(natural, summit)
    if flat:
        return Outcome(Ending.UNIDENTIFIED, flat), True
    if not summit.gain <= problem.tolerance:
        return (
            Outcome(
                Ending.STALLED,
                "the search ended where the log-likelihood is not at a maximum "
                f"(largest slope {np.abs(summit.score).max():.2g} per logarithm of a parameter): "
                "try more starts, other start values, or a nugget",
            ),
            True,
        )
    if pinned:
        return Outcome(Ending.ON_BOUND, _on_bound(space, model, pinned)), False
    if not problem.space.free:
        return Outcome(Ending.COMPUTED, "every parameter was given: nothing was estimated"), False
    notes = [f"one more Newton step promises a gain of {summit.gain:.1g}"]
    vague = _hardly_known(natural, summit)
    if vague:
        notes.append(f"the data hardly know the {vague}: standard error above the estimate")
    told = ridge(problem.monitor.rescale(model, 0.0)[0], natural.names, summit.information)
    if told:
        notes.append(told)
    if "nugget" in problem.space.free and model.nugget == 0:
        notes.append("the nugget is 0, at its boundary: the data show no noise")
    return Outcome(Ending.CONVERGED, "; ".join(notes)), False


def _runaway(problem, space, model, pinned, summit):
    """Say that the likelihood rises all the way as a parameter runs to infinity or to 0."""
    value = max(summit.value, problem.monitor.best[0])
    return (
        _nugget_vanishes(problem, space, pinned)
        or _range_grows(problem, space, model, pinned, value)
        or _smoothness_grows(problem, space, model, pinned, value)
    )


def _nugget_vanishes(problem, space, pinned):
    if pinned.get("nugget") != "lower" or "nugget" in space.bounds:
        return None
    pair = problem.observations.duplicate()
    if pair is None:
        return None
    return (
        f"the log-likelihood rises without limit as the nugget goes to 0: rows {pair[0] + 1} and "
        f"{pair[1] + 1} are at the same place with (nearly) equal values. Drop one of them, or "
        "fix the nugget"
    )


def _range_grows(problem, space, model, pinned, value):
    far = practical_range(model.range, model.smoothness) > FAR * space.extent.longest
    if "range" not in space.free or "range" in space.bounds or not far:
        return None
    lengths = [f * space.extent.longest for f in (10.0, 100.0, 1000.0)]
    profile = [_best_with(problem, space, model, practical=length) for length in lengths]
    if profile[-1] < value - problem.tolerance and pinned.get("range") != "upper":
        return None
    if not profile[-1] > profile[0] + problem.tolerance:
        # flat: of a field that is nothing beside the noise the range means nothing
        return None
    ours = problem.monitor.rescale(model, 0.0)[0]
    shown = _profile_in_words(
        problem, model, profile, [x * ours.range / model.range for x in lengths]
    )
    return (
        "the log-likelihood has no finite maximum: it rises for ever as the range goes to "
        "infinity, with variance/range^(2 smoothness) bounded (an intrinsic random field). "
        f"Best values at given practical ranges: {shown}. Fix the range or the smoothness, use "
        "another trend, or ML in place of REML"
    )


def _smoothness_grows(problem, space, model, pinned, value):
    limit = SMOOTHNESS[1]
    # the practical range must be free to follow
    bounded = {"smoothness", "range"} & set(space.bounds) or space.metric == "great-circle"
    bounded = bounded or "range" not in space.free
    if "smoothness" not in space.free or bounded or model.smoothness <= limit / 3:
        return None
    orders = [limit / 9, limit / 3, limit]
    profile = [_best_with(problem, space, model, smoothness=nu) for nu in orders]
    if profile[-1] < value - problem.tolerance and pinned.get("smoothness") != "upper":
        return None
    if not profile[-1] > profile[0] + problem.tolerance:
        return None
    return (
        "the log-likelihood has no finite maximum: it rises for ever as the smoothness goes to "
        "infinity, towards the Gaussian limit, and is flat there. "
        "Best values at given smoothness: "
        f"{_profile_in_words(problem, model, profile, orders)}. Fix the smoothness (2.5, say)"
    )


def _profile_in_words(problem, model, profile, places):
    """Log-likelihoods of the scaled problem as the user would have them, with where they are."""
    shift = problem.monitor.rescale(model, 0.0)[1]
    return ", ".join(f"{v + shift:.6f} at {x:.3g}" for v, x in zip(profile, places, strict=True))


def _best_with(problem, space, model, *, practical=None, smoothness=None):
    """Return the best log-likelihood with the practical range, or the smoothness, held."""
    if smoothness is not None:
        held = space.holding(smoothness=smoothness)
        # the practical range stays while the smoothness moves
        length = practical_range(model.range, model.smoothness) / practical_range(1.0, smoothness)
        values = model.parameters() | {"smoothness": smoothness, "range": length}
    else:
        length = practical / practical_range(1.0, model.smoothness)
        held = space.holding(range=length)
        growth = (length / model.range) ** min(2 * model.smoothness, STEEPEST)
        values = model.parameters() | {"range": length, "variance": model.variance * growth}
    return problem.search(held, type(model).from_parameters(values), evaluations=JUDGING)[0]


def _unidentified(space, model, pinned):
    """Say what the data do not know: on a bound that they suggested, or beyond their distances."""
    if "range" in space.free and model.correlation(space.extent.shortest) < NO_CORRELATION:
        return (
            "the correlation is gone at the shortest distance between places: the data show no "
            "spatial correlation; range and smoothness mean nothing, and variance and nugget only "
            "their sum"
        )
    if pinned.get("nugget") == "upper" and "nugget" not in space.bounds:
        return (
            "the nugget takes all of the variance: the data show no spatial correlation; range and "
            "smoothness mean nothing"
        )
    if pinned.get("smoothness") == "lower" and "smoothness" not in space.bounds:
        return (
            f"the smoothness went to its lower bound {SMOOTHNESS[0]:g}: so rough a field cannot be "
            "told from a nugget. Fix the smoothness or the nugget"
        )
    # what neither the user nor the metric bounds, nor its own meaning
    natural = {("smoothness", "upper")} if space.metric == "great-circle" else set()
    natural |= {("anisotropy_ratio", "upper")}
    for name, side in pinned.items():
        if name not in space.bounds and (name, side) not in natural:
            return (
                f"the {name.replace('_', ' ')} went to the {side} end of where geomxp looks: the "
                "data do not hold it. Fix it, or give bounds"
            )
    return None


def _flat_direction(natural, summit):
    """Name the parameters along which the likelihood does not change."""
    if not len(summit.score) or not np.isfinite(summit.information).all():
        return None
    values, vectors = np.linalg.eigh(summit.information)
    if values[0] >= FLAT or np.abs(summit.score).max() > 1e-2:
        return None
    names = [n for n, v in zip(natural.names, vectors[:, 0], strict=True) if abs(v) > 0.3]
    return (
        f"the log-likelihood is flat in {' and '.join(names)}: the data do not say what "
        f"{'it is' if len(names) == 1 else 'they are'}. Fix {names[0]}"
    )


def _hardly_known(natural, summit):
    """Name the parameters whose logarithms have a standard error above 1."""
    errors = np.sqrt(np.diag(np.linalg.inv(summit.information)))
    names = [n for n, error in zip(natural.names, errors, strict=True) if error > 1]
    return " and the ".join(name.replace("_", " ") for name in names)


def _on_bound(space, model, pinned):
    parts = []
    for name, side in pinned.items():
        if name == "smoothness" and space.metric == "great-circle" and side == "upper":
            parts.append(
                "the smoothness is at 0.5, the largest for which a Matérn model is a covariance "
                "with great-circle distances; the chordal metric has no such limit"
            )
        elif name == "anisotropy_ratio" and side == "upper":
            parts.append(
                "the anisotropy ratio is 1: the field is isotropic, its angle means nothing"
            )
        else:
            parts.append(
                f"the {name.replace('_', ' ')} is at its {side} bound: a maximum within the bounds "
                "only"
            )
    return "; ".join(parts)
