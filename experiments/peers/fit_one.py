"""Time one method's whole maximum-likelihood fit in this process: one thread, one CPU, its memory.

    python fit_one.py METHOD --n N [--smoothness free|0.5] [--seed 1]

Prints one line of JSON: seconds, memory and the estimates in geomxp's convention. Needs the
method's package, SciPy and NumPy. fits.py starts it with one thread for each BLAS. Linux only.
"""

import argparse
import json
import os
import warnings
from importlib import metadata

import numpy as np
from one import forget_peak, give_back, resident, timed

TRUTH = {"variance": 1.0, "range": 0.1, "smoothness": 0.5, "nugget": 0.1}
SMALL = 100
"""Places of the fit that loads and compiles what a package does once."""


def places_and_values(n, smoothness, seed):
    """Return n uniform places in the unit square, and a Matérn field with noise, by SciPy."""
    from scipy.spatial.distance import cdist
    from scipy.special import gamma, kv

    random = np.random.default_rng(seed)
    places = random.random((n, 2))
    r = cdist(places, places) / TRUTH["range"]
    np.fill_diagonal(r, 1.0)
    sigma = 2 ** (1 - smoothness) / gamma(smoothness) * r**smoothness * kv(smoothness, r)
    np.fill_diagonal(sigma, 1.0)
    sigma *= TRUTH["variance"]
    np.fill_diagonal(sigma, TRUTH["variance"] + TRUTH["nugget"])
    return places, np.linalg.cholesky(sigma) @ random.standard_normal(n)


def starts(values):
    """Return variance, range and nugget that every peer starts from; geomxp finds its own."""
    return 0.9 * np.var(values), 0.2, 0.1 * np.var(values)


def geomxp(places, values, smoothness):
    import geomxp as gx

    fixed = {} if smoothness is None else {"smoothness": smoothness}
    seen = gx.Observations(places, values)
    # an outcome that is no estimate is a line of the table, not the end of it
    fit = gx.fit(seen, fixed=fixed, trend="zero", progress=False, raise_on_failure=False)
    return fit.model.parameters() | {"evaluations": fit.evaluations, "outcome": str(fit.outcome)}


def scipy(places, values, smoothness):
    """As a page of SciPy does it well: L-BFGS in logarithms, σ² profiled out, analytic gradient.

    One matrix for Σ and its inverse, one for the distances; exp(-h/a) only.
    """
    from scipy.linalg import lapack
    from scipy.optimize import minimize
    from scipy.spatial.distance import cdist

    n, h = len(values), np.asfortranarray(cdist(places, places))
    variance, length, noise = starts(values)

    def function(x):
        a, g = np.exp(x)
        r = np.exp(-h / a)
        change = r * h
        change /= a
        r[np.diag_indices(n)] += g
        factor, info = lapack.dpotrf(r, lower=1, overwrite_a=1)
        if info:
            return 1e10, np.zeros(2)
        half = 2 * np.log(np.diag(factor)).sum()
        alpha = lapack.dpotrs(factor, values, lower=1)[0]
        form = values @ alpha
        inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
        # the lower triangle of a symmetric matrix
        diagonal = np.diag(inverse).copy()
        trace = 2 * np.einsum("ij,ij->", np.tril(inverse, -1), change)
        slope = np.array(
            [
                trace - alpha @ change @ alpha * n / form,
                g * (diagonal.sum() - alpha @ alpha * n / form),
            ]
        )
        return 0.5 * (half + n * np.log(form / n)), 0.5 * slope

    found = minimize(
        function, np.log([length, noise / variance]), jac=True, method="L-BFGS-B", tol=1e-9
    )
    a, g = np.exp(found.x)
    sigma = np.exp(-h / a)
    sigma[np.diag_indices(n)] += g
    variance = float(values @ np.linalg.solve(sigma, values)) / n
    return {
        "variance": variance,
        "range": a,
        "smoothness": 0.5,
        "nugget": g * variance,
        "evaluations": found.nfev,
        "outcome": found.message,
    }


def scipy_plain(places, values, smoothness):
    """As most write it: L-BFGS-B on σ², a and τ² with differences for a gradient."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize
    from scipy.spatial.distance import cdist

    n, h = len(values), cdist(places, places)

    def function(x):
        variance, length, noise = np.exp(x)
        sigma = variance * np.exp(-h / length) + noise * np.eye(n)
        try:
            factor = cho_factor(sigma, lower=True)
        except np.linalg.LinAlgError:
            return 1e10
        form = values @ cho_solve(factor, values)
        return 0.5 * (n * np.log(2 * np.pi) + form) + np.log(np.diag(factor[0])).sum()

    found = minimize(function, np.log(starts(values)), method="L-BFGS-B")
    variance, length, noise = np.exp(found.x)
    return {
        "variance": variance,
        "range": length,
        "smoothness": 0.5,
        "nugget": noise,
        "evaluations": found.nfev,
        "outcome": found.message,
    }


def scikit_learn(places, values, smoothness):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    variance, length, noise = starts(values)
    kernel = ConstantKernel(variance) * Matern(length, nu=smoothness) + WhiteKernel(noise)
    found = GaussianProcessRegressor(kernel, alpha=0.0).fit(places, values).kernel_
    return {
        "variance": found.k1.k1.constant_value,
        "range": found.k1.k2.length_scale,
        "smoothness": smoothness,
        "nugget": found.k2.noise_level,
    }


def gpytorch(places, values, smoothness):
    """Cholesky forced, the strong-Wolfe L-BFGS of PyTorch: fewer steps than the usual Adam."""
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    x, y = torch.from_numpy(places), torch.from_numpy(values)
    variance, length, noise = starts(values)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            matern = gpytorch.kernels.MaternKernel(nu=smoothness)
            self.covar_module = gpytorch.kernels.ScaleKernel(matern)
            self.covar_module.outputscale, matern.lengthscale = variance, length

        def forward(self, at):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(at), self.covar_module(at)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = noise
    model = Model(likelihood).train()
    criterion = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    search = torch.optim.LBFGS(
        model.parameters(),
        max_iter=60,
        line_search_fn="strong_wolfe",
        tolerance_change=1e-10,
        tolerance_grad=1e-6,
    )
    count = [0]

    def closure():
        search.zero_grad()
        loss = -criterion(model(x), y)
        loss.backward()
        count[0] += 1
        return loss

    settings = gpytorch.settings
    exactly = settings.fast_computations(
        log_prob=False, covar_root_decomposition=False, solves=False
    )
    with exactly, settings.max_cholesky_size(10**6):
        search.step(closure)
    return {
        "variance": model.covar_module.outputscale.item(),
        "range": model.covar_module.base_kernel.lengthscale.item(),
        "smoothness": smoothness,
        "nugget": likelihood.noise.item(),
        "evaluations": count[0],
    }


def gpy(places, values, smoothness):
    import GPy

    variance, length, noise = starts(values)
    kernel = GPy.kern.Exponential(2, variance=variance, lengthscale=length)
    model = GPy.models.GPRegression(places, values[:, None], kernel, noise_var=noise)
    model.optimize("lbfgsb")
    return {
        "variance": float(kernel.variance[0]),
        "range": float(kernel.lengthscale[0]),
        "smoothness": smoothness,
        "nugget": float(model.likelihood.variance[0]),
    }


def gpboost(places, values, smoothness):
    import gpboost as gpb

    function = "exponential" if smoothness is not None else "matern_estimate_shape"
    model = gpb.GPModel(gp_coords=places, cov_function=function, likelihood="gaussian")
    model.fit(y=values)
    found = model.get_cov_pars().iloc[0].to_numpy()
    nu = smoothness if smoothness is not None else found[3]
    # √(2ν) h/ρ there
    return {
        "variance": found[1],
        "range": found[2] / (1.0 if smoothness is not None else np.sqrt(2 * nu)),
        "smoothness": nu,
        "nugget": found[0],
    }


def gradient_bytes(places, values):
    """Return the memory of geomxp's likelihood with its gradient."""
    import geomxp as gx

    evaluator = gx.Exact().prepare(gx.Observations(places, values))
    give_back()
    before = resident("VmRSS")
    forget_peak()
    evaluator.gradient(gx.Matern(1.0, 0.1, 0.5, 0.1))
    return resident("VmHWM") - before


METHODS = {
    "geomxp": geomxp,
    "scipy": scipy,
    "scipy-plain": scipy_plain,
    "scikit-learn": scikit_learn,
    "gpytorch": gpytorch,
    "gpy": gpy,
    "gpboost": gpboost,
}
FREE = ("geomxp", "gpboost")
"""Those that estimate the smoothness."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--smoothness", default="0.5")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    smoothness = None if options.smoothness == "free" else float(options.smoothness)
    if smoothness is None and options.method not in FREE:
        parser.error(f"{options.method} does not estimate the smoothness")
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    truth = 0.8 if smoothness is None else smoothness
    method = METHODS[options.method]
    # what is loaded and compiled once: geomxp's start for large n has loops of its own
    large = options.method == "geomxp" and options.n > SMALL
    for size in (SMALL, 1100) if large else (SMALL,):
        method(*places_and_values(size, truth, 0), smoothness)
    places, values = places_and_values(options.n, truth, options.seed)
    gradient = gradient_bytes(places, values) if options.method == "geomxp" else None
    give_back()
    before = resident("VmRSS")
    forget_peak()
    found, wall, cpu = timed(lambda: method(places, values, smoothness))
    line = {
        "method": options.method,
        "version": metadata.version(options.method.removesuffix("-plain")),
        "smoothness": options.smoothness,
        "n": options.n,
        "seed": options.seed,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "peak_bytes": resident("VmHWM") - before,
        "gradient_bytes": gradient,
    }
    numbers = {k: v if isinstance(v, str) else float(v) for k, v in found.items()}
    print(json.dumps(line | numbers))


if __name__ == "__main__":
    main()
