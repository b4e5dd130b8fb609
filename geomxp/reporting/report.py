"""A report of a fit: one HTML file that holds everything and asks the network for nothing."""

import base64
import hashlib
from importlib import resources
from numbers import Real
from os import PathLike

from .. import plots
from ..data import tables
from ..errors import InvalidInput
from ..estimation.result import Fit
from ..likelihood.vecchia import Vecchia
from .figures import picture
from .maps import Maps, plain_name
from .sections import BUDGET, findings_of
from .text import (
    ENDINGS,
    cautions,
    citations,
    conventions,
    date,
    derived_rows,
    divergence_rows,
    estimates,
    facts,
    lead,
    machine,
    method,
    provenance,
    python_lines,
    score_rows,
    summary,
    tiles,
    title,
    without_home,
)


def write_report(
    fit: Fit,
    path: str | PathLike,
    *,
    command: str | None = None,
    budget: float = BUDGET,
    progress: bool = True,
) -> None:
    """Write a report of a fit as one HTML file.

    Parameters
    ----------
    fit : Fit
    path : path
    command : str, optional
        The command line that made the fit.
    budget : float
        Seconds for what the report computes besides: validation, maps, profiles, contours, the
        divergence of a mixed factor. What would take longer is left out, and the report says so.
    progress : bool
        Show what is worked on where standard error is a terminal.

    Raises
    ------
    InvalidInput, GeomxpError
        If the file cannot be written; nothing has been computed where that can be known before.
    """
    _check(fit, budget)
    tables.check_writable(path)
    text = report_html(fit, command=command, budget=budget, progress=progress)
    tables.write_text(path, text)


def report_html(
    fit: Fit, *, command: str | None = None, budget: float = BUDGET, progress: bool = False
) -> str:
    """Return the report as text.

    Parameters
    ----------
    fit : Fit
    command : str, optional
    budget, progress :
        As of `write_report`.

    Returns
    -------
    str

    Raises
    ------
    InvalidInput
        For what is no fit, or no time.
    """
    import jinja2

    _check(fit, budget)
    # names of columns and files are strangers' words: they are escaped wherever they stand
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["tight"] = _tight
    text = environment.from_string(_asset("report.html")).render(
        _page(fit, command, budget, progress)
    )
    # a file's name may hold bytes that are no text
    return text.encode("utf-8", "replace").decode("utf-8")


def _check(fit, budget):
    plots.checked("fit", fit, Fit)
    if not (isinstance(budget, Real) and budget >= 0):
        raise InvalidInput(f"`budget` must be seconds, 0 or more. Got {budget!r}.")


def _page(fit, command, budget, progress):
    """Return what the template shows."""
    found = findings_of(fit, budget, progress)
    # the maps may add to what is said to be left out
    pictures = _pictures(fit, found)
    return _frame(fit) | pictures | _words(fit, found) | _sources(fit, found, command)


def _frame(fit):
    """Return what all reports have: style, script, and the script's name for the browser."""
    from markupsafe import Markup

    from .._version import __version__

    script = _asset("report.js")
    return {
        "version": __version__,
        "date": date(),
        "style": Markup(_asset("report.css")),
        "script": Markup(script),
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        "vecchia": isinstance(fit.method, Vecchia),
        "anisotropic": fit.model.anisotropy is not None,
    }


def _words(fit, found):
    """Return sentences and rows of numbers."""
    return {
        "title": title(fit),
        "lead": lead(fit),
        "good": fit.outcome.good,
        "ending": ENDINGS[fit.outcome.ending],
        "outcome": str(fit.outcome.ending),
        "message": fit.outcome.message,
        "summary": summary(fit, found),
        "tiles": tiles(fit, found),
        "cautions": cautions(fit, found),
        "estimates": estimates(fit, found),
        "profiled": bool(found.profile),
        "derived": derived_rows(found, fit),
        "facts": facts(fit),
        "scores": score_rows(found.validation) if found.validation else [],
        "divergences": divergence_rows(found),
        "notes": found.notes,
    }


def _pictures(fit, found):
    """Return maps and pictures."""
    maps, numbers, flat = _maps(fit, found)
    return {
        "maps": maps,
        "numbers": numbers,
        "flat": flat,
        "variogram": found.variogram,
        "profiles": [*found.profiles, *filter(None, [found.contours])],
        "residuals": _residuals(found.validation),
        "precision": _precision(fit, found),
        "neighbours": Maps(fit).neighbours(found.graph) if found.graph else None,
    }


def _sources(fit, found, command):
    """Return where the numbers come from, and how to make them again."""
    return {
        "method": method(fit),
        "conventions": conventions(fit.model),
        "provenance": provenance(fit.observations),
        "machine": machine(),
        "command": without_home(command) if command else None,
        "python": python_lines(fit),
        "citations": citations(fit, found),
    }


def _tight(text):
    """Return text in which a line does not break before a sign of per cent."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _asset(name):
    """Return a file of the folder `templates`."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _maps(fit, found):
    """Return maps, the numbers that they show, and pictures where there can be no maps."""
    seen = fit.observations
    if seen.dimensions == 1:
        return [], None, [_line(fit, found.line)]
    drawn = Maps(fit, found.validation, found.raster)
    found.notes += filter(None, [drawn.note()])
    return drawn.all(), drawn.numbers(), []


def _line(fit, there):
    """Return a picture of observations along a line, and of their prediction."""
    seen = fit.observations

    def draw(ax):
        plots.values_map(seen, ax=ax)
        if there is not None:
            x, (low, high) = there.locations[:, 0], there.interval()
            ax.fill_between(x, low, high, color="#56b4e9", alpha=0.3, linewidth=0)
            ax.plot(x, there.mean, color="#0072b2", linewidth=1.5)

    z, x = plain_name(seen.value_name), plain_name(seen.location_names[0])
    if there is None:
        return picture(draw, "Observations", f"{z} against {x}.", f"{z} against {x}.")
    return picture(
        draw,
        "Observations and prediction",
        f"{z} against {x}: the kriging mean of the field, without the nugget’s noise, and its 95 % "
        "intervals.",
        f"{len(seen):,} values of {z} against {x}, with the predicted field and a band.",
    )


def _residuals(validation):
    """Return pictures of what each observation is from its prediction by the others."""
    if validation is None:
        return []
    n = len(validation)
    return [
        picture(
            lambda ax: plots.residuals_against_prediction(validation, ax=ax),
            "Errors against predictions",
            "Standardised leave-one-out errors: without a pattern, and 95 % of them between the "
            "dashed lines, where the model is right.",
            f"Standardised errors of {n:,} predictions against the predictions.",
        ),
        picture(
            lambda ax: plots.normal_quantiles(validation, ax=ax),
            "Normal quantiles",
            "The same errors in order. The band holds each point by itself, of independent errors.",
            f"Normal quantile plot of {n:,} standardised errors.",
        ),
        picture(
            lambda ax: plots.pit(validation, ax=ax),
            "Probability integral transform",
            "Flat where the predictions’ distributions are right; high at the ends where their "
            "variances are too small, in the middle where they are too large.",
            f"Histogram of the probability integral transforms of {n:,} observations.",
        ),
        picture(
            lambda ax: plots.coverage(validation, ax=ax),
            "Coverage of intervals",
            "How many observations lie in their prediction intervals, against how many should: "
            "below the line intervals are too narrow.",
            "Empirical against nominal coverage of prediction intervals.",
        ),
    ]


def _precision(fit, found):
    """Return pictures of an approximation: formats of tiles, and its divergence."""
    result = []
    if found.formats is not None:
        counts = ", ".join(f"{count} {name}" for name, count in found.formats.counts().items())
        result.append(
            picture(
                lambda ax: plots.precision_map(found.formats, ax=ax),
                "Formats of the tiles",
                "The covariance matrix in tiles, near places near the diagonal: the weaker a "
                "tile’s covariances, the coarser its format.",
                f"Map of the formats of the tiles: {counts}.",
            )
        )
    if len(found.divergences) > 1:
        result.append(_divergences(fit, found))
    return result


def _divergences(fit, found):
    import pandas as pd

    rows = [known.to_dict() | asked for asked, known in found.divergences]
    frame = pd.DataFrame(rows).sort_values(next(iter(found.divergences[0][0])), ascending=False)
    return picture(
        lambda ax: plots.divergences(frame, len(fit.observations), ax=ax),
        "Divergence from the exact likelihood",
        "Kullback–Leibler divergence at the estimate, for this fit and for finer and coarser ones.",
        "Divergence from the exact model against what was asked for.",
    )
