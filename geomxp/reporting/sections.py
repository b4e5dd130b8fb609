"""The time that a report may take: a part that would take more than is left is left out, aloud."""

import time
import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from .. import plots
from ..errors import GeomxpError, GeomxpWarning
from ..estimation.intervals import confidence_intervals, derived
from ..estimation.profile import Path
from ..likelihood.divergence import Divergence, compare
from ..linalg.precision import ByTileNorm, ForDivergence, PrecisionMap
from ..prediction.kriging import Prediction, predict
from ..prediction.raster import Raster, predict_raster
from ..prediction.validation import Validation, leave_one_out
from ..runtime.progress import Line
from ..vecchia.graph import Graph
from .figures import picture


@dataclass
class Ledger:
    """Time that is left, and sentences on what was left out.

    Parameters
    ----------
    left : float
        Seconds.
    line : Line
        On the terminal.
    notes : list of str
    """

    left: float
    line: Line
    notes: list = field(default_factory=list)

    def spend(self, what, seconds, work, instead=""):
        """Do some work if there is time for it; None if not, or if it cannot be done.

        Parameters
        ----------
        what : str
            What it makes, as the subject of a sentence.
        seconds : float
            What it is expected to take.
        work : callable
        instead : str
            How to get it where it is left out.
        """
        if seconds > max(self.left, 0.0):
            more = f" {instead}" if instead else ""
            self.notes.append(
                f"{what}: left out, it would take about {duration(seconds)} and the report’s "
                f"time is bounded.{more}"
            )
            return None
        self.line.about = what[0].lower() + what[1:]
        start = time.perf_counter()
        try:
            return work()
        except GeomxpError as error:
            self.notes.append(f"{what}: left out, {error}")
            return None
        finally:
            self.left -= time.perf_counter() - start


def duration(seconds):
    """Return a time in words.

    Examples
    --------
    >>> duration(0.1), duration(3.2), duration(250.0), duration(9000.0)
    ('a second', '3 seconds', '4 minutes', '2.5 hours')
    """
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.3g} hours"


# What a report computes besides the fit, while there is time: each part costs so many scores.
#
# A score (the log-likelihood and its gradient) is the unit of work; it is timed once. What a part
# takes of them was measured.


BUDGET = 60.0
"""Seconds for all parts together."""

QUICK = 0.02
"""Seconds of a score at least, with what is done about it."""

SLOW = 5.0
"""Seconds an evaluation from which on nothing is timed: what the fit took says enough."""

CELLS = 80
"""Of the maps of predictions, along the longer side."""

STEPS = 200
"""Places of a prediction along a line."""

NEIGHBOURS = 60
"""Of the prediction from nearby observations only, where all would take too long."""

POINTS = (9, 5)
"""Of a profile: as many as there is time for."""

RAYS = 16
"""Of a contour."""

LARGEST = 10_000
"""Places of which the divergence from FP64 is computed: it takes two whole matrices."""

ORDERING = 4e-5
"""Seconds for a place to be ordered and its neighbours to be found."""

EXACT_RATE = 5e9
"""Operations a second of an FP64 factorization, at least: to say what one takes before any."""

COSTS = {
    "leave-one-out validation": 3.0,
    "interval": 9.0,
    "point of a profile": 4.0,
    "ray": 9.0,
    "factor": 2.0,
}
"""In scores: measured for 155 and 2,000 places, and rounded up."""


@dataclass
class Findings:
    """What was computed for a report; None or empty for what was not.

    Parameters
    ----------
    validation : Validation or None
    raster : Raster or None
    line : Prediction or None
        Of places in one dimension, in the raster's stead.
    wald, profile : dict of str to (float, float)
        Confidence intervals.
    derived : dict of str to Estimate
    variogram : Picture or None
    profiles : list of Picture
    contours : Picture or None
    divergences : list of (dict, Divergence)
        What asks for a precision, and what it does; the fit's own first.
    formats : PrecisionMap or None
        Of a mixed fit.
    graph : Graph or None
        Who is conditioned on whom, of a fit by Vecchia's approximation.
    cautions : list of str
    notes : list of str
        What is not there, and why.
    """

    validation: Validation | None = None
    raster: Raster | None = None
    line: Prediction | None = None
    wald: dict = field(default_factory=dict)
    profile: dict = field(default_factory=dict)
    derived: dict = field(default_factory=dict)
    variogram: object = None
    profiles: list = field(default_factory=list)
    contours: object = None
    divergences: list[tuple[dict, Divergence]] = field(default_factory=list)
    formats: PrecisionMap | None = None
    graph: Graph | None = None
    cautions: list = field(default_factory=list)
    notes: list = field(default_factory=list)


def seconds_of_a_score(fit):
    """Return how long the log-likelihood and its gradient take at the estimate."""
    usual = fit.seconds / max(fit.evaluations, 1)
    if usual > SLOW or not fit.free:
        return usual
    try:
        path = Path(fit)
        start = time.perf_counter()
        # beside the estimate, of which all is known already
        path.at(np.clip(path.start.point * (1 + 1e-6) + 1e-6, path.lower, path.upper))
    except GeomxpError:
        return max(usual, QUICK)
    return max(time.perf_counter() - start, QUICK)


def findings_of(fit, budget=BUDGET, progress=False):
    """Compute what a report shows.

    Parameters
    ----------
    fit : Fit
    budget : float
        Seconds; a part may take longer than was expected of it, so that it can be exceeded by
        some.
    progress : bool
        Show what is worked on where standard error is a terminal.

    Returns
    -------
    Findings
    """
    found, line = Findings(), Line("writing the report", shown=progress)
    ledger = Ledger(budget, line)
    with line, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GeomxpWarning)
        score = ledger.spend("The time of a score", 0.0, lambda: seconds_of_a_score(fit))
        _validate(fit, found, ledger, score)
        _predict(fit, found, ledger, score)
        found.variogram = ledger.spend("Semivariogram", 0.0, lambda: _variogram(fit))
        _intervals(fit, found, ledger, score)
        _profiles(fit, found, ledger, score)
        _divergences(fit, found, ledger, score)
        _neighbours(fit, found, ledger)
        _contours(fit, found, ledger, score)
    found.cautions = list(dict.fromkeys(str(warning.message) for warning in caught))
    found.notes = ledger.notes
    return found


def _validate(fit, found, ledger, score):
    found.validation = ledger.spend(
        "Leave-one-out validation",
        COSTS["leave-one-out validation"] * score,
        lambda: leave_one_out(fit, progress=False),
        "In Python: geomxp.leave_one_out(fit).",
    )


def _predict(fit, found, ledger, score):
    """Predict from all observations, or from nearby ones where that would take too long."""
    n, seen = len(fit.observations), fit.observations
    if seen.dimensions == 1:
        places = np.linspace(seen.locations.min(), seen.locations.max(), STEPS)
        found.line = ledger.spend(
            "Prediction", (2 + 2 * STEPS / n) * score, lambda: predict(fit, places, progress=False)
        )
        return
    cells = 2 * CELLS**2 / 3
    # Σ⁻¹ times as many columns as cells; to Vecchia's approximation a cell is one place more
    expected = (2 + (1 if fit.method.approximate else 2) * cells / n) * score
    local = expected > ledger.left
    if local:
        expected = 2 * cells * NEIGHBOURS**3 / EXACT_RATE
    near = NEIGHBOURS if local else None
    found.raster = ledger.spend(
        "Maps of predictions",
        expected,
        lambda: predict_raster(fit, cells=CELLS, neighbours=near, progress=False),
    )
    if found.raster is not None and local:
        ledger.notes.append(
            f"The maps of predictions use the {NEIGHBOURS} nearest observations of each cell, "
            "because all would take too long."
        )


def _variogram(fit):
    return picture(
        lambda ax: plots.variogram(fit, ax=ax),
        "Semivariogram",
        "Half the mean squared difference of residuals; the larger a point, the more pairs. The "
        "model was fitted to the values by maximum likelihood, not to the points: what counts is "
        "whether they lie in the band, each distance by itself. Where the range is long, points at "
        "long distances lie below even the true model.",
        f"Semivariogram of {fit.observations.value_name} less its trend, with the fitted model: "
        f"it rises from {fit.model.nugget:.4g} towards "
        f"{fit.model.nugget + fit.model.variance:.4g}.",
    )


def _intervals(fit, found, ledger, score):
    """Find intervals: from the standard errors at once, from profiles where there is time."""
    if not fit.free + fit.boundary:
        return
    if fit.outcome.good and fit.free:
        found.wald = ledger.spend("Wald intervals", 0.0, lambda: confidence_intervals(fit)) or {}
        found.derived = ledger.spend("Derived quantities", 0.0, lambda: derived(fit)) or {}
    count = len(fit.free + fit.boundary)
    found.profile = (
        ledger.spend(
            "Profile intervals",
            COSTS["interval"] * score * count,
            lambda: confidence_intervals(fit, method="profile"),
            'In Python: fit.confidence_intervals(method="profile").',
        )
        or {}
    )


def _profiles(fit, found, ledger, score):
    """Draw a profile of each estimated parameter."""
    if not fit.free:
        ledger.notes.append("Profiles of the log-likelihood: no parameter was estimated.")
        return
    each = COSTS["point of a profile"] * score * len(fit.free)
    points = next((k for k in POINTS if k * each <= ledger.left), POINTS[-1])

    def work():
        for name in fit.free:
            found.profiles.append(_profile(fit, name, points))

    advice = "In Python: geomxp.plots.profiles(fit)."
    ledger.spend("Profiles of the log-likelihood", each * points, work, advice)
    if found.profiles and points < POINTS[0]:
        ledger.notes.append(f"The profiles have {points} points in place of {POINTS[0]}.")


def _profile(fit, name, points):
    words = name.replace("_", " ")
    return picture(
        lambda ax: plots.profile(fit, name, ax=ax, points=points),
        f"Profile of the {words}",
        "",
        f"Profile log-likelihood of the {words}, highest at the estimate "
        f"{fit.model.parameters()[name]:.4g}.",
    )


def _contours(fit, found, ledger, score):
    if not {"variance", "range"} <= set(fit.free):
        return
    found.contours = ledger.spend(
        "Contours of variance and range",
        COSTS["ray"] * score * RAYS,
        lambda: picture(
            lambda ax: plots.contours(fit, "variance", "range", rays=RAYS, ax=ax),
            "Variance and range together",
            "Inside a contour both together are not rejected at its level. Along the dotted ridge "
            "σ²/a²ᵛ is that of the estimate: the long axis of the contours is what the data cannot "
            "tell apart.",
            "Contours of the profile log-likelihood of variance and range about the estimate.",
        ),
        'In Python: geomxp.plots.contours(fit, "variance", "range").',
    )


def _neighbours(fit, found, ledger):
    """Find the neighbours again, where there is a plane to draw them on."""
    seen = fit.observations
    if fit.method.neighbours and seen.dimensions > 1:
        found.graph = ledger.spend(
            "Neighbours", ORDERING * len(seen), lambda: fit.method.prepare(seen).graph
        )


def _divergences(fit, found, ledger, score):
    """Compare the approximate likelihood with the exact one, where it is one."""
    ways, seen = ways_beside(fit), fit.observations
    exact, what = 4 * len(seen) ** 3 / 3 / EXACT_RATE, "Divergence from the exact likelihood"
    if ways and len(seen) > LARGEST:
        ledger.notes.append(
            f"{what}: left out, it takes two whole matrices, and there are more than {LARGEST:,} "
            "places."
        )
    elif ways:
        known = ledger.spend(
            what,
            (1 + len(ways)) * exact + len(ways) * score,
            lambda: compare(
                fit.model,
                seen,
                [method for _, method in ways],
                trend=fit.trend.text,
                progress=False,
            ),
            "In Python: geomxp.kl_divergence(fit.model, fit.observations, fit.method).",
        )
        labels = [label for label, _ in ways]
        found.divergences = list(zip(labels, known, strict=True)) if known else []
    if found.divergences:
        found.formats = found.divergences[0][1].formats
    elif fit.method.noisy:
        found.formats = ledger.spend(
            "Formats of the tiles",
            COSTS["factor"] * score,
            lambda: fit.method.prepare(seen).factorize(fit.model).precision_map,
        )


def ways_beside(fit):
    """Return the fit's way to compute and finer and coarser ones, each with what asks for it.

    Returns
    -------
    list of (dict, Exact or Vecchia)
        Empty where the fit is exact in FP64; the fit's own first.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> method = Exact(ByTileNorm(1e-6))
    >>> fit = SimpleNamespace(method=method, observations=[0.0] * 9)
    >>> [label for label, _ in ways_beside(fit)]
    [{'accuracy': 1e-06}, {'accuracy': 1e-05}, {'accuracy': 1e-07}]
    """
    method = fit.method
    if method.approximate:
        most = len(fit.observations) - 1
        others = sorted({min(m, most) for m in (method.neighbours // 2, 2 * method.neighbours)})
        counts = [method.neighbours, *(m for m in others if 0 < m != method.neighbours)]
        return [({"neighbours": m}, replace(method, neighbours=m)) for m in counts]
    if not method.noisy:
        return []
    rule, names = method.precision, {ByTileNorm: "accuracy", ForDivergence: "kl"}
    name = names.get(type(rule))
    if name is None:
        return [({}, method)]
    asked = [float(f"{factor * getattr(rule, name):.12g}") for factor in (1.0, 10.0, 0.1)]
    label = {"kl": "kl_target"}.get(name, name)
    return [({label: e}, replace(method, precision=replace(rule, **{name: e}))) for e in asked]
