"""Rounding errors of a log-likelihood, bounded by the conditioning of Σ.

The Cholesky factor is that of Σ + E, with |E_ij| of the order of u·max Σ_ii (Higham 2002, theorem
10.3). To first order

    δ log|Σ| = tr(Σ⁻¹E),   δ r'Σ⁻¹r = -w'Ew   with w = Σ⁻¹r,

so that tr Σ⁻¹ and w'w measure both. The constant is empirical: for random models,
`tests/likelihood/test_rounding.py` compares the bounds with extended precision.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite, log10
from typing import TYPE_CHECKING

import numpy as np

from ..errors import GeomxpWarning

if TYPE_CHECKING:
    from .._typing import Any, Floats
    from ..covariance.noise import Noise

FP64_ROUNDOFF = 2.0**-53
ROUNDING_FACTOR = 16.0
"""Bound of |δ log|Σ|| / (u tr Σ⁻¹) and of |δ r'Σ⁻¹r| / (u w'w), for Σ with a unit diagonal."""

SUMMATION_FACTOR = 4.0
"""Bound of the error of the sums themselves, in units of u times their terms."""

TRACE_PROBES, EXACT_TRACE_ROWS = 4, 32
"""Vectors of random signs with which tr Σ⁻¹ is estimated; up to `EXACT_TRACE_ROWS` rows it is
computed."""

FIRST_ORDER_LIMIT = 2.0
"""Bound of |δ log|Σ|| from which an expansion of first order is not valid."""

WARNED_LIKELIHOOD_ERROR = 0.01
"""Error of a log-likelihood above which geomxp warns."""

NEGLIGIBLE_LIKELIHOOD_ERROR = 1e-3 * WARNED_LIKELIHOOD_ERROR
"""Error below which the bound by the nugget is sufficient, which needs no solves."""


@dataclass(frozen=True)
class Rounding:
    """Bounds of the rounding errors of log|Σ| (with REML's part) and of r'Σ⁻¹r.

    `log_determinant` is infinite where Σ is so ill-conditioned that no bound is known.
    """

    log_determinant: float
    quadratic_form: float
    # unit roundoff of the coarsest arithmetic that was used
    unit: float = FP64_ROUNDOFF

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
    changed = ROUNDING_FACTOR * unit * trace
    return Rounding(
        changed + SUMMATION_FACTOR * FP64_ROUNDOFF * terms if changed < FIRST_ORDER_LIMIT else inf,
        ROUNDING_FACTOR * unit * squares + SUMMATION_FACTOR * FP64_ROUNDOFF * form,
        unit,
    )


def from_noise(
    model: Any, noise: Noise, n: int, form: float, log_determinant: float
) -> Rounding | None:
    """Return bounds in FP64 from λ_min >= τ²: tr Σ⁻¹ <= n/τ² and w'w <= r'Σ⁻¹r/τ².

    τ² is the least variance of the noise, or the least eigenvalue of correlated noise. None
    where the bounds are too wide to say that rounding is negligible.
    """
    least = noise.least
    if not least > 0:
        return None
    ratio = (np.max(noise.variances) + model.largest_variance) / least
    found = _rounding(FP64_ROUNDOFF, n * ratio, form * ratio, n + abs(log_determinant), form)
    return found if found.log_likelihood < NEGLIGIBLE_LIKELIHOOD_ERROR else None


def bound(
    factor: Any,
    model: Any,
    noise: Noise,
    residual: Floats,
    form: float,
    log_determinant: float,
) -> Rounding | None:
    """Return bounds from the noise where that suffices, otherwise from the factor of Σ.

    None for formats chosen for a divergence: they are coarse where errors change ℓ little, so that
    the predicted divergence tells more.
    """
    formats, found = factor.precision_map, None
    if formats is not None and formats.divergence is not None and not formats.all_fp64:
        return None
    if unit_of(factor) == FP64_ROUNDOFF:
        found = from_noise(model, noise, len(residual), form, log_determinant)
    return found or from_factor(factor, model, noise, residual, form, log_determinant)


@lru_cache(maxsize=1)
def _probes(n):
    """Return columns ζ with E ζζ' = I in Fortran order, and their number; I itself for few rows."""
    if n <= EXACT_TRACE_ROWS:
        return np.eye(n, order="F"), 1
    signs = np.random.default_rng(0).integers(0, 2, (TRACE_PROBES, n)) * 2.0 - 1.0
    return signs.T, TRACE_PROBES


def from_factor(
    factor: Any,
    model: Any,
    noise: Noise,
    residual: Floats,
    form: float,
    log_determinant: float,
) -> Rounding:
    """Return bounds from a factor of Σ, r (n,) and r'Σ⁻¹r: four half-solves and a solve, O(n²).

    tr Σ⁻¹ = E ‖L⁻¹ζ‖² for random signs ζ (Hutchinson 1990), and at least w'w / r'Σ⁻¹r.
    """
    n, unit = len(residual), unit_of(factor)
    scale = model.largest_variance + float(np.max(noise.variances))
    signs, count = _probes(n)
    half = factor.half_solve(signs)
    trace = scale * float(np.vdot(half, half)) / count
    terms = n + abs(log_determinant)
    if factor.refines:
        # w would take another iteration: w'w <= r'Σ⁻¹r λ_max(Σ⁻¹), and its products are FP64's
        return _rounding(unit, trace, trace * form * FP64_ROUNDOFF / unit, terms, form)
    w = factor.solve(np.asfortranarray(residual[:, None]))[:, 0]
    squares = scale * float(w @ w)
    return _rounding(unit, max(trace, squares / form if form > 0 else 0.0), squares, terms, form)


def unit_of(factor: Any) -> float:
    """Return ‖E‖_F / ‖Σ‖_F of the formats of a factor, as their map predicts; u of FP64 at least.

    It is that of FP64 also for factors without tiles.
    """
    formats = factor.precision_map
    if formats is None or formats.all_fp64:
        return FP64_ROUNDOFF
    coarsest = max(form.unit_roundoff for row in formats.rows for form in row)
    return coarsest if formats.error is None else max(formats.error, FP64_ROUNDOFF)


def caution_rounding(rounding: Rounding | None, stacklevel: int = 3) -> None:
    """Warn if rounding in FP64 may change a log-likelihood by more than `WARNED_LIKELIHOOD_ERROR`.

    The errors of coarser formats are those that the caller asked for.
    """
    if rounding is None or rounding.unit > FP64_ROUNDOFF:
        return
    if rounding.log_likelihood <= WARNED_LIKELIHOOD_ERROR:
        return
    error = rounding.log_likelihood
    size = f"by up to {error:.1g}" if isfinite(error) else "by any amount"
    warnings.warn(
        f"the covariance matrix is ill-conditioned: rounding may change the log-likelihood {size}, "
        "and estimates and predictions are then inaccurate. Use a larger nugget, a shorter range "
        "or a smaller smoothness.",
        GeomxpWarning,
        stacklevel=stacklevel + 1,
    )
