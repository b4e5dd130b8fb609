"""How a computation ended, in a word and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
