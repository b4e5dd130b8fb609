"""The result of a fit: estimates, their intervals, and the JSON document that keeps them."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from html import escape
from math import isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import numpy as np

from .._version import __version__
from ..covariance.base import Covariance, Isotropic, family_of
from ..covariance.matern import Matern
from ..covariance.multivariate import PAIR, Multivariate, indices
from ..covariance.space_time import SpaceTime
from ..covariance.transformation import TRANSFORMS, Transformation, transformation
from ..data import spatial, tables
from ..data.observations import Observations, read_table
from ..errors import Ending, GeomxpWarning, InvalidInput, Outcome, check_one_of
from ..likelihood.base import Values
from ..likelihood.exact import Exact
from ..likelihood.trend import TRENDS, Trend
from ..likelihood.vecchia import Vecchia
from ..linalg import precision as rules
from ..runtime.equality import by_content
from .diagnose import Estimate, derived_logarithms, exp_or_inf, z_value
from .parameters import (
    ANISOTROPY,
    Units,
    check_bounds,
    is_nugget_covariance,
    template,
    titles,
)
from .profile import design_of as design_of
from .profile import problem_of, profile_intervals
from .search import information_at
from .small_sample import LARGEST, TrendTest, trend_inference

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .._typing import (
        Client,
        Document,
        Floats,
        Frame,
        Interval,
        IntervalMethod,
        Intervals,
        Kind,
        PathLikeText,
        Sequence,
    )
    from ..covariance.distance import Metric
    from ..likelihood.base import Likelihood

    Model = TypeVar("Model", bound=Covariance, default=Matern)
else:
    from typing import TypeVar

    Model = TypeVar("Model")


EMBEDDED = 200_000
"""Most bytes of observations, as JSON, that `Fit.save` embeds without being asked."""

AT_SUPREMUM = (Ending.UNIDENTIFIED,)
"""Outcomes without an estimate whose likelihood is at its supremum, so that profiles exist."""

DIFFERENCE, COARSE_DIFFERENCE = 2e-4, 2e-2
"""Steps of the score's differences, in logarithms: in FP64 and in mixed formats."""


@by_content
@dataclass(frozen=True)
class Fit(Generic[Model]):
    """Maximum-likelihood estimates.

    Parameters
    ----------
    model : Covariance
        The estimate, in the units of the data.
    log_likelihood : float
        At the estimate.
    outcome : Outcome
        How the search ended; its `good` tells whether there are estimates.
    evaluations : int
        Factorizations of the covariance matrix.
    history : tuple of dict
        Every improvement: evaluation, parameters, log_likelihood. Where the neighbours of a
        space-time model change, the log-likelihood may fall.
    standard_errors : dict of str to (float or None)
        From the observed information, by parameter; None if it was fixed, is at a bound or is not
        identifiable. Parameters at a bound are held there.
    seconds : float
    observations : Observations
    method : Likelihood
    trend : Trend
    reml : bool
    free : tuple of str
        Estimated parameters that are not at a bound.
    coefficients : (p,) ndarray
        Of the trend, by generalised least squares.
    coefficient_covariance : (p, p) ndarray
    formats : dict of str to int
        Tiles in each format, at the estimate.
    promotions : int
        Tiles promoted to a finer format than the rule gave them, at the estimate.
    information : (k, k) ndarray or None
        Observed information of the logarithms of the parameters in `free` (of an angle in
        radians, of a correlation itself, of a loading off the diagonal and of a nugget covariance
        in the unit of the search), in that order; None where there are no standard errors. See
        `geomxp.information`.
    boundary : tuple of str
        Estimated parameters that are at a bound, such as a nugget of 0, or held next to a limit
        (AT_LIMIT).
    bounds : dict of str to (float, float)
        Bounds given by the caller.
    score_variance : (k, k) ndarray or None
        K of the sandwich covariance I⁻¹KI⁻¹ of an approximate likelihood (Vecchia's), in the
        coordinates of `information`; None where K is the information.
    """

    model: Model
    log_likelihood: float
    outcome: Outcome
    evaluations: int
    history: tuple[Document, ...]
    standard_errors: dict[str, float | None]
    seconds: float = field(compare=False)
    observations: Observations
    method: Likelihood
    trend: Trend
    reml: bool
    free: tuple[str, ...]
    coefficients: Floats
    coefficient_covariance: Floats
    formats: dict[str, int] = field(default_factory=lambda: {"fp64": 1})
    promotions: int = 0
    information: Floats | None = None
    boundary: tuple[str, ...] = ()
    bounds: dict[str, Interval] = field(default_factory=dict)
    score_variance: Floats | None = None

    def _repr_html_(self) -> str:
        outcome = self.outcome
        remedy = f"Try: {outcome.remedy}" if outcome.remedy else ""
        said = [escape(text) for text in (outcome.message, remedy) if text]
        heads = "".join(f"<th>{name}</th>" for name in ("", "estimate", "std. error", "95 %"))
        rows = "".join(
            f"<tr><th>{name}</th><td>{'</td><td>'.join(cells)}</td></tr>"
            for name, *cells in (map(escape, row) for row in self._cells())
        )
        notes = [" ".join(line.split()) for line in (*self._results(), *self._work())]
        return (
            f"<p><strong>{escape(outcome.plain)}</strong> {' '.join(said)}</p>"
            f"<p>{escape(self._title())}</p><table><tr>{heads}</tr>{rows}</table>"
            f"<p>{'<br>'.join(map(escape, notes))}</p>"
        )

    def __repr__(self) -> str:
        observations = self.observations
        return (
            f"<Fit of {observations.value_name}, {observations.count_in_words}, "
            f"trend {self.trend.text:.60}: "
            f"{self.outcome.ending}, log-likelihood {self.log_likelihood:.6g}, {self.model}>"
        )

    @cached_property
    def gaussian(self) -> Fit:
        """The fit on the Gaussian scale of a transformation; the fit itself without one.

        Its values are transformed, its model has no transformation, and what is predicted or drawn
        from it is on the Gaussian scale. So is its log-likelihood, which therefore does not
        include the Jacobian.
        """
        transform = self.model.transform
        if transform is None:
            return self
        with warnings.catch_warnings():
            # the observations have been checked already
            warnings.simplefilter("ignore", GeomxpWarning)
            observations = replace(
                self.observations,
                values=transform.transform(self.observations.values),
                value_name=f"{transform.name} of {self.observations.value_name}",
                value_unit="",
                source={},
            )
        jacobian = float(np.sum(transform.log_jacobian(self.observations.values)))
        model = replace(self.model, transform=None)
        known = model.parameters()

        def kept(names):
            return tuple(name for name in names if name in known)

        return replace(
            self,
            model=model,
            log_likelihood=self.log_likelihood - jacobian,
            observations=observations,
            free=kept(self.free),
            boundary=kept(self.boundary),
            standard_errors={name: self.standard_errors.get(name) for name in known},
            bounds={name: self.bounds[name] for name in kept(self.bounds)},
            information=None,
            score_variance=None,
        )

    @property
    def coefficient_errors(self) -> Floats:
        """Standard errors of the trend's coefficients given the covariance parameters, (p,).

        Those in the table, `coefficient_table`, allow for the estimation of these parameters.
        """
        return np.sqrt(np.diag(self.coefficient_covariance))

    @property
    def degrees_of_freedom(self) -> int:
        """Number of parameters that AIC counts: estimated ones, also at a bound.

        With REML the coefficients of the trend do not count.
        """
        covariance = len(self.free) + len(self.boundary)
        return covariance + (0 if self.reml else len(self.coefficients))

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2k - 2ℓ. With REML it compares fits of one trend only."""
        return 2 * self.degrees_of_freedom - 2 * self.log_likelihood

    @property
    def aicc(self) -> float:
        """Akaike's criterion corrected for few data, AIC + 2k(k + 1)/(m - k - 1), m as for `bic`.

        Infinite where there are not more data than that.
        """
        k = self.degrees_of_freedom
        spare = self._data - k - 1
        return self.aic + 2 * k * (k + 1) / spare if spare > 0 else float("inf")

    @property
    def bic(self) -> float:
        """Schwarz's criterion, k log m - 2ℓ, with m = n, or n - p for REML."""
        return self.degrees_of_freedom * float(np.log(self._data)) - 2 * self.log_likelihood

    @property
    def _data(self):
        """Number of data m: n, or n - p for REML."""
        return len(self.observations) - (len(self.coefficients) if self.reml else 0)

    @cached_property
    def _inference(self):
        """Small-sample inference on the coefficients; None where it is not computed."""
        return trend_inference(self)

    def coefficient_table(self, level: float = 0.95) -> Frame:
        """Return the trend's coefficients with t tests and t intervals, as a pandas frame.

        Columns: coefficient, estimate, standard_error, degrees_of_freedom, lower, upper, p_value.
        Standard errors allow for the estimation of the covariance parameters, and t has the degrees
        of freedom of Kenward and Roger (1997, Biometrics 53:983); the covariance is theirs without
        second derivatives. For a fit by ML they are computed after one step towards the REML
        estimate. Up to 1,500 locations, always from the exact Σ; for more, from
        `coefficient_errors` and with infinite degrees of freedom.

        Parameters
        ----------
        level : float
            Of the intervals.

        Examples
        --------
        >>> import geomxp as gx
        >>> fit = gx.fit(gx.datasets.load("meuse"), family="spherical", trend="sqrt_dist")
        >>> table = fit.coefficient_table()
        >>> bool((table.standard_error > fit.coefficient_errors).all())
        True
        """
        import pandas as pd

        # of scipy.stats, which takes half a second to import, the formulas of t
        from scipy.special import stdtr, stdtrit

        z_value(level)
        errors, degrees = self._coefficient_errors(), np.full(len(self.coefficients), np.inf)
        if self._inference is not None:
            degrees = self._inference.degrees_of_freedom
        half = stdtrit(degrees, 0.5 + level / 2) * errors
        return pd.DataFrame(
            {
                "coefficient": list(self.trend.names),
                "estimate": self.coefficients,
                "standard_error": errors,
                "degrees_of_freedom": degrees,
                "lower": self.coefficients - half,
                "upper": self.coefficients + half,
                "p_value": 2 * stdtr(degrees, -np.abs(self.coefficients) / errors),
            }
        )

    def correlation_table(self, level: float = 0.95) -> Frame:
        """Return the correlations of the variables at one location, with intervals, as a frame.

        Of the fields, without the nuggets. Columns: first, second (names of variables), estimate,
        standard_error, lower, upper. Standard errors are those of the delta method, intervals ρ̂ ± z
        s within [-1, 1], as those of `confidence_intervals` for parameters that are correlations;
        NaN where the fit has none. Profile intervals are more accurate near ±1.

        Parameters
        ----------
        level : float
            Of the intervals.

        Raises
        ------
        InvalidInput
            If the model is not of several variables.

        Examples
        --------
        >>> import geomxp as gx
        >>> metals = gx.datasets.load("meuse", values=("log(zinc)", "log(lead)"))
        >>> fixed = {"smoothness_1": 0.5, "smoothness_2": 0.5}
        >>> fit = gx.fit(metals, family="coregionalization", fixed=fixed)
        >>> row = fit.correlation_table().iloc[0]
        >>> bool(0.9 < row.lower < row.estimate < row.upper <= 1)
        True
        """
        import pandas as pd

        z = z_value(level)
        if not isinstance(self.model, Multivariate):
            raise InvalidInput(
                "correlations of variables need a model of several variables. "
                f"Got family {self.model.family!r}."
            )
        model, slopes = self.model, []
        for name in self.free:
            parameter = next(p for p in model.table if p.name == name)
            unit = 1.0 if parameter.transform == "identity" else parameter.value
            slopes.append(unit * _slope_of_correlations(model, name))
        covariance = _covariance(self) if self.outcome.good and self.free else None
        labels, rows = self.observations.variable_labels, []
        for i, j in indices(PAIR, model.variables):
            rho, error = float(model.correlations[i, j]), float("nan")
            slope = np.array([one[i, j] for one in slopes])
            if covariance is not None and slope.any():
                error = sqrt(slope @ covariance @ slope)
            ends = max(rho - z * error, -1.0), min(rho + z * error, 1.0)
            ends = ends if isfinite(error) else (error, error)
            rows.append((labels[i], labels[j], rho, error, *ends))
        names = ["first", "second", "estimate", "standard_error", "lower", "upper"]
        return pd.DataFrame(rows, columns=names)

    def coefficient_test(self, names: Sequence[str] | None = None) -> TrendTest:
        """Test whether some coefficients of the trend are all 0, by Kenward and Roger's F test.

        Parameters
        ----------
        names : sequence of str, optional
            Of `trend.names`; all of them if not given.

        Raises
        ------
        InvalidInput
            If a name is unknown, or there are more than 1,500 locations.

        Examples
        --------
        >>> import geomxp as gx
        >>> fit = gx.fit(gx.datasets.load("meuse"), family="spherical", trend="sqrt_dist")
        >>> fit.coefficient_test(["sqrt_dist"]).p_value < 1e-6
        True
        """
        known = list(self.trend.names)
        names = known if names is None else list(names)
        for name in names:
            if name not in known:
                raise InvalidInput(f"`names` must be of: {', '.join(known)}. Got {name!r}.")
        if not names or self._inference is None:
            raise InvalidInput(
                f"an F test needs a coefficient, at most {LARGEST:,} locations and a covariance "
                f"matrix with a Cholesky factor. Got {len(names)} coefficients and "
                f"{len(self.observations):,} locations: compare with a fit without these terms by "
                "gx.likelihood_ratio_test(restricted, full)."
            )
        contrasts = np.eye(len(known))[[known.index(name) for name in names]]
        return self._inference.f_test(contrasts)

    def _coefficient_errors(self):
        """Return the adjusted standard errors of the coefficients, where they are computed."""
        if self._inference is None:
            return self.coefficient_errors
        return self._inference.standard_errors

    def to_frame(self) -> Frame:
        """Return the estimates as a pandas frame: parameter, estimate, standard_error.

        For coefficients of the trend see `coefficient_table`.
        """
        import pandas as pd

        columns = ["parameter", "estimate", "standard_error"]
        frame = pd.DataFrame(self._rows(), columns=columns)
        return frame.astype({"estimate": float, "standard_error": float})

    def _rows(self):
        """Return (name, estimate, standard error or None) of parameters, then of coefficients."""
        values = self.model.parameters()
        rows = [(name, values[name], self.standard_errors.get(name)) for name in values]
        rows += zip(self.trend.names, self.coefficients, self._coefficient_errors(), strict=True)
        return rows

    def _title(self):
        observations, model = self.observations, self.model
        kind = "restricted maximum likelihood" if self.reml else "maximum likelihood"
        return (
            f"{family_title(model)} model by {kind}, {observations.count_in_words}, "
            f"{observations.metric} distances, "
            + (f"times in {observations.time_axis}, " if observations.time_unit else "")
            + f"trend {self.trend.text}"
            + (f", transformation {model.transform.name}" if model.transform else "")
        )

    def _cells(self):
        """Yield (name, estimate, standard error, interval of a coefficient) as text."""
        count, names = len(self.model.parameters()), titles(self.model, self.observations)
        intervals = self.coefficient_table()[["lower", "upper"]].to_numpy()
        for k, (name, value, error) in enumerate(self._rows()):
            shown = "" if error is None else f"{error:.5g}"
            if k < count:
                yield names[name], f"{value:.6g}", shown, ""
            else:
                lower, upper = intervals[k - count]
                yield f"trend: {name}", f"{value:.6g}", shown, f"{lower:.6g} to {upper:.6g}"

    def _results(self, width=18):
        """Return lines with the effective range, the log-likelihood and the criteria."""
        lines, model, observations = [], self.model, self.observations
        if isinstance(model, (Isotropic, SpaceTime)):
            when = "" if isinstance(model, Isotropic) else " at one time"
            effective = f"{'effective range':<{width}}{model.effective_range():>14.6g}"
            lines.append(f"{effective}   correlation 5 %{when}, in {observations.unit}")
        if isinstance(model, SpaceTime):
            lag = model.effective_lag(dimensions=observations.inputs.points.shape[1])
            unit = f", in {observations.time_unit}s" if observations.time_unit else ""
            effective = f"{'effective lag':<{width}}{lag:>14.6g}"
            lines.append(f"{effective}   correlation 5 % at one location{unit}")
        reml = "   (REML)" if self.reml else ""
        return [
            *lines,
            f"{'log-likelihood':<{width}}{self.log_likelihood:>14.6f}{reml}",
            f"{'AIC':<{width}}{self.aic:>14.4f}",
            f"{'BIC':<{width}}{self.bic:>14.4f}",
        ]

    def _work(self):
        """Return lines about the evaluations, the approximation and the formats."""
        lines = [f"{self.evaluations} evaluations in {self.seconds:.2f} s"]
        if self.method.approximate:
            method = self.method.describe(len(self.observations))
            neighbours = f"{method['neighbours']} neighbours, {method['ordering']} order"
            lines.append(f"Vecchia's approximation, {neighbours}")
        if len(self.formats) > 1 or "fp64" not in self.formats:
            tiles = ", ".join(f"{count} {name}" for name, count in self.formats.items())
            lines.append(f"tiles: {tiles}; {self.promotions} promoted")
        return lines

    def __str__(self) -> str:
        # names of a formula's columns and of variables may be long
        width = max(18, 1 + max(len(name) for name, *_ in self._cells()))
        table = [
            f"{name:<{width}}{estimate:>14}"
            + (f"{error:>14}" if error else "")
            + (f"   95 % {interval}" if interval else "")
            for name, estimate, error, interval in self._cells()
        ]
        heads = f"{'parameter':<{width}}{'estimate':>14}{'std. error':>14}"
        lines = [heads, *table, "", *self._results(width), "", str(self.outcome), *self._work()]
        return "\n".join([self._title(), "", *(f"  {line}".rstrip() for line in lines)])

    def confidence_intervals(
        self,
        level: float = 0.95,
        method: IntervalMethod = "wald",
        names: Sequence[str] | None = None,
    ) -> Intervals:
        """Return confidence intervals of covariance parameters.

        "wald": θ̂ exp(±z s) with s the standard error of log θ̂ from the observed information;
        θ̂ ± z s of an angle. Parameters in `boundary` are held there, so that the intervals of
        the others may be too short. "profile": the values whose profile log-likelihood is above
        ℓ_max - ½χ²₁(level), which a likelihood-ratio test does not reject. An end where ℓ never
        falls so far is the limit of the parameter: 0 or infinity, say. Profile intervals exist even
        if the likelihood has no finite maximum, and hold nothing at a bound.

        Parameters
        ----------
        level : float
            Between 0 and 1.
        method : {"wald", "profile"}
        names : sequence of str, optional
            Of `free`, and for "profile" of `boundary` too; all of these if not given.

        Returns
        -------
        dict of str to (float, float)
            In the units of the parameters, an angle in degrees.

        Raises
        ------
        InvalidInput
            If the fit is no estimate, or a parameter was not estimated.

        Examples
        --------
        With the variance alone unknown ℓ = -½n(log σ² + σ̂²/σ²) + const, whose information is n/2:

        >>> import geomxp as gx
        >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
        >>> held = ("range", "smoothness", "nugget")
        >>> fit = gx.fit(seen, gx.Matern(1.0, 1.0, 0.5), fixed=held, trend="zero")
        >>> lower, upper = fit.confidence_intervals()["variance"]
        >>> bool(abs(upper / fit.model.variance / np.exp(1.959964 * np.sqrt(2 / 5)) - 1) < 1e-5)
        True
        """
        z = z_value(level)
        check_one_of("method", method, ("wald", "profile"))
        names = _checked_names(self, names, method)
        if method == "profile":
            return profile_intervals(self, names, 0.5 * z * z)
        errors = np.sqrt(np.diag(_covariance(self)))
        table = {p.name: p for p in self.model.table}
        return {name: _wald(table[name], z * errors[self.free.index(name)]) for name in names}

    def derived(self, level: float = 0.95) -> dict[str, Estimate]:
        """Return derived quantities, with intervals by the delta method on logarithms.

        Parameters
        ----------
        level : float

        Returns
        -------
        dict of str to Estimate
            "microergodic": σ²/a^k with k = 2ν of a Matérn model, which the data determine better
            than σ² and a (Zhang 2004). "effective_range": distance with correlation 5 %.
            "nugget_ratio": τ²/σ². Quantities that are 0 or depend on no estimated parameter are
            left out.

        Raises
        ------
        InvalidInput
            If the fit has no standard errors.
        """
        z, covariance = z_value(level), _covariance(self)
        result = {}
        for name, (logarithm, slopes) in derived_logarithms(self.model).items():
            slope = np.array([slopes.get(parameter, 0.0) for parameter in self.free])
            if slope.any() and isfinite(logarithm):
                error = sqrt(slope @ covariance @ slope)
                result[name] = Estimate.of_logarithm(logarithm, error, z)
        return result

    def to_dict(self) -> Document:
        """Return what `geomxp fit --json` prints and `save` writes."""
        observations = self.observations
        # the name of a table stands for its numbers only while they are the same
        named = observations.source.get("digest") == observations.digest()
        effective = {}
        if isinstance(self.model, Isotropic):
            reach = self.model.effective_range()
            effective = {"effective_range": reach if isfinite(reach) else None}
        document = {
            "geomxp": __version__,
            "n": len(observations),
            "method": self.method.describe(len(observations))
            | {"formats": dict(self.formats), "promotions": self.promotions},
            "family": self.model.family,
            "model": self.model.parameters() | {"metric": str(observations.metric)},
            **({} if observations.time is None else {"times": asdict(observations.time_axis)}),
            **_transform_entry(self.model.transform),
            "standard_errors": dict(self.standard_errors),
            **effective,
            "trend": _trend_entry(self),
            "reml": self.reml,
            "free": list(self.free),
            "boundary": list(self.boundary),
            "bounds": {name: list(box) for name, box in self.bounds.items()},
            "information": None if self.information is None else self.information.tolist(),
            **_score_variance_entry(self),
            "log_likelihood": self.log_likelihood,
            "aic": self.aic,
            "bic": self.bic,
            "outcome": str(self.outcome.ending),
            "message": self.outcome.message,
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "table": dict(observations.source) if named else None,
        }
        if observations.central_meridian is not None:
            document["central_meridian"] = observations.central_meridian
        return document if named else document | {"observations": _arrays_entry(observations)}

    def save(self, path: PathLikeText, *, embed: bool | None = None) -> None:
        """Write the fit as JSON, with its observations or with the name of their table.

        Parameters
        ----------
        path : path
        embed : bool, optional
            Whether to write the observations too, so that `load` does not need their table. If
            not given, if they come from arrays, or take at most 200 kB.

        Raises
        ------
        InvalidInput
            For `embed=False` if the observations are not those of a file; for a name such as
            fit.csv.

        Examples
        --------
        >>> import tempfile
        >>> import geomxp as gx
        >>> fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(f"{folder}/fit.json", embed=True)
        ...     gx.Fit.load(f"{folder}/fit.json").observations.values.shape
        (155,)
        """
        if embed not in (None, True, False):
            raise InvalidInput(f"`embed` must be True, False or None. Got {embed!r:.60}.")
        tables.check_is_for_json(path)
        document = self.to_dict()
        if document["table"] is None and embed is False:
            raise InvalidInput(
                "the observations are not those of a file, so the fit must hold them: leave out "
                "embed=False (--no-embed)."
            )
        if document["table"] is not None and embed is not False:
            arrays = _arrays_entry(self.observations)
            if embed or len(json.dumps(arrays)) <= EMBEDDED:
                document["observations"] = arrays
        tables.write_json(path, document | {"history": list(self.history)})

    @classmethod
    def load(
        cls,
        path: PathLikeText,
        *,
        on: str | Sequence[str] | Client | None = None,
        memory: str | int | None = None,
        device_memory: str | int | None = None,
        scratch: PathLikeText | None = None,
        family: str | type[Covariance] | None = None,
        method: Likelihood | None = None,
        metric: str | Metric | None = None,
        transform: str | Transformation | None = None,
    ) -> Fit:
        """Read a fit that `save` wrote, and its table again if the file has no observations.

        The fit computes where the caller says, by default on this machine's CPU. The place where it
        was made, which is in the file, is ignored: a file from elsewhere cannot open a connection,
        name a device or choose where tiles are written. A warning says if the file was edited after
        it was written, or if it has observations and their table has changed since.

        Parameters
        ----------
        path : path
        on, memory, device_memory, scratch : optional
            Where and in how much memory the method of the fit computes, as of `geomxp.Exact`;
            `geomxp.Vecchia` has `on` only.
        family : class, optional
            Covariance family of the fit, if it is not one of geomxp's.
        method : Likelihood, optional
            Method of the fit, if it is not one of geomxp's.
        metric : Metric, optional
            Metric of the fit's own observations, if it is not one of geomxp's.
        transform : Transformation, optional
            Transformation of the fit, if it is not one of geomxp's.

        Raises
        ------
        InvalidInput
            If the file is not a fit, or has no observations and the table has changed since; if
            `method`, which says where it computes, is combined with `on` and the like.

        Examples
        --------
        >>> import tempfile
        >>> import geomxp as gx
        >>> fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(f"{folder}/fit.json")
        ...     gx.Fit.load(f"{folder}/fit.json", on="cpu,cpu").method.on
        'cpu,cpu'
        """
        where = {"on": on, "memory": memory, "device_memory": device_memory, "scratch": scratch}
        return load_fit(path, family, method, metric, transform, **where)[0]


def load_fit(path, family=None, method=None, metric=None, transform=None, **where):
    """Read a fit as `Fit.load` does; return it, and a sentence that says where its data are from.

    `where` holds `on`, `memory`, `device_memory` and `scratch`.

    Examples
    --------
    >>> import tempfile
    >>> import geomxp as gx
    >>> fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(f"{folder}/fit.json", embed=False)
    ...     load_fit(f"{folder}/fit.json")[1]
    'the observations are those of the data set meuse.'
    """
    tables.check_path(path)
    if Path(path).suffix.lower() in tables.OTHER_THAN_JSON and os.path.isfile(path):
        raise InvalidInput(
            f"{path}: is a table, not a fit: give the file written by `geomxp fit --output`."
        )
    where = {name: value for name, value in where.items() if value is not None}
    if method is not None and where:
        raise InvalidInput(
            f"`{next(iter(where))}` and `method` cannot both be given: `method` says where it "
            'computes, such as method=gx.Exact(on="gpu").'
        )
    document = tables.read_json(path)
    _check(document, SCHEMA, str(path), "")
    method = method or _method(document["method"], path, where)
    observations, origin = _observations(document, path, metric)
    fit = _from_document(document, path, observations, family, method, transform)
    tables.warn_if_edited(path, document)
    return fit, origin


@contextmanager
def _naming(path):
    """Let errors in a file's values name the file."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _slope_of_correlations(model, name):
    """Return the derivatives of `model.correlations` by a parameter, (p, p)."""
    parts = model.components()
    whole = sum(one.amplitude for one in parts)
    change = np.zeros_like(whole)
    for one in parts:
        slope = one.slopes.get(name, (None, None, None))[0]
        change += 0.0 if slope is None else slope
    relative = np.diag(change) / (2 * np.diag(whole))
    deviations = np.sqrt(np.diag(whole))
    by_deviations = model.correlations * (relative[:, None] + relative)
    return change / np.outer(deviations, deviations) - by_deviations


def family_title(model):
    """Return the name of a model's family for titles, such as "Parsimonious Matérn"."""
    title = type(model).family.replace("-", " ").replace("matern", "Matérn")
    return title[:1].upper() + title[1:]


def check_fit(fit):
    """Raise `InvalidInput` for anything but a `Fit`."""
    if not isinstance(fit, Fit):
        raise InvalidInput(f"`fit` must be a Fit, as gx.fit returns it. Got {type(fit).__name__}.")


def check_is_fit(fit):
    """Raise `InvalidInput` for anything but a `Fit` that has an estimate."""
    check_fit(fit)
    _check_is_estimate(fit)


def _check_is_estimate(fit, allowed=()):
    """Raise `InvalidInput` if a fit has no estimate and its outcome is not one of those allowed."""
    if fit.outcome.good or fit.outcome.ending in allowed:
        return
    advice = "fit again with more evaluations, other starts or fewer free parameters."
    if fit.outcome.ending in AT_SUPREMUM:
        advice = (
            'fix a parameter, or use confidence_intervals(method="profile"), which returns the '
            "values that the data allow."
        )
    raise InvalidInput(f"the fit has no estimate ({fit.outcome.ending}): {advice}")


def information(fit: Fit, kind: Kind = "observed") -> Floats:
    """Return Fisher's information on the logarithms of the estimated parameters.

    "observed" is minus the Hessian of ℓ at the estimate, the inverse covariance of Wald intervals;
    "expected" is its mean over data from the model, ½ tr(P ∂_jΣ P ∂_kΣ).

    Parameters
    ----------
    fit : Fit
    kind : {"observed", "expected"}

    Returns
    -------
    (k, k) ndarray
        In the order of `fit.free`; of an angle's radians, and of correlations and loadings off the
        diagonal as they are.

    Raises
    ------
    InvalidInput

    Examples
    --------
    Without a nugget the variance alone has n/2 of either kind:

    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(
    ...     seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"), trend="zero"
    ... )
    >>> gx.information(fit).round(3), gx.information(fit, "expected").round(3)
    (array([[2.5]]), array([[2.5]]))
    """
    check_is_fit(fit)
    check_one_of("kind", kind, ("observed", "expected"))
    if not fit.free:
        return np.zeros((0, 0))
    if kind == "observed" and fit.information is not None:
        return _in_users_units(fit, fit.information)
    problem, model, _ = problem_of(fit)
    coordinates = problem.table.coordinates(model, fit.free, relative=False)
    coordinates.wrap = False
    if kind == "observed":
        found = information_at(
            lambda x: coordinates.score(x, problem.evaluator, problem.monitor),
            coordinates.point(model),
            COARSE_DIFFERENCE if problem.noisy else DIFFERENCE,
        )
        return _in_users_units(fit, found)
    units = coordinates.jacobian(model)
    found = problem.evaluator.expected_information(model, fit.free) * np.outer(units, units)
    return _in_users_units(fit, found)


def _in_users_units(fit, information):
    """Return the information of the scaled problem in the user's units.

    Loadings and nugget covariances have a unit.
    """
    table = {p.name: p for p in fit.model.table}
    linear = [
        table[name].transform == "identity" and table[name].unit in ("value", "value²")
        for name in fit.free
    ]
    if not any(linear):
        return np.array(information)
    units = Units.of(fit.observations, design_of(fit), fit.model)
    each = [
        units.of_parameter(table[name]) if own else 1.0
        for name, own in zip(fit.free, linear, strict=True)
    ]
    return information / np.outer(each, each)


def _checked_names(fit, names, method):
    _check_is_estimate(fit, AT_SUPREMUM if method == "profile" else ())
    known = fit.free + (fit.boundary if method == "profile" else ())
    if names is None:
        return known
    if not isinstance(names, (str, tuple, list, set, dict)):
        raise InvalidInput(f"`names` must be a sequence of parameters. Got {names!r}.")
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name in fit.boundary and name not in known:
            said = titles(fit.model, fit.observations)[name]
            raise InvalidInput(
                f'the {said} is at a bound, where it has no Wald interval: use method="profile".'
            )
        if name not in known:
            free = ", ".join(known) or "none"
            raise InvalidInput(f"`names` must be estimated parameters: {free}. Got {name!r}.")
    return names


def _covariance(fit):
    """Return the covariance of the logarithms of `fit.free`, (k, k)."""
    # files of earlier versions hold no information
    observed = information(fit)
    if len(observed) and not (np.isfinite(observed).all() and np.linalg.eigvalsh(observed)[0] > 0):
        raise InvalidInput(
            "the fit's observed information is not positive definite, so it has no standard "
            'errors: fit again, or use method="profile".'
        )
    inverse = np.linalg.inv(observed)
    if fit.score_variance is None:
        return inverse
    return inverse @ _in_users_units(fit, fit.score_variance) @ inverse


def _wald(parameter, half):
    """Return the interval of half such a width in the parameter's coordinate."""
    if parameter.unit == "degrees":
        # directions repeat beyond 90 degrees
        half = min(float(np.degrees(half)), 90.0)
    value = parameter.value
    if parameter.transform == "identity":
        return max(float(value - half), parameter.lower), min(float(value + half), parameter.upper)
    return value * exp_or_inf(-half), min(value * exp_or_inf(half), parameter.upper)


# The JSON document


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


def _transform_of(document, given, path):
    """Return the transformation in a document, or None."""
    entry = document.get("transform")
    if entry is None:
        return None
    values = {name: float(value) for name, value in entry.items() if name != "name"}
    if given is None and entry["name"] not in TRANSFORMS:
        raise InvalidInput(
            f"{path}: the fit was made with a transformation {entry['name']!r} that geomxp does "
            "not have: give it, Fit.load(path, transform=...)."
        )
    model = transformation(entry["name"] if given is None else given)
    if model.name != entry["name"] or set(values) != set(model.constants()):
        raise InvalidInput(
            f"{path}: the fit was made with the transformation {entry['name']!r} and its numbers "
            f"{', '.join(values) or '(none)'}; `transform` is {model.name!r} with "
            f"{', '.join(model.constants()) or 'none'}: give the transformation of the fit."
        )
    with _naming(path):
        return replace(model, **values)


def _score_variance_entry(fit):
    variance = fit.score_variance
    return {} if variance is None else {"score_variance": variance.tolist()}


def _arrays_entry(observations):
    """Return the entry of observations that come from no table."""
    extra = {}
    for name in ("time", "variable", "error_variance"):
        if getattr(observations, name) is not None:
            label = f"{name}_name"
            extra[name] = getattr(observations, name).tolist()
            extra[label] = getattr(observations, label)
    if observations.variable_names:
        extra["variable_names"] = list(observations.variable_names)
    for name in ("time_unit", "time_origin", "time_calendar", "time_zone"):
        if getattr(observations, name):
            extra[name] = getattr(observations, name)
    if observations.replicates is not None:
        extra["replicates"] = observations.replicates.tolist()
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


def _observations(document, path, metric):
    """Return the observations of a saved fit, and where they are from."""
    table, held = document.get("table"), document.get("observations")
    if table is not None and held is None:
        observations = _read_again(table, path)
        if document.get("central_meridian") not in (None, observations.central_meridian):
            meridian = document["central_meridian"]
            observations = replace(observations, central_meridian=meridian)
        read_from = f"read from {_file_of(table, path)}"
        named = f"those of the data set {table['dataset']}" if table.get("dataset") else read_from
        return observations, f"the observations are {named}."
    _check(held, OBSERVATIONS, str(path), "observations.")
    unknown = sorted(set(held) - {name.rstrip("?") for name in OBSERVATIONS})
    if unknown:
        raise InvalidInput(
            f"{path}: observations.{unknown[0]:.60} is not known to geomxp {__version__}, and the "
            "fit may depend on it: use the version that wrote the file."
        )
    about = {"metric": metric or document["model"]["metric"], "source": table or {}}
    about["central_meridian"] = document.get("central_meridian")
    about |= {name: value for name, value in held.items() if value is not None}
    with _naming(path):
        observations = Observations(**about)
    origin = f"the observations are those in {path}"
    if table is None:
        return observations, f"{origin}."
    if table.get("digest") != observations.digest():
        raise InvalidInput(f"{path}: the observations in it are not those of the fit: fit again.")
    _warn_if_changed(table, path)
    return observations, f"{origin}; they were read from {table['path']}."


def _from_document(document, path, observations, family, method, transform):
    trend = _trend(document["trend"], observations, path)
    p = len(trend.names)
    coefficients = np.array(document["trend"]["coefficients"], dtype=float)
    covariance = np.array(document["trend"]["covariance"], dtype=float)
    if len(coefficients) != p or covariance.size != p * p:
        raise InvalidInput(f"{path}: `trend` must hold {p} coefficients and their covariance.")
    if (covariance.reshape(p, p).diagonal() < 0).any():
        raise InvalidInput(f"{path}: trend.covariance has a variance below 0.")
    # files of earlier versions name no family
    with _naming(path):
        family = family_of(family or document.get("family") or Matern.family)
    values = {name: float(n) for name, n in document["model"].items() if name != "metric"}
    variables = len(observations.variable_labels)
    declared = family.declared_for(variables)
    if any(map(is_nugget_covariance, values)):
        declared += family.optional_for(variables)
    _check(values, {p.name: NUMBER for p in declared}, str(path), "model.")
    transform = _transform_of(document, transform, path)
    with _naming(path):
        model = family.from_parameters(values, transform)
        # values that the transformation does not take
        Values(observations).at(transform)
    for name in ("free", "boundary"):
        unknown = set(document.get(name) or ()) - set(model.parameters())
        if unknown:
            raise InvalidInput(
                f"{path}: {name} must name parameters of the model: "
                f"{', '.join(model.parameters())}. Got {min(unknown)!r:.60}."
            )
    return Fit(
        model,
        document["log_likelihood"],
        Outcome(Ending(document["outcome"]), document["message"]),
        document["evaluations"],
        tuple(document.get("history") or ()),
        document["standard_errors"],
        document["seconds"],
        observations,
        method,
        trend,
        document["reml"],
        tuple(document["free"]),
        coefficients,
        covariance.reshape(p, p),
        document["method"].get("formats") or {"fp64": 1},
        document["method"].get("promotions") or 0,
        _information(document, path, "information"),
        tuple(document.get("boundary") or ()),
        _bounds(document, family, transform, path, variables),
        _information(document, path, "score_variance"),
    )


def _trend(document, observations, path):
    """Return the trend; transforms of a formula are learnt again from the observations."""
    kind = document["kind"]
    if kind in TRENDS:
        with _naming(path):
            return Trend.of(observations, kind)
    name = "formula" if kind == "formula" else "text"
    _check(document, {name: str}, str(path), "trend.")
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


def _bounds(document, family, transform, path, variables=1):
    """Return the bounds in a document; none in files of earlier versions."""
    bounds = document.get("bounds") or {}
    with _naming(path):
        anisotropic = bool(set(ANISOTROPY) & set(bounds))
        model = template(family, anisotropic, transform, variables=variables)
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
    _check(document, METHOD, str(path), "method.")
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
            about = {"refine": document.get("refine"), "fallback": bool(document.get("fallback"))}
            method = Exact(rules.described(rule), tile, **about)
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

    columns = _columns_of(table)
    if table.get("dataset"):
        observations = datasets.load(table["dataset"], **columns)
    else:
        file = _file_of(table, path)
        _check_unchanged(file, table, path)
        observations = read_table(file, decimal=table.get("decimal"), **columns)
    _check_unchanged(observations.source["path"], table, path)
    return observations


def _columns_of(table):
    """Return the columns that a fit's table was read with, as `read_table` takes them."""
    columns = {name: table[name] for name in ("locations", "covariates", "metric", "drop_missing")}
    columns |= {"values": table.get("values", table["value"]), "formula": table.get("formula")}
    options = ("time", "variable", "error_variance", "missing", "duplicates", "value_unit", "crs")
    return columns | {name: table[name] for name in options if name in table}


def _columns_named(seen):
    """Return the columns of a table of which only the names in the observations are known."""
    wide = seen.variable is not None and seen.value_name == ", ".join(seen.variable_names)
    if wide and seen.error_variance is not None:
        raise InvalidInput(
            "the fit does not name the columns of the error variances of its variables: read the "
            "table in Python, gx.validate(fit, gx.Observations.from_frame(table, …))."
        )
    extra = ("time", "error_variance") if wide else ("time", "variable", "error_variance")
    return {
        "locations": seen.location_names,
        "covariates": seen.covariate_names,
        "metric": seen.metric,
        "values": seen.variable_names if wide else seen.value_name,
        "value_unit": seen.value_unit,
        **{
            name: getattr(seen, f"{name}_name") for name in extra if getattr(seen, name) is not None
        },
    }


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
    columns = _columns_of(table) if known else _columns_named(seen)
    data = tables.read_data(path, decimal or table.get("decimal"))
    if spatial.is_geographic_frame(data) or spatial.is_grid(data):
        own = columns["locations"] if seen.dimensions > 2 else None
        columns |= {"locations": own, "metric": None, "crs": None}
    # each row of a repeated location is scored
    columns["duplicates"] = columns.get("duplicates", "keep")
    columns["drop_missing"] = drop_missing or columns.get("drop_missing", False)
    try:
        return Observations.from_frame(data, **columns)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _file_of(table, path):
    """Return the path of a fit's table, or of a file of this name beside the fit if it is gone.

    Of a path that is not absolute, only the file beside the fit is meant. An address stays one.
    """
    if tables.ADDRESS.match(table["path"]):
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

    def check(self, value, where):
        """Raise `InvalidInput` for another value."""
        try:
            array = np.array(value)
        except (ValueError, OverflowError):
            # lists of unequal length
            array = np.array("")
        numbers = isinstance(value, list) and array.dtype.kind in "iuf"
        if not numbers or (value and array.ndim != self.dimensions):
            each = "numbers" if self.dimensions == 1 else "lists of as many numbers each"
            raise InvalidInput(f"{where} must be a list of {each}.")


NUMBER, NONE, TEXTS = (int, float), type(None), (str, list)
KINDS = {int: "a number", float: "a number", str: "text", bool: "true or false"}
KINDS |= {list: "a list", dict: "an object", NONE: "null"}
"""Kinds of values of JSON in words."""

SCHEMA = {
    "n": int,
    "method": {"name": str, "formats?": {str: int}, "promotions?": int},
    "family?": str,
    "model": {"metric": str, str: NUMBER},
    "times?": {str: str},
    "central_meridian?": NUMBER,
    "transform?": {"name": str, str: NUMBER},
    "standard_errors": {str: (*NUMBER, NONE)},
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
    "information?": Array(2),
    "score_variance?": Array(2),
    "log_likelihood": NUMBER,
    "outcome": tuple(str(ending) for ending in Ending),
    "message": str,
    "evaluations": int,
    "seconds": NUMBER,
    "history?": [{str: (*NUMBER, dict)}],
    "table?": {
        "path": str,
        "sha256": str,
        "digest?": str,
        "dataset?": str,
        "locations": [str],
        "value": str,
        "values?": TEXTS,
        "covariates": [str],
        "formula?": TEXTS,
        "metric": str,
        "drop_missing": bool,
        "missing?": (*NUMBER, list),
        "missing_values?": {str: int},
        "duplicates?": str,
        "decimal?": str,
        "crs?": str,
        "time?": str,
        "variable?": str,
        "error_variance?": TEXTS,
        "value_unit?": str,
    },
    "observations?": dict,
}
"""Schema of a saved fit; see `_check`."""

METHOD = {
    "neighbours?": int,
    "ordering?": str,
    "permutation?": [int],
    "precision?": {"rule": str, "arguments": list, "options?": dict},
    "tile?": (int, str),
    "tiled?": bool,
    "refine?": str,
    "fallback?": bool,
}
"""Schema of the methods of geomxp."""

OBSERVATIONS = {
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
    "time?": Array(1),
    "time_name?": str,
    "time_unit?": str,
    "time_origin?": str,
    "time_calendar?": str,
    "time_zone?": str,
    "variable?": Array(1),
    "variable_name?": str,
    "variable_names?": [str],
    "error_variance?": Array(1),
    "error_variance_name?": str,
    "replicates?": Array(1),
}
"""Schema of the observations in a saved fit, which has all names that they may have."""


def _check(value, schema, path, name):
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
            _check(value[plain], inner, path, f"{name}{plain}.")
        for key in sorted(rest) if str in schema else ():
            _check(value[key], schema[str], path, f"{name}{key:.60}.")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise InvalidInput(f"{path}: {where} must be a list.")
        for item in value:
            _check(item, schema[0], path, name)
    elif isinstance(schema, tuple) and isinstance(schema[0], str):
        if value not in schema:
            raise InvalidInput(f"{path}: {where} must be one of: {', '.join(schema)}.")
    elif not isinstance(value, schema) or (isinstance(value, bool) and schema is not bool):
        kinds = dict.fromkeys(KINDS[kind] for kind in np.ravel(np.array(schema, dtype=object)))
        raise InvalidInput(
            f"{path}: {where} must be {' or '.join(kinds)}. Got {KINDS[type(value)]}: repeat the "
            "command that wrote the file."
        )
    elif isinstance(value, float) and not isfinite(value):
        raise InvalidInput(f"{path}: {where} must be a finite number.")
