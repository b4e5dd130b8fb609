"""Vecchia's sparse factor of the precision matrix: Σ⁻¹ = B'B, one row of B for each place."""

import numpy as np

from ..errors import NotPositiveDefinite


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
        from .rows import whiten

        y = self._columns(columns)
        out = np.empty_like(y)
        whiten(*self._rows, y, out)
        return out.reshape(np.shape(columns))

    def solve(self, columns):
        """Return Σ⁻¹y = B'By for vectors (n,) or (n, c)."""
        from .rows import transposed

        white = self.whiten(columns).reshape(len(self.variances), -1)
        out = np.empty_like(white)
        transposed(*self._rows, white, out)
        return self._back(out, np.shape(columns))

    def multiply(self, columns):
        """Return B⁻¹w for vectors (n,) or (n, c): with normal w, draws of observations."""
        from .rows import unwhiten

        y = self._columns(columns)
        unwhiten(self.graph.sequence, *self._rows, y)
        return self._back(y, np.shape(columns))

    def whiten_transposed(self, columns):
        """Return B⁻ᵀy for vectors (n,) or (n, c): B⁻ᵀΣ⁻¹ = B."""
        from .rows import unwhiten_transposed

        y = self._columns(columns)
        unwhiten_transposed(self.graph.sequence, *self._rows, y)
        return y.reshape(np.shape(columns))

    def _columns(self, columns):
        """Return columns in the order of the tree, (n, c), C order, a copy."""
        y = np.asarray(columns, dtype=np.float64)
        return np.array(y.reshape(len(y), -1)[self.graph.tree.order], order="C")

    def _back(self, found, shape):
        out = np.empty_like(found)
        out[self.graph.tree.order] = found
        return out.reshape(shape)
