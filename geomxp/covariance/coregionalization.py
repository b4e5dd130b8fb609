"""The linear model of coregionalization: variables as sums of independent Matérn fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from .base import NUGGET, RANGE
from .multivariate import (
    EACH_VARIABLE,
    LOADING,
    LOWER_TRIANGLE,
    SHRINKING_FACTOR,
    SMOOTHNESS,
    Multivariate,
    name_of,
)
from .term import Change, Term

LEAST_EIGENVALUE = 0.1
"""Least eigenvalue of the correlations of a model made of marginal ones."""


class Coregionalized(Multivariate):
    """Base of linear models of coregionalization, with fields of any isotropic family."""

    @classmethod
    def _near(cls, values, correlations, dimensions):
        deviations, beta = np.sqrt(values.pop("variance")), correlations
        while np.linalg.eigvalsh(beta).min() < LEAST_EIGENVALUE:
            beta = SHRINKING_FACTOR * beta + (1 - SHRINKING_FACTOR) * np.eye(len(beta))
        loading = deviations[:, None] * np.linalg.cholesky(beta)
        return cls(loading=loading[np.tril_indices(len(beta))].tolist(), **values)

    def components(self) -> list[Term]:
        """Return one term for each of the fields W_k."""
        p = self.variables
        triangle = np.zeros((p, p))
        triangle[np.tril_indices(p)] = self.loading
        one, result = np.ones((p, p)), []
        names = [shape.name for shape in self.in_space.shapes]
        for k in range(p):
            loads, changes = triangle[:, k], {}
            for i in range(k, p):
                own = np.zeros(p)
                own[i] = 1.0
                change = np.outer(own, loads)
                changes[name_of("loading", (i, k))] = Change(amplitude=change + change.T)
            changes[name_of("range", (k,))] = Change(log_range=one / self.range[k])
            for name in names:
                changes[name_of(name, (k,))] = Change(shapes={name: one})
            shapes = [one * getattr(self, name)[k] for name in names]
            amplitude = np.outer(loads, loads)
            result.append(self.term(amplitude, one * self.range[k], shapes, changes))
        return result


@dataclass(frozen=True)
class Coregionalization(Coregionalized):
    """Linear model of coregionalization: Y_i = Σ_k L_ik W_k, with independent Matérn fields W_k.

    L is lower triangular, and W_k has variance 1, range a_k and smoothness ν_k:
    C_ij(h) = Σ_k L_ik L_jk M(h/a_k; ν_k) (Goulard and Voltz 1992, Math. Geol. 24:269). Valid for
    all values.

    Parameters
    ----------
    loading : tuple of float
        L_11 > 0, L_21, L_22 > 0, L_31, …, in units of the values; or a lower triangle (p, p).
    range, smoothness : tuple of float
        a_k > 0 and ν_k > 0 of each W_k; one number stands for all.
    nugget : tuple of float
        τ_i² ≥ 0 of each variable.
    nugget_covariance : tuple of float, optional
        Covariance of the noise of variables i and j at one location, for each pair 12, 13, …; or
        a matrix with the nuggets on its diagonal. If not given the noise is independent.

    Examples
    --------
    >>> import numpy as np, geomxp as gx
    >>> model = Coregionalization([[1.0, 0.0], [0.5, 2.0]], (0.5, 0.1), 0.5)
    >>> inputs = gx.Inputs(np.zeros((2, 1)), variable=np.array([0, 1]))
    >>> model(inputs, inputs).tolist()
    [[1.0, 0.5], [0.5, 4.25]]
    """

    family = "coregionalization"
    groups: ClassVar = {
        "loading": (LOWER_TRIANGLE, LOADING),
        "range": (EACH_VARIABLE, RANGE),
        "smoothness": (EACH_VARIABLE, SMOOTHNESS),
        "nugget": (EACH_VARIABLE, NUGGET),
    }

    loading: tuple[float, ...]
    range: tuple[float, ...]
    smoothness: tuple[float, ...]
    nugget: tuple[float, ...] = 0.0
    nugget_covariance: tuple[float, ...] | None = field(default=None, kw_only=True)
