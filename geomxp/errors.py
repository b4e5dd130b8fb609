"""The few exceptions and the one warning that geomxp raises itself.

Each message is one line: what is wrong, what was given, what is needed, what to try.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._typing import Any, Iterable


class GeomxpError(Exception):
    """Base of everything that geomxp raises on purpose."""


class InvalidInput(GeomxpError, ValueError):
    """An argument, a table or a file is not what it must be."""


class NotPositiveDefinite(GeomxpError, ArithmeticError):
    """A covariance matrix has no Cholesky factor in the arithmetic in use.

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
    """An iteration on a mixed factor did not come to FP64's accuracy."""


class DuplicateLocations(NotPositiveDefinite, InvalidInput):
    """Two observations at one place, and no nugget: the covariance matrix is singular."""


class NotEnoughMemory(GeomxpError, MemoryError):
    """The computation would need more memory than is free; nothing was allocated."""


class MissingDevice(GeomxpError, RuntimeError):
    """The device that was asked for, or its library, is not there."""


class MissingPackage(GeomxpError, ImportError):
    """A package that a computation needs is not installed, or cannot be imported."""


LACKING = (NotEnoughMemory, MissingDevice, MissingPackage)
"""Errors caused by the machine, which trying another model cannot avoid."""


class LostCluster(GeomxpError, ConnectionError):
    """A cluster's scheduler or workers do not answer, or are gone."""


class FitFailed(GeomxpError, ArithmeticError):
    """A fit ended without an estimate.

    Parameters
    ----------
    message : str
        One line: why, and what to try.
    fit : Fit or None
        What the search had reached (not an estimate), where there is anything to show.
    """

    def __init__(self, message: str, fit: Any = None) -> None:
        super().__init__(message)
        self.fit = fit


class GeomxpWarning(UserWarning):
    """Something that the user should know and that does not stop the computation."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that proposes the nearest of the known words; nothing where none is near.

    Examples
    --------
    >>> did_you_mean("mewse", ["meuse", "jura"]), did_you_mean("x", ["meuse"])
    (" Did you mean 'meuse'?", '')
    """
    from difflib import get_close_matches

    names = {str(name).lower(): str(name) for name in known}
    near = get_close_matches(str(word).lower(), names, 1)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


# How a computation ended, in a word and a sentence.


class Ending(StrEnum):
    """The ways in which a computation can end."""

    COMPUTED = "COMPUTED"
    """One evaluation, done."""
    CONVERGED = "CONVERGED"
    """A maximum: the gain that one more Newton step promises is below the tolerance."""
    ON_BOUND = "ON_BOUND"
    """The maximum within bounds that the user or the metric sets lies on one of them."""
    UNIDENTIFIED = "UNIDENTIFIED"
    """The likelihood is flat in some direction: the data do not say what a parameter is."""
    NO_FINITE_MAXIMUM = "NO_FINITE_MAXIMUM"
    """The likelihood rises for ever as a parameter goes to 0 or to infinity: no estimate exists."""
    EVALUATION_LIMIT = "EVALUATION_LIMIT"
    """The search was told to stop before it had converged."""
    STALLED = "STALLED"
    """The search could not reach its tolerance."""
    NOT_POSITIVE_DEFINITE = "NOT_POSITIVE_DEFINITE"
    """A covariance matrix had no Cholesky factor."""


@dataclass(frozen=True)
class Outcome:
    """How a computation ended.

    Parameters
    ----------
    ending : Ending
    message : str
        Sentences, with advice where something can be done.

    Examples
    --------
    >>> str(Outcome(Ending.CONVERGED, "the maximum is inside the bounds"))
    'CONVERGED: the maximum is inside the bounds'
    """

    ending: Ending
    message: str = ""

    @property
    def good(self) -> bool:
        """Whether the result may be used as what was asked for."""
        return self.ending in (Ending.COMPUTED, Ending.CONVERGED, Ending.ON_BOUND)

    def __str__(self) -> str:
        return f"{self.ending}: {self.message}" if self.message else str(self.ending)
