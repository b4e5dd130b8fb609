"""The result of a fit: estimates and their intervals."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Generic

import numpy as np

from ..covariance.base import Covariance
from ..covariance.matern import Matern
from ..covariance.multivariate import EACH_PAIR, indices
from ..covariance.responses import Response
from ..covariance.transformation import Transformation
from ..data.observations import Observations
from ..errors import Ending, GeomxpWarning, InvalidInput, Outcome, check_one_of
from ..likelihood.evaluators import evaluator_for
from ..likelihood.latent import RESPONSE_COLUMNS, bare
from ..likelihood.trend import Trend
from ..runtime.equality import by_content
from . import document
from .diagnose import Estimate, derived_logarithms, exp_or_inf, z_value
from .names import titles
from .profile import design_of as design_of
from .profile import problem_of, profile_intervals
from .search import information_at
from .small_sample import MOST_CORRECTED_LOCATIONS, TrendTest, trend_inference
from .units import Units

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .._typing import (
        Any,
        Client,
        Document,
        Floats,
        Frame,
        Interval,
        IntervalMethod,
        Intervals,
        Kind,
        Mapping,
        PathLikeText,
        Sequence,
    )
    from ..covariance.distance import Metric
    from ..likelihood.base import Likelihood
    from ..likelihood.probes import FormatDivergence

    Model = TypeVar("Model", bound=Covariance, default=Matern)
else:
    from typing import TypeVar

    Model = TypeVar("Model")


SUPREMUM_ENDINGS = (Ending.UNIDENTIFIED,)
"""Outcomes without an estimate whose likelihood is at its supremum, so that profiles exist."""

SCORE_LOG_STEP, COARSE_SCORE_LOG_STEP = 2e-4, 2e-2
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
        identifiable. Parameters at a bound are held there, and one that alone is not identifiable
        at its value.
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
        in the unit of the search), in that order; None where it is singular. See
        `geomxp.information`.
    boundary : tuple of str
        Estimated parameters that are at a bound, such as a nugget of 0, or held next to a limit
        (AT_LIMIT).
    bounds : dict of str to (float, float)
        Bounds given by the caller.
    score_variance : (k, k) ndarray or None
        K of the sandwich covariance I⁻¹KI⁻¹ of an approximate likelihood (Vecchia's), in the
        coordinates of `information`; None where K is the information.
    options : dict
        Options of `geomxp.fit`, such as `starts`, that are not the defaults and that the other
        fields do not tell.
    log_likelihood_error : float
        Standard error of `log_likelihood`, where random numbers estimate a part of it; 0 elsewhere.
    divergence : FormatDivergence or None
        Of the formats from FP64, at the estimate; None unless the method is `Exact` with a rule
        other than FP64.
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
    options: dict[str, Any] = field(default_factory=dict)
    divergence: FormatDivergence | None = None
    log_likelihood_error: float = 0.0

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
        """The fit on the Gaussian scale of a transformation or a response; else the fit itself.

        Its values are transformed, its model has no transformation, and what is predicted or drawn
        from it is on the Gaussian scale. So is its log-likelihood, which therefore does not
        include the Jacobian.

        With a response its values are z = η + g/W with error variances 1/W, where g and -W are the
        first two derivatives of the log densities with respect to η at the mode: Laplace's
        approximation of the field given the values is the distribution of the field given these
        Gaussian values.
        """
        if self.model.response is not None:
            return self._working
        transform = self.model.transform
        if transform is None:
            return self
        transform = transform.of(self.observations.variable)
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
        return replace(
            self,
            model=model,
            log_likelihood=self.log_likelihood - jacobian,
            observations=observations,
            **self._of_field(model),
        )

    def _of_field(self, model):
        """Return the fields that hold parameters of a model of the field alone."""
        known = model.parameters()

        def kept(names):
            return tuple(name for name in names if name in known)

        return {
            "free": kept(self.free),
            "boundary": kept(self.boundary),
            "standard_errors": {name: self.standard_errors.get(name) for name in known},
            "bounds": {name: self.bounds[name] for name in kept(self.bounds)},
            "information": None,
            "score_variance": None,
        }

    @property
    def _working(self):
        """The fit to Gaussian working values; see `gaussian`."""
        evaluator = evaluator_for(
            self.model, self.method, self.observations, design_of(self), self.reml
        )
        z, variances = evaluator.working(self.model, self.coefficients)
        # on the scale of the values, on that of their transformation, or on that of the link
        seen, transform = self.observations, self.model.transform
        name, unit = f"link of {seen.value_name}", ""
        if transform is not None:
            name = f"{transform.name} of {seen.value_name}"
        elif self.model.response.of_values:
            name, unit = seen.value_name, seen.value_unit
        with warnings.catch_warnings():
            # the observations have been checked already
            warnings.simplefilter("ignore", GeomxpWarning)
            observations = replace(
                seen,
                values=z,
                error_variance=variances,
                error_variance_name="variance of working values",
                value_name=name,
                value_unit=unit,
                source={},
                **dict.fromkeys(RESPONSE_COLUMNS),
            )
        model = bare(self.model)
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        own |= {"model": model, "observations": observations} | self._of_field(model)
        return WorkingFit(**own)

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
        if self.model.variables == 1:
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
        for i, j in indices(EACH_PAIR, model.variables):
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
                f"an F test needs a coefficient, at most {MOST_CORRECTED_LOCATIONS:,} locations "
                f"and a covariance matrix with a Cholesky factor. Got {len(names)} coefficients "
                f"and {len(self.observations):,} locations: compare with a fit without these terms "
                "by gx.likelihood_ratio_test(restricted, full)."
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
            + (f", response {response_title(model.response)}" if model.response else "")
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
        reach = model.effective_range()
        if reach is not None:
            when = " at one time" if "time" in model.uses else ""
            effective = f"{'effective range':<{width}}{reach:>14.6g}"
            lines.append(f"{effective}   correlation 5 %{when}, in {observations.unit}")
        lag = model.effective_lag(dimensions=observations.inputs.points.shape[1])
        if lag is not None:
            unit = f", in {observations.time_unit}s" if observations.time_unit else ""
            effective = f"{'effective lag':<{width}}{lag:>14.6g}"
            lines.append(f"{effective}   correlation 5 % at one location{unit}")
        kind = "REML" if self.reml else ""
        if model.response is not None:
            exact = getattr(model.response, "integral", "") == "exact"
            kind = "by integration" if exact else LAPLACE
        return lines + criteria(self, kind, width)

    def _work(self):
        """Return lines about the evaluations, the approximation and the formats."""
        lines = [f"{self.evaluations} evaluations in {self.seconds:.2f} s"]
        if self.method.approximate:
            method = self.method.describe(len(self.observations))
            neighbours = f"{method['neighbours']} neighbours, {method['ordering']} order"
            lines.append(f"Vecchia's approximation, {neighbours}")
        if len(self.formats) > 1 or "fp64" not in self.formats:
            tiles = ", ".join(f"{count} {name}" for name, count in self.formats.items())
            parts = "cells" if self.method.whole else "tiles"
            lines.append(f"{parts}: {tiles}; {self.promotions} promoted")
        if self.divergence is not None:
            lines.append(str(self.divergence))
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
        return document.of(self)

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
        entries = document.of(self)
        document.write(entries, self.observations, path, embed, history=list(self.history))

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
        transform: str
        | Transformation
        | Sequence[str | Transformation | None]
        | Mapping[str, str | Transformation]
        | None = None,
        response: Response | None = None,
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
        transform : Transformation, tuple or dict, optional
            Transformation of the fit, if it is not one of geomxp's; of several variables as `fit`
            takes it: one for all, a tuple with one for each, or a dict by the names of variables.
        response : Response, optional
            Response of the fit, if it is not one of geomxp's.

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
        given = family, method, metric, transform, response
        return cls(**document.read(path, *given, **where)[0])


LAPLACE = "Laplace's approximation"


def criteria(fit, kind=LAPLACE, width=18):
    """Return lines with the log-likelihood of a fit, of a kind, and its criteria."""
    if kind and fit.log_likelihood_error:
        kind = f"{kind}; standard error {fit.log_likelihood_error:.2g}"
    kind = f"   ({kind})" if kind else ""
    return [
        f"{'log-likelihood':<{width}}{fit.log_likelihood:>14.6f}{kind}",
        f"{'AIC':<{width}}{fit.aic:>14.4f}",
        f"{'BIC':<{width}}{fit.bic:>14.4f}",
    ]


class WorkingFit(Fit):
    """The Gaussian fit to working values of a response; see `Fit.gaussian`.

    Its coefficients are those of the response's fit, not those of generalised least squares.
    """


def load_fit(path, **options):
    """Read a fit as `Fit.load` does; return it, and a sentence that says where its data are from.

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
    entries, origin = document.read(path, **options)
    return Fit(**entries), origin


def _slope_of_correlations(model, name):
    """Return the derivatives of `model.correlations` by a parameter, (p, p)."""
    parts = model.components()
    whole = sum(one.amplitude for one in parts)
    change = np.zeros_like(whole)
    for one in parts:
        slope = one.changes.get(name)
        change += 0.0 if slope is None or slope.amplitude is None else slope.amplitude
    relative = np.diag(change) / (2 * np.diag(whole))
    deviations = np.sqrt(np.diag(whole))
    by_deviations = model.correlations * (relative[:, None] + relative)
    return change / np.outer(deviations, deviations) - by_deviations


def family_title(model):
    """Return the name of a model's family for titles, such as "Parsimonious Matérn"."""
    title = type(model).family.replace("-", " ").replace("matern", "Matérn")
    return title[:1].upper() + title[1:]


def response_title(response):
    """Return the name of a response for titles, with its link: "binomial (logit)"."""
    return f"{response.name} ({response.used_link})"


def check_fit(fit):
    """Raise `InvalidInput` for anything but a `Fit`."""
    if not isinstance(fit, Fit):
        kind = type(fit).__name__
        parts = " Use one of its fits, .presence or .amount." if kind == "HurdleFit" else ""
        raise InvalidInput(f"`fit` must be a Fit, as gx.fit returns it. Got {kind}.{parts}")


def check_is_fit(fit):
    """Raise `InvalidInput` for anything but a `Fit` that has an estimate."""
    check_fit(fit)
    _check_is_estimate(fit)


def _check_is_estimate(fit, allowed=()):
    """Raise `InvalidInput` if a fit has no estimate and its outcome is not one of those allowed."""
    if fit.outcome.good or fit.outcome.ending in allowed:
        return
    advice = "fit again with more evaluations, other starts or fewer free parameters."
    if fit.outcome.ending in SUPREMUM_ENDINGS:
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
            COARSE_SCORE_LOG_STEP if problem.noisy else SCORE_LOG_STEP,
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
    _check_is_estimate(fit, SUPREMUM_ENDINGS if method == "profile" else ())
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
    # computed from the observations if the fit was read from a file without it
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
