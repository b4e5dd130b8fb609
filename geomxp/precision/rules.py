"""Rules that say which tile gets which format: plain functions from tile norms to a map."""

from .formats import named
from .map import PrecisionMap


def uniform(name):
    """Return the rule that gives every tile the same format.

    Parameters
    ----------
    name : str or Format

    Returns
    -------
    callable
        ``rule(norms) -> PrecisionMap`` for (T, T) Frobenius norms of tiles.
    """
    form = named(name)

    def rule(norms):
        return PrecisionMap(tuple((form,) * (i + 1) for i in range(len(norms))))

    return rule
