"""Divergence of a factor in coarse formats from Σ, measured with random vectors.

With LL' = Σ + E and M = L⁻¹ΣL⁻ᵀ - I the divergence KL(N(0, Σ) ‖ N(0, LL')) is ¼‖M‖_F² + O(M³), and
E ‖Mζ‖² = ‖M‖_F² for random signs ζ (Hutchinson 1990). Σ is generated once more, so that no
factor in FP64 is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ..linalg.backend import backend_of, device_of
from ..tiles import assemble
from ..tiles.layout import Layout
from ..tiles.refine import Regenerated

if TYPE_CHECKING:
    from .._typing import Any, Document

PROBES = 16
"""Random vectors with which fits measure the divergence of their formats."""

ENOUGH_DIVERGENCE = 5e-5
"""Divergence of formats from FP64, in nats, that shifts estimates by at most 0.01 standard errors,
see `FormatDivergence.shift`. A search chooses finer formats above it, or above the target of
`for_divergence`."""

WHITENED_COLUMNS = 512
"""Columns of L₀ that are whitened at a time on a CPU."""


@dataclass(frozen=True)
class FormatDivergence:
    """Divergence of the formats of a fit from FP64, at its estimate.

    Parameters
    ----------
    kl : float
        In nats; NaN if it was not measured, for a `reason`.
    standard_error : float
        Of `kl`, from the scatter between random vectors; 0 if `kl` is exact.
    probes : int
        Number of random vectors; 0 if `kl` is exact.
    target : float or None
        That of `for_divergence`.
    reason : str
        Why it was not measured.

    Examples
    --------
    >>> found = FormatDivergence(2e-6, 1e-7, 16, target=1e-3)
    >>> found.met, round(found.shift, 6)
    (True, 0.002)
    """

    kl: float
    standard_error: float = 0.0
    probes: int = 0
    target: float | None = None
    reason: str = ""

    @property
    def met(self) -> bool | None:
        """Whether `kl`, less two standard errors, is within the target; None if one is unknown."""
        if self.target is None or isnan(self.kl):
            return None
        return self.kl - 2 * self.standard_error <= self.target

    @property
    def scatter(self) -> float:
        """Standard deviation of the error of ℓ, √(2 KL).

        The error is ½(tr M - w'Mw) to first order, with w = L⁻¹r of independent variances 1.
        """
        return sqrt(2.0 * max(self.kl, 0.0))

    @property
    def shift(self) -> float:
        """Bound on the mean shift of an estimate over data sets, in its standard errors: √(2 KL).

        The mean score at the truth is b_u = ½ tr(G_u M) in a direction u of the parameters, with
        G_u the whitened derivative of Σ and the information u'Fu = ½‖G_u‖_F². By the
        Cauchy-Schwarz inequality |b_u| <= √(2 KL) √(u'Fu), so that F⁻¹b shifts no estimate by more
        than √(2 KL) of its standard error.
        """
        return self.scatter

    @property
    def how(self) -> str:
        """How it was measured."""
        if isnan(self.kl):
            return f"not measured: {self.reason}"
        return f"{self.probes} random vectors" if self.probes else "exact"

    def __str__(self) -> str:
        return f"divergence from FP64 {self.text}"

    @property
    def text(self) -> str:
        """Value, target, and what it means for the estimates, in words."""
        if isnan(self.kl):
            return self.how
        error = f" ± {self.standard_error:.1g}" if self.probes else ""
        target = "" if self.target is None else f"; target {self.target:g} "
        target += "" if self.target is None else ("met" if self.met else "missed")
        return (
            f"{self.kl:.2g}{error} nats ({self.how}{target}): averaged over data sets, the formats "
            f"shift no estimate by more than {self.shift:.1g} standard errors"
        )

    def missed(self, rule: Any) -> str:
        """Return a sentence if the divergence exceeds the target of a rule, empty otherwise."""
        if self.met is not False:
            return ""
        smaller = f"{rule.kl / 100:g}{', low_rank=True' if rule.low_rank else ''}"
        return (
            f"The divergence at the estimate is {self.kl:.2g} nats, {self.kl / rule.kl:.2g} times "
            f"the target {rule.kl:g}. Fit with method=gx.Exact(gx.for_divergence({smaller})), or "
            "in FP64 with method=gx.Exact()."
        )

    def noticeable(self) -> str:
        """Return a sentence if formats that are kept shift estimates noticeably, else ""."""
        if not self.kl - 2 * self.standard_error > ENOUGH_DIVERGENCE:
            return ""
        return (
            f"The mean shift of estimates by the formats may be as large as {self.shift:.1g} "
            "standard errors. For at most 0.01, fit with "
            f"method=gx.Exact(gx.for_divergence({ENOUGH_DIVERGENCE:g})) or gx.Exact()."
        )

    def to_dict(self) -> Document:
        """Return the entry of the JSON of a fit."""
        known = not isnan(self.kl)
        return {
            "kl": self.kl if known else None,
            "standard_error": self.standard_error,
            "probes": self.probes,
            "target": self.target,
            "met": self.met,
            "shift": self.shift if known else None,
            "how": self.how,
        }

    @classmethod
    def from_dict(cls, entry: Document) -> FormatDivergence:
        """Return what `to_dict` described."""
        kl, how = entry.get("kl"), entry.get("how") or ""
        return cls(
            float("nan") if kl is None else float(kl),
            float(entry.get("standard_error") or 0.0),
            int(entry.get("probes") or 0),
            entry.get("target"),
            how.partition("not measured: ")[2],
        )


def measure(factor: Any, probes: int = PROBES, index: int | None = None) -> FormatDivergence:
    """Return the divergence of a factor in tiles or in halves, to second order.

    Σ is generated on the GPU `index`, or in this process's memory, wherever the tiles are.
    """
    # solutions of a refined factor are those of Σ
    factor = factor.factor if factor.refines else factor
    model, places, metric, layout = factor.originals.source
    if layout.tiles == 1:
        layout = Layout.of(layout.n, None)
    originals, order = assemble.Originals(model, places, metric, layout, index), factor.order
    signs = np.random.default_rng(0).integers(0, 2, (len(order), probes)) * 2.0 - 1.0
    # L⁻ᵀζ = Σₐ⁻¹Lζ
    x = factor.solve(factor.multiply(np.asfortranarray(signs)))
    y = np.empty_like(x)
    y[order] = Regenerated(originals).multiply(np.asfortranarray(x[order]))
    y *= 4.0**originals.exponent
    squares = np.sum((factor.half_solve(y) - signs) ** 2, axis=0) / 4
    error = float(squares.std(ddof=1) / np.sqrt(probes))
    return FormatDivergence(float(squares.mean()), error, probes)


def trace_between(reference: Any, factor: Any, step: int = WHITENED_COLUMNS) -> float:
    """Return tr(Σₐ⁻¹Σ₀) = ‖L⁻¹L₀‖_F², a few columns of a dense reference at a time."""
    total = 0.0
    for first in range(0, len(reference.lower), step):
        white = factor.whiten(reference.columns(first, first + step))
        with device_of(white):
            # CuPy's einsum over both indices would copy its operands
            entries = white.reshape(-1, order="F")
            total += float(backend_of(white).xp.vdot(entries, entries))
        # its memory is needed for the next columns
        del white, entries
    return total


def divergence_between(reference: Any, factor: Any) -> float:
    """Return ½(tr(Σₐ⁻¹Σ₀) - n + log|Σₐ| - log|Σ₀|) of a factor from a dense one."""
    difference = factor.log_determinant() - reference.log_determinant()
    return 0.5 * (trace_between(reference, factor) - len(reference.lower) + difference)
