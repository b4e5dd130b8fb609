"""What a report computes beside the fit, within a time limit; what is skipped is listed."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from .. import plots
from ..errors import GeomxpError, GeomxpWarning
from ..estimation.profile import Path
from ..likelihood.divergence import Divergence, compare
from ..linalg.precision import ByTileNorm, ForDivergence, PrecisionMap
from ..prediction.kriging import Prediction, predict
from ..prediction.raster import Raster, predict_raster
from ..prediction.validation import Validation, leave_one_out
from ..runtime.progress import Line
from .charts import Chart, chart

if TYPE_CHECKING:
    from ..vecchia.factor import Graph

BUDGET = 60.0
"""Seconds for all parts together."""

QUICK = 0.02
"""Smallest assumed time of a score in seconds, which includes the work around it."""

SLOW = 5.0
"""Seconds of an evaluation above which no score is timed: the time of the fit is used instead."""

CELLS = 80
"""Cells of the maps of predictions, along the longer side."""

STEPS = 200
"""Locations of a prediction along a line."""

NEIGHBOURS = 60
"""Neighbours of local predictions, which are used where global ones would take too long."""

POINTS = (9, 5)
"""Points of a profile: the first number for which there is time."""

RAYS = 16
"""Rays of a contour."""

LARGEST = 10_000
"""Largest number of locations for the divergence from FP64, which takes two whole matrices."""

ORDERING = 4e-5
"""Seconds to order one location and to find its neighbours."""

EXACT_RATE = 5e9
"""Operations per second of an FP64 factorization, estimated cautiously."""

VALIDATION, INTERVAL, POINT, RAY, FACTOR = 3.0, 9.0, 4.0, 9.0, 2.0
"""Costs of parts in scores (the log-likelihood and its gradient), measured for 155 and 2,000
locations and rounded up: leave-one-out validation, and one interval, point of a profile, ray of a
contour and factor."""


@dataclass
class Findings:
    """Results beside the fit; None or empty where they were not computed.

    Parameters
    ----------
    validation : Validation or None
    raster : Raster or None
    line : Prediction or None
        In one dimension, in place of the raster.
    wald, profile : dict of str to (float, float)
        Confidence intervals.
    derived : dict of str to Estimate
    variogram, contours : Chart or None
    profiles : dict of str to Chart
        By parameter.
    divergences : list of (dict, Divergence)
        A label and a result for the method of the fit, then for finer and coarser ones.
    formats : PrecisionMap or None
        Of a fit in mixed precision.
    graph : Graph or None
        Neighbours of Vecchia's approximation.
    warnings : list of str
    notes : list of str
        Parts that are missing, and why.
    """

    validation: Validation | None = None
    raster: Raster | None = None
    line: Prediction | None = None
    wald: dict = field(default_factory=dict)
    profile: dict = field(default_factory=dict)
    derived: dict = field(default_factory=dict)
    variogram: Chart | None = None
    contours: Chart | None = None
    profiles: dict = field(default_factory=dict)
    divergences: list[tuple[dict, Divergence]] = field(default_factory=list)
    formats: PrecisionMap | None = None
    graph: Graph | None = None
    warnings: list = field(default_factory=list)
    notes: list = field(default_factory=list)


@dataclass
class Budget:
    """Time that is left, and notes on the parts that were skipped.

    Parameters
    ----------
    left : float
        Seconds.
    line : Line
        Progress on the terminal.
    notes : list of str
    """

    left: float
    line: Line
    notes: list = field(default_factory=list)

    def spend(self, what, seconds, work, instead=""):
        """Return what `work` returns; None if there is no time for it, or if it fails.

        Parameters
        ----------
        what : str
            Name of the result, as the subject of a sentence.
        seconds : float
            Expected time.
        work : callable
        instead : str
            How to compute the result without the report.
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


def findings_of(fit, budget=BUDGET, progress=False):
    """Compute what a report shows.

    Parameters
    ----------
    fit : Fit
    budget : float
        Seconds. It can be exceeded somewhat, as a part may take longer than expected.
    progress : bool
        Show progress on standard error if it is a terminal.

    Returns
    -------
    Findings
    """
    found, line = Findings(), Line("writing the report", shown=progress)
    budget = Budget(budget, line, found.notes)
    with line, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GeomxpWarning)
        score = budget.spend("The time of a score", 0.0, lambda: seconds_of_a_score(fit))
        for part in PARTS:
            part(fit, found, budget, score)
    found.warnings = list(dict.fromkeys(str(warning.message) for warning in caught))
    return found


def seconds_of_a_score(fit):
    """Return how long the log-likelihood and its gradient take at the estimate."""
    usual = fit.seconds / max(fit.evaluations, 1)
    if usual > SLOW or not fit.free:
        return usual
    try:
        path = Path(fit)
        start = time.perf_counter()
        # a point near the estimate, whose own score is cached
        path.at(np.clip(path.start.point * (1 + 1e-6) + 1e-6, path.lower, path.upper))
    except GeomxpError:
        return max(usual, QUICK)
    return max(time.perf_counter() - start, QUICK)


def validate(fit, found, budget, score):
    """Predict each observation from all others."""
    found.validation = budget.spend(
        "Leave-one-out validation",
        VALIDATION * score,
        lambda: leave_one_out(fit, progress=False),
        "In Python: geomxp.leave_one_out(fit).",
    )


def predictions(fit, found, budget, score):
    """Predict from all observations, or from the nearest ones if that would take too long."""
    observations, n = fit.observations, len(fit.observations)
    if observations.dimensions == 1:
        ends = observations.locations.min(), observations.locations.max()
        work = lambda: predict(fit, np.linspace(*ends, STEPS), progress=False)  # noqa: E731
        found.line = budget.spend("Prediction", (2 + 2 * STEPS / n) * score, work)
        return
    cells = 2 * CELLS**2 / 3
    # Σ⁻¹ is applied to one column per cell; for Vecchia a cell is one more location
    systems = 1 if fit.method.approximate else 2
    expected = (2 + systems * cells / n) * score
    local = expected > budget.left
    if local:
        expected = 2 * cells * NEIGHBOURS**3 / EXACT_RATE
    near = NEIGHBOURS if local else None
    work = lambda: predict_raster(fit, cells=CELLS, neighbours=near, progress=False)  # noqa: E731
    found.raster = budget.spend("Maps of predictions", expected, work)
    if found.raster is not None and local:
        found.notes.append(
            f"The maps of predictions use the {NEIGHBOURS} nearest observations of each cell, "
            "because all would take too long."
        )


def variogram(fit, found, budget, score):
    """Draw the semivariogram."""
    draw = lambda ax: plots.variogram(fit, ax=ax)  # noqa: E731
    found.variogram = budget.spend("Semivariogram", 0.0, lambda: chart(draw, "variogram"))


def intervals(fit, found, budget, score):
    """Find intervals from standard errors, and from profiles if there is time."""
    count = len(fit.free + fit.boundary)
    if not count:
        return
    if fit.outcome.good and fit.free:
        found.wald = budget.spend("Wald intervals", 0.0, fit.confidence_intervals) or {}
        found.derived = budget.spend("Derived quantities", 0.0, fit.derived) or {}
    profiled = budget.spend(
        "Profile intervals",
        INTERVAL * score * count,
        lambda: fit.confidence_intervals(method="profile"),
        'In Python: fit.confidence_intervals(method="profile").',
    )
    found.profile = profiled or {}


def profiles(fit, found, budget, score):
    """Draw the profile of each estimated parameter."""
    if not fit.free:
        found.notes.append("Profiles of the log-likelihood: no parameter was estimated.")
        return
    each = POINT * score * len(fit.free)
    points = next((k for k in POINTS if k * each <= budget.left), POINTS[-1])

    def work():
        for name in fit.free:
            found.profiles[name] = chart(
                lambda ax, name=name: plots.profile(fit, name, ax=ax, points=points), name
            )

    advice = "In Python: geomxp.plots.profiles(fit)."
    budget.spend("Profiles of the log-likelihood", each * points, work, advice)
    if found.profiles and points < POINTS[0]:
        found.notes.append(f"The profiles have {points} points in place of {POINTS[0]}.")


def divergences(fit, found, budget, score):
    """Compare an approximate likelihood with the exact one."""
    methods, observations = methods_beside(fit), fit.observations
    exact, what = (
        4 * len(observations) ** 3 / 3 / EXACT_RATE,
        "Divergence from the exact likelihood",
    )
    if methods and len(observations) > LARGEST:
        found.notes.append(
            f"{what}: left out, it takes two whole matrices, and there are more than {LARGEST:,} "
            "places."
        )
    elif methods:
        about = {"trend": fit.trend.text, "progress": False}
        results = budget.spend(
            what,
            (1 + len(methods)) * exact + len(methods) * score,
            lambda: compare(fit.model, observations, [one for _, one in methods], **about),
            "In Python: geomxp.kl_divergence(fit.model, fit.observations, fit.method).",
        )
        labels = [label for label, _ in methods]
        found.divergences = list(zip(labels, results, strict=True)) if results else []
    if found.divergences:
        found.formats = found.divergences[0][1].formats
    elif fit.method.noisy:
        found.formats = budget.spend(
            "Formats of the tiles",
            FACTOR * score,
            lambda: fit.method.prepare(observations).factorize(fit.model).precision_map,
        )


def methods_beside(fit):
    """Return the fit's method and finer and coarser ones, each with a label.

    Returns
    -------
    list of (dict, Exact or Vecchia)
        The fit's own method first; empty if it is exact in FP64.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from geomxp import Exact
    >>> method = Exact(ByTileNorm(1e-6))
    >>> fit = SimpleNamespace(method=method, observations=[0.0] * 9)
    >>> [label for label, _ in methods_beside(fit)]
    [{'accuracy': 1e-06}, {'accuracy': 1e-05}, {'accuracy': 1e-07}]
    """
    method = fit.method
    if method.approximate:
        count = method.neighbours
        most = len(fit.observations) - 1
        others = sorted({min(m, most) for m in (count // 2, 2 * count)})
        counts = [count, *(m for m in others if 0 < m != count)]
        return [({"neighbours": m}, replace(method, neighbours=m)) for m in counts]
    if not method.noisy:
        return []
    rule = method.precision
    name = {ByTileNorm: "accuracy", ForDivergence: "kl"}.get(type(rule))
    if name is None:
        return [({}, method)]
    targets = [float(f"{factor * vars(rule)[name]:.12g}") for factor in (1.0, 10.0, 0.1)]
    label = {"kl": "kl_target"}.get(name, name)
    return [({label: e}, replace(method, precision=replace(rule, **{name: e}))) for e in targets]


def neighbours(fit, found, budget, score):
    """Find the neighbours of Vecchia's approximation, to draw them in the plane."""
    observations = fit.observations
    if fit.method.approximate and fit.method.neighbours and observations.dimensions > 1:
        work = lambda: fit.method.prepare(observations).graph  # noqa: E731
        found.graph = budget.spend("Neighbours", ORDERING * len(observations), work)


def contours(fit, found, budget, score):
    """Draw contours of the profile likelihood of variance and range."""
    if not {"variance", "range"} <= set(fit.free):
        return
    draw = lambda ax: plots.contours(fit, "variance", "range", rays=RAYS, ax=ax)  # noqa: E731
    found.contours = budget.spend(
        "Contours of variance and range",
        RAY * score * RAYS,
        lambda: chart(draw, "contours"),
        'In Python: geomxp.plots.contours(fit, "variance", "range").',
    )


PARTS = (validate, predictions, variogram, intervals, profiles, divergences, neighbours, contours)
"""Parts of the report in the order of their computation."""
