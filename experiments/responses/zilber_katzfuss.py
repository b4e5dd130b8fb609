"""Errors of the mode of the latent field, beside those that Zilber and Katzfuss (2021) print.

    python experiments/responses/zilber_katzfuss.py [--tiny]

Writes results/zilber_katzfuss.csv: a row for each lattice, response and simulated field. The field
has an exponential covariance of variance 1 and no mean; 10 neighbours, parameters known. The
lattices of 90² and 550² cover a square of side 10, with range 0.3; the one of 50² covers a square
of side 1, with range 0.05. Both are as in the scripts of the paper
(github.com/katzfuss-group/GPvecchia-Laplace); lengths here are shares of the side. Logistic: binary
values with logit y; Poisson: counts with mean exp(y); gamma: shape 2 and rate exp(y), that is,
η = log 2 - y. On the smallest lattice Laplace's approximation with dense matrices has the same
values.

D. Zilber, M. Katzfuss: Vecchia-Laplace approximations of generalized Gaussian processes for big
non-Gaussian spatial data. Comput. Stat. Data Anal. 153:107081.
"""

import argparse
import os
import sys
import time
from functools import cache
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

import numpy as np

import geomxp as gx
from geomxp.covariance.responses import Bernoulli, Data, Gamma, Poisson
from geomxp.likelihood.laplace import DenseLaplace, VecchiaLaplace

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import TINY, resume

HERE = Path(__file__).parent
NEIGHBOURS = 10
LATTICES = {(50, 0.05): 20, (90, 0.03): 20, (550, 0.03): 20}
"""Fields for each number of locations along a side, and range as a share of the side."""

if TINY:
    LATTICES = {(12, 0.05): 2, (10, 0.05): 2}
DENSE = min(side for side, _ in LATTICES)
"""Side of the lattice on which Laplace's approximation has dense matrices, too."""

RESPONSES = {
    "logistic": (Bernoulli(), 1.0, 0.0),
    "poisson": (Poisson(), 1.0, 0.0),
    "gamma": (Gamma(2.0), -1.0, np.log(2.0)),
}
"""The response, and the factor and the offset that make η of the field."""


@cache
def places(side):
    """Return the lattice, (side², 2)."""
    axis = np.linspace(0.0, 1.0, side)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def simulated(side, length, seed):
    """Return a field on the lattice, (side²,), by circulant embedding (Dietrich and Newsam 1993).

    The torus is so long that correlations across it are below 3e-9.
    """
    around = 2 * side
    steps = np.minimum(np.arange(around), around - np.arange(around)) / (side - 1)
    covariance = np.exp(-np.hypot(steps[:, None], steps) / length)
    roots = np.sqrt(np.maximum(np.fft.fft2(covariance).real, 0.0))
    random = np.random.default_rng(seed)
    noise = random.standard_normal((2, around, around))
    field = np.fft.fft2(roots * (noise[0] + 1j * noise[1])) / around
    return field.real[:side, :side].reshape(-1)


@cache
def laplace(side, dense):
    """Return Laplace's approximation on the lattice, whose values change."""
    n = side**2
    seen = gx.Observations(places(side), np.zeros(n))
    arguments = seen, Data(np.zeros(n)), None, np.zeros(n)
    return DenseLaplace(*arguments) if dense else VecchiaLaplace(*arguments, NEIGHBOURS)


def error_of(side, model, dense, response, values, offset, field):
    """Return the mean squared error of the mode and the seconds, from a field of 0."""
    method = laplace(side, dense)
    method.data, method.offset, method._last = Data(values), np.full(side**2, offset), None
    begun = time.perf_counter()
    mode = method.mode(model, response)
    return float(np.mean((mode.eta - field) ** 2)), time.perf_counter() - begun


def rows_of(side, length, response, seed):
    """Yield the row of a field."""
    (kind, factor, offset), model = RESPONSES[response], gx.Matern(1.0, length, 0.5)
    field = simulated(side, length, seed)
    random = np.random.default_rng([seed, side])
    values = kind.draw(Data(np.zeros(side**2)), offset + factor * field, random)
    about = kind, values, offset, factor * field
    error, seconds = error_of(side, model, False, *about)
    dense = error_of(side, model, True, *about)[0] if side == DENSE else ""
    yield {
        "n": side**2,
        "neighbours": NEIGHBOURS,
        "mean_squared_error": error,
        "dense": dense,
        "seconds": round(seconds, 4),
    }


def main():
    """Measure all lattices, responses and fields."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anew", action="store_true", help="replace the rows of an earlier run")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    cells = [
        {"side": side, "length": length, "response": response, "seed": seed}
        for (side, length), fields in LATTICES.items()
        for response in RESPONSES
        for seed in range(1, fields + 1)
    ]
    resume(options.output / "zilber_katzfuss.csv", cells, rows_of, anew=options.anew)


if __name__ == "__main__":
    main()
