"""Noise: what observations vary by beside the field.

Its covariance matrix is Σ_k c_k D_k with known D_k. The c_k are parameters of the model: the
nugget, or one for each variable, and the microscale variation. The last one is 1 for known
variances of the errors. The D_k are diagonal; where nuggets of variables are correlated, so is the
noise of observations at one location.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from .parameter import NOISE, Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._typing import Any, Floats
    from .inputs import Inputs


def of_each_measurement(inputs: Inputs, where: tuple[int, ...] = ()) -> Floats:
    """Return 1 over the number of measurements, (n,); with `where` 0 for other variables."""
    own = np.ones(len(inputs)) if not where else (inputs.variable == where[0]).astype(np.float64)
    return own if inputs.replicates is None else own / inputs.replicates


def of_each_location(inputs: Inputs, where: tuple[int, ...] = ()) -> Floats:
    """Return ones, (n,)."""
    return np.ones(len(inputs))


@dataclass(frozen=True)
class NoiseParameter(Parameter):
    """A variance of the noise.

    Parameters
    ----------
    name, value, … : see `Parameter`
    share : callable
        Returns the diagonal of D_k, (n,), for inputs and the parameter's variables.
    shared : bool
        Whether replicates at one location have the same noise.

    Examples
    --------
    Errors that grow with the time:

    >>> drift = NoiseParameter("drift", 0.0, share=lambda inputs, where: inputs.time)
    >>> drift.role, drift.linear, drift.closed
    ('noise', True, True)
    """

    unit: str = "value²"
    linear: bool = True
    closed: bool = True
    role: str = NOISE
    share: Callable[[Inputs, tuple[int, ...]], Floats] = of_each_measurement
    shared: bool = False


NUGGET = NoiseParameter("nugget", 0.0)
MICROSCALE = NoiseParameter("microscale", 0.0, share=of_each_location, shared=True)
NUGGET_COVARIANCE = Parameter("nugget_covariance", 0.0, "identity", -inf, unit="value²", role=NOISE)


def variances_in(model: Any) -> list[NoiseParameter]:
    """Return the parameters of a model that are variances of the noise, with their values."""
    return [p for p in model.table if isinstance(p, NoiseParameter)]


@dataclass(frozen=True)
class Noise:
    """The noise of some inputs under a model.

    Parameters
    ----------
    inputs : Inputs
    names : tuple of str
        The parameters whose derivatives are the first diagonals.
    coefficients : (q,) ndarray
        c, those parameters' values, and 1 for known variances.
    diagonals : (q, n) ndarray
        Those of the D_k.
    shared : tuple of bool
        For each diagonal whether replicates at one location have the same noise.
    matrix : (p, p) ndarray, optional
        Covariances of the nuggets of the variables at one location; None if independent.
    beside : tuple of bool
        For each diagonal whether it is of other noise than the nuggets.

    Examples
    --------
    >>> from geomxp import Inputs, Matern
    >>> inputs = Inputs(np.zeros((2, 1)), error_variance=np.array([0.0, 0.3]))
    >>> Noise.of(Matern(1.0, 1.0, 0.5, nugget=0.1), inputs).variances.tolist()
    [0.1, 0.4]
    """

    inputs: Inputs
    names: tuple[str, ...]
    coefficients: Floats
    diagonals: Floats
    shared: tuple[bool, ...]
    matrix: Floats | None = None
    beside: tuple[bool, ...] = ()

    @classmethod
    def of(cls, model: Any, inputs: Inputs) -> Noise:
        """Return the noise of inputs under a model."""
        parts = [p for p in model.declarations() if isinstance(p, NoiseParameter)]
        known, key = inputs.diagonals, tuple([(p.name, p.share, p.where) for p in parts])
        if key not in known:
            # all models of a search share these
            rows = [p.share(inputs, p.where) for p in parts]
            shared, beside = [p.shared for p in parts], [p.group != NUGGET.name for p in parts]
            if inputs.error_variance is not None:
                rows.append(inputs.error_variance)
                shared.append(False)
                beside.append(True)
            names = tuple(p.name for p in parts)
            diagonals = np.array(rows).reshape(len(rows), len(inputs))
            known[key] = names, diagonals, tuple(shared), tuple(beside)
        names, diagonals, shared, beside = known[key]
        values = model.parameters()
        coefficients = [values[p.name] for p in parts]
        coefficients += [1.0] * (len(diagonals) - len(parts))
        matrix = None if model.nugget_covariance is None else model.nugget_matrix
        return cls(inputs, names, np.array(coefficients), diagonals, shared, matrix, beside)

    def __len__(self) -> int:
        return len(self.diagonals)

    @property
    def variances(self) -> Floats:
        """The variance of each observation's noise, (n,)."""
        return self._sum(range(len(self.diagonals)))

    @property
    def unshared(self) -> Floats:
        """The part of `variances` that replicates at one location do not share, (n,)."""
        return self._sum([k for k, shared in enumerate(self.shared) if not shared])

    @property
    def of_locations(self) -> Floats:
        """The part of `variances` that replicates at one location share, (n,)."""
        return self._sum([k for k, shared in enumerate(self.shared) if shared])

    def _sum(self, which):
        parts = [self.coefficients[k] * self.diagonals[k] for k in which]
        return sum(parts[1:], parts[0]) if parts else np.zeros(len(self.inputs))

    def derivative(self, name: str) -> Floats:
        """Return the derivative of `variances` by a parameter, (n,)."""
        return self.diagonals[self.names.index(name)]

    @property
    def least(self) -> float:
        """A lower bound of the eigenvalues of the noise's covariance matrix."""
        least = float(np.min(self.variances, initial=inf))
        return least if self.matrix is None else min(least, np.linalg.eigvalsh(self.matrix)[0])

    def draw(self, random: np.random.Generator, draws: int) -> Floats:
        """Draw the noise of new observations, (draws, n)."""
        shape = draws, len(self.inputs)
        if self.matrix is None:
            return np.sqrt(self.variances) * random.standard_normal(shape)
        check_one_value(
            self.inputs,
            "simulated observations with nugget covariances need one value for each location and "
            "variable, and a location is repeated: give each location and variable once, or draw "
            'the field, of="field".',
        )
        place = replace(self.inputs, variable=None).first_rows()
        # a symmetric root: the matrix may be singular
        values, vectors = np.linalg.eigh(self.matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        white = random.standard_normal((draws, len(root), shape[1]))
        noise = np.einsum("nk,dkn->dn", root[self.inputs.variable], white[:, :, place])
        others = [k for k, other in enumerate(self.beside) if other]
        if others:
            noise += np.sqrt(self._sum(others)) * random.standard_normal(shape)
        return noise


def check_one_value(inputs: Inputs, message: str) -> None:
    """Raise `InvalidInput` where a variable has several values at a location, or their mean.

    It is not known then which of them share noise.
    """
    means = inputs.replicates is not None and np.any(inputs.replicates != 1)
    if means or inputs.duplicate_inputs:
        raise InvalidInput(message)


def without_noise(model: Any) -> Any:
    """Return the model of the field alone: variances of the noise are 0, optional ones left out.

    Examples
    --------
    >>> from geomxp import Matern
    >>> without_noise(Matern(1.0, 1.0, 0.5, 0.1, microscale=0.2))
    Matern(variance=1.0, range=1.0, smoothness=0.5, nugget=0.0, anisotropy=None)
    """
    noise = [p for p in model.table if p.role == NOISE]
    groups = {p.group for p in noise}
    optional = {f.name: None for f in fields(model) if f.default is None and f.name in groups}
    zeros = {p.name: 0.0 for p in noise if p.group not in optional}
    return replace(model, **optional).replace(**zeros)
