"""What it costs to predict with a wrong model: loss of efficiency, and errors of its variances.

Stein (1999, Interpolation of Spatial Data, section 3.5); Hong, Abdulah, Genton and Sun (2021,
Spat. Stat. 43:100517).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance
from ..covariance.neighbours import nearest, tree_of
from ..data.observations import Observations, checked_places
from ..errors import InvalidInput, NotPositiveDefinite
from ..likelihood.base import Locations
from ..likelihood.exact import Exact, check_memory
from ..likelihood.factorize import dense_factor
from ..runtime.devices import Device, blas_threads

if TYPE_CHECKING:
    from .._typing import ArrayLike, Document, Floats, Of

PANEL = 512
"""Targets handled at one time."""


@dataclass(frozen=True)
class Misspecification:
    """Errors of predictions under a true model, made with it and with an approximated one.

    Parameters
    ----------
    error_of_true : (k,) ndarray
        E_t, the variance of the error of the best predictor.
    error_of_approximated : (k,) ndarray
        E_ta, the true variance of the error of the approximated model's predictor.
    claimed : (k,) ndarray
        E_a, what the approximated model says that it is.
    excess : (k,) ndarray
        E_ta - E_t ≥ 0, computed without subtracting them.
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
        """MOM = E_a/E_ta - 1 of each target, (k,): below 0 where the model is too sure."""
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
        """Root mean square of the misspecification, which errors of both signs do not cancel in."""
        return float(np.sqrt((self.misspecification**2).mean()))

    def to_dict(self) -> Document:
        """Return n, mloe, mmom and rmom."""
        return {"n": len(self), "mloe": self.mloe, "mmom": self.mmom, "rmom": self.rmom}

    def __str__(self) -> str:
        return (
            f"MLOE {self.mloe:.6g}, MMOM {self.mmom:.6g}, RMOM {self.rmom:.6g} "
            f"at {len(self):,} places"
        )


def mloe_mmom(
    true: Covariance,
    approximated: Covariance,
    places: ArrayLike | Observations,
    targets: ArrayLike | Observations,
    *,
    metric: str = "euclidean",
    of: Of = "field",
    neighbours: int | None = None,
    method: Exact | None = None,
) -> Misspecification:
    """Compare the predictions of an approximated model with those of the true one.

    For each target, by simple kriging from observations at the places: E_t, the error's variance
    of the true model's predictor; E_ta, the variance, under the true model, of the error of the
    approximated model's predictor; E_a, what the approximated model takes it for. No values are
    needed. LOE = E_ta/E_t - 1, MOM = E_a/E_ta - 1, and MLOE and MMOM are their means.

    With w = Σ⁻¹k of either model, E_ta - E_t = (w_a - w_t)'Σ_t(w_a - w_t) loses no digits.

    Parameters
    ----------
    true, approximated : Covariance
    places : (n, d) array_like or Observations
        Where observations are.
    targets : (k, d) array_like or Observations
        Where predictions are.
    metric : str
        Of arrays of places.
    of : {"field", "observation"}
        Predict the noiseless field, or new observations: then each model's nugget is in its E.
    neighbours : int, optional
        Predict each target from so many places nearest to it (in the true model's own distance)
        instead of from all: for many places.
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
    >>> import geomxp as gx
    >>> places = np.random.default_rng(0).random((60, 2))
    >>> true, wrong = gx.Matern(1.0, 0.1, 0.5), gx.Matern(2.0, 0.1, 0.5)
    >>> found = mloe_mmom(true, wrong, places[10:], places[:10])

    Twice the variance predicts as well, and claims an error twice as large:

    >>> found.mloe < 1e-12, round(found.mmom, 12)
    (True, 1.0)
    """
    places, targets, metric = _checked_pair(places, targets, metric)
    _check_options(true, approximated, of, neighbours, method)
    if neighbours is None:
        found = _from_all(true, approximated, places, targets, metric, method or Exact())
    else:
        found = _from_nearest(true, approximated, places, targets, metric, int(neighbours))
    best, claimed, excess = found
    if of == "observation":
        best, claimed = best + true.nugget, claimed + approximated.nugget
    lost = best <= 8 * len(places) * np.finfo(float).eps * true.variance
    if lost.any():
        raise InvalidInput(
            f"target {int(np.argmax(lost)) + 1} has no error to compare: the true model predicts "
            "it exactly, as at an observed place. Leave it out."
        )
    return Misspecification(best, best + excess, claimed, excess)


def _from_all(true, approximated, places, targets, metric, method):
    """Return E_t, E_a and E_ta - E_t, (k,) each, with all places."""
    n, k = len(places), len(targets)
    evaluator = method.prepare(Locations(places, metric))
    width = min(PANEL, k)
    # two factors, and the weights of a panel
    check_memory(n, 2 + 6 * width / n, evaluator.device)
    found = np.empty((3, k))
    with blas_threads(n):
        factors = [evaluator.factorize(model) for model in (true, approximated)]
        for first in range(0, k, width):
            part = slice(first, first + width)
            found[:, part] = _errors(true, approximated, factors, places, targets[part], metric)
    return found


def _from_nearest(true, approximated, places, targets, metric, neighbours):
    """As `_from_all`, each target with the places that are nearest to it."""
    tree = tree_of(true.isotropic(places, metric))
    near = nearest(tree, true.isotropic(targets, metric), min(neighbours, len(places)))
    found, cpu = np.empty((3, len(targets))), Device("cpu")
    with blas_threads(neighbours):
        for i, rows in enumerate(near):
            some = Locations(places[tree.order[rows]], metric)
            try:
                factors = [dense_factor(model, some, cpu) for model in (true, approximated)]
            except NotPositiveDefinite:
                raise NotPositiveDefinite(
                    f"the covariance matrix of the places nearest to target {i + 1} is not "
                    "positive definite in FP64: use fewer neighbours or a larger nugget, and no "
                    "place twice."
                ) from None
            one = targets[i : i + 1]
            found[:, i : i + 1] = _errors(true, approximated, factors, some.locations, one, metric)
    return found


def _errors(true, approximated, factors, places, targets, metric):
    """Return E_t, E_a and E_ta - E_t of a few targets, (3, k)."""
    errors, weights = [], []
    for model, factor in zip((true, approximated), factors, strict=True):
        k = np.asfortranarray(model(places, targets, metric))
        weights.append(factor.solve(k))
        errors.append(model.variance - np.einsum("ij,ij->j", k, weights[-1]))
    apart = weights[1] - weights[0]
    excess = true.nugget * np.einsum("ij,ij->j", apart, apart)
    for first in range(0, len(places), PANEL):
        rows = slice(first, first + PANEL)
        product = true(places[rows], places, metric) @ apart
        excess += np.einsum("ij,ij->j", apart[rows], product)
    # rounding may leave a little less than 0 where the two predictors are one
    return np.array([*errors, np.maximum(excess, 0.0)])


def _checked_pair(places, targets, metric):
    """Return places, targets and their metric."""
    for other in (places, targets):
        if isinstance(other, Observations):
            metric = other.metric
    both = []
    for name, given in (("places", places), ("targets", targets)):
        if isinstance(given, Observations):
            if given.metric != metric:
                raise InvalidInput(f"`{name}` must be {metric}. Got {given.metric}.")
            given = given.locations
        both.append(checked_places(given, metric))
        if not len(both[-1]):
            raise InvalidInput(f"`{name}` must hold at least one place.")
    if both[0].shape[1] != both[1].shape[1]:
        raise InvalidInput(
            f"`targets` must have {both[0].shape[1]} columns of coordinates, as `places` has. "
            f"Got {both[1].shape[1]}."
        )
    return *both, metric


def _check_options(true, approximated, of, neighbours, method):
    for name, model in (("true", true), ("approximated", approximated)):
        if not isinstance(model, Covariance):
            raise InvalidInput(f"`{name}` must be a covariance model. Got {type(model).__name__}.")
    if of not in ("field", "observation"):
        raise InvalidInput(f'`of` must be "field" or "observation". Got {of!r}.')
    if method is not None and method.approximate:
        raise InvalidInput(f"`method` must be Exact, or give `neighbours`. Got {method!r}.")
    whole = isinstance(neighbours, Integral) and not isinstance(neighbours, bool)
    if neighbours is not None and not (whole and neighbours >= 1):
        raise InvalidInput(
            f"`neighbours` must be a whole number of at least 1. Got {neighbours!r}."
        )
