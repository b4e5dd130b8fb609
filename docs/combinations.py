"""The table of models of time and of variables that combine with isotropic families."""

from itertools import product

from geomxp.covariance import combined
from geomxp.covariance.base import FAMILIES, Isotropic, family_of
from geomxp.covariance.matern import Matern
from geomxp.covariance.multivariate import Multivariate
from geomxp.errors import InvalidInput


def table():
    """Return the table of models of time and of variables by isotropic family."""
    alone = [name for name, kind in FAMILIES.items() if issubclass(kind, Isotropic)]
    several = [name for name, kind in FAMILIES.items() if issubclass(kind, Multivariate)]
    lines = [f"| time | variables | {' | '.join(alone)} |", "|---" * (2 + len(alone)) + "|"]
    for time, variables in product(("", *combined.IN_TIME), ("", *several)):
        cells = [whether_combined(time, variables, space) for space in alone]
        lines.append(f"| {time or 'none'} | {variables or 'one'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def whether_combined(time, variables, space):
    """Return "yes" for parts that make a covariance, and else why they do not."""
    if variables in combined.OF_VARIABLES:
        space = f"{variables}-{space}"
    elif variables and space != Matern.family:
        return "of Matérn only"
    elif variables:
        space = variables
    try:
        family_of(f"{time}-{space}" if time else space)
    except InvalidInput:
        return "no mixture"
    return "yes"
