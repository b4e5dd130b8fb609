"""Draw Gaussian fields, and lay out places to draw them at."""

from numbers import Integral

import numpy as np

from ..errors import InvalidInput
from ..execution.devices import blas_threads
from ..observations import Observations, checked_places
from .exact import Exact

LAYOUTS = ("grid", "jittered", "uniform")


def simulate(model, places, draws=1, seed=0, *, metric="euclidean", how=None):
    """Draw observations of a zero-mean field: the field, and the model's nugget as noise.

    z = L w with Σ = L L' and w independent standard normal

    Parameters
    ----------
    model : Matern
    places : (n, d) array_like or Observations
    draws : int
    seed : int
        Of NumPy's PCG64: the same seed gives the same draws (to rounding on another machine).
    metric : str
        Of an array of places.
    how : Exact, optional

    Returns
    -------
    (draws, n) ndarray

    Raises
    ------
    NotPositiveDefinite
        For a field so smooth, or places so close, that Σ has no Cholesky factor in FP64.

    Examples
    --------
    >>> from geomxp import Matern
    >>> draws = simulate(Matern(1.0, 0.1, 0.5), np.random.default_rng(0).random((9, 2)), draws=2)
    >>> draws.shape
    (2, 9)
    """
    if not (isinstance(seed, Integral) and seed >= 0):
        raise InvalidInput(f"`seed` must be a whole number of at least 0. Got {seed!r}.")
    if not (isinstance(draws, Integral) and draws >= 1):
        raise InvalidInput(f"`draws` must be a whole number of at least 1. Got {draws!r}.")
    if isinstance(places, Observations):
        places, metric = places.locations, places.metric
    places = checked_places(places, metric)
    if not len(places):
        raise InvalidInput("`places` must hold at least one place.")
    evaluator = (how or Exact()).prepare(_Places(places, metric))
    with blas_threads(len(places)):
        factor = evaluator.factorize(model)
        white = np.random.default_rng(seed).standard_normal((draws, len(places)))
        return np.ascontiguousarray(factor.multiply(np.asfortranarray(white.T)).T)


class _Places:
    """Places without values: as much of `Observations` as a factor needs."""

    def __init__(self, locations, metric):
        self.locations = locations
        self.metric = metric
        self.dimensions = locations.shape[1]

    def __len__(self):
        return len(self.locations)

    def duplicate(self):
        """As `Observations.duplicate`."""
        return Observations.duplicate(self)


def lay_out(n, layout="jittered", seed=0):
    """Return places in the unit square.

    Parameters
    ----------
    n : int
    layout : {"grid", "jittered", "uniform"}
        A square grid of cell centres; the same moved at random by up to 0.4 cells, as
        ExaGeoStat's synthetic data; independent uniform.
    seed : int

    Returns
    -------
    (n, 2) ndarray

    Raises
    ------
    InvalidInput
        If a grid is asked for and n is no square.
    """
    if not (isinstance(n, Integral) and n >= 1):
        raise InvalidInput(f"`n` must be a whole number of at least 1. Got {n!r}.")
    if layout not in LAYOUTS:
        raise InvalidInput(f"`layout` must be one of: {', '.join(LAYOUTS)}. Got {layout!r}.")
    # another stream than the one that draws values with the same seed
    random = np.random.default_rng([seed, 1])
    if layout == "uniform":
        return random.random((n, 2))
    side = round(n**0.5)
    if side * side != n:
        raise InvalidInput(
            f'layout="{layout}" needs a square number of places. Got {n}; try {side * side}.'
        )
    cells = np.arange(side) + 0.5
    grid = np.stack(np.meshgrid(cells, cells, indexing="ij"), axis=-1).reshape(n, 2)
    if layout == "jittered":
        grid = grid + random.uniform(-0.4, 0.4, grid.shape)
    return grid / side
