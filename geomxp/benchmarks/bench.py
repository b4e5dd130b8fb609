"""Benchmarks of `geomxp bench`: rates and baselines of the same run, on one core or one GPU.

Candidates take turns, round by round, so that a change of the machine's speed affects all of them
equally; medians are reported. GPU benchmarks have not been run on a GPU yet.
"""

import time
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import numpy as np

from ..covariance.inputs import Inputs
from ..covariance.matern import Matern
from ..covariance.ordering import hilbert
from ..covariance.table import Table
from ..data.observations import Observations
from ..errors import check_whole
from ..likelihood.exact import Exact
from ..likelihood.factors import tile_factor
from ..linalg import blas, nested
from ..linalg.backend import backend_of
from ..linalg.formats import BF16, FP16, quantize
from ..linalg.precision import by_tile_norm
from ..prediction.simulate import lay_out
from ..runtime.devices import blas_threads, in_threads, require_memory, resolve, usable_cores
from ..runtime.progress import Line
from ..tiles import assemble
from ..tiles.placement import Placement

ACCURACY_SMOOTHNESS = (0.05, 0.3, 0.5, 0.8, 1.0, 1.5, 2.3, 2.5, 5.0, 10.0)


FP64_MATRICES_HELD = {"ceilings": 5, "matern": 2, "likelihood": 4, "cholesky": 4, "nested": 4}
"""Largest number of FP64 matrices that each benchmark holds at one time."""

ALL_CORES_ORDER = 10**6
"""Order of matrices for which BLAS uses all usable cores."""

COPIED_BYTES = 2**28
"""Bytes that are copied to measure bandwidth: more than the caches hold."""


class BenchmarkDevice:
    """One core or one GPU ("cpu", "gpu" or "gpu:N"), with the operations that benchmarks need."""

    def __init__(self, on="cpu"):
        self.on, self.device = on, resolve(on)

    @property
    def gpu(self):
        """Whether it is a GPU."""
        return self.device.index is not None

    @property
    def library(self):
        """Library of the baseline Cholesky factorization."""
        return "cuSOLVER" if self.gpu else "scipy"

    @contextmanager
    def active(self, order=1):
        """Run the block on this device, with BLAS threads for matrices of an order."""
        if not self.gpu:
            with blas_threads(order):
                yield
            return
        import cupy

        with cupy.cuda.Device(self.device.index):
            yield

    @contextmanager
    def one_core(self):
        """Run the block on one core, also in BLAS; or on this GPU."""
        with self.cores(1):
            yield

    @contextmanager
    def cores(self, count):
        """Run the block on one core or on all usable ones, also in BLAS; or on this GPU."""
        if self.gpu:
            with self.active():
                yield
            return
        with blas_threads(0 if count == 1 else ALL_CORES_ORDER), blas.cores(count):
            yield

    def put(self, a):
        """Return a NumPy array on this device, in the same memory order."""
        if not self.gpu:
            return a
        import cupy

        return cupy.asarray(a, order="A")

    def covariance(self, model, places, out=None):
        """Return Σ as one FP64 array on this device; a CPU overwrites `out` if given."""
        if self.gpu:
            index = self.device.index
            return assemble.covariance_matrix(model, places, "euclidean", index=index)
        return assemble.covariance_matrix(model, places, "euclidean", out)

    def factor(self, a, overwrite=False):
        """Factor a matrix with LAPACK's or cuSOLVER's dpotrf; in place with `overwrite`."""
        if not self.gpu:
            from scipy.linalg import lapack

            return lapack.dpotrf(a, lower=1, overwrite_a=overwrite, clean=0)[0]
        from ..linalg import gpu as views_gpu

        a = a if overwrite else a.copy(order="F")
        views_gpu.factor("L", a)
        return a

    def wait(self):
        """Wait until the device is idle."""
        if self.gpu:
            import cupy

            cupy.cuda.Device(self.device.index).synchronize()


def check_size(what, n, on="cpu"):
    """Raise an error if the matrices of order n of a benchmark do not fit."""
    check_whole("n", n)
    device = resolve(on)
    free, kind = device.free_memory(), "memory" if device.index is None else "device memory"
    most = int((free / (8 * FP64_MATRICES_HELD[what])) ** 0.5)
    needed = 8 * FP64_MATRICES_HELD[what] * n**2
    remedy = f"use matrices of order {most:,} or less (--n {most})"
    require_memory(f"`bench {what}` with n = {n:,} needs", needed, remedy, free, kind)


def interleaved(candidates, rounds=7, line=None, wait=None, fresh=None):
    """Return the median seconds of each candidate, a dict of callables; candidates take turns.

    The first of `rounds` + 1 rounds is not timed, nor is `fresh[name]`, which restores the operands
    of a candidate before each of its runs. `wait` waits until a candidate's operations are done.
    """
    seconds, line = {name: [] for name in candidates}, line or Line("timing", shown=False)
    line.expect(len(candidates) * (rounds + 1), "runs")
    nothing = lambda: None  # noqa: E731
    wait, fresh = wait or nothing, fresh or {}
    for k in range(rounds + 1):
        for name, work in candidates.items():
            fresh.get(name, nothing)()
            wait()
            start = time.perf_counter()
            work()
            wait()
            if k:
                seconds[name].append(time.perf_counter() - start)
            line.advance()
    return {name: float(np.median(values)) for name, values in seconds.items()}


def ceilings(n=2048, rounds=5, *, on="cpu", line=None, copied=None):
    """Measure peak rates: n×n matrix products in each number format, and a memory copy.

    FP64 and FP32 use SciPy's BLAS, and MKL where it is installed. FP16 and BF16 are timed where the
    device multiplies them faster than FP32. On a CPU each is timed on one core and on all usable
    cores. A copy, of `copied` bytes or else `COPIED_BYTES`, counts the bytes that are read and
    those that are written. Return rows.
    """
    device, rows, copied = BenchmarkDevice(on), [], copied or COPIED_BYTES
    for count in (1,) if device.gpu else sorted({1, usable_cores()}):
        with device.cores(count):
            candidates = _products(device, n) | {"copy": _copy(device, count, copied)}
            # after a product MKL's threads busy-wait for 0.2 s, and OpenBLAS's for up to 0.1 s
            rest = partial(time.sleep, 0.25)
            fresh = dict.fromkeys(candidates if count > 1 else (), rest)
            seconds = interleaved(candidates, rounds, line, device.wait, fresh)
        for what, value in seconds.items():
            work, unit = (2 * copied, "GB/s") if what == "copy" else (2 * n**3, "GFLOP/s")
            cores = {} if device.gpu else {"cores": count}
            rows.append({"what": what, **cores, "seconds": value, "rate": work / value / 1e9})
            rows[-1]["unit"] = unit
    return rows


def _products(device, n):
    """Return the products C <- C + AB' that a device has units or BLAS routines for, by name."""
    random = np.random.default_rng(0)
    a = device.put(np.asfortranarray(random.random((n, n))))
    single = a.astype(np.float32)
    double_out, out = a.copy(order="F"), single.copy(order="F")
    backend = backend_of(a)
    names = {"MKL": "MKL"} if blas.mkl() and not device.gpu else {}
    names |= {"cuBLAS": "SciPy"} if device.gpu else {"scipy": "SciPy"}
    products = {}
    for name, library in names.items():
        for form, c, factor in (("fp64", double_out, a), ("fp32", out, single)):
            # a GPU's products do not depend on the library
            product = partial(backend.gemm, c, factor, factor.T, 1.0, 1.0)
            products[f"{form}, {name}"] = blas.library(library)(product)
    for form in (FP16, BF16):
        if device.gpu or blas.has_unit(form):
            values = quantize(single, form).values
            way = "matrix units" if device.gpu or blas.on_matrix_units(form) else "AVX-512"
            products[f"{form.name}, {way}"] = lambda values=values, form=form: backend.product(
                out, values, values, form, 1.0
            )
    return products


def _copy(device, count, copied):
    """Return a function that copies so many bytes, on a CPU by this number of threads."""
    size = copied // 8
    source = device.put(np.ones(size))
    target = source.copy()
    parts = [slice(k * size // count, (k + 1) * size // count) for k in range(count)]

    def part(some):
        target[some] = source[some]

    return lambda: in_threads(part, parts, 0 if count == 1 else size)


def matern_rates(n=2048, smoothness=0.8, rounds=7, *, line=None):
    """Time the generation of an n×n tile, SciPy's K_ν and the exponential; return rows."""
    from scipy.special import kv

    places = lay_out(n, "uniform", 1)
    pairs = Matern(1.0, 0.1, smoothness).pairs(Inputs(places))
    double, single = np.empty((n, n), order="F"), np.empty((n, n), np.float32, order="F")
    whole = slice(0, n)
    some = np.random.default_rng(1).random(200_000) * 10.0
    candidates = {
        "table, fp64": lambda: pairs.write("correlation", whole, whole, double),
        "table, fp32": lambda: pairs.write("correlation", whole, whole, single),
        "table, d/d smoothness": lambda: pairs.write("smoothness", whole, whole, double),
        "table, d/d range": lambda: pairs.write("slope", whole, whole, double),
        "scipy.special.kv": lambda: some**smoothness * kv(smoothness, some),
        "numpy.exp": lambda: np.exp(-some),
    }
    seconds = interleaved(candidates, rounds, line)
    kv_rate = len(some) / seconds["scipy.special.kv"]
    rows = []
    for what, value in seconds.items():
        entries = n * n if what.startswith("table") else len(some)
        rows.append(
            {
                "what": what,
                "smoothness": smoothness,
                "entries": entries,
                "seconds": value,
                "million_per_second": entries / value / 1e6,
                "times_scipy_kv": entries / value / kv_rate,
            }
        )
    return rows


def table_times(smoothness=0.8, octaves=24, rounds=7):
    """Time the construction of a table with this many octaves."""
    orders = iter(smoothness + 1e-3 * np.arange(1, rounds + 2))
    make = lambda: Table(Matern(1.0, 1.0, next(orders)), 2 - octaves, 2).rows("correlation")  # noqa: E731
    seconds = interleaved({"table": make}, rounds)
    return [{"what": f"a table of {octaves} octaves", "seconds": seconds["table"]}]


def matern_errors(smoothness=ACCURACY_SMOOTHNESS, points=200, *, line=None):
    """Compare the table with mpmath at h/a from 1e-12 to 700; no rows if it is not installed.

    A row has the largest absolute error of ρ and of its derivatives (by_smoothness, slope), and
    the largest relative error where ρ > 1e-13.
    """
    if find_spec("mpmath") is None:
        return []
    half = points // 2
    r = np.concatenate((np.geomspace(1e-12, 700.0, half), np.linspace(0.02, 40, half)))
    result, line = [], line or Line("timing", shown=False)
    line.expect(len(smoothness), "orders compared with mpmath")
    for order in smoothness:
        correlation, slope, by_smoothness = _by_table(order, r)
        exact, exact_slope, exact_change = _by_mpmath(order, r)
        large = exact > 1e-13
        result.append(
            {
                "smoothness": order,
                "absolute": _largest(correlation - exact),
                "relative": _largest(correlation[large] / exact[large] - 1),
                "slope": _largest(slope - exact_slope),
                "by_smoothness": _largest(by_smoothness - exact_change),
            }
        )
        line.advance()
    return result


def _largest(errors):
    """Return the largest magnitude as a float."""
    return max(abs(float(error)) for error in errors)


def _by_table(order, r):
    """Return ρ, its slope and its derivative by the order at distances, from the table."""
    from ..covariance.pairs_numba import fill

    table, found = Table(Matern(1.0, 1.0, order), -82, 20), []
    points, origin = np.ascontiguousarray(r[None, :]), np.zeros((1, 1))
    for rows in map(table.rows, ("correlation", "slope", "smoothness")):
        out = np.empty(len(r))
        fill(
            *(points, 0, len(r), origin, 0, 1, 1.0, False),
            *(rows, table.base, 1.0, -1, out, 0, 0),
        )
        found.append(out)
    return found


def _by_mpmath(order, r):
    """Return the same with 40 digits, as arrays of mpmath numbers."""
    from mpmath import besselk, gamma, mpf, workdps

    def rho(x, nu):
        return 2 ** (1 - nu) / gamma(nu) * x**nu * besselk(nu, x)

    with workdps(40):
        nu, step, places = mpf(order), mpf("1e-12"), [mpf(x) for x in r]
        exact = [rho(x, nu) for x in places]
        slope = [-(2 ** (1 - nu)) / gamma(nu) * x ** (nu + 1) * besselk(nu - 1, x) for x in places]
        change = [(rho(x, nu + step) - rho(x, nu - step)) / (2 * step) for x in places]
    return [np.array(values, dtype=object) for values in (exact, slope, change)]


def likelihood_rates(n=4000, smoothness=0.8, rounds=5, *, on="cpu", line=None):
    """Time one log-likelihood and dpotrf of LAPACK (one thread) or cuSOLVER; return rows."""
    device, places = BenchmarkDevice(on), lay_out(n, "uniform", 2)
    observations = Observations(places, np.random.default_rng(3).standard_normal(n))
    model = Matern(1.0, 0.1, smoothness, 0.01)
    evaluator = Exact(on=on).prepare(observations)
    with device.active():
        sigma = device.covariance(model, places)
        work = sigma.copy(order="F")

        def fresh():
            work[...] = sigma

        candidates = {
            "log-likelihood": lambda: evaluator(model),
            "generation": lambda: device.covariance(model, places, work),
            "copy": fresh,
            "dpotrf": lambda: device.factor(work, overwrite=True),
        }
        seconds = interleaved(candidates, rounds, line, device.wait)
    of = seconds["dpotrf"]
    return [
        {
            "what": what,
            "n": n,
            "smoothness": smoothness,
            "seconds": value,
            "times_dpotrf": value / of,
        }
        for what, value in seconds.items()
        if what != "copy"
    ]


def as_text(rows):
    """Return rows as a table in text."""
    import pandas as pd

    if not rows:
        return "(mpmath is not installed: errors not measured)"
    return pd.DataFrame(rows).to_string(index=False, float_format=lambda v: f"{v:.4g}")


def cholesky_rates(n=4096, smoothness=0.5, rounds=3, *, on="cpu", line=None):
    """Time the mixed factorization, generation included, and dpotrf of one matrix."""
    device, placement = BenchmarkDevice(on), Placement.of(on)
    places = lay_out(n, "uniform", 0)
    observations = Observations(places[hilbert(places)], np.zeros(n))
    rows = []
    for a in (0.02627, 0.078809, 0.210158):
        model, factors = Matern(1.0, a, smoothness), {}
        sigma = device.covariance(model, observations.locations)

        def mixed(accuracy, model=model, factors=factors):
            rule = by_tile_norm(accuracy)
            factors[accuracy] = tile_factor(model, observations, rule, placement=placement)

        candidates = {e: lambda e=e: mixed(e) for e in (1e-5, 1e-6, 1e-7, 1e-8)}
        # the library needs the copy as the mixed factorization needs the generation
        candidates["dpotrf"] = lambda s=sigma: device.factor(s)
        if line is not None:
            line.note = f"range {a}"
        with device.active(n):
            seconds = interleaved(candidates, rounds, line, device.wait)
        for accuracy, factor in factors.items():
            value, counts = seconds[accuracy], factor.precision_map.counts()
            rows.append(
                {
                    "range": a,
                    "accuracy": accuracy,
                    "seconds": value,
                    "gflops": n**3 / 3 / value / 1e9,
                    "times_dpotrf": seconds["dpotrf"] / value,
                    "bytes_over_fp64": factor.nbytes / factor.store.layout.lower_bytes,
                    "formats": " ".join(f"{name}:{k}" for name, k in counts.items()),
                }
            )
    return rows


def nested_rates(n=4096, rounds=3, *, on="cpu", line=None):
    """Time the recursions of `linalg.nested` and the FP64 libraries, on one core or GPU."""
    device = BenchmarkDevice(on)
    a = np.random.default_rng(0).random((n, n))
    a = device.put(np.asfortranarray((a + a.T) / 2 + n * np.eye(n)))
    layers = (("fp64",), ("fp32",), ("fp16", "fp16", "fp16", "fp32"), ("bf16", "bf16", "fp32"))
    candidates = {
        device.library: lambda: device.factor(a),
        **{" ".join(k): lambda k=k: nested.potrf(a.copy(order="F"), k) for k in layers},
    }
    if blas.mkl() and not device.gpu:
        candidates["mkl"] = blas.library("MKL")(lambda: blas.potrf(a.copy(order="F")))
    with device.one_core():
        seconds = interleaved(candidates, rounds, line, device.wait)
    library = min(seconds[name] for name in (device.library, "mkl") if name in seconds)
    return [
        {
            "what": "potrf",
            "layers": name,
            "seconds": median,
            "gflops": n**3 / 3 / median / 1e9,
            "times_library": library / median,
        }
        for name, median in seconds.items()
    ]
