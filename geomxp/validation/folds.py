"""Which observations are left out together: at random, by blocks in space, or as the user says."""

from math import isfinite
from numbers import Integral, Real

import numpy as np

from ..covariance.distance import EARTH_RADIUS
from ..errors import InvalidInput


def folds_of(observations, folds, blocks=None, seed=0):
    """Return the folds of a cross-validation.

    Parameters
    ----------
    observations : Observations
    folds : int or (n,) array_like
        How many, or labels.
    blocks : float, optional
        Side of spatial blocks, in the unit of the range.
    seed : int

    Returns
    -------
    labels : (n,) ndarray
        0, 1, … or the user's own.
    kind : str
        In words.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> from geomxp import Observations
    >>> seen = Observations(np.arange(6.0), np.zeros(6))
    >>> labels, kind = folds_of(seen, 3)
    >>> np.bincount(labels).tolist(), kind
    ([2, 2, 2], '3 random folds (seed 0)')
    """
    n = len(observations)
    if not isinstance(folds, Integral) or isinstance(folds, bool):
        if blocks is not None:
            raise InvalidInput("`blocks` needs a number of `folds`, not labels of their own.")
        labels = _checked_labels(folds, n)
        return labels, f"{len(np.unique(labels))} given folds"
    if not 2 <= folds <= n:
        raise InvalidInput(f"`folds` must be a whole number from 2 to {n}. Got {folds}.")
    if not (isinstance(seed, Integral) and seed >= 0):
        raise InvalidInput(f"`seed` must be a whole number of at least 0. Got {seed!r}.")
    random = np.random.default_rng(seed)
    if blocks is not None:
        cells = block_numbers(observations, blocks)
        kind = f"{folds} folds of blocks of side {blocks:g} (seed {seed})"
        return _shared(cells, folds, blocks, random), kind
    labels = np.empty(n, dtype=np.int64)
    labels[random.permutation(n)] = np.arange(n) % folds
    return labels, f"{folds} random folds (seed {seed})"


def _checked_labels(folds, n):
    labels = np.asarray(folds)
    if labels.ndim == 0:
        raise InvalidInput(f"`folds` must be a whole number, or {n} labels. Got {folds!r}.")
    if labels.shape != (n,):
        raise InvalidInput(
            f"`folds` must hold one label for each of the {n} observations. "
            f"Got shape {labels.shape}."
        )
    missing = np.array([label is None or label != label for label in labels.tolist()])
    if missing.any():
        raise InvalidInput(f"`folds` has no label in row {int(np.argmax(missing)) + 1}.")
    try:
        count = len(np.unique(labels))
    except TypeError:
        raise InvalidInput("`folds` must hold labels of one kind: numbers, or texts.") from None
    if count < 2:
        raise InvalidInput("`folds` must hold at least 2 different labels. Got one.")
    return labels


def block_numbers(observations, side):
    """Return the number of the square block that each place lies in, (n,), from 0 and without gaps.

    Blocks begin at the least coordinates. For longitude and latitude they are rows of `side` km
    from south to north, cut to `side` km along each row's middle latitude.

    Parameters
    ----------
    observations : Observations
    side : float

    Examples
    --------
    >>> from geomxp import Observations
    >>> seen = Observations([[0.0, 0.0], [0.9, 0.1], [1.1, 0.0], [0.0, 2.5]], np.zeros(4))
    >>> block_numbers(seen, 1.0).tolist()
    [0, 0, 2, 1]
    """
    if not (isinstance(side, Real) and not isinstance(side, bool) and isfinite(side) and side > 0):
        raise InvalidInput(f"`blocks` must be the side of a square, above 0. Got {side!r}.")
    places = observations.locations
    if observations.metric != "euclidean":
        places = _flattened(places, side)
    with np.errstate(over="ignore"):
        cells = np.floor((places - places.min(axis=0)) / side)
    if not np.isfinite(cells).all() or cells.max() > 2**52:
        raise InvalidInput(f"`blocks` is too small a side for these places. Got {side!r}.")
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)


def _flattened(places, side):
    """Return longitude and latitude in km, each row of blocks with its own width of a degree."""
    degree = np.pi / 180 * EARTH_RADIUS
    lon, lat = places.T
    # the widest gap between meridians is where the map is cut
    turned = np.sort(lon % 360.0)
    gaps = np.diff(np.append(turned, turned[0] + 360.0))
    west = turned[(int(np.argmax(gaps)) + 1) % len(turned)]
    south = lat.min()
    row = np.floor((lat - south) * degree / side)
    middle = np.clip(south + (row + 0.5) * side / degree, -90.0, 90.0)
    east = ((lon % 360.0) - west) % 360.0 * degree * np.cos(np.radians(middle))
    return np.column_stack((east, (lat - south) * degree))


def _shared(cells, folds, side, random):
    """Give blocks to folds in random order, each to the one that has the fewest places so far."""
    sizes = np.bincount(cells)
    if len(sizes) < folds:
        raise InvalidInput(
            f"blocks of side {side:g} divide the places into {len(sizes)}, fewer than {folds} "
            "folds: use a smaller side or fewer folds."
        )
    of_block, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(folds, dtype=np.int64)
    for block in random.permutation(len(sizes)):
        # of empty folds the first, so that none stays empty
        of_block[block] = np.argmin(filled)
        filled[of_block[block]] += sizes[block]
    return of_block[cells]
