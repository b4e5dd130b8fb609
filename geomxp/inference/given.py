"""Places among observations: which are to be drawn, and which are observed already."""

import numpy as np

from ..covariance.neighbours import nearest, tree_of


def different(seen, model, places):
    """Return which places to draw, and where each place then stands in (observations, drawn ones).

    A place is drawn once, and not where an observation without noise already tells its value.

    Parameters
    ----------
    seen : Observations
    model : Matern
    places : (m, d) ndarray

    Returns
    -------
    once : (k,) ndarray of int
        Rows of `places`.
    back : (m,) ndarray of int
        Below len(seen) an observation, above it `once`.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [3.0]], [1.0, 2.0, 0.5])
    >>> once, back = different(seen, gx.Matern(1.0, 1.0, 0.5), np.array([[2.0], [1.0], [2.0]]))
    >>> once.tolist(), back.tolist()
    ([0], [3, 1, 3])
    """
    n = len(seen)
    points = model.isotropic(places, seen.metric)
    _, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    back = n + np.arange(len(first))
    if model.nugget == 0:
        tree = tree_of(model.isotropic(seen.locations, seen.metric))
        near = nearest(tree, points[first], 1)[:, 0]
        known = (tree.points[near] == points[first] / tree.unit).all(axis=1)
        back = np.where(known, tree.order[near], n + np.cumsum(~known) - 1)
        first = first[~known]
    return first, back[inverse]


def through_observations(fit, draws, design, here, betas, back):
    """Put observed values where draws are at observed places: z + (x₀ - x)'β, to the bit.

    Parameters
    ----------
    fit : Fit
    draws : (draws, m) ndarray
    design, here : (m, p), (n, p) ndarray
        The trend's, at the places and the observations.
    betas : (draws, p) ndarray
    back : (m,) ndarray of int
        As `different` returns it.

    Returns
    -------
    (draws, m) ndarray
    """
    seen, draws = fit.observations, np.ascontiguousarray(draws)
    known = np.flatnonzero(back < len(seen))
    rows = back[known]
    # at an observed place, but with other covariates, the trend is another
    draws[:, known] = seen.values[rows] + betas @ (design[known] - here[rows]).T
    return draws
