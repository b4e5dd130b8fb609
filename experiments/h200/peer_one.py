"""Time one peer's Cholesky factorization, or exact likelihood, in this process.

    python peer_one.py torch|jax|gpytorch --data FILE [--on gpu|cpu]

Prints a line of JSON for each measurement. `likelihood.py` calls it, and FILE (.npz) holds the
places, the values and (variance, range, nugget) of its own rows; smoothness ½, where a·√(2ν) = a.
"""

import argparse
import json
import time
from importlib import metadata
from pathlib import Path

import numpy as np


def timed(work, finish, runs=2):
    """Return the seconds of the first run and of the best later one."""
    seconds = []
    for _ in range(runs + 1):
        finish()
        start = time.perf_counter()
        work()
        finish()
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds[1:]), "seconds_first": seconds[0]}


def torch(places, values, model, on):
    """Yield torch.linalg.cholesky in FP64 and FP32."""
    import torch

    device = "cuda" if on == "gpu" else "cpu"
    x, (variance, length, nugget) = torch.from_numpy(places).to(device), model
    for dtype in (torch.float64, torch.float32):
        sigma = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
        sigma = sigma.div_(-length).exp_().mul_(variance).to(dtype)
        sigma.diagonal().add_(nugget)
        finish = torch.cuda.synchronize if on == "gpu" else lambda: None
        out = torch.empty_like(sigma)
        found = timed(lambda a=sigma, out=out: torch.linalg.cholesky(a, out=out), finish)
        yield {"routine": "torch.linalg.cholesky", "format": str(dtype)[6:]} | found
        del sigma, out


def jax(places, values, model, on):
    """Yield jax.numpy.linalg.cholesky in FP64 and FP32."""
    import jax

    jax.config.update("jax_enable_x64", True)
    if on == "cpu":
        jax.config.update("jax_platforms", "cpu")
    import jax.numpy as jnp

    factor = jax.jit(lambda a: jnp.linalg.cholesky(a, symmetrize_input=False))

    variance, length, nugget = model

    @jax.jit
    def covariance(x, y):
        apart = jnp.hypot(x[:, None] - x[None], y[:, None] - y[None])
        return variance * jnp.exp(-apart / length) + nugget * jnp.eye(len(x))

    sigma = covariance(*jnp.asarray(places.T))
    for dtype in (jnp.float64, jnp.float32):
        a = sigma.astype(dtype).block_until_ready()
        found = timed(lambda a=a: factor(a).block_until_ready(), lambda: None)
        yield {"routine": "jax.numpy.linalg.cholesky", "format": a.dtype.name} | found


def gpytorch(places, values, model, on):
    """Yield GPyTorch's exact log marginal likelihood by Cholesky, FP64."""
    import gpytorch
    import torch

    device = "cuda" if on == "gpu" else "cpu"
    x, y = (torch.from_numpy(array).to(device) for array in (places, values))
    variance, length, nugget = model

    class Process(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=0.5))

        def forward(self, at):
            mean, covariance = self.mean_module(at), self.covar_module(at)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

    positive = gpytorch.constraints.Positive()
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=positive)
    process = Process(likelihood).to(device, torch.float64).train()
    likelihood.noise = nugget
    process.covar_module.outputscale = variance
    process.covar_module.base_kernel.lengthscale = length
    criterion = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    found = {}

    def evaluate():
        off = {"log_prob": False, "covar_root_decomposition": False, "solves": False}
        with torch.no_grad(), gpytorch.settings.fast_computations(**off):
            # GPyTorch returns ℓ/n
            found["log_likelihood"] = len(y) * float(criterion(process(x), y))

    finish = torch.cuda.synchronize if on == "gpu" else lambda: None
    row = {"routine": "ExactMarginalLogLikelihood", "format": "float64"}
    yield row | timed(evaluate, finish, 1) | found


PEERS = {"torch": torch, "jax": jax, "gpytorch": gpytorch}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--on", default="cpu", choices=("cpu", "gpu"))
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        given = [archive[name] for name in ("places", "values", "model")]
    for row in PEERS[options.peer](*given[:2], given[2].tolist(), options.on):
        print(json.dumps(row | {"version": metadata.version(options.peer)}), flush=True)


if __name__ == "__main__":
    main()
