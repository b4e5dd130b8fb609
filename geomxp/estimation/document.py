"""The JSON document that keeps a fit: it is written, checked, and read with the fit's table."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np

from .._version import __version__
from ..covariance.anisotropy import kind_with
from ..covariance.base import family_of
from ..covariance.matern import Matern
from ..covariance.responses import RESPONSES, response_of
from ..covariance.transformation import (
    TRANSFORMS,
    ByVariable,
    Transformation,
    by_label,
    transformation,
)
from ..data import spatial, tables
from ..data.observations import NAMED_ROLES, ROLES, Observations, read_table
from ..data.options import READER_OPTIONS, options_of
from ..data.reading import COLUMN_ROLES
from ..errors import Ending, GeomxpWarning, InvalidInput, Outcome
from ..likelihood.base import Values
from ..likelihood.exact import Exact
from ..likelihood.latent import check_values
from ..likelihood.probes import FormatDivergence
from ..likelihood.trend import TRENDS, Trend
from ..likelihood.vecchia import Vecchia
from ..linalg import precision as rules
from .options import FIT_OPTIONS
from .parameters import check_bounds, template

MOST_EMBEDDED_BYTES = 200_000
"""Most bytes of observations, as JSON, that `Fit.save` embeds without being asked."""


def of(fit):
    """Return the document of a fit, as `Fit.to_dict` does."""
    return of_estimate(fit) | of_observations(fit.observations)


def of_observations(observations):
    """Return the entries of observations: the name of their table, or their arrays."""
    # the name of a table stands for its numbers only while they are the same
    named = observations.source.get("digest") == observations.digest()
    entries = {"table": dict(observations.source) if named else None}
    if observations.central_meridian is not None:
        entries["central_meridian"] = observations.central_meridian
    return entries if named else entries | {"observations": _arrays_entry(observations)}


def of_estimate(fit):
    """Return the entries of a fit without its observations."""
    observations, effective = fit.observations, {}
    if fit.model.of_distance:
        reach = fit.model.effective_range()
        effective = {"effective_range": reach if isfinite(reach) else None}
    return {
        "geomxp": __version__,
        "n": len(observations),
        "method": fit.method.describe(len(observations))
        | {"formats": dict(fit.formats), "promotions": fit.promotions},
        "family": fit.model.family,
        "model": fit.model.parameters() | {"metric": str(observations.metric)},
        **({} if observations.time is None else {"times": asdict(observations.time_axis)}),
        **_transform_entry(fit.model.transform),
        **_response_entry(fit.model.response),
        "standard_errors": dict(fit.standard_errors),
        **effective,
        "trend": _trend_entry(fit),
        "reml": fit.reml,
        "free": list(fit.free),
        "boundary": list(fit.boundary),
        "bounds": {name: list(box) for name, box in fit.bounds.items()},
        **({"options": dict(fit.options)} if fit.options else {}),
        **({"divergence": fit.divergence.to_dict()} if fit.divergence else {}),
        "information": None if fit.information is None else fit.information.tolist(),
        **_score_variance_entry(fit),
        "log_likelihood": fit.log_likelihood,
        **({"log_likelihood_error": fit.log_likelihood_error} if fit.log_likelihood_error else {}),
        "aic": fit.aic,
        "bic": fit.bic,
        "outcome": str(fit.outcome.ending),
        "message": fit.outcome.message,
        "evaluations": fit.evaluations,
        "seconds": fit.seconds,
    }


def write(document, observations, path, embed, **further):
    """Write a fit's document, with its observations or the name of their table, as `Fit.save` does.

    `further` are entries after those of the observations.
    """
    if embed not in (None, True, False):
        raise InvalidInput(f"`embed` must be True, False or None. Got {embed!r:.60}.")
    tables.check_is_for_json(path)
    if document["table"] is None and embed is False:
        raise InvalidInput(
            "the observations are not those of a file, so the fit must hold them: leave out "
            "embed=False (--no-embed)."
        )
    if document["table"] is not None and embed is not False:
        arrays = _arrays_entry(observations)
        if embed or len(json.dumps(arrays)) <= MOST_EMBEDDED_BYTES:
            document["observations"] = arrays
    tables.write_json(path, document | further)


def read(path, family=None, method=None, metric=None, transform=None, response=None, **where):
    """Return the fields of a saved fit, and a sentence that says where its data are from.

    The arguments are those of `Fit.load`; `where` holds `on`, `memory`, `device_memory` and
    `scratch`.
    """
    document = opened(path)
    if is_of_hurdle(document):
        raise InvalidInput(
            f"{path} holds the fit of a hurdle: read it with gx.HurdleFit.load(path)."
        )
    method = method_of(document, path, method, where)
    observations, origin = observations_of(document, path, metric)
    entries = entries_of(document, path, observations, family, method, transform, response)
    tables.warn_if_edited(path, document)
    return entries, origin


def opened(path):
    """Return the JSON document in a file."""
    tables.check_path(path)
    if Path(path).suffix.lower() in tables.NOT_JSON_ENDINGS and os.path.isfile(path):
        raise InvalidInput(
            f"{path}: is a table, not a fit: give the file written by `geomxp fit --output`."
        )
    return tables.read_json(path)


def is_of_hurdle(document):
    """Whether a document is that of a `HurdleFit`."""
    return {"presence", "amount"} <= set(document)


def method_of(document, path, method, where, name=""):
    """Check the entries of a fit; return its method, to compute `where` the caller says.

    `name` is that of the entries in the file's document, with a dot.
    """
    where = {key: value for key, value in where.items() if value is not None}
    if method is not None and where:
        raise InvalidInput(
            f"`{next(iter(where))}` and `method` cannot both be given: `method` says where it "
            'computes, such as method=gx.Exact(on="gpu").'
        )
    check(document, SCHEMA, str(path), name)
    if document.get("options") is not None:
        check(document["options"], FIT_OPTIONS.schema(), str(path), f"{name}options.")
    return method or _method(document["method"], path, where)


@contextmanager
def _naming(path):
    """Let errors in a file's values name the file."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _trend_entry(fit):
    """Return the trend's entry in the document."""
    return {
        "kind": fit.trend.kind,
        **({"formula": fit.trend.formula.text} if fit.trend.formula else {}),
        **({"text": fit.trend.text} if fit.trend.kind == "variables" else {}),
        "names": list(fit.trend.names),
        "coefficients": fit.coefficients.tolist(),
        "standard_errors": fit.coefficient_errors.tolist(),
        "table": _coefficient_entry(fit),
        "covariance": fit.coefficient_covariance.tolist(),
    }


def _coefficient_entry(fit):
    """Return `coefficient_table` as lists by column; infinite degrees of freedom are None."""
    table = fit.coefficient_table().drop(columns=["coefficient", "estimate"])
    return {
        name: [value if isfinite(value) else None for value in column]
        for name, column in table.to_dict("list").items()
    }


def _transform_entry(transform):
    """Return the entry of a transformation: its name and all its numbers."""
    return (
        {}
        if transform is None
        else {"transform": {"name": transform.name, **transform.constants()}}
    )


def _response_entry(response):
    """Return the entry of a response: its name, its link and its numbers."""
    return {} if response is None else {"response": {"name": response.name, **response.constants()}}


def _response_of(document, given, path):
    """Return the response in a document, or None."""
    entry = document.get("response")
    if entry is None:
        return None
    name = entry["name"]
    if given is None and name not in RESPONSES:
        raise InvalidInput(
            f"{path}: the fit was made with a response {name!r} that geomxp does not have: give "
            "it, Fit.load(path, response=...)."
        )
    with _naming(path):
        response = response_of(name if given is None else given)
        known = set(response.constants())
        if response.name != name or known != set(entry) - {"name"}:
            raise InvalidInput(
                f"{path}: the fit was made with the response {name!r} and the settings "
                f"{', '.join(sorted(set(entry) - {'name'})) or '(none)'}: give the response of the "
                "fit."
            )
        return response.with_values({name: value for name, value in entry.items()})


def _transform_of(document, given, variables, path):
    """Return the transformation in a document, or None."""
    entry = document.get("transform")
    if entry is None:
        return None
    values = {name: float(value) for name, value in entry.items() if name != "name"}
    names = entry["name"].split(", ")
    if len(names) < variables:
        names = names * variables
    if given is None and not set(names) <= {*TRANSFORMS, Transformation.name}:
        raise InvalidInput(
            f"{path}: the fit was made with a transformation {entry['name']!r} that geomxp does "
            "not have: give it, Fit.load(path, transform=...)."
        )
    if given is None:
        each = [None if name == Transformation.name else name for name in names]
        given = each if variables > 1 else each[0]
    elif variables > 1 and not isinstance(given, ByVariable | tuple | list):
        given = [given] * variables
    model = transformation(given)
    if model.name != entry["name"] or set(values) != set(model.constants()):
        raise InvalidInput(
            f"{path}: the fit was made with the transformation {entry['name']!r} and its numbers "
            f"{', '.join(values) or '(none)'}; `transform` is {model.name!r} with "
            f"{', '.join(model.constants()) or 'none'}: give the transformation of the fit."
        )
    with _naming(path):
        return model.with_values(values)


def _score_variance_entry(fit):
    variance = fit.score_variance
    return {} if variance is None else {"score_variance": variance.tolist()}


def _arrays_entry(observations):
    """Return the entry of observations that come from no table."""
    extra = {name: _with_nulls(column) for name, column in observations.extra().items()}
    named = [one for one in observations.columns if one.role in NAMED_ROLES]
    extra |= {f"{one.role}_name": one.name for one in named}
    if observations.variable_names:
        extra["variable_names"] = list(observations.variable_names)
    for name in ("time_unit", "time_origin", "time_calendar", "time_zone"):
        if getattr(observations, name):
            extra[name] = getattr(observations, name)
    return extra | {
        "locations": observations.locations.tolist(),
        "values": observations.values.tolist(),
        "covariates": None if observations.covariates is None else observations.covariates.tolist(),
        "location_names": list(observations.location_names),
        "value_name": observations.value_name,
        "covariate_names": list(observations.covariate_names),
        "levels": {name: list(words) for name, words in observations.levels.items()},
        "crs": observations.crs,
        "length_unit": observations.length_unit,
        "value_unit": observations.value_unit,
    }


def _with_nulls(column):
    """Return numbers as a list with None in place of infinite ones."""
    return [one if isfinite(one) else None for one in column.tolist()]


def _without_nulls(held):
    """Return the entry of observations with infinite numbers in place of None in its columns."""
    filled = {
        name: [role.absent if one is None else one for one in held[name]]
        for name, role in ROLES.items()
        if role.absent is not None and held.get(name) is not None
    }
    return held | filled


def observations_of(document, path, metric):
    """Return the observations of a saved fit, and where they are from."""
    table, held = document.get("table"), document.get("observations")
    if table is not None:
        check(table, READER_OPTIONS.schema(), str(path), "table.")
    if table is not None and held is None:
        observations = _read_again(table, path)
        if document.get("central_meridian") not in (None, observations.central_meridian):
            meridian = document["central_meridian"]
            observations = replace(observations, central_meridian=meridian)
        read_from = f"read from {_file_of(table, path)}"
        named = f"those of the data set {table['dataset']}" if table.get("dataset") else read_from
        return observations, f"the observations are {named}."
    check(held, OBSERVATIONS_SCHEMA, str(path), "observations.")
    unknown = sorted(set(held) - {name.rstrip("?") for name in OBSERVATIONS_SCHEMA})
    if unknown:
        raise InvalidInput(
            f"{path}: observations.{unknown[0]:.60} is not known to geomxp {__version__}, and the "
            "fit may depend on it: use the version that wrote the file."
        )
    columns = {"metric": metric or document["model"]["metric"], "source": table or {}}
    columns["central_meridian"] = document.get("central_meridian")
    columns |= {name: one for name, one in _without_nulls(held).items() if one is not None}
    with _naming(path):
        observations = Observations(**columns)
    origin = f"the observations are those in {path}"
    if table is None:
        return observations, f"{origin}."
    if table.get("digest") != observations.digest():
        raise InvalidInput(f"{path}: the observations in it are not those of the fit: fit again.")
    _warn_if_changed(table, path)
    return observations, f"{origin}; they were read from {table['path']}."


def entries_of(document, path, observations, family, method, transform, response):
    """Return the fields of a saved fit of these observations."""
    trend = _trend(document["trend"], observations, path)
    p = len(trend.names)
    coefficients = np.array(document["trend"]["coefficients"], dtype=float)
    covariance = np.array(document["trend"]["covariance"], dtype=float)
    if len(coefficients) != p or covariance.size != p * p:
        raise InvalidInput(f"{path}: `trend` must hold {p} coefficients and their covariance.")
    if (covariance.reshape(p, p).diagonal() < 0).any():
        raise InvalidInput(f"{path}: trend.covariance has a variance below 0.")
    # the model is Matérn if the document names no family
    with _naming(path):
        family = family_of(family or document.get("family") or Matern.family)
    values = {name: float(n) for name, n in document["model"].items() if name != "metric"}
    variables = len(observations.variable_labels)
    declared = family.declared_for(variables)
    optional = family.optional_for(variables)
    if any(p.name in values for p in optional):
        declared += optional
    check(values, {p.name: JSON_NUMBER for p in declared}, str(path), "model.")
    if variables:
        transform = by_label(transform, observations.variable_labels)
    transform = _transform_of(document, transform, variables, path)
    response = _response_of(document, response, path)
    with _naming(path):
        model = family.from_parameters(values, transform, response)
        # values that the transformation or the response does not take
        if response is None:
            Values(observations).at(transform)
        else:
            check_values(observations, model)
    for name in ("free", "boundary"):
        unknown = set(document.get(name) or ()) - set(model.parameters())
        if unknown:
            raise InvalidInput(
                f"{path}: {name} must name parameters of the model: "
                f"{', '.join(model.parameters())}. Got {min(unknown)!r:.60}."
            )
    return {
        "model": model,
        "log_likelihood": document["log_likelihood"],
        "outcome": Outcome(Ending(document["outcome"]), document["message"]),
        "evaluations": document["evaluations"],
        "history": tuple(document.get("history") or ()),
        "standard_errors": document["standard_errors"],
        "seconds": document["seconds"],
        "observations": observations,
        "method": method,
        "trend": trend,
        "reml": document["reml"],
        "free": tuple(document["free"]),
        "coefficients": coefficients,
        "coefficient_covariance": covariance.reshape(p, p),
        "formats": document["method"].get("formats") or {"fp64": 1},
        "promotions": document["method"].get("promotions") or 0,
        "information": _information(document, path, "information"),
        "boundary": tuple(document.get("boundary") or ()),
        "bounds": _bounds(document, family, transform, path, variables, response),
        "options": FIT_OPTIONS.read(document.get("options") or {}),
        "score_variance": _information(document, path, "score_variance"),
        "divergence": _divergence(document),
        "log_likelihood_error": document.get("log_likelihood_error") or 0.0,
    }


def _divergence(document):
    """Return the divergence of the formats in a document, or None."""
    entry = document.get("divergence")
    return None if entry is None else FormatDivergence.from_dict(entry)


def _trend(document, observations, path):
    """Return the trend; transforms of a formula are learnt again from the observations."""
    kind = document["kind"]
    if kind in TRENDS:
        with _naming(path):
            return Trend.of(observations, kind)
    name = "formula" if kind == "formula" else "text"
    check(document, {name: str}, str(path), "trend.")
    text = f"~ {document[name]}" if kind == "formula" else document[name]
    with _naming(path):
        trend = Trend.of(observations, text, saved=True)
    if list(trend.names) != document["names"]:
        raise InvalidInput(
            f"{path}: the formula {trend.text!r} gives the columns {', '.join(trend.names)}, not "
            f"{', '.join(document['names'])}: fit again."
        )
    return trend


def _information(document, path, name):
    """Return the information, or the variance of the score, in a document; or None."""
    if document.get(name) is None:
        return None
    k = len(document["free"])
    try:
        return np.array(document[name], dtype=float).reshape(k, k)
    except ValueError:
        raise InvalidInput(f"{path}: `{name}` must be a {k}×{k} matrix.") from None


def _bounds(document, family, transform, path, variables=1, response=None):
    """Return the bounds in a document; none if it has no entry for them."""
    bounds = document.get("bounds") or {}
    with _naming(path):
        turned = kind_with(bounds)
        model = template(family, turned, transform, variables=variables, response=response)
        return check_bounds(bounds, {}, (), model)


def _method(document, path, where):
    """Return the method that a fit was made with, to compute `where` the caller says.

    The file's own `on`, `memory` and `device_memory` say where the fit was made.
    """
    if document["name"] not in ("exact", "vecchia"):
        raise InvalidInput(
            f"{path}: the fit was made with a method {document['name']!r:.60} that geomxp does not "
            "have: give it, Fit.load(path, method=...)."
        )
    check(document, METHOD_SCHEMA, str(path), "method.")
    rule = document.get("precision", {"rule": "uniform", "arguments": ["fp64"]})
    if rule is None:
        raise InvalidInput(
            f"{path}: the fit was made with a precision function of the caller, which a file "
            "cannot keep: fit again with one of geomxp's rules."
        )
    with _naming(path):
        if document["name"] == "vecchia":
            ordering = document.get("permutation") or document.get("ordering") or "maximin"
            method = Vecchia(document.get("neighbours"), ordering)
        else:
            tile = document.get("tile") if document.get("tiled") else None
            flags = {name: bool(document.get(name)) for name in ("fallback", "keep_formats")}
            rule, refine = rules.described(rule), document.get("refine")
            method = Exact(rule, tile, refine=refine, **flags)
    for name in where:
        if not hasattr(method, name):
            raise InvalidInput(
                f"{path}: the fit was made with Vecchia's approximation, which has no `{name}`: "
                f"leave out `{name}` (--{name.replace('_', '-')})."
            )
    return replace(method, **where)


def _read_again(table, path):
    """Read the table that a fit names, and refuse it if it has changed."""
    from ..data import datasets

    columns = options_of(table)
    if table.get("dataset"):
        observations = datasets.load(table["dataset"], **columns)
    else:
        file = _file_of(table, path)
        _check_unchanged(file, table, path)
        observations = read_table(file, **columns)
    _check_unchanged(observations.source["path"], table, path)
    return observations


def _columns_named(seen):
    """Return the options with which a table has columns of the names in the observations."""
    given = {"value_unit": seen.value_unit or None}
    own = [name for name in COLUMN_ROLES if getattr(seen, name) is not None]
    given |= {name: getattr(seen, f"{name}_name") for name in own}
    source = READER_OPTIONS.kept(given, seen)
    if "values" in source and own:
        raise InvalidInput(
            f"the fit does not name the columns of the {COLUMN_ROLES[own[0]][0]} of its variables: "
            "read the table in Python, gx.validate(fit, gx.Observations.from_frame(table, …))."
        )
    return options_of({"value": seen.value_name} | source)


def read_as_observed(fit, path, decimal=None, drop_missing=False):
    """Read observations from another table, with the columns of those of a fit.

    The columns are those that the fit's table was read with, or have the names that the fit holds.
    Points and grids have coordinates of their own; `decimal` and `drop_missing` are those of the
    fit's table if not given.

    Raises
    ------
    InvalidInput
        If the table lacks a column, and as `geomxp.read_table` does.
    """
    seen, table = fit.observations, fit.observations.source
    known = table.get("path") is not None
    columns = options_of(table) if known else _columns_named(seen)
    columns["decimal"] = decimal or columns.get("decimal")
    data = tables.read_data(path, columns["decimal"])
    if spatial.is_geographic_frame(data) or spatial.is_grid(data):
        own = columns["locations"] if seen.dimensions > 2 else None
        columns |= {"locations": own, "metric": None, "crs": None}
    # each row of a repeated location is scored
    columns["duplicates"] = columns.get("duplicates", "keep")
    columns["drop_missing"] = drop_missing or columns.get("drop_missing", False)
    try:
        return Observations.from_options(data, columns)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _file_of(table, path):
    """Return the path of a fit's table, or of a file of this name beside the fit if it is gone.

    Of a path that is not absolute, only the file beside the fit is meant. An address stays one.
    """
    if tables.ADDRESS_PATTERN.match(table["path"]):
        return table["path"]
    file = Path(table["path"])
    beside = Path(path).resolve().parent / file.name
    there = file.is_absolute() and (tables.kind_of(file) or tables.kind_of(beside) is None)
    return str(file if there else beside)


def _warn_if_changed(table, path):
    """Say if the table of a fit that holds its observations has changed since."""
    try:
        file = _file_of(table, path)
        changed = tables.kind_of(file) == "file" and tables.sha256(file) != table["sha256"]
    except (OSError, InvalidInput):
        # what cannot be read is not needed
        return
    if changed:
        warnings.warn(
            f"{file}: the table has changed since the fit in {path} was made. The observations in "
            "the fit are used; fit again for those in the table.",
            GeomxpWarning,
            stacklevel=5,
        )


def _check_unchanged(file, table, path):
    """Raise `InvalidInput` if a file is not the table of a fit, before its content is read."""
    tables.check_exists(file)
    try:
        digest = tables.sha256(file)
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be read ({error.strerror}).") from None
    if digest != table["sha256"]:
        raise InvalidInput(
            f"{file}: the table has changed since the fit in {path} was made (SHA-256 "
            f"{digest[:12]}…, was {table['sha256'][:12]}…): fit it again."
        )


@dataclass(frozen=True)
class Array:
    """Type of numbers in lists of lists, as deep as the array has dimensions."""

    dimensions: int
    nulls: bool = False

    def check(self, value, where):
        """Raise `InvalidInput` for another value; nulls may stand for numbers if `nulls`."""
        if self.nulls and isinstance(value, list):
            value = [0.0 if one is None else one for one in value]
        try:
            array = np.array(value)
        except (ValueError, OverflowError):
            # lists of unequal length
            array = np.array("")
        numbers = isinstance(value, list) and array.dtype.kind in "iuf"
        if not numbers or (value and array.ndim != self.dimensions):
            each = "numbers" if self.dimensions == 1 else "lists of as many numbers each"
            raise InvalidInput(f"{where} must be a list of {each}.")


JSON_NUMBER, JSON_NULL, JSON_TEXTS = (int, float), type(None), (str, list)
JSON_KINDS = {int: "a number", float: "a number", str: "text", bool: "true or false"}
JSON_KINDS |= {list: "a list", dict: "an object", JSON_NULL: "null"}
"""Kinds of values of JSON in words."""

SCHEMA = {
    "n": int,
    "method": {"name": str, "formats?": {str: int}, "promotions?": int},
    "family?": str,
    "model": {"metric": str, str: JSON_NUMBER},
    "times?": {str: str},
    "central_meridian?": JSON_NUMBER,
    "transform?": {"name": str, str: JSON_NUMBER},
    "response?": {"name": str, str: (str, *JSON_NUMBER)},
    "log_likelihood_error?": JSON_NUMBER,
    "standard_errors": {str: (*JSON_NUMBER, JSON_NULL)},
    "trend": {
        "kind": (*TRENDS, "formula", "variables"),
        "formula?": str,
        "text?": str,
        "names": [str],
        "coefficients": Array(1),
        "covariance": Array(2),
    },
    "reml": bool,
    "free": [str],
    "boundary?": [str],
    "bounds?": {str: Array(1)},
    "options?": dict,
    "divergence?": {
        "kl": (*JSON_NUMBER, JSON_NULL),
        "standard_error?": JSON_NUMBER,
        "probes?": int,
        "target?": JSON_NUMBER,
        "how?": str,
    },
    "information?": Array(2),
    "score_variance?": Array(2),
    "log_likelihood": JSON_NUMBER,
    "outcome": tuple(str(ending) for ending in Ending),
    "message": str,
    "evaluations": int,
    "seconds": JSON_NUMBER,
    "history?": [{str: (*JSON_NUMBER, dict)}],
    "table?": {
        "path": str,
        "sha256": str,
        "digest?": str,
        "dataset?": str,
        "value": str,
        "missing_values?": {str: int},
    },
    "observations?": dict,
}
"""Schema of a saved fit; see `check`."""

METHOD_SCHEMA = {
    "neighbours?": int,
    "ordering?": str,
    "permutation?": [int],
    "precision?": {"rule": str, "arguments": list, "options?": dict},
    "tile?": (int, str),
    "tiled?": bool,
    "refine?": str,
    "fallback?": bool,
    "keep_formats?": bool,
}
"""Schema of the methods of geomxp."""

OBSERVATIONS_SCHEMA = {
    "locations": Array(2),
    "values": Array(1),
    "covariates?": Array(2),
    "location_names": [str],
    "value_name": str,
    "covariate_names": [str],
    "levels?": {str: [str]},
    "crs?": str,
    "length_unit?": str,
    "value_unit?": str,
    **{f"{name}?": Array(1, role.absent is not None) for name, role in ROLES.items()},
    **{f"{name}_name?": str for name in NAMED_ROLES},
    "time_unit?": str,
    "time_origin?": str,
    "time_calendar?": str,
    "time_zone?": str,
    "variable_names?": [str],
}
"""Schema of the observations in a saved fit, which has all names that they may have."""


def check(value, schema, path, name):
    """Raise `InvalidInput` where a JSON value does not match the schema.

    A schema is a type, a tuple of types, a tuple of words, an `Array`, a list of the schema of its
    items, or a dict of the schemas of its values: by name, where "name?" may be null or left out,
    and of all other names (key `str`). Names that a dict does not mention may have any value.
    """
    where = name.rstrip(".") or "the document"
    if isinstance(schema, Array):
        try:
            schema.check(value, where)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
    elif isinstance(schema, dict):
        if not isinstance(value, dict):
            raise InvalidInput(f"{path}: not a fit of geomxp: {where} must be an object.")
        rest = set(value)
        for key, inner in schema.items():
            if key is str:
                continue
            plain = key.rstrip("?")
            rest.discard(plain)
            if plain != key and value.get(plain) is None:
                continue
            if plain not in value:
                raise InvalidInput(f"{path}: not a fit of geomxp: {name}{plain} is missing.")
            check(value[plain], inner, path, f"{name}{plain}.")
        for key in sorted(rest) if str in schema else ():
            check(value[key], schema[str], path, f"{name}{key:.60}.")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise InvalidInput(f"{path}: {where} must be a list.")
        for item in value:
            check(item, schema[0], path, name)
    elif isinstance(schema, tuple) and isinstance(schema[0], str):
        if value not in schema:
            raise InvalidInput(f"{path}: {where} must be one of: {', '.join(schema)}.")
    elif not isinstance(value, schema) or (isinstance(value, bool) and schema is not bool):
        kinds = dict.fromkeys(JSON_KINDS[kind] for kind in np.ravel(np.array(schema, dtype=object)))
        raise InvalidInput(
            f"{path}: {where} must be {' or '.join(kinds)}. Got {JSON_KINDS[type(value)]}: repeat "
            "the command that wrote the file."
        )
    elif isinstance(value, float) and not isfinite(value):
        raise InvalidInput(f"{path}: {where} must be a finite number.")
