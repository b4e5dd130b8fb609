"""A fit as a JSON document: written, checked, and read again with its table."""

from math import isfinite
from pathlib import Path

import numpy as np

from ..covariance.matern import PARAMETERS, Matern
from ..data import tables
from ..data.observations import Observations, read_table
from ..errors import Ending, InvalidInput, Outcome
from ..likelihood.exact import Exact
from ..likelihood.trend import TRENDS, Trend
from ..likelihood.vecchia import Vecchia
from ..linalg import precision as rules
from .parameters import check_bounds
from .result import Fit


def document_of(fit):
    """Return what `geomxp fit --json` prints and `save` writes."""
    from .._version import __version__

    seen = fit.observations
    # a table's name stands for its numbers only while they are the same
    named = seen.source.get("digest") == seen.digest()
    document = {
        "geomxp": __version__,
        "n": len(seen),
        "method": fit.method.describe(len(seen))
        | {"formats": dict(fit.formats), "promotions": fit.promotions},
        "model": fit.model.parameters() | {"metric": seen.metric},
        "standard_errors": dict(fit.standard_errors),
        "effective_range": fit.model.effective_range(),
        "trend": _trend_of(fit),
        "reml": fit.reml,
        "free": list(fit.free),
        "boundary": list(fit.boundary),
        "bounds": {name: list(box) for name, box in fit.bounds.items()},
        "information": None if fit.information is None else fit.information.tolist(),
        "log_likelihood": fit.log_likelihood,
        "aic": fit.aic,
        "bic": fit.bic,
        "outcome": str(fit.outcome.ending),
        "message": fit.outcome.message,
        "evaluations": fit.evaluations,
        "seconds": fit.seconds,
        "table": dict(seen.source) if named else None,
    }
    return document if named else document | {"observations": _arrays_of(seen)}


def _trend_of(fit):
    """Return the trend's entry; of a formula what its transforms learnt can be learnt again."""
    return {
        "kind": fit.trend.kind,
        **({"formula": fit.trend.formula.text} if fit.trend.formula else {}),
        "names": list(fit.trend.names),
        "coefficients": fit.coefficients.tolist(),
        "standard_errors": fit.coefficient_errors.tolist(),
        "covariance": fit.coefficient_covariance.tolist(),
    }


def _arrays_of(seen):
    """Return the entry of observations that no table holds."""
    return {
        "locations": seen.locations.tolist(),
        "values": seen.values.tolist(),
        "covariates": None if seen.covariates is None else seen.covariates.tolist(),
        "location_names": list(seen.location_names),
        "value_name": seen.value_name,
        "covariate_names": list(seen.covariate_names),
        "levels": {name: list(words) for name, words in seen.levels.items()},
        "crs": seen.crs,
        "length_unit": seen.length_unit,
    }


def save(fit, path):
    """Write a fit as JSON; see `Fit.save`."""
    document = document_of(fit)
    document["history"] = list(fit.history)
    tables.write_json(path, document)


def load(path):
    """Read a fit that `save` wrote, and its table again; see `Fit.load`.

    Raises
    ------
    InvalidInput
        If the file is no fit, or the table has changed since.
    """
    if Path(path).is_file() and Path(path).suffix.lower() in (".csv", ".parquet", ".gpkg", ".nc"):
        raise InvalidInput(f"{path}: is a table, not a fit: give what `geomxp fit --output` wrote.")
    document = tables.read_json(path)
    _check(document, SCHEMA, str(path), "")
    try:
        return _from_document(document, path)
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{path}: not a fit of geomxp ({error!r}).") from None


def _from_document(document, path):
    if document["table"] is None:
        _check(document.get("observations"), OBSERVATIONS, str(path), "observations.")
        levels = document["observations"].setdefault("levels", {})
        _check(levels, {name: [str] for name in levels}, str(path), "observations.levels.")
        seen = Observations(metric=document["model"]["metric"], **document["observations"])
    else:
        _check(document["table"], TABLE, str(path), "table.")
        seen = _read_again(document["table"], path)
    trend = _trend(document["trend"], seen, path)
    p = len(trend.names)
    coefficients = np.array(document["trend"]["coefficients"], dtype=float)
    covariance = np.array(document["trend"]["covariance"], dtype=float).reshape(-1, max(p, 1))
    if len(coefficients) != p or covariance.size != p * p:
        raise InvalidInput(f"{path}: `trend` must hold {p} coefficients and their covariance.")
    model = Matern.from_parameters(
        {name: document["model"][name] for name in PARAMETERS if name in document["model"]}
    )
    return Fit(
        model,
        document["log_likelihood"],
        Outcome(Ending(document["outcome"]), document["message"]),
        document["evaluations"],
        tuple(document.get("history", ())),
        document["standard_errors"],
        document["seconds"],
        seen,
        _method(document["method"], path),
        trend,
        document["reml"],
        tuple(document["free"]),
        coefficients,
        covariance.reshape(p, p),
        document["method"].get("formats", {"fp64": 1}),
        document["method"].get("promotions", 0),
        _information(document, path),
        tuple(document.get("boundary", ())),
        _bounds(document, path),
    )


def _trend(document, seen, path):
    """Return the trend, its formula's transforms as the observations make them."""
    if document["kind"] != "formula":
        return Trend.of(seen, document["kind"])
    _check(document, {"formula": str}, str(path), "trend.")
    trend = Trend.of(seen, f"~ {document['formula']}")
    if list(trend.names) != document["names"]:
        raise InvalidInput(
            f"{path}: the formula {trend.text!r} gives the columns {', '.join(trend.names)}, not "
            f"{', '.join(document['names'])}: fit again."
        )
    return trend


def _information(document, path):
    """Return the information that a fit's file holds; None if it holds none."""
    if document.get("information") is None:
        return None
    k = len(document["free"])
    try:
        return np.array(document["information"], dtype=float).reshape(k, k)
    except ValueError:
        raise InvalidInput(f"{path}: `information` must be a {k}×{k} matrix.") from None


def _bounds(document, path):
    """Return the bounds that a fit's file holds; none in files of earlier versions."""
    bounds = document.get("bounds", {})
    if not isinstance(bounds, dict):
        raise InvalidInput(f"{path}: `bounds` must be an object.")
    try:
        return check_bounds(bounds, {}, ())
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _method(document, path):
    """Return the way to compute that a fit was made with."""
    if document["name"] == "vecchia":
        ordering = document.get("permutation") or document.get("ordering", "maximin")
        return Vecchia(document.get("neighbours"), ordering, document["on"])
    rule = document.get("precision", {"rule": "uniform", "arguments": ["fp64"]})
    if rule is None:
        raise InvalidInput(
            f"{path}: the fit was made with a precision rule of the caller's own, which a file "
            "cannot hold: fit again with one of geomxp's rules."
        )
    precision = rules.described(rule)
    tile = document.get("tile") if document.get("tiled") else None
    bounds = {name: document.get(name) for name in ("memory", "device_memory", "refine")}
    fallback = bool(document.get("fallback"))
    return Exact(precision, tile, document["on"], **bounds, fallback=fallback)


def _read_again(table, path):
    """Read the table that a fit names, and refuse it if it has changed."""
    from ..data import datasets

    if table.get("dataset"):
        seen = datasets.load(
            table["dataset"],
            locations=table["locations"],
            values=table["value"],
            covariates=table["covariates"],
            formula=table.get("formula"),
            metric=table["metric"],
            drop_missing=table["drop_missing"],
        )
    else:
        where = Path(table["path"])
        beside = Path(path).resolve().parent / where.name
        where = where if where.exists() or not beside.exists() else beside
        seen = read_table(
            where,
            locations=table["locations"],
            values=table["value"],
            covariates=table["covariates"],
            formula=table.get("formula"),
            metric=table["metric"],
            drop_missing=table["drop_missing"],
            crs=table.get("crs"),
        )
    if seen.source["sha256"] != table["sha256"]:
        raise InvalidInput(
            f"{seen.source['path']}: the table has changed since the fit in {path} was made "
            f"(SHA-256 {seen.source['sha256'][:12]}…, was {table['sha256'][:12]}…): fit it again."
        )
    return seen


NUMBER = (int, float)
SCHEMA = {
    "n": int,
    "method": {"name": str, "on": str},
    "model": {
        "variance": NUMBER,
        "range": NUMBER,
        "smoothness": NUMBER,
        "nugget": NUMBER,
        "metric": str,
    },
    "standard_errors": dict,
    "trend": {
        "kind": (*TRENDS, "formula"),
        "names": [str],
        "coefficients": [NUMBER],
        "covariance": list,
    },
    "reml": bool,
    "free": [str],
    "log_likelihood": NUMBER,
    "outcome": tuple(str(ending) for ending in Ending),
    "message": str,
    "evaluations": int,
    "seconds": NUMBER,
    "table": (dict, type(None)),
}
TABLE = {
    "path": str,
    "sha256": str,
    "locations": [str],
    "value": str,
    "covariates": [str],
    "metric": str,
    "drop_missing": bool,
}
OBSERVATIONS = {
    "locations": list,
    "values": list,
    "covariates": (list, type(None)),
    "location_names": [str],
    "value_name": str,
    "covariate_names": [str],
}
"""What a saved fit must hold: types, lists of a type, tuples of allowed words, nested objects."""


def _check(value, schema, path, name):
    """Raise `InvalidInput` where a JSON value is not what the schema says."""
    where = name.rstrip(".") or "the document"
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            raise InvalidInput(f"{path}: not a fit of geomxp: {where} must be an object.")
        for key, inner in schema.items():
            if key not in value:
                raise InvalidInput(f"{path}: not a fit of geomxp: {name}{key} is missing.")
            _check(value[key], inner, path, f"{name}{key}.")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise InvalidInput(f"{path}: {where} must be a list.")
        for item in value:
            _check(item, schema[0], path, name)
    elif isinstance(schema, tuple) and isinstance(schema[0], str):
        if value not in schema:
            raise InvalidInput(f"{path}: {where} must be one of: {', '.join(schema)}.")
    elif not isinstance(value, schema) or (isinstance(value, bool) and schema is not bool):
        raise InvalidInput(f"{path}: {where} has the wrong type, {type(value).__name__}.")
    elif isinstance(value, float) and not isfinite(value):
        raise InvalidInput(f"{path}: {where} must be a finite number.")
