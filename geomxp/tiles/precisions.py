"""How certain each place is given all others: the diagonal of Σ⁻¹, without Σ⁻¹."""

import numpy as np

NEIGHBOURS = 20
PLACES = 4096
"""How many places are looked at: every one of a small set, and of a large one every so many."""


def conditional_precisions(originals, locations, metric):
    """Estimate p_i = Σ (Σ⁻¹)_qq over the places q of each block row.

    1/(Σ⁻¹)_qq is the variance of z_q given all other places; that given the nearest ones is a
    little larger.

    Parameters
    ----------
    originals : Originals
    locations : (n, d) ndarray
        In the order of the tiles.
    metric : str

    Returns
    -------
    (T,) ndarray
    """
    from scipy.spatial import cKDTree

    model, layout = originals.model, originals.layout
    points = model.isotropic(locations, metric)
    # every so many, and one of each block row at least
    every = max(1, layout.n // PLACES)
    some = np.union1d(np.arange(0, layout.n, every), np.arange(0, layout.n, layout.tile))
    near = cKDTree(points).query(points[some], min(NEIGHBOURS, layout.n))[1].reshape(len(some), -1)
    # the place itself comes first, though others may be at no distance
    itself = near == some[:, None]
    near = np.take_along_axis(near, np.argsort(itself, axis=1, kind="stable"), axis=1)
    near = np.column_stack((some, near[:, :-1]))
    precision = _precisions(model, points[near])
    block = some // layout.tile
    count, total = np.bincount(block), np.bincount(block, precision)
    return total / count * [layout.height(i) for i in range(layout.tiles)]


def _precisions(model, points):
    """Return (Σ⁻¹)_00 of many small sets of points, (b, m, d): at most what FP64 can tell."""
    apart = np.linalg.norm(points[:, :, None] - points[:, None], axis=3)
    sigma = model.variance * model.correlation(apart)
    sigma += model.nugget * np.eye(points.shape[1])
    values, vectors = np.linalg.eigh(sigma)
    least = points.shape[1] * 2.0**-53 * values[:, -1:]
    return np.sum(vectors[:, 0] ** 2 / np.maximum(values, least), axis=1)
