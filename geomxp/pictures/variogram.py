"""The semivariogram: residuals, the fitted model, and what chance makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..inference.estimate import Fit
from ..inference.variogram import PLACES, lags_of, semivariance, trend_residuals, variogram_envelope
from .axes import BLUE, SKY, axes_of, checked, finish, label, legend, scale_of, unit_of

if TYPE_CHECKING:
    from ..annotations import Axes


def variogram(
    fit: Fit,
    *,
    bins: int = 15,
    envelope: int = 199,
    level: float = 0.95,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw the empirical semivariogram of the trend's residuals, and the fitted model's.

    γ(h) = τ² + σ²(1 - ρ(h)). The area of a point grows with its number of pairs. The model was
    fitted by maximum likelihood to the values, not to the points. The band holds the points of
    fields that are simulated at the estimate, with the trend estimated anew and the covariance
    parameters held; each distance has its band for itself, so that one of fifteen points often
    lies outside.

    Parameters
    ----------
    fit : Fit
    bins : int
    envelope : int
        How many fields to simulate for the band; 0 leaves it out.
    level : float
        Of the band.
    ax : matplotlib.axes.Axes, optional
    seed : int
        Of the simulated fields, and of the subsample that is taken of more than 2,000 places.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidInput
        For too few bins or fields.
    """
    seen, model = checked("fit", fit, Fit).observations, fit.model
    ax = axes_of(ax)
    lags = lags_of(seen, model=model, bins=bins, seed=seed)
    gamma, distance = lags.semivariances(trend_residuals(fit)[lags.rows]), lags.distance
    n, pairs = len(seen), lags.pairs
    places = f"a random {PLACES:,} of {n:,} places" if n > PLACES else f"{n:,} places"
    area = (10 + 70 * pairs / pairs.max()) * scale_of(ax) ** 2
    ax.scatter(distance, gamma, s=area, color="0.35", label=f"empirical, {places}", zorder=3)
    # finest where the curve bends most, close to 0
    h = 1.04 * distance.max() * np.linspace(0.0, 1.0, 301)[1:] ** 2
    curve = semivariance(model, h)
    ax.plot(h, curve, color=BLUE, linewidth=2, label="fitted Matérn model")
    top, sill = max(gamma.max(), curve.max()), model.nugget + model.variance
    if sill <= 1.3 * top:
        ax.axhline(sill, color=BLUE, linewidth=1, linestyle=":", label="variance + nugget")
        top = max(top, sill)
    if envelope:
        ends = variogram_envelope(fit, lags, draws=envelope, level=level, seed=seed)
        words = f"{100 * level:g} % of {envelope} simulations, at each distance"
        ax.fill_between(distance, *ends, color=SKY, alpha=0.3, linewidth=0, label=words)
        # a band may be several times higher than what it is there to judge
        top = max(top, min(float(ends[1].max()), 2 * top))
    ax.set(xlim=(0, h[-1]), ylim=(0, 1.08 * top), title="Semivariogram")
    along = "distance" if model.anisotropy is None else "distance along the longest range"
    ax.set_xlabel(label(along, seen.unit))
    ax.set_ylabel(label("semivariance", unit_of("variance", seen)))
    legend(ax, loc="best")
    finish(ax)
    return ax
