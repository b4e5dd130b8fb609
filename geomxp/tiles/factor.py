"""The Cholesky factor of a covariance matrix, and all that statistics asks of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dense import kernels


@dataclass(frozen=True)
class CholeskyFactor:
    """Σ = L L'. Takes and returns NumPy arrays, wherever L lives.

    Parameters
    ----------
    lower : (n, n) NumPy or CuPy array, Fortran order
        L in the lower triangle; the rest is not looked at.

    Examples
    --------
    >>> sigma = np.array([[4.0, 2.0], [2.0, 3.0]], order="F")
    >>> factor = CholeskyFactor(kernels.potrf(sigma.copy(order="F")))
    >>> bool(np.allclose(sigma @ factor.solve(np.ones(2)), 1.0))
    True
    """

    lower: Any

    def log_determinant(self):
        """Return log|Σ| = 2 Σ_i log L_ii."""
        diagonal = self.lower.diagonal()
        return 2.0 * float(np.log(_on_host(diagonal)).sum())

    def whiten(self, b):
        """Return L⁻¹b for (n,) or (n, m): independent and of variance 1 if b has covariance Σ."""
        return _on_host(kernels.trsm(self.lower, self._beside(b)))

    def solve(self, b):
        """Return Σ⁻¹b for (n,) or (n, m)."""
        half = kernels.trsm(self.lower, self._beside(b))
        return _on_host(kernels.trsm(self.lower, half, transposed=True))

    def multiply(self, x):
        """Return L x for (n, m): of covariance Σ if x is independent and of variance 1."""
        return _on_host(kernels.trmm(self.lower, self._beside(x)))

    def into_inverse(self):
        """Return the lower triangle of Σ⁻¹, written over L where that can be; ends this factor."""
        return _on_host(kernels.potri(self.lower))

    def _beside(self, b):
        """Return b where L is."""
        if isinstance(self.lower, np.ndarray):
            return b
        import cupy

        with self.lower.device:
            return cupy.asfortranarray(cupy.asarray(b))


def _on_host(array):
    return array if isinstance(array, np.ndarray) else array.get()
