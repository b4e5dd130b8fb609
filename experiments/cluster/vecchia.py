"""Vecchia's likelihood of millions of places on worker processes: times, memory, the same bits."""

import resource
import time

import numpy as np

import geomxp as gx
from geomxp.covariance.bessel import correlation

MODEL = gx.Matern(1.0, 0.03, 0.8, 0.05)
LIMIT = "8GB"
"""Of each worker: above it Dask kills the process."""


def field(n, model, seed=0):
    """Draw a stationary field at n random cells of a fine grid over the unit square, exactly.

    By circulant embedding (Dietrich and Newsam 1997, SIAM J. Sci. Comput. 18:1088): no part of
    geomxp but the correlation function has a hand in it.

    Returns
    -------
    Observations
    """
    rng = np.random.default_rng(seed)
    side = 2 ** int(np.ceil(np.log2(np.sqrt(1.6 * n))))
    lags = np.minimum(np.arange(2 * side), 2 * side - np.arange(2 * side)) / side
    row = np.empty((2 * side, 2 * side))
    # ρ at the distances that a table of one octant would have, interpolated on its square root
    knots = np.linspace(0.0, np.sqrt(np.sqrt(2.0)), 20_001)
    values = model.variance * correlation(knots**2 / model.range, model.smoothness)
    for i, lag in enumerate(lags):
        row[i] = np.interp(np.sqrt(np.hypot(lag, lags)), knots, values)
    spectrum = np.fft.rfft2(row).real
    del row
    negative = -float(spectrum.min() / spectrum.max())
    if negative > 1e-6:
        raise ValueError(f"the embedding has an eigenvalue of {-negative:.1e} of the largest")
    root = np.sqrt(np.maximum(spectrum, 0.0))
    noise = np.fft.rfft2(rng.standard_normal((2 * side, 2 * side)))
    drawn = np.fft.irfft2(root * noise, s=(2 * side, 2 * side))[:side, :side]
    del root, noise, spectrum
    cells = rng.choice(side * side, n, replace=False)
    places = np.column_stack(((cells % side + 0.5) / side, (cells // side + 0.5) / side))
    values = drawn.reshape(-1)[cells] + np.sqrt(model.nugget) * rng.standard_normal(n)
    return gx.Observations(places, values)


def _peak():
    """Return the largest memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def row(client, n, neighbours):
    """Return a row of vecchia.csv: one likelihood, its gradient and information, on all workers."""
    seen, design, steps = field(n, MODEL), np.ones((n, 1)), {}

    def timed(name, work):
        start = time.perf_counter()
        found = work()
        steps[f"seconds_{name}"] = round(time.perf_counter() - start, 3)
        return found

    there = timed("order", lambda: gx.Vecchia(neighbours, on=client).prepare(seen, design))
    # the first evaluation finds the neighbours and sends each worker its places
    first = timed("search_and_first", lambda: there(MODEL)).log_likelihood
    moved = gx.Matern.from_parameters(MODEL.parameters() | {"range": 0.031})
    timed("evaluation", lambda: there(moved))
    timed("gradient_and_information", lambda: there.gradient(MODEL))
    peaks, mine = client.run(_peak), _peak()
    here = timed("in_process", lambda: gx.Vecchia(neighbours).prepare(seen, design)(MODEL))
    return {
        "n": n,
        "neighbours": neighbours,
        "workers": len(peaks),
        **steps,
        "worker_peak_gb": round(max(peaks.values()), 2),
        "client_peak_gb": round(mine, 2),
        "log_likelihood": first,
        "same_bits": first == here.log_likelihood,
    }
