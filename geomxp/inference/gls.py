"""Generalised least squares: the coefficients of the trend, given a factor of Σ."""

from dataclasses import dataclass

import numpy as np
import scipy

from ..errors import NotPositiveDefinite


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
