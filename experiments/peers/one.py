"""Time one method's exact log-likelihood in this process: one thread, one CPU, its own memory.

    python one.py METHOD --n N [--smoothness 0.5] [--repeats K]

Prints a line of JSON for each method timed. Needs the method's package and NumPy, nothing else.
run.py starts it with one thread for each BLAS; it takes one CPU for itself. Linux only: memory
is read from /proc.
"""

import argparse
import ctypes
import gc
import json
import os
import time
import warnings
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np

VARIANCE, RANGE, NUGGET = 1.0, 0.1, 1e-6
SMALL = 600
"""Places of the evaluation that loads, compiles and allocates what a package does once."""


def places_and_values(n):
    """Return n uniform places in the unit square, and a smooth field with noise."""
    random = np.random.default_rng(20_000)
    places = random.random((n, 2))
    values = np.cos(6 * places[:, 0]) * np.sin(9 * places[:, 1])
    return places, values + 0.3 * random.standard_normal(n)


def geomxp(places, values, smoothness):
    import geomxp as gx

    model = gx.Matern(variance=VARIANCE, range=RANGE, smoothness=smoothness, nugget=NUGGET)
    evaluator = gx.Exact().prepare(gx.Observations(places, values))
    return lambda: evaluator(model).log_likelihood


def scipy(places, values, smoothness):
    """Return ℓ as a page of SciPy computes it, no pass over the matrix that can be avoided."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.spatial.distance import cdist
    from scipy.special import gamma, kv

    n = len(values)

    def evaluate():
        sigma = cdist(places, places)
        sigma /= -RANGE if smoothness == 0.5 else RANGE
        if smoothness == 0.5:
            np.exp(sigma, out=sigma)
            sigma *= VARIANCE
        else:
            np.fill_diagonal(sigma, 1.0)
            bessel = kv(smoothness, sigma)
            sigma **= smoothness
            sigma *= bessel
            sigma *= VARIANCE * 2 ** (1 - smoothness) / gamma(smoothness)
        np.fill_diagonal(sigma, VARIANCE + NUGGET)
        # the transpose of a symmetric matrix in C order: LAPACK overwrites it
        factor = cho_factor(sigma.T, lower=True, overwrite_a=True, check_finite=False)
        quadratic_form = values @ cho_solve(factor, values, check_finite=False)
        log_determinant = 2 * np.log(np.diag(factor[0])).sum()
        return -0.5 * (n * np.log(2 * np.pi) + log_determinant + quadratic_form)

    return evaluate


# The peers below compute smoothness ½ only, their fastest case. There a·√(2ν) = a.


def scikit_learn(places, values):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel(VARIANCE) * Matern(RANGE, nu=0.5) + WhiteKernel(NUGGET)
    process = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(places, values)
    # there is none yet while a fit searches
    del process.L_
    theta = process.kernel_.theta
    return lambda: process.log_marginal_likelihood(theta, eval_gradient=False, clone_kernel=False)


def gpytorch(places, values):
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    x, y = torch.from_numpy(places), torch.from_numpy(values)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            matern = gpytorch.kernels.MaternKernel(nu=0.5)
            self.covar_module = gpytorch.kernels.ScaleKernel(matern)
            self.covar_module.outputscale, matern.lengthscale = VARIANCE, RANGE

        def forward(self, at):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(at), self.covar_module(at)
            )

    # the default constraint keeps the noise above 1e-4
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.Positive()
    )
    likelihood.noise = NUGGET
    model = Model(likelihood).train()
    criterion = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def evaluate():
        cholesky = gpytorch.settings.fast_computations(
            log_prob=False, covar_root_decomposition=False, solves=False
        )
        with torch.no_grad(), cholesky:
            # GPyTorch returns ℓ/n
            return len(y) * float(criterion(model(x), y))

    return evaluate


def gpboost(places, values):
    import gpboost

    model = gpboost.GPModel(
        gp_coords=places,
        likelihood="gaussian",
        cov_function="exponential",
        gp_approx="none",
        num_parallel_threads=1,
    )
    parameters = np.array([NUGGET, VARIANCE, RANGE])
    return lambda: -model.neg_log_likelihood(parameters, values)


def gpmp(places, values):
    # its default where PyTorch is installed is slower
    os.environ.setdefault("GPMP_BACKEND", "numpy")
    import gpmp
    import gpmp.num as gnp

    x, y = gnp.asarray(places), gnp.asarray(values)

    def covariance(x, y, parameters, pairwise=False):
        # the library's has a nugget of 2e-15 of its own
        sigma = gpmp.kernel.maternp_covariance(x, y, 0, parameters, pairwise)
        sigma.reshape(-1)[:: len(x) + 1] += NUGGET
        return sigma

    model = gpmp.core.Model(None, covariance, meantype="zero")
    # exp(-2√ν h/ρ)
    rate = -np.log(np.sqrt(2) * RANGE)
    parameters = gnp.asarray(np.array([np.log(VARIANCE), rate, rate]))
    return lambda: -float(model.negative_log_likelihood_zero_mean(parameters, x, y))


def fvgp(places, values):
    import fvgp
    from fvgp.kernels import exponential_kernel, get_distance_matrix

    parameters = np.array([VARIANCE, RANGE])
    process = fvgp.GP(
        places,
        values,
        init_hyperparameters=parameters,
        noise_variances=np.full(len(values), NUGGET),
        kernel_function=lambda a, b, p: p[0] * exponential_kernel(get_distance_matrix(a, b), p[1]),
        prior_mean_function=lambda a, p: np.zeros(len(a)),
    )
    return lambda: float(process.log_likelihood(parameters))


def openturns(places, values):
    import openturns as ot

    ot.ResourceMap.SetAsUnsignedInteger("TBB-ThreadsNumber", 1)
    # otherwise σ² is profiled out
    ot.ResourceMap.SetAsBool("GaussianProcessFitter-UseAnalyticalAmplitudeEstimate", False)
    model = ot.ExponentialModel([RANGE] * 2, [np.sqrt(VARIANCE)])
    model.setNuggetFactor(NUGGET / VARIANCE)
    fitter = ot.GaussianProcessFitter(ot.Sample(places), ot.Sample(values[:, None]), model)
    criterion, parameters = fitter.getReducedLogLikelihoodFunction(), model.getParameter()

    def evaluate():
        # it remembers what it has answered: each time other parameters, in the last digits
        parameters[0] *= 1 + 1e-15
        return criterion(parameters)[0]

    # the criterion points into the fitter, which must live
    evaluate.fitter = fitter
    return evaluate


ANY_SMOOTHNESS = {"geomxp": geomxp, "scipy": scipy}
METHODS = {
    **ANY_SMOOTHNESS,
    "scikit-learn": scikit_learn,
    "gpytorch": gpytorch,
    "gpboost": gpboost,
    "gpmp": gpmp,
    "fvgp": fvgp,
    "openturns": openturns,
}


def dpotrf(places, smoothness):
    """Return what refills a matrix with Σ, and what factorizes it: LAPACK, nothing else."""
    from scipy.linalg import lapack

    from geomxp import Matern
    from geomxp.tiles.assemble import covariance_matrix

    model = Matern(variance=VARIANCE, range=RANGE, smoothness=smoothness, nugget=NUGGET)
    sigma = covariance_matrix(model, places, "euclidean")
    work = np.empty_like(sigma)

    def refill():
        work[...] = sigma

    def factorize():
        _, info = lapack.dpotrf(work, lower=1, clean=0, overwrite_a=1)
        assert info == 0

    return refill, factorize


def resident(field):
    """Return VmRSS (now) or VmHWM (its peak) in bytes.

    ru_maxrss is not asked: a child starts with its parent's.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def give_back():
    """Return what is no longer used to the system, so that it is not counted as in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def forget_peak():
    """Let VmHWM start again at VmRSS (proc(5), clear_refs)."""
    give_back()
    Path("/proc/self/clear_refs").write_text("5")


def timed(work):
    """Return what `work` returns, its wall seconds and its CPU seconds (all threads)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def version(method):
    return metadata.version("scipy" if method == "dpotrf" else method)


def measure(method, n, smoothness, repeats):
    """Return the lines of one method: memory of its first evaluation, times of later ones."""
    places, values = places_and_values(n)
    prepare = METHODS[method]
    if method in ANY_SMOOTHNESS:
        prepare = partial(prepare, smoothness=smoothness)
    prepare(places[:SMALL], values[:SMALL])()
    give_back()
    before = resident("VmRSS")
    evaluate = prepare(places, values)
    forget_peak()
    prepared = resident("VmRSS")
    log_likelihood = evaluate()
    peak = resident("VmHWM")
    times = [[], []]
    refill, factorize = dpotrf(places, smoothness) if method == "geomxp" else (None, None)
    for _ in range(repeats):
        result, *seconds = timed(evaluate)
        assert abs(result - log_likelihood) <= 1e-10 * abs(result)
        times[0].append(seconds)
        if factorize is not None:
            refill()
            times[1].append(timed(factorize)[1:])
    common = {"smoothness": smoothness, "n": n}
    wall, cpu = np.median(times[0], axis=0)
    yield {
        "method": method,
        "version": version(method),
        **common,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "log_likelihood": log_likelihood,
        "prepared_bytes": prepared - before,
        "peak_bytes": peak - prepared,
        "over_dpotrf": np.median(np.divide(*times), axis=0)[1] if times[1] else None,
    }
    if times[1]:
        wall, cpu = np.median(times[1], axis=0)
        yield {
            "method": "dpotrf",
            "version": version("dpotrf"),
            **common,
            "wall_seconds": wall,
            "cpu_seconds": cpu,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--smoothness", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.smoothness != 0.5 and options.method not in ANY_SMOOTHNESS:
        parser.error(f"{options.method} is called for smoothness 0.5 only")
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for line in measure(options.method, options.n, options.smoothness, options.repeats):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
