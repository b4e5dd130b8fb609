"""A report of a fit: one HTML file that holds everything and asks the network for nothing."""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from . import datasets, plots, tables
from .errors import GeomxpError
from .inference.raster import predict_raster

if TYPE_CHECKING:
    from .annotations import Fit, PathLikeText

BUDGET = 60.0
"""Seconds that the profiles may take, as the fit's own speed predicts."""

PER_POINT = 15
"""Evaluations for a point of a profile, each as long as the fit's were on average. It takes some
25, but the fit's include gradients, which count for several."""

RESOLUTION = 120
"""Dots per inch: 768 pixels across, sharp on a phone, and all pictures together below 2 MB."""


@dataclass(frozen=True)
class Picture:
    """A picture of the report.

    Parameters
    ----------
    title, caption : str
    png : str
        The file's bytes in base64.
    """

    title: str
    caption: str
    png: str


def write_report(fit: Fit, path: PathLikeText, *, command: str | None = None) -> None:
    """Write a report of a fit as one HTML file.

    Parameters
    ----------
    fit : Fit
    path : path
    command : str, optional
        The command line that made the fit.

    Raises
    ------
    InvalidInput, GeomxpError
        If the file cannot be written; nothing has been computed where that can be known before.
    """
    tables.check_writable(path)
    tables.write_text(path, report_html(fit, command=command))


def report_html(fit: Fit, *, command: str | None = None) -> str:
    """Return the report as text.

    Parameters
    ----------
    fit : Fit
    command : str, optional

    Returns
    -------
    str
    """
    import jinja2

    from . import __version__

    maps, notes = _maps(fit)
    profiles, more = _profiles(fit)
    source = resources.files(__package__).joinpath("templates", "report.html")
    # names of columns and files are strangers' words: they are escaped wherever they stand
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.from_string(source.read_text(encoding="utf-8")).render(
        fit=fit,
        seen=fit.observations,
        estimates=_estimates(fit),
        facts=_facts(fit),
        maps=maps,
        profiles=profiles,
        notes=notes + more,
        provenance=_provenance(fit.observations),
        command=command,
        version=__version__,
    )
    # a file's name may hold bytes that are no text
    return text.encode("utf-8", "replace").decode("utf-8")


def profile_points(fit):
    """Return how many points each profile may have within the budget: 9, 5 or none.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> fits = [SimpleNamespace(seconds=s, evaluations=100, free=("range",)) for s in (1, 60, 90)]
    >>> [profile_points(fit) for fit in fits]
    [9, 5, 0]
    """
    return next((points for points in (9, 5) if _seconds(fit, points) <= BUDGET), 0)


def _seconds(fit, points):
    return fit.seconds / max(fit.evaluations, 1) * PER_POINT * points * len(fit.free)


def _estimates(fit):
    """Return rows of (name, estimate, standard error or what stands for it, unit)."""
    seen, rows = fit.observations, []
    for name, value in fit.model.parameters().items():
        error = fit.standard_errors.get(name)
        if error is not None:
            shown = f"{error:.4g}"
        else:
            shown = "not known" if name in fit.free else "held, or on a boundary"
        unit = plots.unit_of(name, seen) or "none"
        rows.append((name.replace("_", " "), f"{value:.6g}", shown, unit))
    coefficients = zip(fit.trend.names, fit.coefficients, fit.coefficient_errors, strict=True)
    for name, value, error in coefficients:
        unit = f"units of {seen.value_name}"
        unit += "" if name == "intercept" else f" per unit of {name}"
        rows.append((f"trend: {name}", f"{value:.6g}", f"{error:.4g}", unit))
    return rows


def _facts(fit):
    """Return rows of (what, number, remark)."""
    seen, model = fit.observations, fit.model
    reml = "restricted; compares fits of one trend only" if fit.reml else ""
    return [
        ("effective range", f"{model.effective_range():.6g}", f"correlation 5 %, in {seen.unit}"),
        ("log-likelihood", f"{fit.log_likelihood:.6f}", reml),
        ("estimated parameters", str(fit.degrees_of_freedom), ""),
        ("AIC", f"{fit.aic:.4f}", ""),
        ("BIC", f"{fit.bic:.4f}", ""),
        ("evaluations", str(fit.evaluations), f"in {fit.seconds:.2f} s"),
    ]


def _maps(fit):
    """Return pictures of the data and of the field, and sentences on what is not there."""
    seen, notes = fit.observations, []
    result = [
        _picture(plots.values_map(seen), "Values", f"{seen.value_name} where it was observed."),
        _picture(
            plots.residuals_map(fit),
            "Residuals",
            f"What the {fit.trend.title} leaves of {seen.value_name}.",
        ),
    ]
    try:
        raster = predict_raster(fit)
    except GeomxpError as error:
        notes.append(f"No maps of predictions: {error}")
    else:
        result += [
            _picture(
                plots.prediction_map(fit, raster=raster),
                "Kriging mean",
                "The best linear prediction of the field, without the nugget's noise. Dots are "
                "the observations; far from them it extrapolates.",
            ),
            _picture(
                plots.prediction_error_map(fit, raster=raster),
                "Kriging standard error",
                "Of the prediction beside it, with the trend's uncertainty, and as if variance, "
                "range, smoothness and nugget were known.",
            ),
        ]
    result.append(
        _picture(
            plots.variogram(fit),
            "Semivariogram",
            "Points: half the mean squared difference of residuals; the larger, the more pairs. "
            "Line: the model, fitted to the values by maximum likelihood and not to the points. "
            "Where the range is long, points at long distances lie below even the true model, "
            "because the trend is estimated from the same values.",
        )
    )
    return result, notes


def _profiles(fit):
    """Return a picture for each estimated parameter, and sentences on what is not there."""
    if not fit.free:
        return [], ["No profiles of the log-likelihood: no parameter was estimated."]
    points = profile_points(fit)
    if points == 0:
        minutes = _seconds(fit, 5) / 60
        return [], [
            f"No profiles of the log-likelihood: with as few as 5 points each they would take "
            f"about {minutes:.1f} minutes."
        ]
    notes = [] if points == 9 else ["The profiles have 5 points in place of 9, to save time."]
    result = []
    for name in fit.free:
        words = name.replace("_", " ")
        try:
            ax = plots.profile(fit, name, points=points)
        except GeomxpError as error:
            notes.append(f"No profile of the {words}: {error}")
            continue
        result.append(_picture(ax, f"Profile of the {words}"))
    return result, notes


def _provenance(seen):
    """Return rows of (what, text) on where the observations come from."""
    source = seen.source
    rows = [("places", f"{len(seen):,}"), ("distances", f"{seen.metric}, in {seen.unit}")]
    if not source:
        rows.append(("table", "none: arrays given in Python"))
    if source.get("path"):
        rows.append(("table", source["path"]))
    if source.get("sha256"):
        rows.append(("SHA-256", source["sha256"]))
    rows += [("locations", ", ".join(seen.location_names)), ("values", seen.value_name)]
    if seen.covariate_names:
        rows.append(("covariates", ", ".join(seen.covariate_names)))
    if source.get("drop_missing"):
        rows.append(("missing numbers", "rows with any were left out"))
    entry = datasets.DATASETS.get(source.get("dataset"))
    if entry:
        rows += [("about", entry.about), ("source", entry.source), ("licence", entry.licence)]
    return rows


def _picture(ax, title, caption=""):
    """Draw axes as PNG."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # a name in letters that the font does not have is shown as boxes
        warnings.filterwarnings("ignore", category=UserWarning)
        ax.figure.savefig(buffer, format="png", dpi=RESOLUTION, bbox_inches="tight")
    return Picture(title, caption, base64.b64encode(buffer.getvalue()).decode("ascii"))
