"""Fits of a hurdle: the presence of values other than 0, and their amount where present."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._version import __version__
from ..covariance.responses import Bernoulli, Hurdle
from ..data import tables
from ..data.observations import LEAST_LOCATIONS, Observations
from ..errors import GeomxpWarning, InvalidInput, Outcome, naming
from ..likelihood.trend import by_variable
from ..runtime.equality import by_content
from . import document as documents
from .result import Fit, criteria, load_fit

if TYPE_CHECKING:
    from .._typing import Any, Document, PathLikeText
    from ..likelihood.base import Likelihood

PARTS = "presence", "amount"
"""The two models of a hurdle, as options and files name them."""


def options_of(options, part, of_amount=()):
    """Return the options of `fit` for one of `PARTS`.

    A dict with these names as keys has an option for each; any other value is for both. Parameters
    with the names `of_amount` belong to the amount alone.
    """
    own = dict(options)
    for name, value in options.items():
        if name == "trend":
            own[name] = by_variable(value, PARTS, PARTS)[part]
        elif isinstance(value, Mapping) and value and set(value) <= set(PARTS):
            del own[name]
            own |= {name: value[part]} if part in value else {}
        elif name in ("fixed", "start", "bounds") and part == "presence" and value:
            own[name] = _without(value, of_amount)
        elif name == "checkpoint" and value is not None:
            path = Path(value)
            own[name] = path.with_name(f"{path.stem}.{part}{path.suffix}")
    return own


def _without(given, names):
    """Return parameters, by name or with values, without some; anything else as it is."""
    if isinstance(given, Mapping):
        return {name: value for name, value in given.items() if name not in names}
    if isinstance(given, (list, tuple, set)):
        return tuple(name for name in given if name not in names)
    return given


def responses_of(hurdle, observations):
    """Return the responses of the presence and of the amount, by name."""
    amount = hurdle.amount_of(observations.values)
    return {"presence": Bernoulli(hurdle.link), "amount": amount}


def observations_of(observations):
    """Return the observations of the presence and of the amount, by name."""
    present = observations.values != 0
    with warnings.catch_warnings():
        # the observations have been checked already
        warnings.simplefilter("ignore", GeomxpWarning)
        presence = replace(
            observations,
            values=present.astype(float),
            value_name=f"presence of {observations.value_name}",
            value_unit="",
            source={},
        )
    return {"presence": presence, "amount": observations.subset(np.flatnonzero(present))}


def check_hurdle(observations, hurdle):
    """Raise `InvalidInput` for observations that have no model of presence and of amount."""
    if not isinstance(observations, Observations):
        raise InvalidInput(
            f"`observations` must be Observations. Got {type(observations).__name__}."
        )
    if observations.variable is not None:
        raise InvalidInput(
            "a hurdle has one variable: fit each variable alone, observations.of_variable(name)."
        )
    check_hurdle_values(observations)
    n, response = len(observations), responses_of(hurdle, observations)["amount"]
    zeros = int((observations.values == 0).sum())
    if zeros == 0:
        raise InvalidInput(
            f"none of the {n} values is 0, so their presence needs no model: use "
            f'response="{response.name}" (--response {response.name}).'
        )
    if zeros == n:
        raise InvalidInput(
            f"all {n} values are 0: a hurdle needs values greater than 0. Add observations, or "
            "leave this variable out."
        )
    if n - zeros < LEAST_LOCATIONS:
        raise InvalidInput(
            f"a hurdle needs at least {LEAST_LOCATIONS} values greater than 0 for the model of "
            f"their amount. Got {n - zeros}: add observations, or model the presence alone, with "
            'response="bernoulli" and values 0 and 1.'
        )
    check_hurdle_columns(hurdle.link, offset=observations.offset, exposure=observations.exposure)


def check_hurdle_columns(link, trials=None, offset=None, exposure=None):
    """Raise `InvalidInput` for columns, of observations or new ones, that a hurdle cannot have."""
    if trials is not None:
        raise InvalidInput("`trials` are for binomial responses: leave them out for a hurdle.")
    for name, given in (("offset", offset), ("exposure", exposure)):
        if given is not None and link != "cloglog":
            raise InvalidInput(
                f"the `{name}` of a hurdle acts on its presence too, which needs the link cloglog. "
                f"Got {link}: use response=gx.responses.Hurdle(link='cloglog'), or leave "
                f"`{name}` out."
            )


def check_hurdle_values(observations):
    """Raise `InvalidInput` for values that are not 0 or positive numbers."""
    if observations.limits_in_words:
        raise InvalidInput(
            f"{observations.limits_in_words}, and a hurdle needs exact values: use "
            'response="censored" (--response censored).'
        )
    check_hurdle_columns("cloglog", observations.trials)
    bad = np.flatnonzero(observations.values < 0)
    if len(bad):
        raise InvalidInput(
            f"a hurdle response needs values of at least 0. Got {observations.values[bad[0]]:g} in "
            f"row {bad[0] + 1}."
        )


@by_content
@dataclass(frozen=True)
class HurdleFit:
    """Fits of a hurdle, as `fit` returns them: two independent models of values that may be 0.

    The probability that a value is not 0 varies with the first field. The distribution of values
    that are not 0 varies with the second; their density is this probability times that of the
    amount.

    Parameters
    ----------
    presence : Fit
        Fit of whether a value is not 0, at all locations, with a Bernoulli response.
    amount : Fit
        Fit of the values that are not 0.
    observations : Observations
        All values.

    Examples
    --------
    >>> import geomxp as gx
    >>> random = np.random.default_rng(0)
    >>> rain = gx.Observations(random.random((60, 2)), random.gamma(2.0, 1.0, 60).round(1) // 1)
    >>> held = {"variance": 0.1, "range": 0.2, "smoothness": 0.5}
    >>> fit = gx.fit(rain, response="hurdle", fixed=held, progress=False)
    >>> fit.log_likelihood == fit.presence.log_likelihood + fit.amount.log_likelihood
    True
    >>> prediction = gx.predict(fit, [[0.5, 0.5]])
    >>> bool(0 < prediction.presence.mean[0] < 1 < prediction.amount.mean[0])
    True
    """

    presence: Fit
    amount: Fit
    observations: Observations

    @property
    def parts(self) -> dict[str, Fit]:
        """The two fits by name, "presence" and "amount"."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def log_likelihood(self) -> float:
        """Log density of the values: the sum of those of presence and amount."""
        return self.presence.log_likelihood + self.amount.log_likelihood

    @property
    def log_likelihood_error(self) -> float:
        """Standard error of `log_likelihood`, as of `Fit`."""
        return hypot(self.presence.log_likelihood_error, self.amount.log_likelihood_error)

    @property
    def degrees_of_freedom(self) -> int:
        """Number of estimated parameters and coefficients of both fits."""
        return self.presence.degrees_of_freedom + self.amount.degrees_of_freedom

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2k - 2ℓ."""
        return self.presence.aic + self.amount.aic

    @property
    def bic(self) -> float:
        """Schwarz's criterion, k log n - 2ℓ, with the number n of all values."""
        penalty = self.degrees_of_freedom * float(np.log(len(self.observations)))
        return penalty - 2 * self.log_likelihood

    @property
    def outcome(self) -> Outcome:
        """The worse outcome of the two, with both in words."""
        both = {name: part.outcome for name, part in self.parts.items()}
        ending = min(both.values(), key=lambda one: (one.good, one.attained)).ending
        if not any(one.message or one.ending is not ending for one in both.values()):
            return Outcome(ending)
        said = (f"{name}: {str(one).rstrip('.')}." for name, one in both.items())
        return Outcome(ending, " ".join(said))

    @property
    def method(self) -> Likelihood:
        """The method of the model of the presence, which has all locations."""
        return self.presence.method

    def _title(self):
        seen = self.observations
        return (
            f"Hurdle model of {seen.value_name}: {len(seen):,} observations, of which "
            f"{len(self.amount.observations):,} are not 0"
        )

    def __repr__(self) -> str:
        return (
            f"<HurdleFit of {self.observations.value_name}, {self.observations.count_in_words}: "
            f"{self.outcome.ending}, log-likelihood {self.log_likelihood:.6g}, "
            f"presence {self.presence.model}, amount {self.amount.model}>"
        )

    def __str__(self) -> str:
        lines = [self._title()]
        for name, part in self.parts.items():
            lines += ["", f"{name.capitalize()}: {part}"]
        return "\n".join([*lines, "", "Both", "", *(f"  {line}" for line in criteria(self))])

    def _repr_html_(self) -> str:
        parts = "".join(
            f"<p><strong>{name.capitalize()}</strong></p>{part._repr_html_()}"
            for name, part in self.parts.items()
        )
        both = "<br>".join(escape(" ".join(line.split())) for line in criteria(self))
        return f"<p>{escape(self._title())}</p>{parts}<p><strong>Both</strong><br>{both}</p>"

    def to_dict(self) -> Document:
        """Return what `geomxp fit --json` prints: the documents of both fits, and their sums."""
        return {
            "geomxp": __version__,
            "n": len(self.observations),
            **{name: documents.of_estimate(part) for name, part in self.parts.items()},
            "log_likelihood": self.log_likelihood,
            "log_likelihood_error": self.log_likelihood_error,
            "aic": self.aic,
            "bic": self.bic,
            "outcome": str(self.outcome.ending),
            "message": self.outcome.message,
            **documents.of_observations(self.observations),
        }

    def save(self, path: PathLikeText, *, embed: bool | None = None) -> None:
        """Write both fits and their observations as one JSON file; see `Fit.save`."""
        entries = self.to_dict()
        for name, part in self.parts.items():
            entries[name]["history"] = list(part.history)
        documents.write(entries, self.observations, path, embed)

    @classmethod
    def load(cls, path: PathLikeText, **options: Any) -> HurdleFit:
        """Read the fit of a hurdle that `save` wrote.

        Parameters
        ----------
        path : path
        **options : optional
            As of `Fit.load`; a dict with the keys "presence" and "amount" has one for each fit:
            response={"amount": Own()}.

        Raises
        ------
        InvalidInput
            If the file does not hold the fit of a hurdle, and as `Fit.load`.

        Examples
        --------
        >>> import tempfile
        >>> import geomxp as gx
        >>> places = np.random.default_rng(0).random((60, 2))
        >>> counts = gx.Observations(places, np.arange(60) % 3)
        >>> held = {"variance": 0.1, "range": 0.2, "smoothness": 0.5}
        >>> fit = gx.fit(counts, response="hurdle", fixed=held, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(f"{folder}/fit.json")
        ...     gx.HurdleFit.load(f"{folder}/fit.json") == fit
        True
        """
        return _read(documents.opened(path), path, **options)[0]


SCHEMA = {
    **{name: dict for name in PARTS},
    **{name: documents.SCHEMA[name] for name in ("central_meridian?", "table?", "observations?")},
}
"""Schema of a saved fit of a hurdle, without those of its fits."""

WHERE = "on", "memory", "device_memory", "scratch"


def _read(document, path, metric=None, **options):
    """Return the fit of a hurdle in a document, and a sentence that says where its data are from.

    `options` are those of `Fit.load`.
    """
    documents.check(document, SCHEMA, str(path), "")
    methods, own = {}, {name: options_of(options, name) for name in PARTS}
    for name, given in own.items():
        where = {key: given.pop(key, None) for key in WHERE}
        given_method = given.pop("method", None)
        methods[name] = documents.method_of(document[name], path, given_method, where, f"{name}.")
    metric = metric or document["presence"]["model"]["metric"]
    observations, origin = documents.observations_of(document, path, metric)
    with naming(str(path)):
        check_hurdle(observations, Hurdle(link="cloglog"))
    fits = {}
    for name, seen in observations_of(observations).items():
        given = {key: own[name].get(key) for key in ("family", "transform", "response")}
        entries = documents.entries_of(document[name], path, seen, method=methods[name], **given)
        fits[name] = Fit(**entries)
    tables.warn_if_edited(path, document)
    return HurdleFit(**fits, observations=observations), origin


def load(path: PathLikeText, **options: Any) -> tuple[Fit | HurdleFit, str]:
    """Read a fit or the fit of a hurdle, as its `load` does, and where its data are from."""
    document = documents.opened(path)
    if documents.is_of_hurdle(document):
        return _read(document, path, **options)
    return load_fit(path, **options)
