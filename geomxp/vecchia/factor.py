"""Products with Vecchia's sparse factor, compiled by numba: B has a row for each place.

Row i of B is (1 at i, -λ_i at its neighbours)/√d_i, and Σ⁻¹ = B'B. Columns stand in C order,
(n, c), so that the values of one place are beside each other.
"""

from math import sqrt

import numpy as np

from ..errors import NotPositiveDefinite
from ..runtime.devices import njit


@njit(nogil=True, cache=True)
def whiten(neighbours, weights, variances, y, out):
    """Out <- B y."""
    for i in range(len(out)):
        out[i] = y[i]
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    out[i, c] -= weights[i, q] * y[j, c]
        out[i] /= sqrt(variances[i])


@njit(nogil=True, cache=True)
def transposed(neighbours, weights, variances, y, out):
    """Out <- B'y."""
    out[:] = 0.0
    for i in range(len(out)):
        scale = 1.0 / sqrt(variances[i])
        for c in range(y.shape[1]):
            out[i, c] += y[i, c] * scale
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    out[j, c] -= weights[i, q] * y[i, c] * scale


@njit(nogil=True, cache=True)
def unwhiten(sequence, neighbours, weights, variances, y):
    """Y <- B⁻¹ y, in the order in which places follow each other."""
    for i in sequence:
        y[i] *= sqrt(variances[i])
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    y[i, c] += weights[i, q] * y[j, c]


@njit(nogil=True, cache=True)
def unwhiten_transposed(sequence, neighbours, weights, variances, y):
    """Y <- B⁻ᵀ y."""
    for k in range(len(sequence) - 1, -1, -1):
        i = sequence[k]
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    y[j, c] += weights[i, q] * y[i, c]
        y[i] *= sqrt(variances[i])


@njit(nogil=True, cache=True)
def means(neighbours, weights, y):
    """Return Σ_q λ_iq y_j, (k, c)."""
    out = np.zeros((len(neighbours), y.shape[1]))
    for i in range(len(neighbours)):
        for q in range(neighbours.shape[1]):
            j = neighbours[i, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    out[i, c] += weights[i, q] * y[j, c]
    return out


@njit(nogil=True, cache=True)
def go_on(targets, neighbours, weights, variances, y):
    """Y at the targets, normal numbers there <- draws given what stands at their neighbours."""
    for k in range(len(targets)):
        i = targets[k]
        y[i] *= sqrt(variances[k])
        for q in range(neighbours.shape[1]):
            j = neighbours[k, q]
            if j >= 0:
                for c in range(y.shape[1]):
                    y[i, c] += weights[k, q] * y[j, c]


# Vecchia's sparse factor of the precision matrix: Σ⁻¹ = B'B, one row of B for each place.


class VecchiaFactor:
    """As much of a Cholesky factor as Vecchia's approximation has; L stands for B⁻¹.

    Rows of what it is given and returns are those of the observations.

    Parameters
    ----------
    graph : Graph
    weights : (n, m) ndarray
        λ: the conditional mean is λ'z_N.
    variances : (n,) ndarray
        d, the conditional variances.

    Raises
    ------
    NotPositiveDefinite
        If a conditional variance is not positive; `order` is then the number in the tree.
    """

    precision_map = None
    promotions = 0

    def __init__(self, graph, weights, variances):
        bad = ~(variances > 0)
        if bad.any():
            raise NotPositiveDefinite("a conditional variance is not positive", int(bad.argmax()))
        self.graph, self.weights, self.variances = graph, weights, variances

    @property
    def nbytes(self):
        """Bytes of weights, variances and neighbours."""
        return self.weights.nbytes + self.variances.nbytes + self.graph.neighbours.nbytes

    @property
    def _rows(self):
        return self.graph.neighbours, self.weights, self.variances

    def log_determinant(self):
        """Return log|Σ| = Σ log d_i."""
        return float(np.log(self.variances).sum())

    def whiten(self, columns):
        """Return B y for vectors (n,) or (n, c), in the order of the tree."""
        y = self._columns(columns)
        out = np.empty_like(y)
        whiten(*self._rows, y, out)
        return out.reshape(np.shape(columns))

    def solve(self, columns):
        """Return Σ⁻¹y = B'By for vectors (n,) or (n, c)."""
        white = self.whiten(columns).reshape(len(self.variances), -1)
        out = np.empty_like(white)
        transposed(*self._rows, white, out)
        return self._back(out, np.shape(columns))

    def multiply(self, columns):
        """Return B⁻¹w for vectors (n,) or (n, c): with normal w, draws of observations."""
        y = self._columns(columns)
        unwhiten(self.graph.sequence, *self._rows, y)
        return self._back(y, np.shape(columns))

    def whiten_transposed(self, columns):
        """Return B⁻ᵀy for vectors (n,) or (n, c): B⁻ᵀΣ⁻¹ = B."""
        y = self._columns(columns)
        unwhiten_transposed(self.graph.sequence, *self._rows, y)
        return y.reshape(np.shape(columns))

    def inverse_diagonal(self, n):
        """Return the diagonal of Σ⁻¹ = B'B, (n,).

        Row i of B has 1/√d_i at i and -λ_i/√d_i at its neighbours.
        """
        near, d = self.graph.neighbours, self.variances
        present = near >= 0
        shares = (self.weights[present] ** 2) / np.broadcast_to(d[:, None], near.shape)[present]
        sums = 1.0 / d + np.bincount(near[present], shares, minlength=n)
        return self._back(sums, (n,))

    def _columns(self, columns):
        """Return columns in the order of the tree, (n, c), C order, a copy."""
        y = np.asarray(columns, dtype=np.float64)
        return np.array(y.reshape(len(y), -1)[self.graph.tree.order], order="C")

    def _back(self, found, shape):
        out = np.empty_like(found)
        out[self.graph.tree.order] = found
        return out.reshape(shape)
