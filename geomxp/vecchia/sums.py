"""What a pass over Vecchia's blocks has summed, by parameters of the model."""

import numpy as np

BASES = 6
"""Derivatives of a block's matrix S of which all others are made: S itself, the unit matrix, by
the smoothness, by the logarithm of all distances, by the angle and by the ratio of anisotropy."""

_OF = {
    "variance": 1,
    "nugget": 1,
    "smoothness": 2,
    "range": 3,
    "anisotropy_angle": 4,
    "anisotropy_ratio": 5,
}


def wanted_for(names):
    """Return which of the BASES the derivatives by some parameters need, (BASES,) of bool."""
    wanted = np.zeros(BASES, dtype=bool)
    for name in names:
        wanted[[0, _OF[name]]] = True
    if wanted[4:].any():
        wanted[3:] = True
    return wanted


class Sums:
    """Sums over all blocks, and their derivatives.

    Parameters
    ----------
    out : 1-D ndarray
        As `blocks.likelihood_slice` returns them.
    count : int
        Columns that were whitened, c.
    model : Matern
    names : set of str
        Parameters whose derivatives are there.

    Attributes
    ----------
    log_determinant : float
        log|Σ|.
    gram : (c, c) ndarray
        W'W of the whitened columns.
    """

    def __init__(self, out, count, model, names):
        self.names, self._model = names, model
        self.log_determinant = float(out[0])
        parts = np.split(out[1:], np.cumsum((count**2, BASES, BASES**2)))
        gram = np.tril(parts[0].reshape(count, count))
        self.gram = gram + np.tril(gram, -1).T
        self._traces = parts[1]
        information = np.tril(parts[2].reshape(BASES, BASES))
        self._information = information + np.tril(information, -1).T
        changes = parts[3].reshape(BASES, count, count)
        self._changes = changes + changes.transpose(0, 2, 1)

    def derivative(self, name):
        """Return ∂ log|Σ| and ∂(W'W), (c, c), by a parameter."""
        row = self._combination(name)
        return float(row @ self._traces), np.tensordot(row, self._changes, 1)

    def information(self, names):
        """Return the expected information of some parameters, (k, k)."""
        rows = np.array([self._combination(name) for name in names]).reshape(-1, BASES)
        return rows @ self._information @ rows.T

    def _combination(self, name):
        """Return the coefficients of the BASES in ∂S by a parameter, (BASES,)."""
        row, model = np.zeros(BASES), self._model
        row[_OF[name]] = 1.0
        if name == "variance":
            # S = σ²R + τ²I
            row[:2] = 1.0 / model.variance, -model.nugget / model.variance
        elif name == "range":
            # ∂C/∂a = -(σ²/a) r ρ'(r)
            row[3] = -1.0 / model.range
        return row
