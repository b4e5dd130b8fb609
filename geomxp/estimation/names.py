"""Names of parameters that have a role of their own, and names and units in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..covariance import anisotropy as maps
from ..covariance.noise import NUGGET_COVARIANCE
from ..covariance.parameter import name_of
from ..errors import InvalidInput

if TYPE_CHECKING:
    from ..covariance.parameter import Parameter
    from ..covariance.responses import Response
    from ..data.observations import Observations

VARIANCE, NUGGET, RANGE, MICROSCALE = "variance", "nugget", "range", "microscale"
"""Names of the parameters that have a role of their own: C = σ²ρ(h/a), and τ² on the diagonal, in
part shared by replicates. The `Parameter`s are in `covariance.base`."""

NOISE = (NUGGET, MICROSCALE)
"""Parameters of the noise, which may be 0."""

LOADING = "loading"
"""Weights of the fields of a linear model of coregionalization in the variables."""

VALUE_UNITS = ("value", "value²")
"""Units of parameters that are those of the values."""

ANISOTROPY = (maps.ANGLE.name, maps.RATIO.name)
ANISOTROPY += tuple(sorted(maps.NAMES - set(ANISOTROPY)))
"""Parameters of anisotropy; first those of the plane, the angle and the ratio."""

RATIOS = (maps.RATIO.name, maps.THIRD_RATIO.name)
"""Ratios of an ellipse or an ellipsoid, at most 1."""


def map_of(anisotropy, axis_ranges, dimensions):
    """Return the kind of anisotropy that is asked for, or None.

    >>> map_of(True, False, 3).__name__, map_of(False, True, 2).__name__
    ('Anisotropy3D', 'AxisRatios')
    """
    if anisotropy and axis_ranges:
        raise InvalidInput(
            "`anisotropy` has an ellipse in any direction, `axis_ranges` one along the axes: leave "
            "one out."
        )
    # other dimensions are refused where the model is checked
    if anisotropy:
        return maps.Anisotropy3D if dimensions == 3 else maps.Anisotropy
    if axis_ranges:
        return maps.AxisRatios3D if dimensions == 3 else maps.AxisRatios
    return None


def words(names):
    """Return names of parameters as text.

    Examples
    --------
    >>> words(["range"]), words(["variance", "range", "anisotropy_ratio"])
    ('range', 'variance, range and anisotropy ratio')
    """
    *first, last = (name.replace("_", " ") for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def titles(model, observations):
    """Return the name in words of each parameter of a model, by name.

    Those of several variables have the names of the variables. Ranges and smoothnesses of a linear
    model of coregionalization are those of its fields.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = gx.Coregionalization([[1.0, 0.0], [0.5, 2.0]], (0.5, 0.1), 0.5)
    >>> locations, variable = [[0, 0], [0, 0], [1, 1], [1, 1]], ["zinc", "lead"] * 2
    >>> observations = gx.Observations(locations, np.arange(4.0), variable=variable)
    >>> names = titles(model, observations)
    >>> names["loading_21"], names["range_2"], names["nugget_2"]
    ('loading of lead on field 1', 'range of field 2', 'nugget of lead')
    """
    labels, result = observations.variable_labels, {}
    fields = ("range", "smoothness") if any(p.group == LOADING for p in model.table) else ()
    for p in model.table:
        of = [f"field {k + 1}" if p.group in fields else _label(labels, k) for k in p.where]
        text = f"{words([p.group])} of {of[0]}" if of else words([p.group])
        if len(of) == 2:
            text += f" on field {p.where[1] + 1}" if p.group == LOADING else f" and {of[1]}"
        result[p.name] = text
    return result


def unit_of(
    parameter: Parameter, observations: Observations, response: Response | None = None
) -> str | None:
    """Return the unit of a parameter in words; None if it has none.

    Parameters of several variables, such as `variance_2` or `loading_21`, have the unit of the
    values of their variable. Variances of the field of a response have no unit, unless its link is
    the identity.

    Examples
    --------
    >>> import geomxp as gx
    >>> observations = gx.Observations([[0.0], [1.0], [2.0]], [1.0, 2.0, 0.0], value_name="zinc")
    >>> unit_of(gx.Matern(1.0, 2.0, 0.5).parameter("nugget"), observations)
    'squared units of zinc'
    """
    if response is not None and not response.of_values and parameter.unit in VALUE_UNITS:
        return None
    unit = observations.value_unit or f"units of {observations.value_name}"
    squared = squared_unit(observations)
    if parameter.where and not observations.value_unit:
        labels = observations.variable_labels
        names = [labels[k] if k < len(labels) else observations.value_name for k in parameter.where]
        unit, squared = f"units of {names[0]}", f"squared units of {names[0]}"
        if len(names) == 2:
            squared = " × ".join(f"units of {name}" for name in names)
    return {
        "value²": squared,
        "value": unit,
        "length": observations.unit,
        "time": observations.time_unit or None,
        "degrees": "degrees",
    }.get(parameter.unit)


def squared_unit(source):
    """Return the squared unit of the values of observations or of a variogram, in words."""
    unit = source.value_unit
    return f"({unit})²" if unit else f"squared units of {source.value_name}"


def with_titles(text, model, observations):
    """Return a text in which parameters of several variables have the names of the variables."""
    if model.variables == 1:
        return text
    for name, title in titles(model, observations).items():
        for old, new in ((words([name]), title), (words([name]).capitalize(), _capital(title))):
            text = re.sub(rf"\b{old}\b(?!\.\d)", lambda _, new=new: new, text)
    return text


def _capital(text):
    return text[:1].upper() + text[1:]


def _label(labels, k):
    """Return the name of variable k; a model may have more variables than observations."""
    return labels[k] if k < len(labels) else f"variable {k}"


def of_nuggets(parameter):
    """Whether a parameter is the covariance of two nuggets."""
    return parameter.group == NUGGET_COVARIANCE.name


def nuggets_of(covariance):
    """Return the names of the nuggets of a covariance.

    >>> nuggets_of(NUGGET_COVARIANCE.of((0, 2)))
    ['nugget_1', 'nugget_3']
    """
    return [name_of(NUGGET, (k,)) for k in covariance.where]


def size_of(covariance, values):
    """Return the product of the standard deviations of the nuggets of a covariance."""
    first, second = nuggets_of(covariance)
    return (values[first] * values[second]) ** 0.5
