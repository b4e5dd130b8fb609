"""Interfaces of likelihood methods, the result of an evaluation, and profiling the variance.

A method such as `Exact` or `Vecchia` prepares an evaluator for a data set; the evaluator computes
the log-likelihood and, if it can, derivatives. To add a method, subclass `Likelihood` and
`Evaluator` and override what the method can do; defaults declare everything else as not available.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from html import escape
from math import inf, isfinite, log, log10, pi
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance
from ..data.observations import Observations
from ..errors import GeomxpWarning, InvalidInput, NotPositiveDefinite, Outcome
from ..linalg.precision import PrecisionMap
from ..runtime.devices import Device

if TYPE_CHECKING:
    from .._typing import Any, ArrayLike, ClassVar, Document, Floats, Sequence
    from ..linalg.precision import PrecisionRule
    from ..runtime.trace import Event, Traffic
    from ..tiles.refine import Refinement

FEW_DIGITS = 8
"""Number of trustworthy digits below which a printed evaluation states it."""


class Likelihood:
    """Base class of likelihood methods; declares capabilities with their defaults."""

    # whether ℓ is an approximation by conditioning on nearest neighbours, so that predictions and
    # draws condition on neighbours too; and their number
    approximate: ClassVar[bool] = False
    neighbours: int | None = None
    # whether rounding in coarse formats makes ℓ scatter from model to model
    noisy: bool = False
    # whether Σ is stored in tiles; the rule that chooses their formats; their directory on a disk
    tiled: bool = False
    precision: PrecisionRule | None = None
    scratch: str | None = None
    # device, or address of a Dask scheduler
    on: str = "cpu"

    def prepare(
        self, observations: Observations, design: Floats | None = None, reml: bool = False
    ) -> Evaluator:
        """Return the evaluator of one data set; the design X is (n, p), None without a trend."""
        raise NotImplementedError

    def of_rows(self, rows: Sequence[int] | ArrayLike) -> Likelihood:
        """Return the method for a subset of the rows."""
        return self

    def describe(self, n: int) -> Document:
        """Return the method's entry in the JSON of a fit of n locations."""
        return {"name": type(self).__name__.lower(), "on": self.on}

    @property
    def arithmetic(self) -> tuple:
        """Everything that changes the value of ℓ: log-likelihoods of equal ones are comparable."""
        return type(self), self.precision

    @property
    def reference_device(self) -> str:
        """Device on which an FP64 reference is computed."""
        return "cpu"


class ObservationModel:
    """Relation of the measurements y to the Gaussian field; by default, field plus noise.

    z_i = t(y_i) = Y(s_i) + ε_i with independent ε_i of variance τ², the model's nugget. A subclass
    changes the transformation t.
    """

    def transform(self, values: Floats) -> Floats:
        """Return the values on the Gaussian scale, t(y), (n,)."""
        return values

    def log_jacobian(self, values: Floats) -> Floats:
        """Return log|t'(y)|, (n,), which the log-likelihood of the measurements includes."""
        return np.zeros(len(values))

    def apply(self, observations: Observations) -> Observations:
        """Return the observations on the Gaussian scale.

        Fits, predictions and simulations of them are on this scale; log-likelihoods and the AIC are
        those of the measurements, and comparable between transformations. Transformations can be
        applied one after the other.

        Examples
        --------
        >>> class LogNormal(ObservationModel):
        ...     def transform(self, values):
        ...         return np.log(values)
        ...
        ...     def log_jacobian(self, values):
        ...         return -np.log(values)
        >>> observations = Observations([[0.0], [1.0], [3.0]], [1.0, np.e, 1.0])
        >>> LogNormal().apply(observations).values.tolist()
        [0.0, 1.0, 0.0]
        """
        measured, before = observations.values, observations.log_jacobian
        jacobian = self.log_jacobian(measured)
        return replace(
            observations,
            values=self.transform(measured),
            log_jacobian=jacobian if before is None else before + jacobian,
            source={},
        )


class Evaluator:
    """Base class of evaluators: ℓ(θ) and its derivatives for one data set.

    Subclasses implement `__call__`, and `derivatives` if they set `scoring`.
    """

    observations: Observations
    reml: bool = False
    # whether `derivatives` returns the score and an information at about the cost of ℓ, so that
    # Fisher scoring can be used
    scoring: bool = False
    # whether an evaluation costs much more than one of Vecchia's approximation
    expensive: bool = False
    # where factors are stored
    device: Device = Device("cpu")

    @property
    def log_jacobian(self) -> float:
        """Log-Jacobian of the transformation of the values; 0 without one."""
        jacobian = self.observations.log_jacobian
        return 0.0 if jacobian is None else float(np.sum(jacobian))

    def __call__(self, model: Covariance) -> Evaluation:
        """Evaluate the log-likelihood; -inf with an outcome where Σ has no Cholesky factor."""
        raise NotImplementedError

    def carefully(self, model: Covariance) -> Evaluation:
        """Evaluate as `__call__` does, with `Evaluation.rounding` if the evaluator can bound it."""
        return self(model)

    def derivatives(self, model: Covariance, names: Sequence[str], *, curvature: bool = False):
        """Return `Derivatives` at a model; with `curvature`, expected and observed information."""
        raise NotImplementedError

    def gradient(self, model: Covariance, names: Sequence[str] | None = None) -> dict[str, float]:
        """Return ∂ℓ/∂θ by parameter, of all if not named; by differences if there is no formula."""
        names = tuple(model.parameters() if names is None else names)
        if not self.scoring:
            return by_differences(self, model, names)
        return self.derivatives(model, names).gradient(names)

    def information(self, model: Covariance, names: Sequence[str]) -> Floats:
        """Return the information that Fisher scoring uses, (k, k)."""
        derivatives = self.derivatives(model, names)
        return derivatives.part(derivatives.information, names)

    def observed_information(self, model: Covariance, names: Sequence[str] | None = None) -> Floats:
        """Return minus the Hessian of ℓ, (k, k)."""
        names = tuple(model.parameters() if names is None else names)
        derivatives = self.derivatives(model, names, curvature=True)
        return derivatives.part(derivatives.observed, names)

    def expected_information(self, model: Covariance, names: Sequence[str] | None = None) -> Floats:
        """Return Fisher's expected information, (k, k)."""
        names = tuple(model.parameters() if names is None else names)
        derivatives = self.derivatives(model, names, curvature=True)
        return derivatives.part(derivatives.expected, names)

    def has_curvature(self, names: Sequence[str]) -> bool:
        """Whether `derivatives` has a formula for the observed information, and memory for it."""
        return False

    def keeps(self, model: Covariance) -> bool:
        """Whether results at a model are cached, so that asking again costs no factorization."""
        return False

    def freeze(self, model: Covariance) -> None:
        """Use the formats chosen at this model for all later evaluations."""

    def factorize(self, model: Covariance):
        """Return a factor of Σ(θ), for predictions and draws."""
        raise NotImplementedError


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of ℓ at one model, in the k model parameters of the names."""

    names: tuple
    # ∂ℓ/∂θ, (k,)
    score: np.ndarray
    # the one that Fisher scoring uses, (k, k): average (exact) or expected (Vecchia)
    information: np.ndarray
    # α'(∂Σ)α and tr(Q∂Σ), (k,), with score = ½(quadratic - trace), where ℓ has these parts: they
    # give the score of cΣ for any c without a new factorization
    quadratic: np.ndarray | None = None
    trace: np.ndarray | None = None
    # Fisher's information, and minus the Hessian, (k, k), if requested
    expected: np.ndarray | None = None
    observed: np.ndarray | None = None

    @property
    def rescalable(self):
        """Whether the score of cΣ follows for any c."""
        return self.quadratic is not None

    def score_of(self, c):
        """Return the score at cΣ in the parameters of Σ: ∂cΣ/∂log θ = c ∂Σ/∂log θ."""
        return self.score if c == 1.0 else 0.5 * (self.quadratic / c - self.trace)

    def gradient(self, names=None):
        """Return ∂ℓ, a dict of str to float."""
        slopes = dict(zip(self.names, self.score.tolist(), strict=True))
        return {name: slopes[name] for name in names or self.names}

    def part(self, matrix, names):
        """Return the rows and columns of a matrix that belong to some of the names."""
        rows = np.array([self.names.index(name) for name in names], dtype=int)
        return matrix[np.ix_(rows, rows)]


def by_differences(evaluator, model, names):
    """Return ∂ℓ/∂θ by central differences, two evaluations for each parameter.

    Raises `NotPositiveDefinite` where ℓ is not finite on both sides.
    """
    result = {}
    for parameter in model.table:
        name, value = parameter.name, parameter.value
        if name not in names:
            continue
        unit = 1.0 if parameter.transform == "identity" else 1e-3 * model.largest_variance
        step = 1e-3 * (abs(value) or unit)
        # one-sided at a bound of the parameter
        below = 0.0 if parameter.closed and value - step < parameter.lower else step
        above = step if _is_valid(evaluator, model, {name: value + step}) else 0.0
        ends = [evaluator(model.replace(**{name: value + move})) for move in (above, -below)]
        if not all(np.isfinite(end.log_likelihood) for end in ends):
            raise NotPositiveDefinite(
                f"the log-likelihood is not finite on both sides of {name}={value:g}: its "
                "derivative cannot be computed by differences."
            )
        result[name] = (ends[0].log_likelihood - ends[1].log_likelihood) / (above + below)
    return {name: result[name] for name in names}


def _is_valid(evaluator, model, changed):
    """Whether a model with some values changed is valid on the locations."""
    locations = evaluator.observations
    try:
        return model.replace(**changed).valid_on(locations.metric, locations.dimensions)
    except InvalidInput:
        return False


def as_html(result):
    """Return the text of a result as HTML for notebooks."""
    return f"<pre>{escape(str(result))}</pre>"


@dataclass(frozen=True)
class Evaluation:
    """Result of one evaluation of the log-likelihood.

    ℓ = -½(n log 2π + log|Σ| + r'Σ⁻¹r), and for REML
    ℓ = -½((n-p) log 2π + log|Σ| + log|X'Σ⁻¹X| + r'Σ⁻¹r), with r = z - Xβ̂.

    Parameters
    ----------
    log_likelihood : float
        -inf where Σ has no Cholesky factor; `outcome` gives the reason.
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
        Format of each tile.
    promotions : int
        Tiles promoted to a finer format than the rule gave them.
    refinement : Refinement or None
        Report of the iterative refinement, if `refine` is set; of all but the log-determinant.
    traffic : Traffic or None
        Bytes moved into and out of the fast memory, if one memory does not hold all tiles.
    events : tuple of Event
        Copies and computations with their times, with `Exact(trace=True)`.
    seconds : float
        Wall-clock time.
    rounding : Rounding or None
        Bounds of the rounding errors, where they were computed: by `gx.log_likelihood`, and in
        searches with derivatives.
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
    rounding: Rounding | None = None

    @property
    def digits(self) -> int | None:
        """Decimal digits of the log-likelihood that can be trusted, 0 to 15.

        Bounded by the conditioning of Σ and the formats; None where no bound was computed, and for
        mixed formats of `for_divergence`.
        """
        return None if self.rounding is None else self.rounding.digits(self.log_likelihood)

    @property
    def formats(self) -> dict[str, int]:
        """Number of tiles in each format; one of FP64 if Σ is not in tiles."""
        return {"fp64": 1} if self.precision_map is None else self.precision_map.counts()

    @classmethod
    def failed(cls, outcome: Outcome, n: int, seconds: float = 0.0) -> Evaluation:
        """Return the evaluation at a model whose Σ has no Cholesky factor."""
        nan = float("nan")
        return cls(-inf, nan, nan, outcome, n, seconds=seconds)

    def to_dict(self) -> Document:
        """Return what `geomxp log-likelihood --json` prints."""
        return {
            "log_likelihood": self.log_likelihood,
            "log_determinant": self.log_determinant,
            "quadratic_form": self.quadratic_form,
            "digits": self.digits,
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

    def _repr_html_(self) -> str:
        return as_html(self)

    def __repr__(self) -> str:
        kind = ", REML" if self.reml else ""
        return (
            f"<Evaluation at {self.n:,} locations: {self.outcome.ending}, log-likelihood "
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
        if self.digits is not None and self.digits < FEW_DIGITS:
            error = self.rounding.log_likelihood
            bound = f": its error is at most {error:.2g}" if error < inf else ""
            lines.append(f"digits           {self.digits} of the log-likelihood{bound}")
        if self.precision_map is not None and len(self.precision_map) > 1:
            counts = self.precision_map.counts().items()
            tiles = ", ".join(f"{count} {name}" for name, count in counts)
            lines.append(f"tiles            {tiles}; {self.promotions} promoted")
            if self.precision_map.divergence is not None:
                lines.append(f"predicted KL     {self.precision_map.divergence:.3g}")
        if self.traffic is not None:
            lines.append(f"moved            {self.traffic}")
        if self.refinement is not None:
            how = f"{self.refinement.method}, {self.refinement.outcome.message}"
            lines.append(f"refined          all but the log-determinant: {how}")
        return "\n".join(lines)


def gaussian_log_likelihood(n, log_determinant, least_squares, reml):
    """Return ℓ from n, log|Σ| and the `GeneralisedLeastSquares` of the trend.

    The restricted ℓ is in the convention of nlme, spaMM and glmmTMB (geoR adds ½ log|X'X|).
    """
    p = len(least_squares.coefficients) if reml else 0
    information = least_squares.log_determinant_of_information if reml else 0.0
    return -0.5 * (
        (n - p) * log(2 * pi) + log_determinant + information + least_squares.quadratic_form
    )


def rescale_variance(evaluation, variance):
    """Return the evaluation at Σ = σ²R from that at R, without a new factorization.

    log|Σ| = log|R| + n log σ²,  r'Σ⁻¹r = r'R⁻¹r / σ²,  log|X'Σ⁻¹X| = log|X'R⁻¹X| - p log σ²
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
        rounding=evaluation.rounding and evaluation.rounding.scaled(variance),
    )


def profile_variance(evaluation):
    """Return σ̂² = r'R⁻¹r / m and ℓ there, given an evaluation at a model of variance 1.

    m = n for ML and n - p for REML.
    """
    m = evaluation.n - (len(evaluation.coefficients) if evaluation.reml else 0)
    variance = evaluation.quadratic_form / m
    if not (np.isfinite(evaluation.log_likelihood) and variance > 0):
        return float("nan"), -inf
    return variance, rescale_variance(evaluation, variance).log_likelihood


# Rounding errors of ℓ, bounded by the conditioning of Σ.
#
# The Cholesky factor is that of Σ + E, with |E_ij| of the order of u·max Σ_ii (Higham 2002, theorem
# 10.3). To first order
#
#     δ log|Σ| = tr(Σ⁻¹E),   δ r'Σ⁻¹r = -w'Ew   with w = Σ⁻¹r,
#
# so that tr Σ⁻¹ and w'w measure both. The constant is empirical: for random models,
# tests/likelihood/test_rounding.py compares the bounds with extended precision.

UNIT = 2.0**-53
ROUNDINGS = 16.0
"""Bound of |δ log|Σ|| / (u tr Σ⁻¹) and of |δ r'Σ⁻¹r| / (u w'w), for Σ with a unit diagonal."""

SUMS = 4.0
"""Bound of the error of the sums themselves, in units of u times their terms."""

PROBES, FEW = 4, 32
"""Random signs with which tr Σ⁻¹ is estimated; of fewer rows than `FEW` it is computed."""

PERTURBED = 2.0
"""Bound of |δ log|Σ|| from which the first order says nothing."""

LIMIT = 0.01
"""Error of a log-likelihood from which on geomxp warns."""

NEGLIGIBLE = 1e-3 * LIMIT
"""Error below which the bound by the nugget is sufficient, which needs no solves."""


@dataclass(frozen=True)
class Rounding:
    """Bounds of the rounding errors of log|Σ| (with REML's part) and of r'Σ⁻¹r."""

    log_determinant: float
    quadratic_form: float
    # unit roundoff of the coarsest arithmetic that was used
    unit: float = UNIT

    @property
    def log_likelihood(self) -> float:
        """Bound of the error of ℓ."""
        return 0.5 * (self.log_determinant + self.quadratic_form)

    def scaled(self, variance: float) -> Rounding:
        """Return the bounds for Σ times a variance."""
        return Rounding(self.log_determinant, self.quadratic_form / variance, self.unit)

    def digits(self, log_likelihood: float) -> int:
        """Return how many decimal digits of ℓ can be trusted, 0 to 15.

        Examples
        --------
        >>> Rounding(1e-6, 1e-6).digits(-123.4), Rounding(np.inf, 0.0).digits(-123.4)
        (8, 0)
        """
        error = self.log_likelihood
        if not error < abs(log_likelihood):
            return 0
        return min(int(-log10(error / abs(log_likelihood))), 15)


def _rounding(unit, trace, squares, terms, form):
    """Return `Rounding` from u, and tr Σ⁻¹ and w'w times max Σ_ii."""
    changed = ROUNDINGS * unit * trace
    return Rounding(
        changed + SUMS * UNIT * terms if changed < PERTURBED else inf,
        ROUNDINGS * unit * squares + SUMS * UNIT * form,
        unit,
    )


def from_nugget(model: Any, n: int, form: float, log_determinant: float) -> Rounding | None:
    """Return bounds in FP64 from λ_min >= τ²: tr Σ⁻¹ <= n/τ² and w'w <= r'Σ⁻¹r/τ².

    None where they are too wide to say that rounding is negligible.
    """
    if not model.nugget > 0:
        return None
    ratio = 1.0 + model.largest_variance / model.nugget
    found = _rounding(UNIT, n * ratio, form * ratio, n + abs(log_determinant), form)
    return found if found.log_likelihood < NEGLIGIBLE else None


def bound(
    factor: Any, model: Any, residual: Floats, form: float, log_determinant: float
) -> Rounding | None:
    """Return bounds from the nugget where that suffices, otherwise from the factor of Σ.

    None for formats chosen for a divergence: they are coarse where errors change ℓ little, so that
    the predicted divergence tells more.
    """
    formats, found = factor.precision_map, None
    if formats is not None and formats.divergence is not None and not formats.all_fp64:
        return None
    if unit_of(factor) == UNIT:
        found = from_nugget(model, len(residual), form, log_determinant)
    return found or from_factor(factor, model, residual, form, log_determinant)


@lru_cache(maxsize=1)
def _probes(n):
    """Return columns ζ with E ζζ' = I in Fortran order, and their number; I itself for few rows."""
    if n <= FEW:
        return np.eye(n, order="F"), 1
    signs = np.random.default_rng(0).integers(0, 2, (PROBES, n)) * 2.0 - 1.0
    return signs.T, PROBES


def from_factor(
    factor: Any, model: Any, residual: Floats, form: float, log_determinant: float
) -> Rounding:
    """Return bounds from a factor of Σ, r (n,) and r'Σ⁻¹r: four half-solves and a solve, O(n²).

    tr Σ⁻¹ = E ‖L⁻¹ζ‖² for random signs ζ (Hutchinson 1990), and at least w'w / r'Σ⁻¹r.
    """
    n, unit, scale = len(residual), unit_of(factor), model.largest_variance + model.nugget
    signs, count = _probes(n)
    half = factor.half_solve(signs)
    trace = scale * float(np.vdot(half, half)) / count
    terms = n + abs(log_determinant)
    if factor.refines:
        # w would take another iteration: w'w <= r'Σ⁻¹r λ_max(Σ⁻¹), and its products are FP64's
        return _rounding(unit, trace, trace * form * UNIT / unit, terms, form)
    w = factor.solve(np.asfortranarray(residual[:, None]))[:, 0]
    squares = scale * float(w @ w)
    return _rounding(unit, max(trace, squares / form if form > 0 else 0.0), squares, terms, form)


def unit_of(factor: Any) -> float:
    """Return ‖E‖_F / ‖Σ‖_F of the formats of a factor, as their map predicts; u of FP64 at least.

    It is that of FP64 also for factors without tiles.
    """
    formats = factor.precision_map
    if formats is None or formats.all_fp64:
        return UNIT
    coarsest = max(form.unit_roundoff for row in formats.rows for form in row)
    return coarsest if formats.error is None else max(formats.error, UNIT)


def caution_rounding(rounding: Rounding | None, stacklevel: int = 3) -> None:
    """Warn if rounding in FP64 may change a log-likelihood by more than `LIMIT`.

    The errors of coarser formats are those that the caller asked for.
    """
    if rounding is None or rounding.unit > UNIT or rounding.log_likelihood <= LIMIT:
        return
    error = rounding.log_likelihood
    size = f"by up to {error:.1g}" if isfinite(error) else "by any amount"
    warnings.warn(
        f"the covariance matrix is ill-conditioned: rounding may change the log-likelihood {size} "
        f"(more than {LIMIT:g}), and with it all results. Use a larger nugget, a shorter range or "
        "a smaller smoothness.",
        GeomxpWarning,
        stacklevel=stacklevel + 1,
    )
