"""Further results of a report, within a time limit; skipped ones are listed."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .. import plots
from ..data.times import Times
from ..errors import GeomxpError, GeomxpWarning
from ..estimation.profile import Path
from ..estimation.result import Fit
from ..likelihood.divergence import Divergence, compare
from ..linalg.precision import ByTileNorm, ForDivergence, PrecisionMap
from ..plots.diagnostics import MOST_TRIANGLE_VARIABLES
from ..prediction.kriging import Prediction, predict
from ..prediction.raster import Raster, RasterSeries, predict_raster, raster_at, times_in
from ..prediction.validation import Validation, leave_one_out
from ..prediction.variogram import several_variables, variogram
from ..runtime.progress import Line
from .charts import Chart, chart
from .maps import evenly, nearest, times_shown

if TYPE_CHECKING:
    from ..vecchia.factor import Graph

BUDGET_SECONDS = 60.0
"""Seconds for all parts together."""

REPORT_LEVELS = ("quick", "full")
"""Names of the levels of a report."""

QUICK_REPORT_NOTE = (
    "A quick report leaves out {}the band of the semivariogram, profiles with "
    "their intervals, contours, divergences, and all charts of the validation but one: "
    "--report-level full adds them, in Python "
    'level="full".'
)
"""Note of a report of the level quick."""

LEAST_SCORE_SECONDS = 0.02
"""Smallest assumed time of a score in seconds, which includes the work around it."""

SLOW_EVALUATION_SECONDS = 5.0
"""Seconds of an evaluation above which no score is timed: the time of the fit is used instead."""

MAP_SIDE_CELLS, MAP_SIDE_CELLS_IN_TIME = 80, 48
"""Cells along the longer side of a map of predictions, and of each map of several times."""

TRANSECT_LOCATIONS = 200
"""Locations of a prediction along a line."""

LOCAL_NEIGHBOURS = 60
"""Neighbours of local predictions, which are used where global ones would take too long."""

PROFILE_POINTS = (9, 5)
"""Points of a profile: the first number for which there is time."""

CONTOUR_RAYS = 16
"""Rays of a contour."""

MOST_DIVERGENCE_LOCATIONS = 10_000
"""Largest number of locations for the divergence from FP64, which needs two n×n matrices."""

ORDERING_SECONDS_PER_LOCATION = 4e-5
"""Seconds to order one location and to find its neighbours."""

EXACT_OPERATIONS_PER_SECOND = 5e9
"""Operations per second of an FP64 factorization, estimated cautiously."""

VALIDATION_COST_SCORES, INTERVAL_COST_SCORES, POINT_COST_SCORES = 3.0, 9.0, 4.0
RAY_COST_SCORES, FACTOR_COST_SCORES = 9.0, 2.0
"""Costs of parts in scores (the log-likelihood and its gradient), measured for 155 and 2,000
locations and rounded up: leave-one-out validation, and one interval, point of a profile, ray of a
contour and factor."""


@dataclass
class Findings:
    """Results in addition to a fit, None or empty if not computed, and the time left."""

    fit: Fit
    left: float = BUDGET_SECONDS  # seconds
    level: str = "full"
    places: object = None  # table of locations for the maps of predictions
    progress: Line = field(default_factory=lambda: Line("", shown=False))
    score: float = LEAST_SCORE_SECONDS  # seconds of the log-likelihood and its gradient
    validation: Validation | None = None
    raster: Raster | RasterSeries | None = None
    rasters: tuple[Raster, ...] = ()  # of several variables, in place of the raster
    transect: Prediction | None = None  # in one dimension, in place of the raster
    wald: dict = field(default_factory=dict)  # confidence intervals by parameter
    profile: dict = field(default_factory=dict)
    derived: dict = field(default_factory=dict)  # Estimate by name
    variogram: Chart | None = None
    variograms: dict = field(default_factory=dict)  # Chart by pair, of several variables
    correlations: object = None  # table of several variables
    contours: Chart | None = None
    profiles: dict = field(default_factory=dict)  # Chart by parameter
    # a label and a result for the method of the fit, then for finer and coarser ones
    divergences: list[tuple[dict, Divergence]] = field(default_factory=list)
    formats: PrecisionMap | None = None  # of a fit in mixed precision
    graph: Graph | None = None  # neighbours of Vecchia's approximation
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # parts that are missing, and why

    def spend(self, name, seconds, work, advice=""):
        """Return `work()`; None, with a note, if it fails or would take longer than what is left.

        `name` is the subject of the note; `advice` says how to compute the result elsewhere.
        """
        if seconds > max(self.left, 0.0):
            self.notes.append(
                f"{name}: left out, because it would take about {duration(seconds)} and the "
                f"report’s time is bounded. {advice}".rstrip()
            )
            return None
        start = time.perf_counter()
        try:
            return work()
        except GeomxpError as error:
            self.notes.append(f"{name}: left out, {error}")
            return None
        finally:
            self.left -= time.perf_counter() - start

    def time_score(self):
        """Measure the time of a score, in which the costs of the other parts are expressed."""
        self.score = self.spend("The time of a score", 0.0, lambda: seconds_of_a_score(self.fit))

    def validate(self):
        """Predict each observation from all others."""
        self.validation = self.spend(
            "Leave-one-out validation",
            VALIDATION_COST_SCORES * self.score,
            lambda: leave_one_out(self.fit, progress=False),
            "In Python: geomxp.leave_one_out(fit).",
        )

    def predict(self):
        """Predict from all observations, or from the nearest ones if that would take too long."""
        fit, observations, n = self.fit, self.fit.observations, len(self.fit.observations)
        if observations.variable is not None and times_shown(observations) is not None:
            self.notes.append(
                "Maps of predictions: left out, because the report has no maps of several "
                "variables and times. In Python: gx.predict_raster(fit, variable=..., time=...)."
            )
            return
        if self.places is not None and observations.variable is not None:
            self._map_variables(0.0, lambda name: raster_at(fit, self.places, variable=name))
            return
        if self.places is not None:
            self.raster = self.spend("Maps of predictions", 0.0, self._predict_at_places)
            return
        times = times_shown(observations)
        if observations.dimensions > 1 and fit.trend.needs:
            self.notes.append(
                "Maps of predictions: left out, because the trend needs "
                f"{', '.join(fit.trend.needs)} at the cells. Give a table of a regular grid with "
                "these columns: --places grid.csv (in Python places=frame)."
                + f" If they change with time, add {observations.time_name!r} and a row for each "
                "cell and time." * (times is not None)
            )
            return
        if observations.dimensions == 1 and times is not None:
            self.notes.append(
                "Prediction: left out, because the report has no picture of one coordinate and "
                "time. In Python: geomxp.predict(fit, locations, time=times)."
            )
            return
        if observations.dimensions == 1:
            # of several variables all are predicted
            locations = observations.locations
            line = np.linspace(locations.min(), locations.max(), TRANSECT_LOCATIONS)
            self.transect = self.spend(
                "Prediction",
                (2 + 2 * TRANSECT_LOCATIONS / n) * self.score,
                lambda: predict(fit, line, progress=False),
            )
            return
        side = MAP_SIDE_CELLS if times is None else MAP_SIDE_CELLS_IN_TIME
        cells = 2 * side**2 / 3 * (1 if times is None else len(times))
        # Σ⁻¹ is applied to one column per cell; for Vecchia a cell is one more location
        systems = 1 if fit.method.approximate else 2
        several = len(observations.variable_labels)
        cells *= several or 1
        expected, near = (2 + systems * cells / n) * self.score, None
        if expected > self.left:
            near = LOCAL_NEIGHBOURS
            expected = 2 * cells * near**3 / EXACT_OPERATIONS_PER_SECOND
        options = {"cells": side, "neighbours": near, "progress": False}
        shown = None if times is None else Times(times, observations.time_axis)
        if several:
            self._map_variables(
                expected, lambda name: predict_raster(fit, variable=name, **options)
            )
        else:
            self.raster = self.spend(
                "Maps of predictions", expected, lambda: predict_raster(fit, time=shown, **options)
            )
        if (self.raster is not None or self.rasters) and near:
            self.notes.append(
                f"The maps of predictions use the {LOCAL_NEIGHBOURS} nearest observations of each "
                "cell, because all would take too long."
            )

    def _map_variables(self, expected, of_variable):
        """Map each of several variables."""

        def work():
            return tuple(map(of_variable, self.fit.observations.variable_labels))

        self.rasters = self.spend("Maps of predictions", expected, work) or ()

    def _predict_at_places(self):
        """Predict at the places of the table, and at the times that are shown if there are some."""
        fit, times = self.fit, times_shown(self.fit.observations)
        listed = times_in(fit, self.places)
        if listed is not None:
            times = np.unique(listed[nearest(listed, evenly(listed))])
        shown = None if times is None else Times(times, fit.observations.time_axis)
        found = raster_at(fit, self.places, time=shown, progress=False)
        if times is not None and listed is None and fit.trend.needs:
            self.notes.append(
                "The maps of predictions have the covariates of the table of places at all times, "
                "because the table has no column of the times."
            )
        return found

    def draw_variogram(self):
        """Draw the semivariogram; at the level quick without the band of simulated fields."""
        options = {"envelope": 0} if self.level == "quick" else {}
        observations = self.fit.observations
        if several_variables(observations):
            self.spend("Semivariograms", 0.0, lambda: self._draw_variograms(options))
            return
        draw = partial(plots.variogram, self.fit, **options)
        self.variogram = self.spend("Semivariogram", 0.0, lambda: chart(draw, "variogram"))

    def _draw_variograms(self, options):
        """Draw the variograms of several variables: of each, and of each two."""
        observations = self.fit.observations
        labels = observations.variable_labels
        found = variogram(observations, trend="zero").variable_pairs
        if len(labels) > MOST_TRIANGLE_VARIABLES:
            found = tuple(name for name in found if name in labels)
            self.notes.append(
                "Cross-variograms: left out, because there are more than "
                f"{MOST_TRIANGLE_VARIABLES} variables. "
                'In Python: geomxp.plots.variogram(fit, pair=("a", "b")).'
            )
        for k, name in enumerate(found):
            draw = partial(plots.variogram, self.fit, pair=name, **options)
            self.variograms[name] = chart(draw, f"variogram-{k}")

    def find_intervals(self):
        """Find intervals from standard errors."""
        fit = self.fit
        if fit.outcome.good and fit.free:
            self.wald = self.spend("Wald intervals", 0.0, fit.confidence_intervals) or {}
            self.derived = self.spend("Derived quantities", 0.0, fit.derived) or {}
        if fit.model.variables > 1:
            self.correlations = self.spend("Correlations", 0.0, fit.correlation_table)
            if self.correlations is not None:
                size = self.correlations.estimate.abs()
                self.correlations = self.correlations.assign(size=size)

    def find_profile_intervals(self):
        """Find intervals from profiles of the log-likelihood."""
        fit, count = self.fit, len(self.fit.free + self.fit.boundary)
        if not count:
            return
        profiled = self.spend(
            "Profile intervals",
            INTERVAL_COST_SCORES * self.score * count,
            lambda: fit.confidence_intervals(method="profile"),
            'In Python: fit.confidence_intervals(method="profile").',
        )
        self.profile = profiled or {}

    def draw_profiles(self):
        """Draw the profile of each estimated parameter."""
        fit = self.fit
        if not fit.free:
            self.notes.append("Profiles of the log-likelihood: no parameter was estimated.")
            return
        each = POINT_COST_SCORES * self.score * len(fit.free)
        points = next((k for k in PROFILE_POINTS if k * each <= self.left), PROFILE_POINTS[-1])

        def work():
            for name in fit.free:
                draw = partial(plots.profile, fit, name, points=points)
                self.profiles[name] = chart(draw, name)

        advice = "In Python: geomxp.plots.profiles(fit)."
        self.spend("Profiles of the log-likelihood", each * points, work, advice)
        if self.profiles and points < PROFILE_POINTS[0]:
            self.notes.append(f"The profiles have {points} points in place of {PROFILE_POINTS[0]}.")

    def diverge(self):
        """Compare an approximate likelihood with the exact one."""
        fit, n, name = self.fit, len(self.fit.observations), "Divergence from the exact likelihood"
        methods = methods_beside(fit)
        if methods and n > MOST_DIVERGENCE_LOCATIONS:
            self.notes.append(
                f"{name}: left out, because it needs two n×n matrices and there are more than "
                f"{MOST_DIVERGENCE_LOCATIONS:,} locations."
            )
        elif methods:
            exact = 4 * n**3 / 3 / EXACT_OPERATIONS_PER_SECOND
            trend, others = fit.trend.text, [method for _, method in methods]
            results = self.spend(
                name,
                (1 + len(methods)) * exact + len(methods) * self.score,
                lambda: compare(fit.model, fit.observations, others, trend=trend, progress=False),
                "In Python: geomxp.kl_divergence(fit.model, fit.observations, fit.method).",
            )
            if results and fit.model.response is not None:
                # the field has not been observed
                results = [replace(result, quadratic_form_error=None) for result in results]
            labels = [label for label, _ in methods]
            self.divergences = list(zip(labels, results, strict=True)) if results else []
        if self.divergences:
            self.formats = self.divergences[0][1].formats
        elif fit.method.noisy:
            self.formats = self.spend(
                "Formats of the tiles",
                FACTOR_COST_SCORES * self.score,
                lambda: fit.method.prepare(fit.observations).factorize(fit.model).precision_map,
            )

    def find_neighbours(self):
        """Find the neighbours of Vecchia's approximation, to draw them in the plane."""
        method, observations = self.fit.method, self.fit.observations
        if method.approximate and method.neighbours and observations.dimensions > 1:
            seconds = ORDERING_SECONDS_PER_LOCATION * len(observations)
            self.graph = self.spend(
                "Neighbours", seconds, lambda: method.prepare(observations).graph_of(self.fit.model)
            )

    def draw_contours(self):
        """Draw contours of the profile likelihood of variance and range."""
        if {"variance", "range"} <= set(self.fit.free):
            draw = partial(plots.contours, self.fit, "variance", "range", rays=CONTOUR_RAYS)
            self.contours = self.spend(
                "Contours of variance and range",
                RAY_COST_SCORES * self.score * CONTOUR_RAYS,
                lambda: chart(draw, "contours"),
                'In Python: geomxp.plots.contours(fit, "variance", "range").',
            )

    PARTS = (
        (time_score, "time of an evaluation", "full"),
        (validate, "validation", "quick"),
        (predict, "maps", "full"),
        (draw_variogram, "variogram", "quick"),
        (find_intervals, "intervals", "quick"),
        (find_profile_intervals, "profile intervals", "full"),
        (draw_profiles, "profiles", "full"),
        (diverge, "divergence", "full"),
        (find_neighbours, "neighbours", "quick"),
        (draw_contours, "contours", "full"),
    )
    """Parts of the report in the order of their computation, what the progress line calls them, and
    the lowest level that has them."""


def duration(seconds):
    """Return a time in words.

    >>> duration(0.1), duration(3.2), duration(250.0), duration(9000.0)
    ('a second', '3 seconds', '4 minutes', '2.5 hours')
    """
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.3g} hours"


def findings_of(fit, budget=BUDGET_SECONDS, progress=False, level="full", places=None):
    """Compute what a report shows in about `budget` seconds; `progress` is shown on a terminal."""
    line = Line("report", shown=progress)
    findings = Findings(fit, budget, level, places, line)
    with line, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GeomxpWarning)
        for part, section, lowest in Findings.PARTS:
            if level in ("full", lowest) or (section == "maps" and places is not None):
                line.what = f"report: {section}"
                part(findings)
    if level == "quick":
        maps = "maps of predictions, " if places is None else ""
        findings.notes.insert(0, QUICK_REPORT_NOTE.format(maps))
    findings.warnings = list(dict.fromkeys(str(warning.message) for warning in caught))
    return findings


def seconds_of_a_score(fit):
    """Return the seconds of the log-likelihood and its gradient at the estimate."""
    usual = fit.seconds / max(fit.evaluations, 1)
    if usual > SLOW_EVALUATION_SECONDS or not fit.free:
        return usual
    try:
        path = Path(fit)
        start = time.perf_counter()
        # a point near the estimate, whose own score is cached
        path.at(np.clip(path.start.point * (1 + 1e-6) + 1e-6, path.lower, path.upper))
    except GeomxpError:
        return max(usual, LEAST_SCORE_SECONDS)
    return max(time.perf_counter() - start, LEAST_SCORE_SECONDS)


def methods_beside(fit):
    """Return (label, method) of the fit, then of finer and coarser ones; empty for exact FP64.

    >>> from types import SimpleNamespace
    >>> from geomxp import Exact
    >>> fit = SimpleNamespace(method=Exact(ByTileNorm(1e-6)))
    >>> [label for label, _ in methods_beside(fit)]
    [{'accuracy': 1e-06}, {'accuracy': 1e-05}, {'accuracy': 1e-07}]
    """
    method = fit.method
    if method.approximate:
        count, most = method.neighbours, len(fit.observations) - 1
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
