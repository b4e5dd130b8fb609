"""What a factor of Σ says of observations that are left out, without another factor.

With Q = Σ⁻¹ - Σ⁻¹X(X'Σ⁻¹X)⁻¹X'Σ⁻¹ the observations F have, given all others and with the trend
estimated from those, the mean z_F - Q_FF⁻¹(Qz)_F and the covariance Q_FF⁻¹ (Dubrule 1983, Math.
Geol. 15:687).
"""

import numpy as np
import scipy

from ..errors import NotPositiveDefinite
from ..inference.exact_evaluator import check_memory
from ..inference.gls import fit_trend
from ..vecchia.factor import VecchiaFactor

CHUNK_ENTRIES = 1 << 22
"""Entries of Σ^(-½) or Σ⁻¹ held at one time while the diagonal is summed."""


class HeldOut:
    """Predictions of some observations from all others, out of one factor of Σ.

    Parameters
    ----------
    factor : CholeskyFactor, TileFactor, RefinedFactor or VecchiaFactor
        A Vecchia factor's Σ is the one that the approximation stands for.
    values : (n,) ndarray
    design : (n, p) ndarray
    device : Device
        Where the factor lives.

    Examples
    --------
    With Σ = I and a constant trend it is the mean of the others:

    >>> from geomxp.execution.devices import Device
    >>> from geomxp.tiles.factor import CholeskyFactor
    >>> one = CholeskyFactor(np.eye(3, order="F"))
    >>> mean, variance = HeldOut(one, np.array([1.0, 2.0, 6.0]), np.ones((3, 1)),
    ...                          Device("cpu")).one_by_one()
    >>> bool(np.allclose(mean, [4.0, 3.5, 1.5])), bool(np.allclose(variance, 1.5))
    (True, True)
    """

    def __init__(self, factor, values, design, device):
        known = fit_trend(factor, values, design)
        self.factor, self.values, self.device = factor, values, device
        # Qz = Σ⁻¹(z - Xβ̂)
        self.solution = factor.solve(known.residual)
        # Q = Σ⁻¹ - BB'
        self.beside = np.zeros((len(values), 0))
        if design.shape[1]:
            self.beside = factor.solve(np.asfortranarray(design @ known.root))

    def one_by_one(self):
        """Return the mean and variance of each observation given all others, (n,).

        z_i - (Qz)_i/Q_ii and 1/Q_ii.
        """
        diagonal = self._diagonal_of_inverse() - np.einsum("ij,ij->i", self.beside, self.beside)
        if not (diagonal > 0).all():
            row = int(np.argmin(diagonal)) + 1
            raise NotPositiveDefinite(
                f"the variance of row {row} given all others is lost to rounding: use a larger "
                "nugget, or a finer precision.",
            )
        return self.values - self.solution / diagonal, 1.0 / diagonal

    def together(self, rows):
        """Return the mean and variance of some observations given all others, (k,).

        Parameters
        ----------
        rows : (k,) ndarray of int

        Raises
        ------
        NotPositiveDefinite
        NotEnoughMemory
        """
        n, k = len(self.values), len(rows)
        # whitened columns, a copy of them, and their products
        check_memory(n, (2 * k + k * k / n) / n, self.device)
        block = self._block_of_inverse(rows)
        block -= self.beside[rows] @ self.beside[rows].T
        try:
            lower = scipy.linalg.cho_factor(block, lower=True, overwrite_a=True)
        except np.linalg.LinAlgError:
            raise NotPositiveDefinite(
                f"the covariance of the {k} observations held out, given all others, is lost to "
                "rounding: use more folds, a larger nugget or a finer precision."
            ) from None
        mean = self.values[rows] - scipy.linalg.cho_solve(lower, self.solution[rows])
        # (LL')⁻¹ has the squared columns of L⁻¹ for a diagonal
        inverse, _ = scipy.linalg.lapack.dtrtri(lower[0], lower=1, overwrite_c=1)
        inverse = np.tril(inverse)
        return mean, np.einsum("ij,ij->j", inverse, inverse)

    def _block_of_inverse(self, rows):
        """Return (Σ⁻¹)_FF = (L⁻¹E)'(L⁻¹E) with the columns E of the identity."""
        columns = _columns_of_identity(len(self.values), rows)
        if not hasattr(self.factor, "gram"):
            half = self.factor.whiten(columns)
            return half.T @ half
        w = self.factor.solve(columns)
        # E'Σ⁻¹E = E'w + w'E - w'Σw + O(δw²): what w still errs by counts twice
        return w[rows] + w[rows].T - w.T @ self.factor.times(w)

    def _diagonal_of_inverse(self):
        """Return the diagonal of Σ⁻¹, (n,)."""
        if isinstance(self.factor, VecchiaFactor):
            return _diagonal_of_precision(self.factor)
        n = len(self.values)
        # in the factor's order, for there the whitened columns begin with zeros
        order = getattr(self.factor, "order", None)
        order = np.arange(n) if order is None else order
        found = np.empty(n)
        step = max(1, CHUNK_ENTRIES // n // getattr(self.factor, "vectors", 1))
        for first in range(0, n, step):
            rows = order[first : first + step]
            columns = _columns_of_identity(n, rows)
            if hasattr(self.factor, "gram"):
                w = self.factor.solve(columns)
                found[rows] = np.einsum("ij,ij->j", 2 * columns - self.factor.times(w), w)
            else:
                half = self.factor.whiten(columns)
                found[rows] = np.einsum("ij,ij->j", half, half)
        return found


def _columns_of_identity(n, rows):
    columns = np.zeros((n, len(rows)), order="F")
    columns[rows, np.arange(len(rows))] = 1.0
    return columns


def _diagonal_of_precision(factor):
    """Return the diagonal of Σ⁻¹ = B'B, row i of B being (1 at i, -λ_i at its neighbours)/√d_i."""
    near, d = factor.graph.neighbours, factor.variances
    there = near >= 0
    shares = (factor.weights[there] ** 2) / np.broadcast_to(d[:, None], near.shape)[there]
    sums = 1.0 / d + np.bincount(near[there], shares, minlength=len(d))
    found = np.empty(len(d))
    found[factor.graph.tree.order] = sums
    return found
