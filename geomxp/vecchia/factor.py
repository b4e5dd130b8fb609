"""Vecchia's sparse factor of the precision matrix: Σ⁻¹ = B'B, one row of B for each place.

Row i of B is (1 at i, -λ_i at its neighbours)/√d_i.
"""

import numpy as np

from ..errors import NotPositiveDefinite


class VecchiaFactor:
    """Sparse counterpart of a Cholesky factor; L stands for B⁻¹.

    Rows of arguments and of results are those of the observations, unless stated otherwise.

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
        If a conditional variance is not positive; `order` is then the place's number in the tree.
    """

    precision_map = order = last = moved = None
    promotions, refines, vectors, events = 0, False, 1, ()

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

    def half_solve(self, columns):
        """Return B y for vectors (n,) or (n, c), in the order of the tree."""
        from . import kernel

        y = self._columns(columns)
        out = np.empty_like(y)
        kernel.whiten(*self._rows, y, out)
        return out.reshape(np.shape(columns))

    def inner(self, a, b=None):
        """Return a'Σ⁻¹b = (Ba)'(Bb) for (n, m) and (n, k); b is a if not given."""
        half = self.half_solve(a)
        return half.T @ (half if b is None else self.half_solve(b))

    def solve(self, columns):
        """Return Σ⁻¹y = B'By for vectors (n,) or (n, c)."""
        from . import kernel

        white = self.half_solve(columns).reshape(len(self.variances), -1)
        out = np.empty_like(white)
        kernel.transposed(*self._rows, white, out)
        return self._restored(out, np.shape(columns))

    def multiply(self, columns):
        """Return B⁻¹w for vectors (n,) or (n, c): with normal w, draws of observations."""
        from . import kernel

        y, sequence = self._columns(columns), self.graph.sequence
        kernel.unwhiten(sequence, sequence, *self._rows, y)
        return self._restored(y, np.shape(columns))

    def whiten_transposed(self, columns):
        """Return B⁻ᵀy for vectors (n,) or (n, c), in the order of the tree: B⁻ᵀΣ⁻¹ = B."""
        from . import kernel

        y = self._columns(columns)
        kernel.unwhiten_transposed(self.graph.sequence, *self._rows, y)
        return y.reshape(np.shape(columns))

    def inverse_diagonal(self, n):
        """Return the diagonal of Σ⁻¹ = B'B, (n,).

        Row i of B has 1/√d_i at i and -λ_i/√d_i at its neighbours.
        """
        near, d = self.graph.neighbours, self.variances
        present = near >= 0
        shares = (self.weights[present] ** 2) / np.broadcast_to(d[:, None], near.shape)[present]
        sums = 1.0 / d + np.bincount(near[present], shares, minlength=n)
        return self._restored(sums, (n,))

    def _columns(self, columns):
        """Return a copy of columns in the order of the tree, (n, c), C order."""
        y = np.asarray(columns, dtype=np.float64)
        return np.array(y.reshape(len(y), -1)[self.graph.tree.order], order="C")

    def _restored(self, columns, shape):
        """Return columns in the order of the observations."""
        out = np.empty_like(columns)
        out[self.graph.tree.order] = columns
        return out.reshape(shape)


def draw_onwards(places, neighbours, weights, variances, y):
    """Turn normal numbers at places into draws, each given the values of its neighbours.

    y_i <- λ'y_N + √d y_i, place by place in the order given.

    Parameters
    ----------
    places : (k,) ndarray of int
        Rows of y.
    neighbours : (k, m) ndarray of int32
        Rows of y that each place is conditioned on; -1 for none.
    weights, variances : (k, m), (k,) ndarray
        λ and d.
    y : (n, c) ndarray
        Values where they are known, normal numbers at the places; overwritten there.
    """
    from . import kernel

    kernel.unwhiten(places, np.arange(len(places)), neighbours, weights, variances, y)
