"""Divergence of a factor in coarse formats from Σ, measured with random vectors.

With LL' = Σ + E and M = L⁻¹ΣL⁻ᵀ - I the divergence of N(0, LL') from N(0, Σ) is ¼‖M‖_F² + O(M³),
and E ‖Mζ‖² = ‖M‖_F² for random signs ζ (Hutchinson 1990). Σ is generated once more, so that no
factor in FP64 is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..tiles import assemble
from ..tiles.layout import Layout
from ..tiles.refine import Regenerated

if TYPE_CHECKING:
    from .._typing import Any

PROBES = 16
"""Random vectors with which searches measure the divergence of their formats."""


@dataclass(frozen=True)
class Measured:
    """Divergence of a mixed factor from FP64, in nats, and its standard error over the probes."""

    kl: float
    standard_error: float
    probes: int

    @property
    def scatter(self) -> float:
        """Standard deviation of the error of ℓ, √(2 KL).

        The error is ½(tr M - w'Mw) to first order, with w = L⁻¹r of independent variances 1.
        """
        return (2.0 * self.kl) ** 0.5


def measure(factor: Any, probes: int = PROBES, index: int | None = None) -> Measured:
    """Return the divergence of a factor in tiles or in halves, to second order.

    Σ is generated on the GPU `index`, or in this process's memory, wherever the tiles are.
    """
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
    return Measured(float(squares.mean()), float(squares.std(ddof=1) / np.sqrt(probes)), probes)
