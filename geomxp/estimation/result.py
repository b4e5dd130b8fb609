"""The result of a fit: what it holds and says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.matern import Matern
from ..data.observations import Observations
from ..errors import InvalidInput, Outcome
from ..likelihood.trend import Trend

if TYPE_CHECKING:
    from .._typing import (
        Document,
        Floats,
        Frame,
        Interval,
        IntervalMethod,
        Intervals,
        PathLikeText,
        Sequence,
    )
    from ..likelihood.base import Likelihood
    from .intervals import Estimate


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
    boundary : tuple of str
        Parameters estimated that lie on a boundary: a nugget of 0, a bound.
    bounds : dict of str to (float, float)
        Between which the caller let the fit search.
    """

    model: Matern
    log_likelihood: float
    outcome: Outcome
    evaluations: int
    history: tuple[Document, ...]
    standard_errors: dict[str, float | None]
    seconds: float
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

    def __repr__(self) -> str:
        seen = self.observations
        return (
            f"<Fit of {seen.value_name} at {len(seen):,} places, trend {self.trend.text:.60}: "
            f"{self.outcome.ending}, log-likelihood {self.log_likelihood:.6g}, {self.model}>"
        )

    @property
    def coefficient_errors(self) -> Floats:
        """Standard errors of the trend's coefficients, (p,)."""
        return np.sqrt(np.diag(self.coefficient_covariance))

    @property
    def degrees_of_freedom(self) -> int:
        """Number of parameters that AIC counts: all estimated ones, for REML without the trend's.

        Those on a boundary too: the data put them there.
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
        left = len(self.observations) - (len(self.coefficients) if self.reml else 0) - k - 1
        return self.aic + 2 * k * (k + 1) / left if left > 0 else float("inf")

    @property
    def bic(self) -> float:
        """Schwarz's criterion, k log m - 2ℓ, with m = n, or n - p for REML."""
        m = len(self.observations) - (len(self.coefficients) if self.reml else 0)
        return self.degrees_of_freedom * float(np.log(m)) - 2 * self.log_likelihood

    def to_frame(self) -> Frame:
        """Return the estimates as a pandas frame: parameter, estimate, standard_error."""
        import pandas as pd

        values = self.model.parameters()
        rows = [(name, values[name], self.standard_errors.get(name)) for name in values]
        rows += zip(self.trend.names, self.coefficients, self.coefficient_errors, strict=True)
        return pd.DataFrame(rows, columns=["parameter", "estimate", "standard_error"]).astype(
            {"estimate": float, "standard_error": float}
        )

    def __str__(self) -> str:
        seen, model = self.observations, self.model
        kind = "restricted maximum likelihood" if self.reml else "maximum likelihood"
        # names of a formula's columns may be long
        width = max(18, 1 + max((len(f"trend: {name}") for name in self.trend.names), default=0))
        lines = [
            f"Matérn model by {kind}, {len(seen):,} places, {seen.metric} distances, "
            f"trend {self.trend.text}",
            "",
            f"  {'parameter':<{width}}{'estimate':>14}{'std. error':>14}",
        ]
        for name, value in model.parameters().items():
            error = self.standard_errors.get(name)
            lines.append(self._row(name.replace("_", " "), value, error, width))
        for name, value, error in zip(
            self.trend.names, self.coefficients, self.coefficient_errors, strict=True
        ):
            lines.append(self._row(f"trend: {name}", value, error, width))
        effective = f"{model.effective_range():.6g}"
        reml = "   (REML)" if self.reml else ""
        lines += [
            "",
            f"  {'effective range':<{width}}{effective:>14}   correlation 5 %, in {seen.unit}",
            f"  {'log-likelihood':<{width}}{self.log_likelihood:>14.6f}{reml}",
            f"  {'AIC':<{width}}{self.aic:>14.4f}",
            f"  {'BIC':<{width}}{self.bic:>14.4f}",
            "",
            f"  {self.outcome}",
            f"  {self.evaluations} evaluations in {self.seconds:.2f} s",
        ]
        if self.method.approximate:
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
    def _row(name, value, error, width):
        shown = "" if error is None else f"{error:>14.5g}"
        return f"  {name:<{width}}{value:>14.6g}{shown}".rstrip()

    def confidence_intervals(
        self,
        level: float = 0.95,
        method: IntervalMethod = "wald",
        names: Sequence[str] | None = None,
    ) -> Intervals:
        """Return intervals; see `geomxp.estimation.intervals.confidence_intervals`."""
        from .intervals import confidence_intervals

        return confidence_intervals(self, level, method, names)

    def derived(self, level: float = 0.95) -> dict[str, Estimate]:
        """Return derived quantities; see `geomxp.estimation.intervals.derived`."""
        from .intervals import derived

        return derived(self, level)

    def to_dict(self) -> Document:
        """Return what `geomxp fit --json` prints and `save` writes."""
        from .saved import document_of

        return document_of(self)

    def save(self, path: PathLikeText) -> None:
        """Write the fit as JSON; a fit from arrays embeds its observations, others name a table."""
        from .saved import save

        save(self, path)

    @classmethod
    def load(cls, path: PathLikeText) -> Fit:
        """Read a fit that `save` wrote, and its table again.

        Raises
        ------
        InvalidInput
            If the file is no fit, or the table has changed since.
        """
        from .saved import load

        return load(path)


def check_fit(fit):
    """Raise `InvalidInput` for anything but a `Fit`."""
    if not isinstance(fit, Fit):
        raise InvalidInput(f"`fit` must be a Fit, as gx.fit returns it. Got {type(fit).__name__}.")


def z_value(level):
    """Return the normal quantile of a two-sided interval, 1.96 for 0.95."""
    from scipy.special import ndtri

    if not (isinstance(level, (int, float)) and 0 < level < 1):
        raise InvalidInput(f"`level` must lie between 0 and 1. Got {level!r}.")
    return float(ndtri(0.5 + level / 2))
