"""Products with Vecchia's sparse factor, compiled by numba: B has a row for each place.

Row i of B is (1 at i, -λ_i at its neighbours)/√d_i, and Σ⁻¹ = B'B. Columns stand in C order,
(n, c), so that the values of one place are beside each other.
"""

from math import sqrt

import numpy as np

from ..execution.jit import njit


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
