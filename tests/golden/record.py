"""Compute the golden values, and write them to `values.json` beside this file.

The values say what geomxp computed before its modules were rearranged; estimates, since searches
start in every basin of the likelihood. Each entry is a function that returns numbers, texts and
lists of them. Whole numbers, texts and truth values are compared exactly; floating-point numbers to
the relative tolerance of their entry. Entries of bits are compared exactly, on the kind of machine
that recorded them, and only with GEOMXP_GOLDEN_BITS=1: set it to check a change that should alter
no bit. Most changes alter some, and a comparison that always ran would fail only when such a
machine next ran the tests.

    python tests/golden/record.py                 # all values
    python tests/golden/record.py "a fit" "REML"  # entries with these words in their names
    python tests/golden/record.py --files         # the files in `files` as well

To run it with the package of another checkout, set PYTHONPATH to that.
"""

import contextlib
import hashlib
import importlib
import inspect
import io
import json
import os
import platform
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import threadpoolctl

import geomxp as gx

HERE = Path(__file__).resolve().parent
VALUES, FILES = HERE / "values.json", HERE / "files"

ENTRIES = {}

EXACT, SUMS, LINEAR_ALGEBRA, OPTIMUM = 0.0, 1e-12, 1e-10, 1e-6
COARSE, COARSEST = 1e-5, 1e-3
"""Relative tolerances, by what a number comes from."""


# what is not public: to be adapted here, and nowhere else, if it is renamed


def internal(name):
    """Return a function that geomxp does not export, from whichever module defines it."""
    package = Path(gx.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if f"\ndef {name}(" in path.read_text():
            dotted = ".".join(path.relative_to(package).with_suffix("").parts)
            return getattr(importlib.import_module(f"geomxp.{dotted}"), name)
    raise LookupError(f"no module of geomxp defines {name}")


def factor_of(seen, model, method):
    """Return the tiles' factor L of a covariance matrix in FP64, (n, n), in the factor's order."""
    return method.prepare(seen).factorize(model).dense()


def empirical_variogram(fit):
    """Return distances, semivariances and numbers of pairs."""
    residuals = internal("trend_residuals")(fit)
    return internal("empirical_variogram")(fit.observations, residuals)


def profile_of(fit, name, points):
    """Return values of a parameter and the profile log-likelihood there."""
    return internal("profile_likelihood")(fit, name, points=points)


# how entries are defined and computed


def entry(name, tolerance, *, bits=False):
    """Keep a function as an entry."""

    def keep(function):
        assert name not in ENTRIES, name
        ENTRIES[name] = {"function": function, "tolerance": tolerance, "bits": bits}
        return function

    return keep


def computed(name):
    """Return what an entry computes now, as JSON holds it."""
    with in_one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        return json.loads(json.dumps(plain(ENTRIES[name]["function"]())))


@contextlib.contextmanager
def in_one_thread():
    """Compute in one thread, and leave the environment as it was."""
    before = dict(os.environ)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        with threadpoolctl.threadpool_limits(1):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def plain(value):
    """Return a value in types that JSON knows."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def summary(array):
    """Return an array whole if it is short, else numbers that change if any of its own does."""
    array = np.asarray(array, dtype=float)
    flat = array.ravel()
    if flat.size <= 24:
        return array
    known = np.where(np.isfinite(flat), flat, 0.0)
    waves = np.cos(np.outer([0.0, 0.37, 1.71], np.arange(flat.size)))
    return {
        "shape": array.shape,
        "unknown": int(np.sum(~np.isfinite(flat))),
        "first": known[:6],
        "sums": [np.linalg.norm(known), *(waves @ known)],
    }


def digest(array):
    """Return the SHA-256 of an array's bits."""
    array = np.asarray(array, dtype=float)
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes(order="C")).hexdigest()


def by_method(function, method):
    """Return the keyword argument by which a function takes the way to compute."""
    known = inspect.signature(function).parameters
    return {next(name for name in ("method", "how", "likelihood") if name in known): method}


def machine():
    """Return what the bits of results depend on besides the code."""
    import llvmlite
    import numba
    import scipy.linalg

    places = np.random.default_rng(0).random((200, 2))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    matrix = np.exp(-apart / 0.3) + 0.01 * np.eye(200)
    single = matrix.astype(np.float32)
    with in_one_thread():
        results = [
            matrix,
            np.linalg.cholesky(matrix),
            scipy.linalg.cholesky(matrix, lower=True),
            scipy.linalg.solve_triangular(np.linalg.cholesky(matrix), matrix[:, 3], lower=True),
            matrix @ matrix[:, 3],
            single @ single,
            scipy.linalg.blas.ssyrk(1.0, single),
        ]
    found = hashlib.sha256()
    for result in results:
        found.update(np.ascontiguousarray(result).tobytes())
    libraries = [
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}"
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    ]
    return {
        "linear algebra": found.hexdigest(),
        "BLAS": sorted(set(libraries)),
        "CPU": f"{platform.machine()} {_flags()}",
        "libraries": {
            module.__name__: module.__version__ for module in (np, scipy, numba, llvmlite)
        },
    }


def _flags():
    """Return a short hash of the instruction sets of this CPU; of its name elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.startswith(("flags", "Features")))
        words = " ".join(sorted(flags.partition(":")[2].split()))
    except (OSError, StopIteration):
        words = platform.processor()
    return hashlib.sha256(words.encode()).hexdigest()[:16]


# data: read from a file, or rounded, so that they are the same on every machine


def field(n, seed=1, dimensions=2, covariates=False):
    """Return observations of something smooth and noise in the unit square (cube, interval)."""
    rng = np.random.default_rng(seed)
    places = rng.random((n, dimensions))
    wave = np.sin(5 * places[:, 0]) + np.cos(4 * places[:, -1] + 1)
    values = np.round(wave + 0.4 * rng.standard_normal(n), 6)
    if not covariates:
        return gx.Observations(places, values)
    depth = np.round(rng.standard_normal(n), 6)
    numbers = np.column_stack((depth, np.arange(n) % 3))
    return gx.Observations(
        places,
        np.round(values + 0.5 * depth, 6),
        numbers,
        covariate_names=("depth", "soil"),
        levels={"soil": ("clay", "loam", "sand")},
    )


def on_earth(n, metric, seed=4):
    """Return observations at longitudes and latitudes."""
    rng = np.random.default_rng(seed)
    places = np.round(np.column_stack((rng.uniform(0, 20, n), rng.uniform(40, 60, n))), 6)
    values = np.round(np.sin(places[:, 0] / 3) + 0.3 * rng.standard_normal(n), 6)
    return gx.Observations(places, values, metric=metric)


MODEL = gx.Matern(1.3, 0.12, 0.8, 0.04)
MEUSE = gx.Matern(0.6, 220.0, 0.5, 0.06)
ON_EARTH = gx.Matern(1.0, 300.0, 0.5, 0.1)
LONG, SLANTED = gx.Matern(1.0, 0.2, 2.5, 1e-4), gx.Matern(1.3, 0.12, 0.8, 0.04, (30.0, 0.4))

WAYS = {
    "FP64": gx.Exact(),
    "FP64 in tiles": gx.Exact(tile=32),
    "FP32": gx.Exact(gx.uniform("fp32"), tile=32),
    "BF16": gx.Exact(gx.uniform("bf16"), tile=32),
    "FP8": gx.Exact(gx.uniform("fp8"), tile=32),
    "tile norms 1e-2": gx.Exact(gx.by_tile_norm(1e-2), tile=32),
    "tile norms 1e-4": gx.Exact(gx.by_tile_norm(1e-4), tile=32),
    "tile norms 1e-6": gx.Exact(gx.by_tile_norm(1e-6), tile=32),
    "tile norms 1e-8": gx.Exact(gx.by_tile_norm(1e-8), tile=32),
    "tile norms 1e-4, not scaled": gx.Exact(gx.by_tile_norm(1e-4, False), tile=32),
    "bands": gx.Exact(gx.by_band(("fp32", 1), ("fp16", 2), "fp8"), tile=32),
    "layers": gx.Exact(gx.layered("fp16", "fp32", "fp64"), tile=32),
    "divergence 1e-2": gx.Exact(gx.for_divergence(1e-2), tile=32),
    "divergence 1e-5": gx.Exact(gx.for_divergence(1e-5), tile=32),
    "refined by ir": gx.Exact(gx.by_tile_norm(1e-4), tile=32, refine="ir"),
    "refined by cg": gx.Exact(gx.by_tile_norm(1e-4), tile=32, refine="cg"),
    "refined by gmres": gx.Exact(gx.by_tile_norm(1e-4), tile=32, refine="gmres"),
    "refined by cg with a fallback": gx.Exact(
        gx.by_tile_norm(1e-2), tile=32, refine="cg", fallback=True
    ),
    "FP64 out of core": gx.Exact(tile=32, memory="100KB"),
    "tile norms out of core": gx.Exact(gx.by_tile_norm(1e-4), tile=32, memory="70KB"),
    "layers out of core": gx.Exact(gx.layered("fp16", "fp32", "fp64"), tile=32, memory="70KB"),
    "FP64 beside a device": gx.Exact(tile=32, device_memory="100KB"),
    "tile norms beside a device": gx.Exact(gx.by_tile_norm(1e-4), tile=32, device_memory="70KB"),
    "Vecchia, no neighbour": gx.Vecchia(0),
    "Vecchia, 5 neighbours": gx.Vecchia(5),
    "Vecchia, 30 neighbours": gx.Vecchia(30),
    "Vecchia, all neighbours": gx.Vecchia(289),
    "Vecchia, Morton order": gx.Vecchia(10, "morton"),
    "Vecchia, Hilbert order": gx.Vecchia(10, "hilbert"),
    "Vecchia, given order": gx.Vecchia(10, "given"),
    "Vecchia, a permutation": gx.Vecchia(10, np.arange(290)[::-1]),
}
"""Ways to compute a log-likelihood of 290 places."""


def tolerance_of(way):
    """Return the tolerance of log-likelihoods: what coarse formats round depends on the machine."""
    if way.startswith(("FP64", "Vecchia")):
        return LINEAR_ALGEBRA
    return COARSEST if way.startswith(("BF16", "FP8", "bands", "tile norms 1e-2")) else COARSE


def evaluated(evaluation):
    """Return the numbers of an evaluation."""
    found, about = evaluation.to_dict(), {}
    formats = evaluation.precision_map
    if formats is not None and len(formats) > 1:
        about = {"map": str(formats).split("\n"), "promised error": formats.error}
    found.pop("seconds")
    found.pop("message")
    # how many steps a refinement takes depends on the last bits
    refinement = found.pop("refinement") or {}
    return {
        **found,
        **about,
        "refined": sorted(refinement),
        "variance of coefficients": np.diag(evaluation.coefficient_covariance),
        "determinant of information": evaluation.log_determinant_of_information,
    }


def estimated(fit):
    """Return the numbers of a fit."""
    return {
        "estimates": fit.model.parameters(),
        "standard errors": fit.standard_errors,
        "coefficients": fit.coefficients,
        "errors of coefficients": fit.coefficient_errors,
        "names": fit.trend.names,
        "log-likelihood": fit.log_likelihood,
        "criteria": [fit.aic, fit.aicc, fit.bic],
        "outcome": str(fit.outcome.ending),
        "free": fit.free,
        "boundary": fit.boundary,
        "formats": fit.formats,
        "promotions": fit.promotions,
    }


def predicted(prediction):
    """Return the numbers of predictions."""
    found = {"mean": summary(prediction.mean), "variance": summary(prediction.variance)}
    if prediction.noise is not None:
        found["lower"] = summary(prediction.interval(0.9, "observation")[0])
    return found


def held(seen, model, method=None, **about):
    """Return a fit that estimates nothing but the trend."""
    return gx.fit(seen, model, method, fixed=tuple(model.parameters()), **about)


TARGETS = np.round(np.random.default_rng(9).random((15, 2)), 6)


# covariance functions


@entry("correlations and covariances of Matérn models", SUMS)
def _():
    distances = np.geomspace(1e-6, 30, 12)
    orders = (0.1, 0.5, 0.8, 1.0, 1.5, 2.5, 3.7, 10.0)
    return {
        str(order): {
            "correlation": gx.Matern(1.0, 1.0, order).correlation(distances),
            "covariance": gx.Matern(2.0, 3.0, order, 0.5).covariance(distances),
            "effective range": gx.Matern(1.0, 2.0, order).effective_range(),
        }
        for order in orders
    }


@entry("derivatives of covariances", 1e-9)
def _():
    a, b = field(4).locations, field(3, 2).locations
    found = {}
    for name, model in {"isotropic": MODEL, "anisotropic": SLANTED, "ν = 1.5": LONG}.items():
        result = model.derivatives(a, b)
        parts = result.items() if isinstance(result, dict) else enumerate(result)
        found[name] = {str(key): summary(part) for key, part in parts}
    return found


@entry("covariances on the sphere, in space and on a line", SUMS)
def _():
    earth = on_earth(4, "chordal").locations
    return {
        "chordal": ON_EARTH(earth, earth, "chordal"),
        "great-circle": ON_EARTH(earth, earth, "great-circle"),
        "space": MODEL(field(4, 1, 3).locations, field(4, 1, 3).locations),
        "line": MODEL(field(4, 1, 1).locations, field(4, 1, 1).locations),
        "slanted": SLANTED(field(4).locations, field(4).locations),
    }


@entry("parameters in the conventions of other packages", SUMS)
def _():
    names = ("scikit-learn", "gpytorch", "gstools", "geor", "gstat", "exageostat")
    return {name: gx.Matern(1.5, 2.0, 1.5, 0.2).to_convention(name) for name in names}


# log-likelihoods


def _log_likelihood(name, method):
    tolerance = tolerance_of(name)

    @entry(f"a log-likelihood: {name}", tolerance)
    def _():
        return evaluated(gx.log_likelihood(field(290), MODEL, method))

    @entry(f"a restricted log-likelihood with a linear trend: {name}", tolerance)
    def _():
        found = gx.log_likelihood(field(290), MODEL, method, trend="linear", reml=True)
        return evaluated(found)

    @entry(f"the bits of a log-likelihood: {name}", EXACT, bits=True)
    def _():
        found = gx.log_likelihood(field(290), MODEL, method, trend="linear")
        parts = (found.log_likelihood, found.log_determinant, found.quadratic_form)
        steps = found.to_dict()["refinement"]
        return [*(float(part).hex() for part in (*parts, *found.coefficients)), steps]


for _name, _method in WAYS.items():
    _log_likelihood(_name, _method)

TRENDS = {
    "zero": "zero",
    "constant": "constant",
    "linear": "linear",
    "polynomial": "depth + poly(x1, 2)",
    "text": "soil + depth:x2",
}


def _trend(name, trend, reml):
    kind = "restricted log-likelihood" if reml else "log-likelihood"

    @entry(f"a {kind} with a trend: {name}", LINEAR_ALGEBRA)
    def _():
        seen = field(90, covariates=True)
        words = trend
        for number in "12":
            words = words.replace(f"x{number}", seen.location_names[int(number) - 1])
        exact, vecchia = (
            gx.log_likelihood(seen, MODEL, method, trend=words, reml=reml)
            for method in (gx.Exact(), gx.Vecchia(12))
        )
        return {"exact": evaluated(exact), "Vecchia": evaluated(vecchia)}


for _name, _words in TRENDS.items():
    for _reml in (False, True):
        _trend(_name, _words, _reml)


@entry("a log-likelihood with the covariates of meuse", LINEAR_ALGEBRA)
def _():
    seen = gx.datasets.load("meuse")
    return {
        "columns": evaluated(gx.log_likelihood(seen, MEUSE, gx.Exact(), trend="covariates")),
        "formula": evaluated(
            gx.log_likelihood(seen, MEUSE, gx.Exact(), trend="sqrt_dist + I(x / 1000)", reml=True)
        ),
    }


@entry("log-likelihoods by metric and dimension", LINEAR_ALGEBRA)
def _():
    cases = {
        "chordal": (on_earth(80, "chordal"), ON_EARTH),
        "great-circle": (on_earth(80, "great-circle"), ON_EARTH),
        "space": (field(80, 3, 3), MODEL),
        "line": (field(80, 3, 1), MODEL),
        "anisotropic": (field(80), SLANTED),
    }
    ways = {"exact": gx.Exact(), "tiles": gx.Exact(tile=16), "Vecchia": gx.Vecchia(8)}
    return {
        f"{case}, {way}": evaluated(gx.log_likelihood(seen, model, method, trend="constant"))
        for case, (seen, model) in cases.items()
        for way, method in ways.items()
    }


@entry("a covariance matrix without a factor", EXACT)
def _():
    seen = gx.Observations(np.repeat(field(20).locations, 2, axis=0), np.arange(40.0))
    model = gx.Matern(1.0, 0.1, 0.5)
    found = {}
    for name in ("FP64", "tile norms 1e-4", "Vecchia, 5 neighbours"):
        try:
            answer = gx.log_likelihood(seen, model, WAYS[name])
            found[name] = [str(answer.outcome.ending), str(answer.log_likelihood)]
        except gx.GeomxpError as error:
            found[name] = type(error).__name__
    return found


# precision


def _mixed_factor(name, model, method):
    @entry(f"the bits of a factor: {name}", EXACT, bits=True)
    def _():
        return digest(factor_of(field(290), model, method))


_MIXED = [name for name in WAYS if not name.startswith(("Vecchia", "refined")) and name != "FP64"]
for _name in _MIXED:
    _mixed_factor(_name, MODEL, WAYS[_name])
_mixed_factor("promoted tiles", LONG, WAYS["layers"])
_mixed_factor("promoted tiles out of core", LONG, WAYS["layers out of core"])
_mixed_factor("an anisotropic model", SLANTED, WAYS["tile norms 1e-4"])


@entry("tiles that are promoted", 2e-2)
def _():
    found = {}
    for name in ("layers", "layers out of core", "tile norms 1e-2", "FP8", "bands"):
        answer = gx.log_likelihood(field(290), LONG, WAYS[name])
        found[name] = evaluated(answer) | {"promotions": answer.promotions}
    return found


@entry("formats by tile of each rule", COARSE)
def _():
    norms = np.exp(-np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))) + 1e-4
    rules = {
        "uniform": gx.uniform("fp16"),
        "bands": gx.by_band(("fp32", 2), "fp16"),
        "layers": gx.layered("fp8", "fp16", "fp32"),
        **{f"norms {eps}": gx.by_tile_norm(eps) for eps in (1e-1, 1e-3, 1e-5, 1e-7, 1e-9)},
    }
    found = {name: rule(norms) for name, rule in rules.items()}
    return {
        name: {"map": str(formats).split("\n"), "counts": formats.counts(), "error": formats.error}
        for name, formats in found.items()
    }


@entry("plans of memory", EXACT)
def _():
    ways = {
        "one memory": gx.Exact(),
        "tiles": gx.Exact(tile=500),
        "on a disk": gx.Exact(tile=500, memory="40MB"),
        "beside a device": gx.Exact(gx.layered("fp16", "fp32"), tile=500, device_memory="40MB"),
    }
    found = {}
    for name, method in ways.items():
        plan = method.plan(7000)
        found[name] = [plan.layout.tile, plan.layout.tiles, plan.formats.counts(), plan.bytes]
        if name in ("on a disk", "beside a device"):
            found[name] += [plan.on_disk, plan.tiles_in_memory, _bytes_moved(plan.traffic())]
    mixed = gx.Exact(gx.by_tile_norm(1e-4), tile=32).plan(field(290), MODEL)
    return {**found, "by norms": [mixed.formats.counts(), mixed.bytes]}


def _bytes_moved(found):
    return {name: vars(traffic) for name, traffic in found.items()}


# fits

_HALF = {"smoothness": 0.5}
_FITS = {
    "meuse, ν = ½": lambda: gx.fit(gx.datasets.load("meuse"), None, gx.Exact(), fixed=_HALF),
    "meuse, all parameters": lambda: gx.fit(gx.datasets.load("meuse")),
    "meuse, REML by covariates": lambda: gx.fit(
        gx.datasets.load("meuse"), fixed=_HALF, trend="covariates", reml=True
    ),
    "meuse, a formula": lambda: gx.fit(
        gx.datasets.load("meuse"), fixed=_HALF, trend="sqrt_dist + poly(x, 2)"
    ),
    "meuse, anisotropy": lambda: gx.fit(gx.datasets.load("meuse"), fixed=_HALF, anisotropy=True),
    "meuse, no nugget": lambda: gx.fit(gx.datasets.load("meuse"), fixed=_HALF | {"nugget": 0.0}),
    "meuse, between bounds": lambda: gx.fit(
        gx.datasets.load("meuse"), fixed=_HALF, bounds={"range": (100.0, 400.0)}
    ),
    "meuse, Vecchia": lambda: gx.fit(
        gx.datasets.load("meuse"), None, gx.Vecchia(15), fixed=_HALF, trend="covariates"
    ),
    "meuse, Vecchia by REML": lambda: gx.fit(
        gx.datasets.load("meuse"), None, gx.Vecchia(15), fixed=_HALF, trend="covariates", reml=True
    ),
    "jura": lambda: gx.fit(gx.datasets.load("jura"), fixed=_HALF),
    "jura, REML with a linear trend": lambda: gx.fit(
        gx.datasets.load("jura"), fixed=_HALF, trend="linear", reml=True
    ),
    "jura, Vecchia": lambda: gx.fit(gx.datasets.load("jura"), None, gx.Vecchia(15), fixed=_HALF),
    "ozone on the sphere": lambda: gx.fit(gx.datasets.load("ozone"), fixed=_HALF),
    "a field from a start": lambda: gx.fit(field(120), MODEL, fixed=("smoothness",)),
    "a field, tiles": lambda: gx.fit(field(120), MODEL, gx.Exact(tile=32), fixed=("smoothness",)),
    "a field by bobyqa": lambda: gx.fit(field(80), MODEL, fixed=("smoothness",), search="bobyqa"),
    "a field by lbfgs": lambda: gx.fit(field(80), MODEL, fixed=("smoothness",), search="lbfgs"),
    "a field by slsqp": lambda: gx.fit(field(80), MODEL, fixed=("smoothness",), search="slsqp"),
    "a field from three starts": lambda: gx.fit(field(80), fixed=_HALF, starts=3),
    "a search that a limit stops": lambda: gx.fit(
        field(80), MODEL, fixed=("smoothness",), search="bobyqa", evaluations=6
    ),
    "without a finite maximum": lambda: gx.fit(
        gx.datasets.load("meuse"),
        None,
        gx.Vecchia(15),
        fixed=_HALF,
        reml=True,
        raise_on_failure=False,
    ),
}
_COARSE_FITS = {
    "a field, tile norms 1e-6": gx.Exact(gx.by_tile_norm(1e-6), tile=32),
    "a field, tile norms 1e-8": gx.Exact(gx.by_tile_norm(1e-8), tile=32),
    "a field, layers": gx.Exact(gx.layered("fp32", "fp64"), tile=32),
    "a field, divergence 1e-4": gx.Exact(gx.for_divergence(1e-4), tile=32),
    "a field, refined by cg": gx.Exact(gx.by_tile_norm(1e-5), tile=32, refine="cg"),
    "a field, tile norms out of core": gx.Exact(gx.by_tile_norm(1e-8), tile=32, memory="70KB"),
}


@cache
def fitted(name):
    """Return a fit of the tables above."""
    if name in _COARSE_FITS:
        return gx.fit(field(120), MODEL, _COARSE_FITS[name], fixed=("smoothness",))
    return _FITS[name]()


def _fit(name):
    # ends that the last bits decide: in the noise of coarse formats, where ℓ is flat, on a bound
    loose = {name: 2e-2 for name in (*_COARSE_FITS, "without a finite maximum")}
    loose["meuse, between bounds"] = 1e-4

    @entry(f"a fit: {name}", loose.get(name, OPTIMUM))
    def _():
        return estimated(fitted(name))


for _name in (*_FITS, *_COARSE_FITS):
    _fit(_name)


@entry("observed and expected information", 1e-5)
def _():
    names = ("meuse, ν = ½", "meuse, REML by covariates", "meuse, Vecchia", "a field from a start")
    return {
        name: {kind: gx.information(fitted(name), kind) for kind in ("observed", "expected")}
        for name in names
    }


@entry("information with anisotropy and all parameters", 1e-4)
def _():
    names = ("meuse, anisotropy", "meuse, all parameters")
    return {name: gx.information(fitted(name), "expected") for name in names}


@entry("Wald intervals and derived quantities", 1e-5)
def _():
    fit = fitted("meuse, REML by covariates")
    return {
        "intervals": fit.confidence_intervals(0.9),
        "derived": {name: vars(found) for name, found in fit.derived().items()},
    }


@entry("profile intervals", 1e-5)
def _():
    return {
        name: fitted(name).confidence_intervals(0.95, "profile")
        for name in ("meuse, REML by covariates", "meuse, Vecchia")
    }


@entry("a profile of the likelihood", 1e-5)
def _():
    values, profile = profile_of(fitted("meuse, REML by covariates"), "range", 5)
    return [values, profile]


# predictions

_PREDICTING = {
    "exact": gx.Exact(),
    "tiles": gx.Exact(tile=32),
    "out of core": gx.Exact(tile=32, memory="100KB"),
}
_PREDICTING_COARSELY = {
    "tile norms": gx.Exact(gx.by_tile_norm(1e-6), tile=32),
    "refined": gx.Exact(gx.by_tile_norm(1e-4), tile=32, refine="cg"),
}


def _predictions(method):
    fit = held(field(150), MODEL, method, trend="linear")
    return {
        "points": predicted(gx.predict(fit, TARGETS)),
        "blocks": predicted(gx.predict(fit, TARGETS, block=(0.1, 0.05))),
        "neighbours": predicted(gx.predict(fit, TARGETS, neighbours=20)),
        "local trend": predicted(gx.predict(fit, TARGETS, neighbours=20, local_trend=True)),
    }


for _name, _method in (_PREDICTING | _PREDICTING_COARSELY).items():
    entry(f"predictions: {_name}", LINEAR_ALGEBRA * 10 if _name in _PREDICTING else 1e-5)(
        lambda method=_method: _predictions(method)
    )


@entry("predictions by Vecchia's approximation", 1e-9)
def _():
    fit = held(field(150), MODEL, gx.Vecchia(12), trend="linear")
    return {
        "points": predicted(gx.predict(fit, TARGETS)),
        "blocks": predicted(gx.predict(fit, TARGETS, block=0.1)),
        "neighbours": predicted(gx.predict(fit, TARGETS, neighbours=20)),
    }


@entry("predictions for blocks of every kind", 1e-9)
def _():
    fit = held(field(150), MODEL)
    slanted = held(field(150), SLANTED)
    corners = np.array([[0.1, 0.1], [0.4, 0.15], [0.3, 0.5]])
    return {
        "polygons": predicted(gx.predict(fit, block=[corners, corners + 0.4])),
        "points": predicted(gx.predict(fit, block=np.stack((TARGETS[:5], TARGETS[5:10])))),
        "discretised": predicted(gx.predict(fit, TARGETS, block=0.1, discretisation=3)),
        "anisotropic": predicted(gx.predict(slanted, TARGETS, block=0.1)),
        "line": predicted(gx.predict(held(field(40, 1, 1), MODEL), [[0.3], [0.7]], block=0.1)),
        "space": predicted(
            gx.predict(held(field(40, 1, 3), MODEL), [[0.3, 0.5, 0.5]], block=(0.1, 0.2, 0.1))
        ),
        "degrees": predicted(
            gx.predict(held(on_earth(60, "chordal"), ON_EARTH), [[5.0, 50.0]], block=1.0)
        ),
    }


@entry("predictions with covariates and other trends", 1e-9)
def _():
    meuse, levels = gx.datasets.load("meuse"), field(60, covariates=True)
    by_covariates = held(meuse, MEUSE, trend="covariates")
    by_formula = held(meuse, MEUSE, trend="sqrt_dist + poly(x, 2)", reml=True)
    by_text = held(levels, MODEL, trend="soil + depth")
    places, distance = meuse.locations[:8] + 30.0, np.linspace(0.1, 0.8, 8)[:, None]
    table = {"soil": ["loam", "clay"], "depth": [0.1, -0.2]}
    return {
        "covariates": predicted(gx.predict(by_covariates, places, distance)),
        "formula": predicted(gx.predict(by_formula, places, distance)),
        "text": predicted(gx.predict(by_text, TARGETS[:2], table)),
        "zero trend": predicted(gx.predict(held(field(60), MODEL, trend="zero"), TARGETS)),
        "jura": predicted(
            gx.predict(
                held(gx.datasets.load("jura"), gx.Matern(12.0, 0.4, 0.5, 0.5)),
                gx.datasets.load("jura_validation"),
            )
        ),
    }


@entry("the bits of predictions", EXACT, bits=True)
def _():
    ways = _PREDICTING | _PREDICTING_COARSELY | {"Vecchia": gx.Vecchia(12)}
    found = {}
    for name, method in ways.items():
        fit = held(field(150), MODEL, method, trend="linear")
        there = gx.predict(fit, TARGETS)
        found[name] = [digest(there.mean), digest(there.variance)]
    return found


@entry("rasters of predictions", 1e-9)
def _():
    fit, found = held(gx.datasets.load("meuse"), MEUSE), {}
    for name, about in {
        "cells": {"cells": 9},
        "resolution": {"resolution": 400.0, "block": True},
        "neighbours": {"cells": 9, "neighbours": 25},
        "bounds": {"cells": 5, "bounds": (179000.0, 330000.0, 180000.0, 331000.0)},
    }.items():
        raster = gx.predict_raster(fit, **about)
        found[name] = {
            "extent": raster.extent,
            "mean": summary(raster.mean),
            "variance": summary(raster.variance),
            "upper": summary(raster.interval(0.8)[1]),
        }
    return found


# simulations


@entry("simulated fields", 1e-9)
def _():
    places = field(60).locations
    fit = held(field(60), MODEL, trend="linear")

    def draws(model, there, method=None, **about):
        chosen = {} if method is None else by_method(gx.simulate, method)
        return summary(gx.simulate(model, there, 2, 7, **chosen, **about))

    return {
        "exact": draws(MODEL, places),
        "field": draws(MODEL, places, of="field"),
        "tiles": draws(MODEL, places, gx.Exact(tile=16)),
        "Vecchia": draws(MODEL, places, gx.Vecchia(10)),
        "chordal": draws(ON_EARTH, on_earth(40, "chordal").locations, metric="chordal"),
        "anisotropic": draws(SLANTED, places),
        "given data": draws(fit, TARGETS),
        "given data, observations": draws(fit, TARGETS, of="observation"),
    }


@entry("simulated fields in mixed formats", 1e-4)
def _():
    method = by_method(gx.simulate, gx.Exact(gx.by_tile_norm(1e-6), tile=16))
    return summary(gx.simulate(MODEL, field(60).locations, 2, 7, **method))


@entry("the bits of simulated fields", EXACT, bits=True)
def _():
    ways = {"exact": gx.Exact(), "mixed": gx.Exact(gx.by_tile_norm(1e-6), tile=16)}
    ways["Vecchia"] = gx.Vecchia(10)
    return {
        name: digest(
            gx.simulate(MODEL, field(60).locations, 2, 7, **by_method(gx.simulate, method))
        )
        for name, method in ways.items()
    }


# validation and diagnostics


def validated(found):
    """Return the numbers of a validation."""
    return {
        "mean": summary(found.mean),
        "variance": summary(found.variance),
        "scores": found.scores(),
        "folds": hashlib.sha256(np.asarray(found.folds, np.int64).tobytes()).hexdigest(),
    }


@entry("each observation left out", 1e-9)
def _():
    return {
        "constant": validated(gx.leave_one_out(held(gx.datasets.load("meuse"), MEUSE))),
        "covariates": validated(
            gx.leave_one_out(held(gx.datasets.load("meuse"), MEUSE, trend="covariates", reml=True))
        ),
        "tiles": validated(gx.leave_one_out(held(field(100), MODEL, gx.Exact(tile=32)))),
        "Vecchia": validated(gx.leave_one_out(held(field(100), MODEL, gx.Vecchia(10)))),
    }


@entry("cross-validation", 1e-9)
def _():
    meuse = held(gx.datasets.load("meuse"), MEUSE)
    vecchia = held(field(100), MODEL, gx.Vecchia(10))
    return {
        "folds": validated(gx.cross_validate(meuse, 5, seed=3)),
        "blocks": validated(gx.cross_validate(meuse, 5, blocks=500.0)),
        "labels": validated(gx.cross_validate(meuse, np.arange(155) % 4)),
        "Vecchia": validated(gx.cross_validate(vecchia, 4)),
    }


@entry("cross-validation with fits of their own", 1e-5)
def _():
    return validated(gx.cross_validate(fitted("a field from a start"), 3, refit=True))


_COARSE_WAYS = [gx.Exact(gx.by_tile_norm(eps), tile=32) for eps in (1e-2, 1e-4, 1e-6)]
_COARSE_WAYS += [gx.Exact(gx.for_divergence(1e-3), tile=32)]


def _compared(ways):
    found = []
    for row in gx.compare(MODEL, field(200), ways, trend="linear"):
        document = row.to_dict()
        del document["seconds"], document["speedup"]
        found.append(document | {"reference": row.reference})
    return found


@entry("divergences from FP64 of mixed formats", 5e-2)
def _():
    found = _compared(_COARSE_WAYS)
    for row in found:
        # the difference of large numbers
        del row["log_determinant_error"], row["kl_log_determinant"], row["quadratic_form_error"]
    return found


@entry("the bits of divergences of mixed formats", EXACT, bits=True)
def _():
    return [
        [value.hex() for value in row.values() if isinstance(value, float)]
        for row in _compared(_COARSE_WAYS)
    ]


@entry("divergences from FP64 of Vecchia's approximation", 1e-8)
def _():
    return _compared([gx.Vecchia(5), gx.Vecchia(20)])


@entry("the divergence of one way", 5e-2)
def _():
    method = gx.Exact(gx.by_tile_norm(1e-3), tile=32)
    one = gx.kl_divergence(MODEL, field(120).locations, method)
    return {"kl": one.kl, "formats": one.formats.counts(), "bytes": one.bytes}


@entry("divergences between models", 1e-9)
def _():
    places = field(120).locations
    other = gx.Matern(1.2, 0.15, 0.6, 0.05)
    return {
        "models": [gx.kl_between(MODEL, other, places), gx.kl_between(other, MODEL, places)],
        "on earth": gx.kl_between(
            ON_EARTH, gx.Matern(1.2, 200.0, 0.5, 0.1), on_earth(50, "chordal").locations, "chordal"
        ),
    }


@entry("models compared by information criteria", 1e-5)
def _():
    found = gx.compare_models(
        gx.datasets.load("meuse"),
        smoothness=(0.5, 1.5),
        nuggets=(0.0, "free"),
        trends=("constant", "sqrt_dist"),
        criterion="aicc",
    )
    document = found.to_dict()
    for row in document["rows"]:
        del row["seconds"]
        row["outcome"] = row["outcome"].partition(":")[0]
        # the range of a field without an end is not known
        row.update({name: None for name in row if name.startswith("estimate_")})
    return document | {"best": found.best.model.parameters()}


@entry("a likelihood-ratio test", 1e-5)
def _():
    found = gx.likelihood_ratio_test(
        fitted("meuse, ν = ½"), gx.fit(gx.datasets.load("meuse"), fixed=_HALF, trend="covariates")
    )
    nugget = gx.likelihood_ratio_test(fitted("meuse, no nugget"), fitted("meuse, ν = ½"))
    return [[test.statistic, test.degrees_of_freedom, test.p_value] for test in (found, nugget)]


@entry("a bootstrap", 1e-4)
def _():
    found = gx.bootstrap(fitted("a field from a start"), 5, 11)
    return {
        "estimates": {name: found.estimates[name].to_numpy() for name in found.estimates},
        "standard errors": found.standard_errors,
    }


@entry("loss of efficiency and misspecification", 1e-9)
def _():
    other, places = gx.Matern(1.2, 0.15, 0.5, 0.05), field(80).locations
    ways = {
        "all": {},
        "neighbours": {"neighbours": 15},
        "observations": {"of": "observation"},
        "tiles": by_method(gx.mloe_mmom, gx.Exact(tile=32)),
    }
    return {
        name: plain(gx.mloe_mmom(MODEL, other, places, TARGETS, **about).to_dict())
        for name, about in ways.items()
    }


@entry("the influence of precision on estimates", 2e-2)
def _():
    frame = gx.precision_influence(
        field(120),
        (1e-8, 1e-5),
        fixed={"smoothness": 0.8},
        **by_method(gx.precision_influence, gx.Exact(tile=32)),
    )
    frame = frame.drop(columns=["seconds", "outcome"])
    return {name: frame[name].tolist() for name in frame}


@entry("semivariances", 1e-6)
def _():
    return [list(part) for part in empirical_variogram(fitted("meuse, ν = ½"))]


@entry("scores of Gaussian predictions", SUMS)
def _():
    mean, sd, observed = np.linspace(-1, 1, 7), np.linspace(0.5, 2, 7), np.cos(np.arange(7))
    return {
        "crps": gx.scores.crps_gaussian(mean, sd, observed),
        "log": gx.scores.log_score(mean, sd, observed),
        "pit": gx.scores.pit(mean, sd, observed),
        "summary": gx.scores.summary(mean, sd, observed),
    }


# data sets and errors


@entry("the data sets", EXACT)
def _():
    return {
        name: [len(seen), seen.metric, seen.unit, seen.covariate_names, seen.digest()]
        for name, seen in ((name, gx.datasets.load(name)) for name in gx.datasets.DATASETS)
    }


@entry("the kinds of errors", EXACT)
def _():
    seen = field(30)
    fit = held(seen, MODEL)
    calls = {
        "negative variance": lambda: gx.Matern(-1.0, 1.0, 0.5),
        "text as a parameter": lambda: gx.Matern(1.0, "far", 0.5),
        "two places": lambda: gx.Observations([[0.0], [1.0]], [1.0, 2.0]),
        "a missing value": lambda: gx.Observations([[0.0], [1.0], [2.0]], [1.0, np.nan, 2.0]),
        "another metric": lambda: gx.Observations([[0.0], [1.0], [2.0]], [1, 2, 3], metric="taxi"),
        "another format": lambda: gx.uniform("fp7"),
        "another refinement": lambda: gx.Exact(refine="luck"),
        "a precision that is no rule": lambda: gx.Exact("fp32"),
        "too little memory": lambda: gx.log_likelihood(
            field(290), MODEL, gx.Exact(tile=32, memory=1000)
        ),
        "no such GPU": lambda: gx.log_likelihood(seen, MODEL, gx.Exact(on="gpu:99")),
        "neighbours that are none": lambda: gx.Vecchia(-1),
        "another trend": lambda: gx.fit(seen, trend="wavy"),
        "another search": lambda: gx.fit(seen, search="luck"),
        "another parameter": lambda: gx.fit(seen, fixed={"sill": 1.0}),
        "equal values": lambda: gx.fit(gx.Observations(seen.locations, np.ones(30))),
        "smooth on great circles": lambda: gx.fit(
            on_earth(30, "great-circle"), fixed={"smoothness": 1.5}
        ),
        "places in another dimension": lambda: gx.predict(fit, [[1.0, 2.0, 3.0]]),
        "no places": lambda: gx.predict(fit),
        "another kind of information": lambda: gx.information(fit, "hearsay"),
        "a file that is no fit": lambda: gx.Fit.load(VALUES.parent / "record.py"),
        "another data set": lambda: gx.datasets.load("moose"),
        "two places at one point": lambda: gx.log_likelihood(
            gx.Observations(np.zeros((4, 2)), np.arange(4.0)), gx.Matern(1.0, 1.0, 0.5)
        ),
        "more coefficients than places": lambda: gx.fit(
            gx.Observations([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1.0, 2.0, 4.0]), trend="linear"
        ),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "none"
        except Exception as error:
            public = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in gx.__all__]
            found[name] = public[0] if public else type(error).__name__
    return found


# the command line


def command(*words):
    """Run `python -m geomxp` in this process; return the exit status, and what it printed."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    status = 0
    try:
        sys.argv = ["geomxp", *map(str, words)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), in_one_thread():
            runpy.run_module("geomxp", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = 0 if end.code is None else end.code
    finally:
        sys.argv = before
    return status, out.getvalue(), err.getvalue()


ADDED = ("family", "digits")
"""Keys of documents that have been added since the values were recorded."""


def schema(value):
    """Return the keys of a JSON document, and the types of what they stand for."""
    if isinstance(value, dict):
        return {key: schema(item) for key, item in value.items() if key not in ADDED}
    if isinstance(value, list):
        return [schema(value[0])] if value else []
    if value is None:
        return "null"
    if isinstance(value, bool | str):
        return type(value).__name__
    return "number"


_MEUSE = "meuse --variance 0.6 --range 220 --smoothness 0.5 --nugget 0.06"
_SQUARE = "--variance 1 --range 0.1 --smoothness 0.5"
_COMMANDS = {
    "fit": "fit meuse --fix smoothness=0.5 --intervals wald",
    "fit by Vecchia": "fit jura --method vecchia --fix smoothness=0.5",
    "fit in mixed formats": "fit meuse --fix smoothness=0.5 --accuracy 1e-8 --tile 64 --reml "
    "--formula sqrt_dist",
    "log-likelihood": f"log-likelihood {_MEUSE} --trend constant",
    "log-likelihood, refined": f"log-likelihood {_MEUSE} --accuracy 1e-5 --tile 32 --refine cg",
    "log-likelihood, out of core": f"log-likelihood {_MEUSE} --tile 32 --memory 100KB",
    "validate": "validate FIT --folds 4",
    "validate, one by one": "validate FIT --leave-one-out",
    "compare-models": "compare-models meuse --smoothness 0.5,1.5 --nugget 0,free",
    "predict": "predict FIT meuse",
    "predict a grid": "predict FIT --grid 5 --block cell",
    "simulate": f"simulate --n 25 {_SQUARE} --seed 3 --layout jittered",
    "simulate given data": "simulate --fit FIT --at meuse --draws 2",
    "compare": f"compare --n 100 {_SQUARE} --accuracies 1e-4,1e-8 --tile 25",
    "compare Vecchia": f"compare {_MEUSE} --neighbours 5,20",
    "bench likelihood": "bench likelihood --n 64",
    "bench cholesky": "bench cholesky --n 128",
    "info": "info",
}


@contextlib.contextmanager
def _with_fit(words):
    """Split words, with FIT replaced by the file of a fit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fit.json")
        if "FIT" in words:
            held(gx.datasets.load("meuse"), MEUSE).save(path)
        yield [str(path) if word == "FIT" else word for word in words.split()]


def _command(name, words):
    @entry(f"the JSON of a command: {name}", EXACT)
    def _():
        with _with_fit(words) as given:
            status, out, err = command(*given, "--json")
        assert out, err
        document = json.loads(out)
        # predict says where the observations are from, and what its intervals are of
        said = "geomxp: the observations are", "geomxp: lower"
        silent = all(line.startswith(said) for line in err.splitlines())
        about = {"status": status, "schema": schema(document), "silent": silent}
        if name == "info":
            # names and versions differ from machine to machine
            about["schema"] = sorted(document)
            about["data sets"] = sorted(document["data sets"])
        if name.startswith("bench"):
            about["silent"] = True
        return about


for _name, _words in _COMMANDS.items():
    _command(_name, _words)


@entry("numbers that commands print", 1e-6)
def _():
    found = {}
    for name in ("fit", "log-likelihood", "validate", "predict a grid", "simulate"):
        with _with_fit(_COMMANDS[name]) as given:
            document = json.loads(command(*given, "--json")[1])
        numbers = [float(value) for value in _numbers(_timeless(document))]
        found[name] = [len(numbers), summary(numbers)]
    return found


def _timeless(document):
    """Return a document without times, and without what says where files are."""
    left_out = ("seconds", "path", "table", "message", "geomxp", *ADDED)
    if isinstance(document, dict):
        return {k: _timeless(v) for k, v in document.items() if k not in left_out}
    return [_timeless(item) for item in document] if isinstance(document, list) else document


def _numbers(document):
    """Yield the numbers of a document."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        for item in document:
            yield from _numbers(item)
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield document


@entry("exit statuses of the command line", EXACT)
def _():
    calls = {
        "help": "--help",
        "version": "--version",
        "no command": "",
        "another command": "feet",
        "another option": "fit meuse --fx smoothness=0.5",
        "another data set": "fit moose",
        "no such file": "fit nowhere.csv",
        "no such column": "fit meuse --value unobtainium",
        "another metric": "fit meuse --metric taxi",
        "a parameter that is none": "fit meuse --fix sill=1",
        "a number that is none": "fit meuse --fix smoothness=rough",
        "bounds the wrong way round": "fit meuse --bounds range=9:3",
        "two trends": "fit meuse --trend linear --formula x",
        "Vecchia in tiles": "fit meuse --method vecchia --tile 32",
        "no finite maximum": "fit meuse --method vecchia --neighbours 15 --reml "
        "--fix smoothness=0.5",
        "no model": "log-likelihood meuse",
        "a negative variance": f"log-likelihood {_MEUSE} --nugget -1",
        "a GPU that is not there": f"log-likelihood {_MEUSE} --on gpu:99",
        "too little memory": f"log-likelihood {_MEUSE} --tile 32 --memory 1KB",
        "no factor": "log-likelihood meuse --variance 1 --range 1e7 --smoothness 5",
        "no such fit": "predict nowhere.json meuse",
        "a table as a fit": "predict meuse meuse",
        "no places": "predict FIT",
        "folds and one by one": "validate FIT --folds 3 --leave-one-out",
        "one fold": "validate FIT --folds 1",
        "no size": f"simulate {_SQUARE}",
        "an accuracy that is none": f"compare {_MEUSE} --accuracies much",
        "another benchmark": "bench luck",
        "a limit on evaluations": "fit meuse --evaluations 2 --search bobyqa",
    }
    found = {}
    for name, words in calls.items():
        with _with_fit(words) as given:
            status, out, err = command(*given)
        found[name] = {"status": status, "prints": bool(out), "complains": bool(err)}
    return found


# files that were written before


MIXED = gx.Exact(gx.by_tile_norm(1e-6), tile=16)
FIT_FILES = {
    "fit_fp64.json": "a fit in FP64 of arrays",
    "fit_mixed.json": "a fit in mixed formats of arrays",
    "fit_vecchia.json": "a fit by Vecchia's approximation of a data set",
    "fit_reml_formula.json": "a restricted fit with a formula of a data set",
    "fit_levels.json": "a fit with covariates of text",
    "fit_anisotropic.json": "an anisotropic fit between bounds",
    "fit_on_earth.json": "a fit with chordal distances",
    "fit_command.json": "what the command wrote for a data set",
    "fit_table.json": "what the command wrote for a table beside it",
}


def _loaded(name):
    tolerance = 1e-5 if "mixed" in name else 1e-9

    @entry(f"a file written before: {FIT_FILES[name]}", tolerance)
    def _():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(FILES, folder, dirs_exist_ok=True)
            fit = gx.Fit.load(Path(folder, name))
        seen = fit.observations
        places = (seen.locations[:5] + seen.locations[5:10]) / 2
        columns = seen.covariate_frame().iloc[:5] if seen.covariates is not None else None
        return estimated(fit) | {
            "course": [[row["evaluation"], row["log_likelihood"]] for row in fit.history],
            "evaluations": fit.evaluations,
            "method": fit.to_dict()["method"],
            "trend": fit.trend.text,
            "reml": fit.reml,
            "bounds": fit.bounds,
            "information": fit.information,
            "digest": seen.digest(),
            "intervals": fit.confidence_intervals(),
            "predictions": predicted(gx.predict(fit, places, columns)),
            "written again": schema(_without_table(json.loads(json.dumps(fit.to_dict())))),
        }


def _without_table(document):
    return {key: value for key, value in document.items() if key != "table"}


for _name in FIT_FILES:
    _loaded(_name)

CHECKPOINT = FILES / "checkpoint.json"
COMMAND_CHECKPOINT = FILES / "checkpoint_command.json"
SCRATCH = FILES / "scratch"
SCRATCH_MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)
COMMAND_SEARCH = ["fit", "meuse", "--search", "bobyqa", "--fix", "smoothness=0.5", "--json"]


def search(checkpoint):
    """Make the search that was interrupted."""
    return gx.fit(
        gx.datasets.load("jura"),
        gx.Matern(500.0, 5.0, 0.5, 200.0),
        gx.Exact(),
        fixed=("smoothness",),
        search="bobyqa",
        checkpoint=checkpoint,
    )


def search_by_command(checkpoint, *more):
    """Make the search that a limit stopped, by the command; return its JSON document."""
    status, out, err = command(*COMMAND_SEARCH, "--checkpoint", checkpoint, *more)
    assert status == 0, err
    return json.loads(out)


def scratch_run(folder, memory="40KB"):
    """Make the run out of core that was killed; all tiles in one memory without a folder."""
    how = {} if folder is None else {"memory": memory, "scratch": folder}
    method = gx.Exact(gx.by_tile_norm(1e-5), tile=22, **how)
    with in_one_thread():
        return gx.log_likelihood(field(154, 5), SCRATCH_MODEL, method)


@entry("searches that go on from a checkpoint", OPTIMUM)
def _():
    with tempfile.TemporaryDirectory() as folder:
        whole = estimated(search(Path(folder, "new.json")))
        first = Path(shutil.copy(CHECKPOINT, folder))
        kept = json.loads(first.read_text())
        again = estimated(search(first))
        second = Path(shutil.copy(COMMAND_CHECKPOINT, folder))
        by_command = search_by_command(second)
    return {
        "whole": [whole["log-likelihood"], whole["outcome"]],
        "kept": kept["evaluations"],
        "resumed": [again["log-likelihood"], again["outcome"]],
        "by command": [by_command["log_likelihood"], by_command["outcome"]],
    }


@entry("the numbers of a run whose tiles lie in a scratch directory", COARSE)
def _():
    return evaluated(scratch_run(None))


@entry("the bits of a run whose tiles lie in a scratch directory", EXACT, bits=True)
def _():
    return bits_of(scratch_run(None))


def bits_of(evaluation):
    """Return the bits of a log-likelihood's parts."""
    return [evaluation.log_determinant.hex(), evaluation.quadratic_form.hex()]


# recording


def write_files():
    """Write the files that later versions have to read. Run this with the old code only."""
    shutil.rmtree(FILES, ignore_errors=True)
    FILES.mkdir()
    half = {"smoothness": 0.5}
    meuse, meuse_by_formula = (
        gx.datasets.load("meuse"),
        gx.datasets.load("meuse", formula="sqrt_dist + poly(x, 2)"),
    )
    fits = {
        "fit_fp64.json": gx.fit(field(60), MODEL, gx.Exact(), fixed=("smoothness",)),
        "fit_mixed.json": gx.fit(field(80), MODEL, MIXED, fixed=("smoothness",)),
        "fit_vecchia.json": gx.fit(meuse, None, gx.Vecchia(10), fixed=half, trend="covariates"),
        "fit_reml_formula.json": gx.fit(
            meuse_by_formula, fixed=half, trend="sqrt_dist + poly(x, 2)", reml=True
        ),
        "fit_levels.json": gx.fit(
            field(50, covariates=True), fixed=half, trend="soil + depth", reml=True
        ),
        "fit_anisotropic.json": gx.fit(
            field(60), fixed=half, anisotropy=True, bounds={"range": (0.05, 2.0)}
        ),
        "fit_on_earth.json": gx.fit(on_earth(50, "chordal"), fixed=half),
    }
    for name, fit in fits.items():
        fit.save(FILES / name)
    fitted = command(
        "fit", "meuse", "--fix", "smoothness=0.5", "--output", FILES / "fit_command.json"
    )
    assert fitted[0] == 0, fitted
    seen = field(40, 8)
    rows = np.column_stack((seen.locations.round(6), seen.values))
    np.savetxt(FILES / "table.csv", rows, "%.6f", ",", header="east,north,z", comments="")
    words = ["--locations", "east,north", "--value", "z", "--fix", "smoothness=0.5"]
    fitted = command("fit", FILES / "table.csv", *words, "--output", FILES / "fit_table.json")
    assert fitted[0] == 0, fitted
    for name in FIT_FILES:
        _forget_the_folder(FILES / name)
    for name in ("interrupted", "killed"):
        child = subprocess.run(
            [sys.executable, __file__, f"--{name}"], capture_output=True, text=True, check=False
        )
        said = child.stderr.strip().rpartition("\n")[2]
        assert child.returncode != 0, f"the {name} run came to its end"
        print(f"{name}: status {child.returncode} {said}")
    search_by_command(COMMAND_CHECKPOINT, "--evaluations", 15)


def _forget_the_folder(path):
    """Have a fit name its table without the folder, which is of this machine only."""
    document = json.loads(path.read_text())
    if document["table"] is not None:
        document["table"]["path"] = Path(document["table"]["path"]).name
    path.write_text(json.dumps(document, indent=1) + "\n")


def interrupted_search():
    """Press Ctrl-C some time after the first improvement, in a process of its own."""
    from threading import Thread
    from time import sleep

    def press():
        while True:
            with contextlib.suppress(OSError, ValueError):
                if json.loads(CHECKPOINT.read_text())["evaluations"] >= 12:
                    return os.kill(os.getpid(), signal.SIGINT)
            sleep(0.0005)

    Thread(target=press, daemon=True).start()
    search(CHECKPOINT)


def killed_run():
    """Kill a run out of core while it writes, in a process of its own."""
    SCRATCH.mkdir()
    write, count = os.pwrite, [0]

    def pwrite(*about):
        count[0] += 1
        if count[0] == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*about)

    os.pwrite = pwrite
    scratch_run(SCRATCH)


def main(words):
    """Record what is asked for."""
    if words == ["--interrupted"]:
        return interrupted_search()
    if words == ["--killed"]:
        return killed_run()
    if "--files" in words:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gx.GeomxpWarning)
            write_files()
    wanted = [word for word in words if not word.startswith("--")]
    known = json.loads(VALUES.read_text()) if wanted else {"entries": {}}
    if wanted and known["machine"] != machine():
        sys.exit("the other values are those of another kind of machine: record all")
    found = {}
    for name, about in ENTRIES.items():
        if wanted and not any(word in name for word in wanted):
            if name in known["entries"]:
                found[name] = known["entries"][name]
            continue
        found[name] = {
            "tolerance": about["tolerance"] or "exact",
            "bits": about["bits"],
            "values": computed(name),
        }
    document = {"geomxp": gx.__version__, "machine": machine(), "entries": found}
    VALUES.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(found)} entries, {VALUES.stat().st_size // 1024} KiB, by geomxp {gx.__version__}")
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
