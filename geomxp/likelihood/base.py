"""Interfaces of likelihood methods, the result of an evaluation, and profiling the variance.

A method such as `Exact` or `Vecchia` prepares an evaluator for a data set; the evaluator computes
the log-likelihood and, if it can, derivatives. To add a method, subclass `Likelihood` and
`Evaluator` and override what the method can do; defaults declare everything else as not available.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from html import escape
from math import inf, log, pi
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance
from ..covariance.transformation import Transformation
from ..data.observations import Observations
from ..errors import InvalidInput, NotPositiveDefinite, Outcome
from ..linalg.precision import PrecisionMap
from ..runtime.devices import Device
from ..runtime.equality import by_content
from .rounding import Rounding

if TYPE_CHECKING:
    from .._typing import ArrayLike, ClassVar, Document, Floats, Sequence
    from ..linalg.precision import PrecisionRule
    from ..runtime.trace import Event, Traffic
    from ..tiles.refine import Refinement
    from .probes import FormatDivergence

LEAST_SCALED_EIGENVALUE = 1e-2
"""Smallest eigenvalue of an information in units of its diagonal, with a transformation."""

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
    # whether replicates are reduced to sufficient statistics: they share microscale variation
    replicates: ClassVar[bool] = False
    # whether Σ is halved recursively, or stored in tiles; the rule that chooses the formats; the
    # directory of tiles on a disk
    whole: bool = False
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


@dataclass(frozen=True)
class GaussianValues:
    """Values on the Gaussian scale, z = t(y), and what the Jacobian adds to the log-likelihood."""

    z: Floats
    log_jacobian: float


class Values:
    """Measured values of observations, transformed as models say; the last ones are cached."""

    def __init__(self, observations: Observations):
        self._observations, self._last = observations, None

    def at(self, transform: Transformation | None) -> GaussianValues:
        """Return the values on the Gaussian scale."""
        if self._last is None or self._last[0] != transform:
            self._last = transform, self._transformed(transform)
        return self._last[1]

    def _transformed(self, transform):
        measured = self._observations.values
        if transform is None:
            return GaussianValues(measured, 0.0)
        with np.errstate(all="ignore"):
            own = transform.of(self._observations.variable)
            z = own.transform(measured)
            jacobian = float(own.log_jacobian(measured).sum())
        if not (np.isfinite(z).all() and np.isfinite(jacobian)):
            raise NotPositiveDefinite(
                f"the transformation {transform.name!r} does not map all values to finite numbers."
            )
        return GaussianValues(z, jacobian)

    def slopes(self, transform: Transformation) -> tuple[Floats, Floats]:
        """Return ∂z, (n, k), and the derivative of the log-Jacobian, (k,), by the parameters."""
        z, jacobian = transform.of(self._observations.variable).slopes(self._observations.values)
        return z.T, jacobian.sum(axis=1)

    def bends(self, transform: Transformation) -> tuple[Floats, Floats]:
        """Return the second derivatives of z, (n, k, k), and of the log-Jacobian, (k, k)."""
        z, jacobian = transform.of(self._observations.variable).bends(self._observations.values)
        return np.moveaxis(z, 2, 0), jacobian.sum(axis=2)


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
    # whether the neighbours of Vecchia's approximation follow the model unless `freeze` keeps them
    moves: bool = False
    # whether neighbours that follow the model are those of a first guess, which costs less
    rough: bool = False
    # whether the score is by differences, which cost several evaluations and err by some 1e-2
    # standard errors
    differences: bool = False
    # standard deviation of the error of ℓ by coarse formats, where it is measured
    scatter: float = 0.0
    # where factors are stored
    device: Device = Device("cpu")

    def __call__(self, model: Covariance) -> Evaluation:
        """Evaluate the log-likelihood; -inf with an outcome where Σ has no Cholesky factor."""
        raise NotImplementedError

    def reported(self, model: Covariance) -> Evaluation:
        """Evaluate for a result: as `__call__`, or more exactly than a search needs."""
        return self(model)

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

    def score_variance(self, model: Covariance, names: Sequence[str]) -> Floats | None:
        """Return the covariance of the score, (k, k), where the expected information is not it.

        None where both are the same: where ℓ is the logarithm of the density of the data.
        """
        return None

    def has_curvature(self, names: Sequence[str]) -> bool:
        """Whether `derivatives` has a formula for the observed information, and memory for it."""
        return False

    def keeps(self, model: Covariance) -> bool:
        """Whether results at a model are cached, so that asking again costs no factorization."""
        return False

    def freeze(self, model: Covariance) -> None:
        """Use the formats, or the neighbours, chosen at this model for all later evaluations."""

    def would_move(self, model: Covariance, exactly: bool = False) -> bool:
        """Return whether a search that ends at this model should be repeated from there.

        What `freeze` keeps belongs to another model, and ℓ depends on it: much, or at all.
        """
        return False

    def divergence_at(self, model: Covariance) -> FormatDivergence | None:
        """Return the divergence of a model's formats from FP64; None if all formats are FP64."""
        return None

    @property
    def notice(self) -> str:
        """Says which formats a fit uses in place of those of the rule; empty if it uses these."""
        return ""

    def be_rough(self) -> None:
        """Accept a first guess of the neighbours that follow the model, which costs less."""
        self.rough = True

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
    # estimated error of the score by an inverse in FP32, (k,), in standard errors
    error: np.ndarray | None = None

    def joined(self, names, order, score, cross, information):
        """Return the derivatives with those by parameters of a transformation.

        `cross`, (k, l), and `information`, (l, l), are blocks of the information; `order` has the
        positions of `names` among these names and those of the transformation.
        """
        blocks = np.block([[self.information, cross], [cross.T, information]])
        scale = np.sqrt(np.maximum(np.diag(blocks), 1e-300))
        if np.linalg.eigvalsh(blocks / np.outer(scale, scale))[0] < LEAST_SCALED_EIGENVALUE:
            # far from a maximum; without the cross terms it is positive definite
            blocks[: len(cross), len(cross) :] = blocks[len(cross) :, : len(cross)] = 0.0
        score = np.concatenate((self.score, score))[order]
        return Derivatives(tuple(names), score, blocks[np.ix_(order, order)])

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
        return {name: slopes[name] for name in (self.names if names is None else names)}

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


@by_content
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
        log|Σ|; of a response log|I + KW|.
    quadratic_form : float
        r'Σ⁻¹r; of a response f̂'K⁻¹f̂ at the mode of the field.
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
    log_jacobian : float
        Part of ℓ that a transformation of the observations adds.
    rounding : Rounding or None
        Bounds of the rounding errors, where they were computed: by `gx.log_likelihood`, and in
        searches with derivatives.
    error : float
        Standard error of the log-likelihood, where random numbers estimate a part of it: for a
        response with Vecchia's approximation of more than 3,000 locations, and for an exact
        integral over censored values.
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
    seconds: float = field(default=0.0, compare=False)
    log_jacobian: float = 0.0
    rounding: Rounding | None = None
    error: float = 0.0

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
            **({"error": self.error} if self.error else {}),
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
            lines.append(f"digits           {self.digits} reliable in the log-likelihood{bound}")
        if self.precision_map is not None and len(self.precision_map) > 1:
            counts = self.precision_map.counts().items()
            tiles = ", ".join(f"{count} {name}" for name, count in counts)
            lines.append(f"tiles            {tiles}; {self.promotions} promoted")
            if self.precision_map.divergence is not None:
                lines.append(f"predicted KL     {self.precision_map.divergence:.3g}")
        if self.traffic is not None:
            lines.append(f"moved            {self.traffic}")
        if self.error:
            lines.append(f"standard error   {self.error:.2g} of the log-likelihood")
        if self.refinement is not None:
            how = f"{self.refinement.method}, {self.refinement.outcome.message}"
            lines.append(f"refined          all but the log-determinant: {how}")
        return "\n".join(lines)


def noiseless_twins(model, observations):
    """Return the first rows (i, j) at one location where the model has no noise, or None."""
    inputs = observations.inputs
    bare = np.flatnonzero(model.noise(inputs).unshared == 0)
    pair = replace(inputs[bare], error_variance=None).duplicate() if len(bare) > 1 else None
    return pair and (int(bare[pair[0]]), int(bare[pair[1]]))


def coincidence(observations, twins):
    """Return the message for duplicate locations, the rows `twins`, without a nugget."""
    i, j = twins
    place = ", ".join(f"{c:g}" for c in observations.locations[i])
    if observations.inputs.time is not None:
        place += f" at time {observations.inputs.time[i]:g}"
    nugget = "nugget" if observations.inputs.variable is None else "nugget of their variable"
    return (
        f"rows {i + 1} and {j + 1} are at the same location ({place}) and the {nugget} is 0: the "
        "covariance matrix is singular. Estimate a nugget, or drop one of the rows."
    )


def check_noise(model, observations):
    """Return the noise; raise `InvalidInput` where values at one location cannot have it."""
    model.check_observations(observations.inputs)
    noise = model.noise(observations.inputs)
    if any(noise.shared) and noise.of_locations.any() and observations.duplicate_inputs:
        raise InvalidInput(DIFFERENT_REPLICATES)
    return noise


def check_gaussian(observations):
    """Raise `InvalidInput` for columns that Gaussian values do not have."""
    if observations.censored is not None and observations.censored.any():
        raise InvalidInput(
            f"{observations.limits_in_words}, and Gaussian values must be known exactly: use "
            'response="censored" (--response censored).'
        )
    given = [
        name for name in ("trials", "offset", "exposure") if getattr(observations, name) is not None
    ]
    if given:
        raise InvalidInput(
            f"`{given[0]}` is for responses such as poisson or binomial: give `response` "
            "(--response), or leave it out."
        )


OVERFLOW_MESSAGE = "the log-likelihood overflows FP64: rescale the values and the variance."


DIFFERENT_REPLICATES = (
    "microscale variation is shared by replicates, and geomxp can take this into account only if "
    "all replicates at one location have the same error variance, count and covariates. Here they "
    "differ: leave `microscale` out; the nugget then includes microscale variation."
)


def gaussian_log_likelihood(n, log_determinant, least_squares, reml):
    """Return ℓ from n, log|Σ| and the `GeneralisedLeastSquares` of the trend.

    The restricted ℓ is in the convention of nlme, spaMM and glmmTMB (geoR adds ½ log|X'X|).
    """
    p = len(least_squares.coefficients) if reml else 0
    information = least_squares.log_determinant_of_information if reml else 0.0
    return -0.5 * (
        (n - p) * log(2 * pi) + log_determinant + information + least_squares.quadratic_form
    )


LARGE_MEAN_SQUARE = 1e6
"""Mean squares of whitened residuals above which ℓ is computed anew where the variance changes."""


def rescale_variance(evaluation, variance):
    """Return the evaluation at Σ = σ²R from that at R, without a new factorization.

    log|Σ| = log|R| + n log σ²,  r'Σ⁻¹r = r'R⁻¹r / σ²,  log|X'Σ⁻¹X| = log|X'R⁻¹X| - p log σ²
    """
    n, p = evaluation.n, len(evaluation.coefficients)
    m = n - p if evaluation.reml else n
    quadratic_form = evaluation.quadratic_form / variance
    log_determinant = evaluation.log_determinant + n * log(variance)
    information = evaluation.log_determinant_of_information - p * log(variance)
    if evaluation.quadratic_form < LARGE_MEAN_SQUARE * m:
        change = 0.5 * (evaluation.quadratic_form - quadratic_form) - 0.5 * m * log(variance)
        value = evaluation.log_likelihood + change
    else:
        # a difference of large numbers would lose the digits of ℓ
        value = m * log(2 * pi) + log_determinant + quadratic_form
        value = -0.5 * (value + (information if evaluation.reml else 0.0))
        value += evaluation.log_jacobian
    return replace(
        evaluation,
        log_likelihood=value,
        log_determinant=log_determinant,
        quadratic_form=quadratic_form,
        coefficient_covariance=evaluation.coefficient_covariance * variance,
        log_determinant_of_information=information,
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
