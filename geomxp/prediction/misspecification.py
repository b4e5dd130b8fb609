"""Loss of efficiency and wrong variances of predictions with an approximated model.

Stein (1999, Interpolation of Spatial Data, section 3.5); Hong, Abdulah, Genton and Sun (2021,
Spat. Stat. 43:100517).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance
from ..covariance.inputs import Inputs
from ..covariance.neighbours import nearest, tree_of
from ..data.arrays import checked_inputs
from ..data.observations import Observations
from ..errors import InvalidInput, NotPositiveDefinite, check_whole
from ..likelihood.exact import Exact, check_is_method
from ..likelihood.factors import check_memory, dense_factor
from ..runtime.devices import Device, blas_threads
from ..runtime.equality import by_content
from ..vecchia.blocks import Neighbours
from .supports import check_of

if TYPE_CHECKING:
    from .._typing import ArrayLike, Document, Floats, Of
    from ..likelihood.base import Likelihood

CHUNK_LOCATIONS = 512
"""Targets, or rows of the covariance matrix, processed at one time."""


@by_content
@dataclass(frozen=True)
class Misspecification:
    """Prediction errors under a true model, of its own predictor and of an approximated one.

    Parameters
    ----------
    error_of_true : (k,) ndarray
        E_t, the error variance of the best predictor.
    error_of_approximated : (k,) ndarray
        E_ta, the true error variance of the approximated model's predictor.
    claimed : (k,) ndarray
        E_a, the error variance that the approximated model states.
    excess : (k,) ndarray
        E_ta - E_t ≥ 0, computed without cancellation.
    """

    error_of_true: Floats
    error_of_approximated: Floats
    claimed: Floats
    excess: Floats

    def __len__(self) -> int:
        return len(self.error_of_true)

    def __repr__(self) -> str:
        return f"<Misspecification: {self}>"

    @property
    def loss_of_efficiency(self) -> Floats:
        """LOE = E_ta/E_t - 1 of each target, (k,)."""
        return self.excess / self.error_of_true

    @property
    def misspecification(self) -> Floats:
        """MOM = E_a/E_ta - 1 of each target, (k,): negative if the model is overconfident."""
        return self.claimed / self.error_of_approximated - 1.0

    @property
    def mloe(self) -> float:
        """Mean loss of efficiency."""
        return float(self.loss_of_efficiency.mean())

    @property
    def mmom(self) -> float:
        """Mean misspecification of the mean square error."""
        return float(self.misspecification.mean())

    @property
    def rmom(self) -> float:
        """Root mean square of the misspecification, in which errors of both signs add up."""
        return float(np.sqrt((self.misspecification**2).mean()))

    def to_dict(self) -> Document:
        """Return n, mloe, mmom and rmom."""
        return {"n": len(self), "mloe": self.mloe, "mmom": self.mmom, "rmom": self.rmom}

    def __str__(self) -> str:
        return (
            f"MLOE {self.mloe:.6g}, MMOM {self.mmom:.6g}, RMOM {self.rmom:.6g} "
            f"at {len(self):,} locations"
        )


def mloe_mmom(
    true: Covariance,
    approximated: Covariance,
    locations: ArrayLike | Inputs | Observations,
    new_locations: ArrayLike | Inputs | Observations,
    *,
    metric: str = "euclidean",
    of: Of = "field",
    neighbours: int | None = None,
    method: Likelihood | None = None,
) -> Misspecification:
    """Compare the predictions of an approximated model with those of the true one.

    For each target, by simple kriging from observations at the locations: E_t, the error variance
    of the true model's predictor; E_ta, the error variance, under the true model, of the
    approximated model's predictor; E_a, the error variance that the approximated model states. No
    values are needed. LOE = E_ta/E_t - 1, MOM = E_a/E_ta - 1, and MLOE and MMOM are their means.

    With w = Σ⁻¹k of either model, E_ta - E_t = (w_a - w_t)'Σ_t(w_a - w_t) has no cancellation.

    Parameters
    ----------
    true, approximated : Covariance
    locations : (n, d) array_like, Inputs or Observations
        Locations of the observations.
    new_locations : (k, d) array_like, Inputs or Observations
        Targets of the predictions.
    metric : str
        Metric of arrays of locations.
    of : {"field", "observation"}
        Predict the noiseless field, or new observations: then each model's nugget is in its E.
    neighbours : int, optional
        Predict each target from this many nearest locations (in the distance in which the true
        model is isotropic) instead of from all, for many locations.
    method : Exact, optional
        `Exact()` if not given; not used with `neighbours`.

    Returns
    -------
    Misspecification

    Raises
    ------
    InvalidInput
        Also if the true model predicts a target without an error.
    NotPositiveDefinite, NotEnoughMemory

    Examples
    --------
    A model with twice the variance predicts as well, and states an error variance twice as large:

    >>> import geomxp as gx
    >>> locations = np.random.default_rng(0).random((60, 2))
    >>> true, wrong = gx.Matern(1.0, 0.1, 0.5), gx.Matern(2.0, 0.1, 0.5)
    >>> result = mloe_mmom(true, wrong, locations[10:], locations[:10])
    >>> result.mloe < 1e-12, round(result.mmom, 12)
    (True, 1.0)
    """
    inputs, targets = _checked_pair(locations, new_locations, metric)
    _check_options(true, approximated, of, neighbours, method)
    for model in (true, approximated):
        model.check_inputs(inputs)
        model.check_inputs(targets)
        model.check_observations(inputs)
    models = true, approximated
    if neighbours is None:
        result = _from_all(models, inputs, targets, method or Exact())
    else:
        result = _from_nearest(models, inputs, targets, int(neighbours))
    best, claimed, excess = result
    if of == "observation":
        best = best + true.noise(targets).variances
        claimed = claimed + approximated.noise(targets).variances
    lost = best <= 8 * len(inputs) * np.finfo(float).eps * true.largest_variance
    if lost.any():
        raise InvalidInput(
            f"target {int(np.argmax(lost)) + 1} has no error to compare: the true model predicts "
            "it exactly, as at an observed location. Leave it out."
        )
    return Misspecification(best, best + excess, claimed, excess)


def _from_all(models, inputs, targets, method):
    """Return E_t, E_a and E_ta - E_t, (3, k), from all locations."""
    n, k = len(inputs), len(targets)
    evaluator = method.prepare(inputs)
    width = min(CHUNK_LOCATIONS, k)
    # two factors, and the weights of a panel
    remedy = "use some of the locations for each target, such as neighbours=50"
    check_memory(n, 2 + 6 * width / n, evaluator.device, remedy=remedy)
    result = np.empty((3, k))
    with blas_threads(n):
        factors = [evaluator.factorize(model) for model in models]
        for first in range(0, k, width):
            part = slice(first, first + width)
            result[:, part] = _errors(models, factors, inputs, targets[part])
    return result


def _from_nearest(models, inputs, targets, neighbours):
    """As `_from_all`, each target from the locations nearest in the true model's coordinates."""
    true = models[0]
    count = min(neighbours, len(inputs))
    key = Neighbours(inputs, count).key_of(true)
    tree = tree_of(true.neighbour_points(inputs, key))
    near = nearest(tree, true.neighbour_points(targets, key), count)
    result, cpu = np.empty((3, len(targets))), Device("cpu")
    with blas_threads(neighbours):
        for i, rows in enumerate(near):
            some = inputs[tree.order[rows]]
            try:
                factors = [dense_factor(model, some, cpu) for model in models]
            except NotPositiveDefinite:
                raise NotPositiveDefinite(
                    f"the covariance matrix of the locations nearest to target {i + 1} is not "
                    "positive definite in FP64: use fewer neighbours or a larger nugget, and drop "
                    "duplicate locations."
                ) from None
            result[:, [i]] = _errors(models, factors, some, targets[[i]])
    return result


def _errors(models, factors, inputs, targets):
    """Return E_t, E_a and E_ta - E_t of a few targets, (3, k)."""
    errors, weights, true = [], [], models[0]
    for model, factor in zip(models, factors, strict=True):
        k = np.asfortranarray(model.matrix(inputs, model.of_field(targets)))
        weights.append(factor.solve(k))
        explained = np.einsum("ij,ij->j", k, weights[-1])
        errors.append(model.diagonal(targets) - explained)
    difference = weights[1] - weights[0]
    noise = true.noise(inputs).variances
    excess = np.einsum("i,ij,ij->j", noise, difference, difference)
    for first in range(0, len(inputs), CHUNK_LOCATIONS):
        rows = slice(first, first + CHUNK_LOCATIONS)
        product = true(inputs[rows], inputs) @ difference
        excess += np.einsum("ij,ij->j", difference[rows], product)
    # rounding may make the excess of two equal predictors slightly negative
    return np.array([*errors, np.maximum(excess, 0.0)])


def _checked_pair(locations, targets, metric):
    """Return the inputs of locations and of targets."""
    pair = {"locations": locations, "new_locations": targets}
    for given in pair.values():
        metric = given.metric if isinstance(given, (Inputs, Observations)) else metric
    both = []
    for name, given in pair.items():
        if isinstance(given, (Inputs, Observations)):
            if given.metric != metric:
                raise InvalidInput(f"`{name}` must be {metric}. Got {given.metric}.")
            given = given.inputs
        both.append(checked_inputs(given, metric))
        if not len(both[-1]):
            raise InvalidInput(f"`{name}` must hold at least one location.")
    d = [inputs.dimensions for inputs in both]
    if d[0] != d[1]:
        raise InvalidInput(
            f"`new_locations` must have {d[0]} columns of coordinates, as `locations` has. "
            f"Got {d[1]}."
        )
    return both


def _check_options(true, approximated, of, neighbours, method):
    for name, model in (("true", true), ("approximated", approximated)):
        if getattr(model, "response", None) is not None:
            raise InvalidInput(
                "losses of efficiency are for Gaussian values: give models without a response."
            )
        if not isinstance(model, Covariance):
            raise InvalidInput(f"`{name}` must be a covariance model. Got {type(model).__name__}.")
    check_of(of)
    if method is not None:
        check_is_method(method)
    if method is not None and method.approximate:
        raise InvalidInput(f"`method` must be Exact, or give `neighbours`. Got {method!r}.")
    if neighbours is not None:
        check_whole("neighbours", neighbours)
