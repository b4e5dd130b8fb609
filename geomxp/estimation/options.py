"""Options of `fit`: one table for its checks, the command line, saved fits, reports and advice."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ..covariance.anisotropy import AxisRatios
from ..covariance.base import FAMILIES, made_by_name, names_of_families
from ..covariance.responses import GAUSSIAN, HURDLE, RESPONSES
from ..covariance.transformation import TRANSFORMS, ByVariable, Transformation
from ..data.names import split
from ..data.options import (
    FLAG,
    NUMBER_IN_JSON,
    Kind,
    Option,
    Options,
    as_given,
    check_choice,
    either,
    number,
    one_of,
    pairs,
    plain_number,
)
from ..errors import (
    LARGEST_WHOLE,
    InvalidInput,
    brief_repr,
    check_flags,
    check_whole,
    did_you_mean,
    is_finite,
)
from ..likelihood.trend import TRENDS
from .names import ANISOTROPY
from .profile import held_values
from .search import SEARCHES

MOST_STARTS = 1000

MODEL, MACHINE = "Model", "Machine"
"""Headings of the help, besides that of the search."""

FAMILY_PARAMETERS = tuple(
    {
        f"{one.name}=": None
        for kind in FAMILIES.values()
        for one in (*kind.declared_for(2), *kind.optional_for(2))
    }
)
"""Names of the parameters of families, as they begin an option."""

PARAMETERS = (
    *FAMILY_PARAMETERS,
    *(f"{name}=" for name in ANISOTROPY),
    *(f"{one.name}=" for kind in TRANSFORMS.values() for one in kind.declared),
    *(f"{one.name}=" for kind in RESPONSES.values() for one in kind.declared),
)
"""Names of all parameters, as they begin an option."""


# Kinds of values


def _box(flag, name, text):
    """Parse `lower:upper`."""
    lower, colon, upper = text.partition(":")
    if not colon:
        raise InvalidInput(f"{flag} needs name=lower:upper. Got {name + '=' + text!r}.")
    return number(flag, name, lower), number(flag, name, upper)


def _transforms(flag, text):
    """Parse `log`, or `log,none` for several variables."""
    names = split(text)
    for name in names:
        check_choice(flag, name, (*TRANSFORMS, *(["none"] if len(names) > 1 else [])))
    return text if len(names) < 2 else tuple(None if name == "none" else name for name in names)


def family_named(flag, word):
    """Return the name of a family, or of a combination of families."""
    if made_by_name(word) is None:
        raise InvalidInput(
            f"{flag} must be {either(FAMILIES)}; or a combination, such as separable-spherical. "
            f"Got {word!r}.{did_you_mean(word, names_of_families())}"
        )
    return word


def _checked_dict(name, value):
    if not (value is None or isinstance(value, dict)):
        raise InvalidInput(f"`{name}` must be a dict. Got {type(value).__name__}.")
    return value


def _trend(flag, text):
    # or a trend for each variable, such as zinc: linear; lead: constant
    if ":" not in text:
        check_choice(flag, text, TRENDS, ' Write a formula as --formula "A + B".')
    return text


def _checked_flag_or_none(name, value):
    if value is not None:
        check_flags(**{name: value})
    return value


def _checked_tolerance(name, value):
    if not (is_finite(value) and value > 0):
        raise InvalidInput(f"`{name}` must be greater than 0. Got {brief_repr(value)}.")
    return value


VALUES = Kind(
    {str: NUMBER_IN_JSON},
    pairs,
    lambda values: [f"{name}={plain_number(value)}" for name, value in values.items()],
    _checked_dict,
    known=PARAMETERS,
)
BOXES = Kind(
    {str: list},
    lambda flag, items: pairs(flag, items, "name=lower:upper", _box),
    lambda boxes: [f"{name}={':'.join(map(plain_number, box))}" for name, box in boxes.items()],
    _checked_dict,
    known=PARAMETERS,
)
YES_OR_NO = Kind(
    bool,
    lambda flag, word: one_of("yes", "no").parse(flag, word) == "yes",
    lambda yes: ["yes" if yes else "no"],
    _checked_flag_or_none,
    known=("yes", "no"),
)


TRANSFORM = Kind(
    (str, list),
    _transforms,
    lambda value: [value if isinstance(value, str) else ",".join(one or "none" for one in value)],
    known=tuple(TRANSFORMS),
)


def _response(flag, word):
    check_choice(flag, word, NAMES_OF_RESPONSES)
    return word


NAMES_OF_RESPONSES = (GAUSSIAN, *RESPONSES, HURDLE)

RESPONSE = Kind(str, _response, check=as_given, known=NAMES_OF_RESPONSES)


def whole(least=1, most=LARGEST_WHOLE):
    """Return the kind of whole numbers in a range."""

    def check(name, value):
        check_whole(name, value, least, most)
        return int(value)

    return Kind(int, check=check)


PLACE = Kind(str, known=("cpu",))
PATH = Kind(str)


# The table


def _not_kept(*_):
    """Keep nothing: the option does not change what is computed."""


def _names_of(transform):
    """Return the name of a transformation, or those of several variables."""
    if not isinstance(transform, ByVariable):
        return None if transform is None else transform.name
    names = [one.name for one in transform.transforms]
    each = tuple(None if name == Transformation.name else name for name in names)
    return names[0] if len(set(names)) == 1 else each


def _is_turned(model):
    """Whether a model is anisotropic; a family of one's own may know no anisotropy."""
    return getattr(model, "anisotropy", None) is not None


def _has_axes(model):
    """Whether a model has one range for each axis."""
    return isinstance(getattr(model, "anisotropy", None), AxisRatios)


FIT_OPTIONS = Options.of(
    Option(
        "family",
        Kind(str, family_named, check=as_given, known=tuple(FAMILIES)),
        "NAME",
        f"Covariance family: {either(FAMILIES)}; or a combination, such as separable-spherical.",
        panel=MODEL,
        kept=lambda _, fit: None if fit.model.family == "matern" else fit.model.family,
    ),
    Option(
        "fixed",
        replace(VALUES, check=as_given),
        "NAME=VALUE",
        "Hold a parameter at a value; repeatable.",
        (),
        spelling="--fix",
        panel=MODEL,
        kept=lambda _, fit: held_values(fit) or None,
    ),
    Option(
        "bounds",
        BOXES,
        "NAME=LOW:HIGH",
        "Search between bounds; repeatable.",
        panel=MODEL,
        kept=lambda _, fit: fit.bounds or None,
    ),
    Option(
        "trend",
        Kind(str, _trend, known=TRENDS),
        "NAME",
        f"{either(TRENDS)}. Of several variables also one for each: "
        '"zinc: linear; lead: constant".',
        "constant",
        panel=MODEL,
        kept=lambda _, fit: fit.trend.text,
    ),
    Option(
        "reml",
        FLAG,
        "",
        "Maximize the restricted likelihood.",
        False,
        panel=MODEL,
        kept=lambda _, fit: fit.reml,
    ),
    Option(
        "anisotropy",
        FLAG,
        "",
        "Estimate geometric anisotropy, in 2 or 3 dimensions.",
        False,
        panel=MODEL,
        kept=lambda _, fit: _is_turned(fit.model) and not _has_axes(fit.model),
    ),
    Option(
        "axis_ranges",
        FLAG,
        "",
        "Estimate one range for each axis.",
        False,
        panel=MODEL,
        kept=lambda _, fit: _has_axes(fit.model),
    ),
    Option(
        "microscale",
        YES_OR_NO,
        "YES|NO",
        "Whether to estimate the microscale variance separately from the nugget; if not given, yes "
        "if at least 10 observations are repeated, not all with equal values.",
        panel=MODEL,
    ),
    Option(
        "nugget_covariance",
        FLAG,
        "",
        "Estimate the nugget covariances of several variables.",
        False,
        panel=MODEL,
        kept=lambda _, fit: fit.model.nugget_covariance is not None,
    ),
    Option(
        "transform",
        TRANSFORM,
        "NAME",
        f"Transformation of the values to the Gaussian scale: {either(TRANSFORMS)}; of several "
        "variables also one for each: log,none.",
        panel=MODEL,
        kept=lambda _, fit: _names_of(fit.model.transform),
    ),
    Option(
        "response",
        RESPONSE,
        "NAME",
        f"Distribution of the values: {either(NAMES_OF_RESPONSES)}.",
        panel=MODEL,
        kept=lambda _, fit: fit.model.response and fit.model.response.name,
    ),
    Option(
        "search",
        one_of(*SEARCHES),
        "NAME",
        "scoring (Fisher scoring, with derivatives), bobyqa (without), lbfgs or slsqp.",
        "scoring",
    ),
    Option("start", VALUES, "NAME=VALUE", "Value to start from; repeatable."),
    Option("starts", whole(1, MOST_STARTS), "N", "Least number of starting points.", 1),
    Option(
        "starts_on",
        PLACE,
        "PLACE",
        "Where the searches of --starts run: cpu is this process; tcp://host:8786 is a Dask "
        "cluster, one search on each worker.",
        "cpu",
        panel=MACHINE,
        kept=_not_kept,
    ),
    Option(
        "tolerance",
        Kind(NUMBER_IN_JSON, check=_checked_tolerance),
        "NUMBER",
        "Tolerance on the log-likelihood.",
        1e-6,
    ),
    Option("evaluations", whole(), "N", "Limit on the number of evaluations.", 1000),
    Option(
        "checkpoint",
        PATH,
        "FILE",
        "Save the best model after each improvement; the same command resumes from this file.",
        kept=_not_kept,
    ),
    Option("seed", whole(0, inf), "N", "Seed of the random numbers.", 0, least=0),
    Option(
        "strict",
        FLAG,
        "",
        "Fail if the likelihood has its supremum at a limit of a parameter.",
        False,
        kept=_not_kept,
    ),
)
"""Options of `fit`. Those without `kept` are in `Fit.options` if they are not the defaults; a fit
tells the others. Those of the heading "Model" say what is estimated, all others how."""


def model_options(fit):
    """Return the options of a fit that say what it estimates, for fits of other observations."""
    values = FIT_OPTIONS.kept(fit.options, fit)
    values = {name: value for name, value in values.items() if FIT_OPTIONS[name].panel == MODEL}
    return values | {
        "family": type(fit.model),
        "transform": fit.model.transform,
        "response": fit.model.response,
        "microscale": fit.model.microscale is not None,
    }
