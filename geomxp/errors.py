"""Exceptions, the warning and the outcomes of geomxp.

Each message is one line that says what is wrong, what was given, what is needed and what to try.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._typing import Any, Iterable


LONGEST_MESSAGE_CHARACTERS = 1000
"""A longer message is shortened: a quoted argument, such as an array, may be long."""


class GeomxpError(Exception):
    r"""Base class of the exceptions that geomxp raises.

    A message is one line; one of more than `LONGEST_MESSAGE_CHARACTERS` loses its middle.

    Examples
    --------
    >>> str(GeomxpError("`model` must be a covariance model. Got array([[1.],\n       [2.]])."))
    '`model` must be a covariance model. Got array([[1.], [2.]]).'
    """

    def __init__(self, message: str = "", *others: object) -> None:
        message = " ".join(part.strip() for part in str(message).splitlines())
        if len(message) > LONGEST_MESSAGE_CHARACTERS:
            half = LONGEST_MESSAGE_CHARACTERS // 2
            message = f"{message[:half]} … {message[-half + 3 :]}"
        super().__init__(message, *others)


class InvalidInput(GeomxpError, ValueError):
    """An argument, a table or a file is invalid."""


class NotPositiveDefinite(GeomxpError, ArithmeticError):
    """A covariance matrix has no Cholesky factor in the arithmetic used.

    Parameters
    ----------
    message : str
        One line.
    order : int or None
        Order of the first leading minor that is not positive, as LAPACK counts it (from 1).
    """

    def __init__(self, message: str, order: int | None = None) -> None:
        super().__init__(message)
        self.order = order


class NotRefined(NotPositiveDefinite):
    """Iterative refinement with a mixed factor did not reach the accuracy of FP64."""


class DuplicateLocations(NotPositiveDefinite, InvalidInput):
    """Two observations share a location and the nugget is 0, so Σ is singular."""


class NotEnoughMemory(GeomxpError, MemoryError):
    """The computation needs more memory than is free; nothing was allocated."""


class MissingDevice(GeomxpError, RuntimeError):
    """The requested device, or its library, is not available."""


class MissingPackage(GeomxpError, ImportError):
    """A required package is not installed or cannot be imported."""


MACHINE_ERRORS = (NotEnoughMemory, MissingDevice, MissingPackage)
"""Errors caused by the machine, which no other model avoids."""


class LostCluster(GeomxpError, ConnectionError):
    """The scheduler or the workers of a cluster do not answer."""


class FitFailed(GeomxpError, ArithmeticError):
    """A fit found no maximum of the likelihood.

    Parameters
    ----------
    message : str
        Reason and advice in one line.
    fit : Fit or None
        Result at the end of the search, which is an estimate only if its `outcome.good` is True;
        None if the error is not that of one fit.
    """

    def __init__(self, message: str, fit: Any = None) -> None:
        super().__init__(message)
        self.fit = fit


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Begin the messages of errors with what they are about, such as a fold."""
    try:
        yield
    except GeomxpError as error:
        fit = (error.fit,) if isinstance(error, FitFailed) else ()
        raise type(error)(f"{what}: {error}", *fit) from error


class GeomxpWarning(UserWarning):
    """Warning about a result, which does not stop the computation."""


def with_article(word: str) -> str:
    """Return a word after its indefinite article.

    >>> with_article("matern"), with_article("independent")
    ('a matern', 'an independent')
    """
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that proposes the nearest known word; empty if none is near.

    Examples
    --------
    >>> did_you_mean("mewse", ["meuse", "jura"]), did_you_mean("x", ["meuse"])
    (" Did you mean 'meuse'?", '')
    """
    from difflib import get_close_matches

    names = {str(name).lower(): str(name) for name in known}
    near = get_close_matches(str(word).lower(), names, 1)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


def one_line(error: object, most: int = 200) -> str:
    r"""Return the text of an error as one line of at most `most` characters, without a full stop.

    Examples
    --------
    >>> one_line(ValueError("no such\n  file.")), one_line(KeyError())
    ('no such file', 'KeyError')
    """
    return " ".join(str(error).split())[:most].rstrip(".") or type(error).__name__


LARGEST_WHOLE = 2**63 - 1
"""The largest number of a machine integer."""


def check_whole(name: str, value: Any, least: int = 1, most: float = LARGEST_WHOLE) -> None:
    """Raise `InvalidInput` if an argument is not a whole number of at least so much.

    Seeds have no largest value, most=inf.

    Examples
    --------
    >>> from math import inf
    >>> check_whole("starts", 3, 3, 3), check_whole("seed", 10**30, 0, inf)
    (None, None)
    """
    if not (isinstance(value, Integral) and not isinstance(value, bool) and value >= least):
        raise InvalidInput(
            f"`{name}` must be a whole number of at least {least}. Got {brief_repr(value)}."
        )
    if value > most:
        raise InvalidInput(
            f"`{name}` must be a whole number from {least} to {most:,}. Got {brief_repr(value)}."
        )


def is_finite(value: Any) -> bool:
    """Return whether an argument is a finite number, and no truth value.

    Examples
    --------
    >>> [is_finite(x) for x in (1, 0.5, float("inf"), 10**400, True, "1")]
    [True, True, False, False, False, False]
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return isfinite(value)
    except OverflowError:
        return False


def brief_repr(value: Any) -> str:
    """Return a value for a message; Python does not write integers of more than 4,300 digits."""
    try:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:40]}…"
    except ValueError:
        return f"an integer of {value.bit_length():,} bits"


def check_flags(**values: Any) -> None:
    """Raise `InvalidInput` if one of these arguments is neither True nor False.

    Examples
    --------
    >>> check_flags(reml=True, anisotropy=False)
    """
    for name, value in values.items():
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidInput(f"`{name}` must be True or False. Got {value!r}.")


def check_one_of(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise `InvalidInput` if an argument is not one of some words."""
    if not isinstance(value, str) or value not in known:
        raise InvalidInput(f"`{name}` must be one of: {', '.join(known)}. Got {value!r}.")


# Outcomes of computations: a word and a sentence.


class Ending(StrEnum):
    """Names of outcomes."""

    COMPUTED = "COMPUTED"
    """The log-likelihood was computed at given parameters."""
    CONVERGED = "CONVERGED"
    """At a maximum: the predicted gain of one more Newton step is below the tolerance."""
    ON_BOUND = "ON_BOUND"
    """The maximum lies on a bound set by the user or the metric."""
    AT_LIMIT = "AT_LIMIT"
    """The likelihood approaches a finite supremum as a parameter goes to a limit."""
    UNIDENTIFIED = "UNIDENTIFIED"
    """The likelihood is flat in some direction: a parameter is not identifiable."""
    NO_FINITE_MAXIMUM = "NO_FINITE_MAXIMUM"
    """The likelihood has no maximum at finite parameters: no estimate exists."""
    EVALUATION_LIMIT = "EVALUATION_LIMIT"
    """The limit on evaluations stopped the search before convergence."""
    STALLED = "STALLED"
    """The search could not reach its tolerance."""
    NOT_POSITIVE_DEFINITE = "NOT_POSITIVE_DEFINITE"
    """A covariance matrix has no Cholesky factor."""


ATTAINED_ENDINGS = (Ending.COMPUTED, Ending.CONVERGED, Ending.ON_BOUND)
"""Outcomes at a maximum, or of a value that was asked for."""

GOOD_ENDINGS = (*ATTAINED_ENDINGS, Ending.AT_LIMIT)
"""Outcomes whose result may be used."""


ENDING_SENTENCES = {
    Ending.COMPUTED: "Computed at given parameters.",
    Ending.CONVERGED: "Converged: the log-likelihood is at a maximum.",
    Ending.ON_BOUND: "An estimate is at its bound.",
    Ending.AT_LIMIT: "The likelihood approaches its supremum as a parameter goes to a limit; the "
    "estimates are those next to the limit.",
    Ending.UNIDENTIFIED: "The data do not identify all parameters.",
    Ending.NO_FINITE_MAXIMUM: "The likelihood has no maximum at finite parameters: there is no "
    "estimate.",
    Ending.EVALUATION_LIMIT: "Stopped at the limit of evaluations, before a maximum.",
    Ending.STALLED: "The search stalled before a maximum.",
    Ending.NOT_POSITIVE_DEFINITE: "The covariance matrix has no Cholesky factor.",
}
"""Outcomes in plain words."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a computation.

    Parameters
    ----------
    ending : Ending
    message : str
        Sentences, with advice if there is a remedy.
    remedy : str
        A call or command that may work instead; empty if none is needed.
    options : dict
        The options of `fit` that the remedy changes.

    Examples
    --------
    >>> str(Outcome(Ending.CONVERGED, "the maximum is inside the bounds"))
    'CONVERGED: the maximum is inside the bounds'
    """

    ending: Ending
    message: str = ""
    remedy: str = field(default="", compare=False)
    options: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def good(self) -> bool:
        """Whether the result may be used."""
        return self.ending in GOOD_ENDINGS

    @property
    def attained(self) -> bool:
        """Whether the result is a maximum, and not one of a model next to a limit."""
        return self.ending in ATTAINED_ENDINGS

    @property
    def plain(self) -> str:
        """The outcome as a sentence, without its message.

        Examples
        --------
        >>> Outcome(Ending.CONVERGED).plain
        'Converged: the log-likelihood is at a maximum.'
        """
        return ENDING_SENTENCES[self.ending]

    def __str__(self) -> str:
        text = f"{self.ending}: {self.message}" if self.message else str(self.ending)
        return f"{text} Try: {self.remedy}" if self.remedy else text
