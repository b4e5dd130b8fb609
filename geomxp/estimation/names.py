"""Names of parameters that have a role of their own, and names in words."""

import re

from ..covariance.multivariate import (
    MOST_VARIABLES,
    NUGGET_COVARIANCE,
    Multivariate,
    indices,
    name_of,
)

VARIANCE, NUGGET, RANGE, MICROSCALE = "variance", "nugget", "range", "microscale"
"""Names of the parameters that have a role of their own: C = σ²ρ(h/a), and τ² on the diagonal, in
part shared by replicates. The `Parameter`s are in `covariance.base`."""

NUGGETS = tuple(f"{NUGGET}_{k + 1}" for k in range(MOST_VARIABLES))
"""Names of the nuggets of several variables."""

NOISE = (NUGGET, MICROSCALE)
"""Parameters of the noise, which may be 0."""

ANISOTROPY = ("anisotropy_angle", "anisotropy_ratio")


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
    if not isinstance(model, Multivariate):
        return {name: words([name]) for name in model.parameters()}
    labels, result = observations.variable_labels, {}
    fields = ("range", "smoothness") if "loading" in model.groups else ()
    for group, (kind, _) in model.used_groups.items():
        for where in indices(kind, model.variables):
            of = [f"field {k + 1}" if group in fields else _label(labels, k) for k in where]
            text = f"{words([group])} of {of[0]}" if where else group
            if len(where) == 2:
                text += f" on field {where[1] + 1}" if group == "loading" else f" and {of[1]}"
            result[name_of(group, where)] = text
    return result


def with_titles(text, model, observations):
    """Return a text in which parameters of several variables have the names of the variables."""
    if not isinstance(model, Multivariate):
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


def is_nugget_covariance(name):
    """Whether a parameter, by name, is the covariance of two nuggets."""
    return name.startswith(f"{NUGGET_COVARIANCE.name}_")


def covariance_of(first, second):
    """Return the name of the covariance of two nuggets.

    >>> covariance_of("nugget_3", "nugget_1")
    'nugget_covariance_13'
    """
    return f"{NUGGET_COVARIANCE.name}_{''.join(sorted((first[-1], second[-1])))}"


def nuggets_of(covariance):
    """Return the names of the nuggets of a covariance.

    >>> nuggets_of("nugget_covariance_13")
    ['nugget_1', 'nugget_3']
    """
    return [f"{NUGGET}_{number}" for number in covariance[-2:]]


def size_of(covariance, values):
    """Return the product of the standard deviations of the nuggets of a covariance, by its name."""
    first, second = nuggets_of(covariance)
    return (values[first] * values[second]) ** 0.5
