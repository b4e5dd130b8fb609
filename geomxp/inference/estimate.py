"""The result of a fit: what it holds, says, saves and loads."""

from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from .. import tables
from ..covariance.matern import PARAMETERS, Matern
from ..errors import InvalidInput
from ..observations import Observations
from ..outcome import Ending, Outcome
from ..precision import rules
from .exact import Exact
from .trend import TRENDS, Trend
from .vecchia import Vecchia


@dataclass(frozen=True)
class Fit:
    """Maximum-likelihood estimates.

    Parameters
    ----------
    model : Matern
        The estimate, in the units of the data.
    log_likelihood : float
        At the estimate.
    outcome : Outcome
        How the search ended; only CONVERGED and ON_BOUND are estimates.
    evaluations : int
        Factorizations of the covariance matrix.
    history : tuple of dict
        Every improvement: evaluation, parameters, log_likelihood.
    standard_errors : dict of str to (float or None)
        From the observed information, by parameter; None for what was fixed, lies on a boundary
        or is not identified.
    seconds : float
    observations : Observations
    method : likelihood
    trend : Trend
    reml : bool
    free : tuple of str
        Parameters estimated and not on a boundary.
    coefficients : (p,) ndarray
        Of the trend, by generalised least squares.
    coefficient_covariance : (p, p) ndarray
    formats : dict of str to int
        Tiles in each format, at the estimate.
    promotions : int
        Tiles there that needed a finer format than the rule gave them.
    information : (k, k) ndarray or None
        Observed information of the logarithms of the parameters in `free` (of an angle in
        radians), in that order; None where there are no standard errors.
    """

    model: Matern
    log_likelihood: float
    outcome: Outcome
    evaluations: int
    history: tuple
    standard_errors: dict
    seconds: float
    observations: Observations
    method: object
    trend: Trend
    reml: bool
    free: tuple
    coefficients: np.ndarray
    coefficient_covariance: np.ndarray
    formats: dict = field(default_factory=lambda: {"fp64": 1})
    promotions: int = 0
    information: np.ndarray | None = None

    @property
    def coefficient_errors(self):
        """Standard errors of the trend's coefficients, (p,)."""
        return np.sqrt(np.diag(self.coefficient_covariance))

    @property
    def degrees_of_freedom(self):
        """Number of estimated parameters that AIC counts: for REML without the trend's."""
        return len(self.free) + (0 if self.reml else len(self.coefficients))

    @property
    def aic(self):
        """Akaike's criterion, 2k - 2ℓ. With REML it compares fits of one trend only."""
        return 2 * self.degrees_of_freedom - 2 * self.log_likelihood

    @property
    def bic(self):
        """Schwarz's criterion, k log m - 2ℓ, with m = n, or n - p for REML."""
        m = len(self.observations) - (len(self.coefficients) if self.reml else 0)
        return self.degrees_of_freedom * float(np.log(m)) - 2 * self.log_likelihood

    def to_frame(self):
        """Return the estimates as a pandas frame: parameter, estimate, standard_error."""
        import pandas as pd

        values = self.model.parameters()
        rows = [(name, values[name], self.standard_errors.get(name)) for name in values]
        rows += zip(self.trend.names, self.coefficients, self.coefficient_errors, strict=True)
        return pd.DataFrame(rows, columns=["parameter", "estimate", "standard_error"]).astype(
            {"estimate": float, "standard_error": float}
        )

    def __str__(self):
        seen, model = self.observations, self.model
        kind = "restricted maximum likelihood" if self.reml else "maximum likelihood"
        lines = [
            f"Matérn model by {kind}, {len(seen):,} places, {seen.metric} distances, "
            f"trend {self.trend.kind}",
            "",
            f"  {'parameter':<18}{'estimate':>14}{'std. error':>14}",
        ]
        for name, value in model.parameters().items():
            lines.append(self._row(name.replace("_", " "), value, self.standard_errors.get(name)))
        for name, value, error in zip(
            self.trend.names, self.coefficients, self.coefficient_errors, strict=True
        ):
            lines.append(self._row(f"trend: {name}", value, error))
        effective = f"{model.effective_range():.6g}"
        reml = "   (REML)" if self.reml else ""
        lines += [
            "",
            f"  {'effective range':<18}{effective:>14}   correlation 5 %, in {seen.unit}",
            f"  {'log-likelihood':<18}{self.log_likelihood:>14.6f}{reml}",
            f"  {'AIC':<18}{self.aic:>14.4f}",
            f"  {'BIC':<18}{self.bic:>14.4f}",
            "",
            f"  {self.outcome}",
            f"  {self.evaluations} evaluations in {self.seconds:.2f} s",
        ]
        if isinstance(self.method, Vecchia):
            about = self.method.describe(len(seen))
            lines.append(
                f"  Vecchia's approximation, {about['neighbours']} neighbours, "
                f"{about['ordering']} order"
            )
        if len(self.formats) > 1 or "fp64" not in self.formats:
            tiles = ", ".join(f"{count} {name}" for name, count in self.formats.items())
            lines.append(f"  tiles: {tiles}; {self.promotions} promoted")
        return "\n".join(lines)

    @staticmethod
    def _row(name, value, error):
        shown = "" if error is None else f"{error:>14.5g}"
        return f"  {name:<18}{value:>14.6g}{shown}".rstrip()

    def to_dict(self):
        """Return what `geomxp fit --json` prints and `save` writes."""
        from .. import __version__

        seen = self.observations
        # a table's name stands for its numbers only while they are the same
        named = seen.source.get("digest") == seen.digest()
        document = {
            "geomxp": __version__,
            "n": len(seen),
            "method": self.method.describe(len(seen))
            | {"formats": dict(self.formats), "promotions": self.promotions},
            "model": self.model.parameters() | {"metric": seen.metric},
            "standard_errors": dict(self.standard_errors),
            "effective_range": self.model.effective_range(),
            "trend": {
                "kind": self.trend.kind,
                "names": list(self.trend.names),
                "coefficients": self.coefficients.tolist(),
                "standard_errors": self.coefficient_errors.tolist(),
                "covariance": self.coefficient_covariance.tolist(),
            },
            "reml": self.reml,
            "free": list(self.free),
            "information": None if self.information is None else self.information.tolist(),
            "log_likelihood": self.log_likelihood,
            "aic": self.aic,
            "bic": self.bic,
            "outcome": str(self.outcome.ending),
            "message": self.outcome.message,
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "table": dict(seen.source) if named else None,
        }
        if not named:
            document["observations"] = {
                "locations": seen.locations.tolist(),
                "values": seen.values.tolist(),
                "covariates": None if seen.covariates is None else seen.covariates.tolist(),
                "location_names": list(seen.location_names),
                "value_name": seen.value_name,
                "covariate_names": list(seen.covariate_names),
            }
        return document

    def save(self, path):
        """Write the fit as JSON; a fit from arrays embeds its observations, others name a table."""
        document = self.to_dict()
        document["history"] = list(self.history)
        tables.write_json(path, document)

    @classmethod
    def load(cls, path):
        """Read a fit that `save` wrote, and its table again.

        Raises
        ------
        InvalidInput
            If the file is no fit, or the table has changed since.
        """
        document = tables.read_json(path)
        _check(document, SCHEMA, str(path), "")
        try:
            return cls._from_document(document, path)
        except (KeyError, TypeError) as error:
            raise InvalidInput(f"{path}: not a fit of geomxp ({error!r}).") from None

    @classmethod
    def _from_document(cls, document, path):
        if document["table"] is None:
            _check(document.get("observations"), OBSERVATIONS, str(path), "observations.")
            seen = Observations(metric=document["model"]["metric"], **document["observations"])
        else:
            _check(document["table"], TABLE, str(path), "table.")
            seen = _read_again(document["table"], path)
        trend = Trend.of(seen, document["trend"]["kind"])
        p = len(trend.names)
        coefficients = np.array(document["trend"]["coefficients"], dtype=float)
        covariance = np.array(document["trend"]["covariance"], dtype=float).reshape(-1, max(p, 1))
        if len(coefficients) != p or covariance.size != p * p:
            raise InvalidInput(f"{path}: `trend` must hold {p} coefficients and their covariance.")
        model = Matern.from_parameters(
            {name: document["model"][name] for name in PARAMETERS if name in document["model"]}
        )
        return cls(
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
        )


def _information(document, path):
    """Return the information that a fit's file holds; None if it holds none."""
    if document.get("information") is None:
        return None
    k = len(document["free"])
    try:
        return np.array(document["information"], dtype=float).reshape(k, k)
    except ValueError:
        raise InvalidInput(f"{path}: `information` must be a {k}×{k} matrix.") from None


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
    return Exact(precision, tile, document["on"], **bounds)


def _read_again(table, path):
    """Read the table that a fit names, and refuse it if it has changed."""
    from pathlib import Path

    from .. import datasets

    if table.get("dataset"):
        seen = datasets.load(
            table["dataset"],
            locations=table["locations"],
            values=table["value"],
            covariates=table["covariates"],
            metric=table["metric"],
            drop_missing=table["drop_missing"],
        )
    else:
        where = Path(table["path"])
        beside = Path(path).resolve().parent / where.name
        where = where if where.exists() or not beside.exists() else beside
        seen = tables.read_table(
            where,
            locations=table["locations"],
            values=table["value"],
            covariates=table["covariates"],
            metric=table["metric"],
            drop_missing=table["drop_missing"],
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
    "trend": {"kind": TRENDS, "names": [str], "coefficients": [NUMBER], "covariance": list},
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


def z_value(level):
    """Return the normal quantile of a two-sided interval, 1.96 for 0.95."""
    from scipy.special import ndtri

    if not (isinstance(level, (int, float)) and 0 < level < 1):
        raise InvalidInput(f"`level` must lie between 0 and 1. Got {level!r}.")
    return float(ndtri(0.5 + level / 2))
