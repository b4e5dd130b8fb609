"""Generalised least squares: the coefficients of the trend, given a factor of Σ."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, field, replace
from math import inf, log, pi
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy

from ..covariance.base import Covariance
from ..covariance.matern import Matern
from ..errors import (
    DuplicateLocations,
    Ending,
    GeomxpWarning,
    InvalidInput,
    NotPositiveDefinite,
    Outcome,
)
from ..linalg.precision import PrecisionMap
from .trend import Trend

if TYPE_CHECKING:
    from .._typing import Any, Document, Floats
    from ..data.observations import Observations
    from ..runtime.trace import Event, Traffic
    from ..tiles.refine import Refinement


@dataclass(frozen=True)
class GeneralisedLeastSquares:
    """β̂ = (X'Σ⁻¹X)⁻¹X'Σ⁻¹z, and what hangs on it.

    Parameters
    ----------
    coefficients : (p,) ndarray
        β̂.
    coefficient_covariance : (p, p) ndarray
        (X'Σ⁻¹X)⁻¹.
    quadratic_form : float
        (z - Xβ̂)'Σ⁻¹(z - Xβ̂).
    log_determinant_of_information : float
        log|X'Σ⁻¹X|; 0 without a trend.
    residual : (n,) ndarray
        z - Xβ̂.
    root : (p, p) ndarray
        Of the covariance of β̂: root root' = (X'Σ⁻¹X)⁻¹.
    """

    coefficients: np.ndarray
    coefficient_covariance: np.ndarray
    quadratic_form: float
    log_determinant_of_information: float
    residual: np.ndarray
    root: np.ndarray


def fit_trend(factor, values, design):
    """Estimate the trend's coefficients with the factor of Σ.

    Parameters
    ----------
    factor : CholeskyFactor
    values : (n,) ndarray
    design : (n, p) ndarray
        p may be 0.

    Returns
    -------
    GeneralisedLeastSquares

    Examples
    --------
    With Σ = I it is ordinary least squares:

    >>> from geomxp.tiles.factor import CholeskyFactor
    >>> one = CholeskyFactor(np.eye(4, order="F"))
    >>> fit_trend(one, np.array([1.0, 2.0, 3.0, 6.0]), np.ones((4, 1))).coefficients
    array([3.])
    """
    if hasattr(factor, "gram"):
        return _from_solutions(factor, values, design)
    p = design.shape[1]
    # columns near 1 keep QR and the information away from over- and underflow; powers of two
    # change no digit
    scale = 2.0 ** np.round(np.log2(np.abs(design).max(axis=0))) if p else np.ones(0)
    white = factor.whiten(np.asfortranarray(np.column_stack((values, design / scale))))
    z, x = white[:, 0], white[:, 1:]
    if p == 0:
        none = np.zeros((0, 0))
        return GeneralisedLeastSquares(np.zeros(0), none, float(z @ z), 0.0, values, none)
    q, r = np.linalg.qr(x)
    beta = scipy.linalg.solve_triangular(r, q.T @ z)
    left = z - x @ beta
    inverse = scipy.linalg.solve_triangular(r, np.eye(p))
    return GeneralisedLeastSquares(
        beta / scale,
        inverse @ inverse.T / np.outer(scale, scale),
        float(left @ left),
        2 * float((np.log(np.abs(np.diag(r))) + np.log(scale)).sum()),
        values - design @ (beta / scale),
        inverse / scale[:, None],
    )


def _from_solutions(factor, values, design):
    """As `fit_trend`, from Σ⁻¹Q and Σ⁻¹z, X = QR: for a factor that refines solutions."""
    n, p = design.shape
    if not p:
        form = _form(factor, values, factor.solve(values))
        return GeneralisedLeastSquares(np.zeros(0), np.zeros((0, 0)), form, 0.0, values, design[:0])
    scale = 2.0 ** np.round(np.log2(np.abs(design).max(axis=0)))
    # orthonormal columns, and values less their plain trend: sums of products lose no digits
    q, r = np.linalg.qr(design / scale)
    q, r = q * np.sqrt(n), r * scale / np.sqrt(n)
    start = q.T @ values / n
    rest = values - q @ start
    gram, solution = factor.gram(np.asfortranarray(np.column_stack((rest, q))))
    try:
        inner = np.linalg.inv(np.linalg.cholesky(gram[1:, 1:])).T
    except np.linalg.LinAlgError:
        raise NotPositiveDefinite("X'Σ⁻¹X is not positive definite in FP64.") from None
    more = inner @ (inner.T @ gram[1:, 0])
    residual = rest - q @ more
    root = scipy.linalg.solve_triangular(r, inner)
    return GeneralisedLeastSquares(
        scipy.linalg.solve_triangular(r, start + more),
        root @ root.T,
        _form(factor, residual, solution[:, 0] - solution[:, 1:] @ more),
        2 * float((np.log(np.abs(np.diag(r))) - np.log(np.diag(inner))).sum()),
        residual,
        root,
    )


def _form(factor, residual, w):
    """Return r'Σ⁻¹r = 2r'w - w'Σw for w near Σ⁻¹r: an error of w counts by its square."""
    return float(2 * residual @ w - w @ factor.times(w[:, None])[:, 0])


# The Gaussian log-likelihood: what one evaluation returns, and the verb that asks for one.


class Likelihood(Protocol):
    """A method that computes the likelihood, such as `Exact` or `Vecchia`."""

    def prepare(
        self, observations: Observations, design: Floats | None = None, reml: bool = False
    ) -> Any:
        """Return the evaluator of one data set: a model to its `Evaluation`."""

    def describe(self, n: int) -> Document:
        """Return the method's entry in the JSON of a fit of n places."""


@dataclass(frozen=True)
class Evaluation:
    """The log-likelihood at one model.

    ℓ = -½(n log 2π + log|Σ| + r'Σ⁻¹r), and for REML
    ℓ = -½((n-p) log 2π + log|Σ| + log|X'Σ⁻¹X| + r'Σ⁻¹r), with r = z - Xβ̂.

    Parameters
    ----------
    log_likelihood : float
        -inf where Σ has no factor; `outcome` says why.
    log_determinant : float
        log|Σ|.
    quadratic_form : float
        r'Σ⁻¹r.
    outcome : Outcome
    n : int
        Number of observations.
    reml : bool
    coefficients : (p,) ndarray
        β̂, by generalised least squares.
    coefficient_covariance : (p, p) ndarray
        (X'Σ⁻¹X)⁻¹.
    log_determinant_of_information : float
        log|X'Σ⁻¹X|.
    precision_map : PrecisionMap or None
        Which tile had which format.
    promotions : int
        Tiles that needed a finer format than the rule gave them.
    refinement : Refinement or None
        What iterative refinement did, where it was asked for: of all but the log-determinant.
    traffic : Traffic or None
        Bytes that went into and out of the fast memory, where one memory does not hold all tiles.
    events : tuple of Event
        What was copied and computed when, where `Exact(trace=True)` asked for it.
    seconds : float
        Wall-clock time.
    """

    log_likelihood: float
    log_determinant: float
    quadratic_form: float
    outcome: Outcome
    n: int
    reml: bool = False
    coefficients: Floats = field(default_factory=lambda: np.zeros(0))
    coefficient_covariance: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    log_determinant_of_information: float = 0.0
    precision_map: PrecisionMap | None = None
    promotions: int = 0
    refinement: Refinement | None = None
    traffic: Traffic | None = None
    events: tuple[Event, ...] = field(default=(), compare=False)
    seconds: float = 0.0

    @classmethod
    def failed(cls, outcome: Outcome, n: int, seconds: float = 0.0) -> Evaluation:
        """Return the evaluation of a model whose Σ has no factor."""
        nan = float("nan")
        return cls(-inf, nan, nan, outcome, n, seconds=seconds)

    def to_dict(self) -> Document:
        """Return what `geomxp log-likelihood --json` prints."""
        return {
            "log_likelihood": self.log_likelihood,
            "log_determinant": self.log_determinant,
            "quadratic_form": self.quadratic_form,
            "n": self.n,
            "reml": self.reml,
            "coefficients": self.coefficients.tolist(),
            "formats": self.precision_map.counts() if self.precision_map else {},
            "promotions": self.promotions,
            "predicted_kl": self.precision_map.divergence if self.precision_map else None,
            "refinement": self.refinement.summary() if self.refinement else None,
            "traffic": asdict(self.traffic) if self.traffic else None,
            "outcome": str(self.outcome.ending),
            "message": self.outcome.message,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        kind = ", REML" if self.reml else ""
        return (
            f"<Evaluation at {self.n:,} places: {self.outcome.ending}, log-likelihood "
            f"{self.log_likelihood:.12g}{kind}>"
        )

    def __str__(self) -> str:
        lines = [
            f"log-likelihood   {self.log_likelihood:.12g}{'  (REML)' if self.reml else ''}",
            f"log-determinant  {self.log_determinant:.12g}",
            f"quadratic form   {self.quadratic_form:.12g}",
            f"observations     {self.n}",
            f"outcome          {self.outcome}",
        ]
        if self.precision_map is not None and len(self.precision_map) > 1:
            counts = self.precision_map.counts().items()
            tiles = ", ".join(f"{count} {name}" for name, count in counts)
            lines.append(f"tiles            {tiles}; {self.promotions} promoted")
            if self.precision_map.divergence is not None:
                lines.append(f"predicted KL     {self.precision_map.divergence:.3g}")
        if self.traffic is not None:
            lines.append(f"moved            {self.traffic}")
        if self.refinement is not None:
            found = self.refinement
            lines.append(
                f"refined          all but the log-determinant: {found.method}, "
                f"{found.outcome.message}"
            )
        return "\n".join(lines)


def gaussian_log_likelihood(n, log_determinant, least_squares, reml):
    """Return ℓ, or the restricted ℓ, from its parts.

    Parameters
    ----------
    n : int
    log_determinant : float
        log|Σ|.
    least_squares : GeneralisedLeastSquares
    reml : bool
        Convention of nlme, spaMM and glmmTMB (geoR adds ½ log|X'X|).
    """
    p = len(least_squares.coefficients) if reml else 0
    information = least_squares.log_determinant_of_information if reml else 0.0
    return -0.5 * (
        (n - p) * log(2 * pi) + log_determinant + information + least_squares.quadratic_form
    )


def rescale_variance(evaluation, variance):
    """Return the evaluation of Σ = σ²R, given that of R: no new factor is needed.

    log|Σ| = log|R| + n log σ²,  r'Σ⁻¹r = r'R⁻¹r / σ²,  log|X'Σ⁻¹X| = log|X'R⁻¹X| - p log σ²

    Parameters
    ----------
    evaluation : Evaluation
        Of Matern(1, range, smoothness, nugget/variance).
    variance : float

    Returns
    -------
    Evaluation
    """
    n, p = evaluation.n, len(evaluation.coefficients)
    m = n - p if evaluation.reml else n
    quadratic_form = evaluation.quadratic_form / variance
    change = 0.5 * (evaluation.quadratic_form - quadratic_form) - 0.5 * m * log(variance)
    return replace(
        evaluation,
        log_likelihood=evaluation.log_likelihood + change,
        log_determinant=evaluation.log_determinant + n * log(variance),
        quadratic_form=quadratic_form,
        coefficient_covariance=evaluation.coefficient_covariance * variance,
        log_determinant_of_information=evaluation.log_determinant_of_information
        - p * log(variance),
    )


def profile_variance(evaluation):
    """Maximise over the variance, given an evaluation at a model of variance 1.

    σ̂² = r'R⁻¹r / m with m = n for ML and n - p for REML.

    Parameters
    ----------
    evaluation : Evaluation
        Of Matern(1, range, smoothness, nugget/variance).

    Returns
    -------
    variance : float
    log_likelihood : float
    """
    m = evaluation.n - (len(evaluation.coefficients) if evaluation.reml else 0)
    variance = evaluation.quadratic_form / m
    if not (np.isfinite(evaluation.log_likelihood) and variance > 0):
        return float("nan"), -inf
    return variance, rescale_variance(evaluation, variance).log_likelihood


def log_likelihood(
    observations: Observations,
    model: Matern,
    method: Likelihood | None = None,
    *,
    trend: str = "zero",
    reml: bool = False,
) -> Evaluation:
    """Evaluate the Gaussian log-likelihood of a model.

    Parameters
    ----------
    observations : Observations
    model : Matern
    method : likelihood, optional
        `Exact()` if not given.
    trend : str
        "zero", "constant", "linear", "covariates", or a formula such as "elev + poly(x, 2)".
        The mean; its coefficients are profiled out by generalised least squares.
    reml : bool
        Restricted likelihood.

    Returns
    -------
    Evaluation

    Raises
    ------
    NotPositiveDefinite
        If Σ has no Cholesky factor; the message names a pair of locations that is too close.
    """
    from .exact import Exact

    check_model_and_method(model, method)
    kind = Trend.of(observations, trend)
    design = kind.design(observations.locations, observations.covariates)
    kind.check_full_rank(design)
    evaluation = (method or Exact()).prepare(observations, design, reml)(model)
    if evaluation.outcome.ending is Ending.NOT_POSITIVE_DEFINITE:
        twins = model.nugget == 0 and observations.duplicate()
        raise (DuplicateLocations if twins else NotPositiveDefinite)(evaluation.outcome.message)
    caution(method, evaluation)
    return evaluation


def check_model_and_method(model, method, given=True):
    """Raise `InvalidInput` for what is no model, if one is given, or no way to compute."""
    if given and not isinstance(model, Covariance):
        raise InvalidInput(f"`model` must be a covariance model. Got {type(model).__name__}.")
    if method is not None and not hasattr(method, "prepare"):
        raise InvalidInput(f"`method` must be an Exact or a Vecchia. Got {method!r:.80}.")


def caution(method, evaluation):
    """Warn of what mixed formats may have done to an evaluation.

    Parameters
    ----------
    method : likelihood or None
    evaluation : Evaluation
    """
    formats, target = (
        evaluation.precision_map,
        getattr(getattr(method, "precision", None), "kl", None),
    )
    if evaluation.promotions:
        warnings.warn(
            f"{evaluation.promotions} tiles needed finer formats for Σ to have a factor at all: "
            "the log-likelihood may be far from FP64's; geomxp compare tells how far.",
            GeomxpWarning,
            stacklevel=3,
        )
    if target is not None and formats is not None and (formats.divergence or 0.0) > target:
        warnings.warn(
            f"no formats meet the divergence asked for, {target:g}: even FP64 rounds Σ so that "
            f"{formats.divergence:.2g} is to be expected; give the model a nugget.",
            GeomxpWarning,
            stacklevel=3,
        )
