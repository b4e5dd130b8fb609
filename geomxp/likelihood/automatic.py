"""The method that `fit` and the command line choose if none is given: exact, or Vecchia's.

The number of locations and the memory decide, not the speed of the machine, so that estimates do
not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.devices import free_memory, human_bytes, resolve_all
from .cost import DEFAULT_NEIGHBOURS, bytes_for, in_words, on_disk, predicted_cost
from .exact import Exact
from .vecchia import Vecchia

if TYPE_CHECKING:
    from ..covariance.responses import Response
    from .base import Likelihood

AUTO = "auto"
"""Name of the choice, as an argument and on the command line."""

MOST_EXACT_LOCATIONS = 6_000
"""Number of locations up to which the exact likelihood is chosen."""

MOST_DENSE_LOCATIONS = 500
"""Number of locations up to which the field of a response has dense matrices."""

METHOD_CALLS = {
    "exact": "method=gx.Exact()",
    "disk": 'method=gx.Exact(memory="{}")',
    "device": 'method=gx.Exact(on="gpu", device_memory="8GB")',
    "vecchia": f"method=gx.Vecchia({DEFAULT_NEIGHBOURS})",
}
METHOD_FLAGS = {
    "exact": "--method exact",
    "disk": "--method exact --memory {}",
    "device": "--method exact --device-memory 8GB",
    "vecchia": "--method vecchia",
}
"""Spellings of the methods in Python and on the command line."""


def automatic(
    n: int, tabulated: bool = True, on: str = "cpu", response: Response | None = None
) -> Likelihood:
    """Return the method for a number of locations.

    It is the exact one up to 6,000 locations if one dense matrix fits the free memory, otherwise
    Vecchia's approximation with 30 neighbours. For covariance families without a table of the
    correlation, which the approximation needs, on clusters and on several devices it is exact.

    Parameters
    ----------
    n : int
        Number of locations.
    tabulated : bool
        Whether the covariance model has a table; see `Covariance.tabulated`.
    on : str
        Device or devices, as `Exact` takes them.
    response : Response, optional
        Other than Gaussian values: dense matrices up to 500 locations.

    Returns
    -------
    Likelihood

    Examples
    --------
    >>> automatic(155) == Exact(), automatic(20_000) == Vecchia(30)
    (True, True)
    >>> automatic(20_000, tabulated=False) == Exact()
    True
    """
    exact = Exact(on=on)
    if response is not None:
        dense = n <= MOST_DENSE_LOCATIONS or not tabulated
        return exact if dense else Vecchia(DEFAULT_NEIGHBOURS, on=on)
    if not tabulated or exact.tiled:
        return exact
    (device,) = resolve_all(on)
    if n <= MOST_EXACT_LOCATIONS and bytes_for(n, 1, device) <= device.free_memory():
        return exact
    return Vecchia(DEFAULT_NEIGHBOURS, on=on)


def response_choice_in_words(method, n, spelled=METHOD_CALLS):
    """Return one line: how the field of a response is computed, and how to choose the other way."""
    name, other = "dense matrices", "vecchia"
    if method.approximate:
        name = f"Vecchia's approximation with {method.neighbours} neighbours"
        other = "exact"
    what = {"exact": "Dense matrices, for up to a few thousand", "vecchia": "Vecchia's"}[other]
    return f"{n:,} locations: {name} for the field. {what}: {spelled[other]}."


def choice_in_words(method, n, dimensions=2, spelled=METHOD_CALLS, because="", tabulated=True):
    """Return one line: the method, its predicted cost, and how to choose the other one.

    `because` names the options that decided, if any; without them the other one can be chosen.
    """
    reason, without = f" because of {because}", f" without {because}"
    if not because:
        reason = without = ""
    cost = predicted_cost(method, n, dimensions)
    if not method.approximate:
        head = f"{n:,} locations: the exact likelihood{reason} (a fit: {cost})."
        if not tabulated:
            return f"{head} Vecchia's approximation needs a table, which this family does not have."
        other = predicted_cost(Vecchia(DEFAULT_NEIGHBOURS), n, dimensions)
        return f"{head} Vecchia's approximation (a fit: {other}): {spelled['vecchia']}{without}."
    name = f"Vecchia's approximation with {method.neighbours} neighbours"
    other = predicted_cost(Exact(on=method.on), n, dimensions)
    call = spelled["exact"]
    if other.fits is False and method.on != "cpu":
        call = spelled["device"]
    elif other.fits is False:
        size, seconds, disk = on_disk(n, free_memory())
        other = f"{in_words(seconds)} and {human_bytes(disk)} on a disk"
        call = spelled["disk"].format(size)
    head = f"{n:,} locations: {name}{reason} (a fit: {cost})."
    return f"{head} The exact likelihood (a fit: {other}): {call}{without}."
