"""How certain each place is given all others: the diagonal of Σ⁻¹, without Σ⁻¹."""

import numpy as np

NEIGHBOURS = 24
PER_TILE = 16
"""Places of a block row that are looked at; their mean stands for all."""


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
    tree, result = cKDTree(points), np.empty(layout.tiles)
    neighbours = min(NEIGHBOURS, layout.n - 1) + 1
    for i in range(layout.tiles):
        rows = layout.rows(i)
        some = np.unique(np.linspace(rows.start, rows.stop - 1, PER_TILE).astype(int))
        total = 0.0
        for q in some:
            near = np.atleast_1d(tree.query(points[q], neighbours)[1])
            near = np.concatenate(([q], near[near != q]))[:neighbours]
            total += _precision(model, locations[near], metric)
        result[i] = total / len(some) * layout.height(i)
    return result


def _precision(model, places, metric):
    """Return (Σ⁻¹)_00 of a few places; the most that FP64 can tell where Σ is singular to it."""
    sigma = model(places, places, metric) + model.nugget * np.eye(len(places))
    values, vectors = np.linalg.eigh(sigma)
    least = len(places) * 2.0**-53 * values[-1]
    return float(np.sum(vectors[0] ** 2 / np.maximum(values, least)))
