"""Random symmetric positive definite matrices with a given spectrum.

The spectra are those of Table 1 of Abdelfattah, Tomov & Dongarra (2020). A = V Λ V' with V a
product of three random sign changes and cosine transforms: orthogonal, dense, and applied in
n² log n operations; LAPACK's dlatms needs n³.
"""

import numpy as np

from ..errors import InvalidInput

SPECTRA = ("arithmetic", "clustered", "logarithmic", "geometric", "custom-clustered")


def eigenvalues(spectrum, n, condition, seed=0):
    """Return n eigenvalues between 1/condition and 1, descending.

    "arithmetic": equidistant; "clustered": one 1, all others 1/κ; "logarithmic": random, uniform
    in the logarithm; "geometric"; "custom-clustered": a tenth 1, all others 1/κ.
    """
    if spectrum not in SPECTRA:
        raise InvalidInput(f"`spectrum` must be one of: {', '.join(SPECTRA)}. Got {spectrum!r}.")
    if n < 1 or not condition >= 1:
        raise InvalidInput(
            f"`n` and `condition` must be at least 1. Got n={n}, condition={condition}."
        )
    t = np.arange(n) / max(n - 1, 1)
    if spectrum == "arithmetic":
        return 1 - t * (1 - 1 / condition)
    if spectrum == "geometric":
        return condition**-t
    if spectrum == "logarithmic":
        random = np.random.default_rng([seed, 1]).uniform(-np.log(condition), 0.0, n)
        return np.sort(np.exp(random))[::-1]
    ones = 1 if spectrum == "clustered" else n // 10
    return np.where(np.arange(n) < ones, 1.0, 1 / condition)


def spd_matrix(spectrum, n, condition, seed=0):
    """Return a dense symmetric matrix with this spectrum, in FP64 and Fortran order.

    >>> a = spd_matrix("geometric", 50, 1e3)
    >>> bool(np.allclose(np.linalg.eigvalsh(a)[::-1], eigenvalues("geometric", 50, 1e3)))
    True
    """
    return _matrix(eigenvalues(spectrum, n, condition, seed), seed)


def infinity_condition(a, spectrum, condition, seed=0):
    """Return κ∞ = ‖A‖∞ ‖A⁻¹‖∞ of A = spd_matrix(spectrum, n, condition, seed).

    >>> a = spd_matrix("arithmetic", 50, 1e4)
    >>> bool(1e4 < infinity_condition(a, "arithmetic", 1e4) < 50 * 1e4)
    True
    """
    inverse = _matrix(1 / eigenvalues(spectrum, len(a), condition, seed), seed)
    return _infinity_norm(a) * _infinity_norm(inverse)


def _infinity_norm(a):
    return max(float(np.abs(row).sum()) for row in a.T)


def _matrix(values, seed):
    """Return V Λ V' in Fortran order."""
    n = len(values)
    random = np.random.default_rng([seed, 2])
    signs = [random.choice([-1.0, 1.0], n) for _ in range(3)]
    a = _rotated(np.diag(values), signs)
    a = _rotated(np.ascontiguousarray(a.T), signs)
    # rounding errors of the two triangles differ
    a += a.T.copy()
    a *= 0.5
    return np.asfortranarray(a)


def _rotated(a, signs):
    """Return V A."""
    from scipy.fft import dct

    for column_signs in signs:
        a *= column_signs[:, None]
        a = dct(a, axis=0, norm="ortho", overwrite_x=True)
    return a
