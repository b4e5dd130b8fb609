"""Kullback-Leibler divergence between two Gaussian models of the same places."""

import numpy as np

from ..execution.devices import blas_threads
from ..observations import checked_places
from ..tiles import assemble
from .exact import Exact
from .simulate import _Places


def kl_between(p, q, places, metric="euclidean"):
    """Return KL(N(0, Σ_p) ‖ N(0, Σ_q)) = ½(tr(Σ_q⁻¹Σ_p) - n + log|Σ_q| - log|Σ_p|).

    Parameters
    ----------
    p, q : Matern
    places : (n, d) array_like
    metric : str

    Returns
    -------
    float, in nats

    Examples
    --------
    >>> from geomxp import Matern
    >>> model = Matern(1.0, 0.3, 0.5)
    >>> abs(kl_between(model, model, np.random.default_rng(0).random((20, 2)))) < 1e-12
    True
    """
    places = checked_places(places, metric)
    evaluator = Exact().prepare(_Places(places, metric))
    with blas_threads(len(places)):
        factor_p, factor_q = evaluator.factorize(p), evaluator.factorize(q)
        sigma = assemble.covariance_matrix(p, places, metric)
        sigma = np.tril(sigma) + np.tril(sigma, -1).T
        trace = np.trace(factor_q.solve(np.asfortranarray(sigma)))
    difference = factor_q.log_determinant() - factor_p.log_determinant()
    return 0.5 * (float(trace) - len(places) + difference)
