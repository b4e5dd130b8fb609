"""Stages d, e, h and m: generation, recursions, refinement, and products in planes."""

import time
from copy import copy
from functools import partial
from itertools import product

import numpy as np
import vendor
from ceilings import FLOPS, LEGACY, Operands
from harness import FAILED, RANGES, LeftOut, Prediction, asked, load, reason, tried

import geomxp as gx
from geomxp.benchmarks.spectra import spd_matrix
from geomxp.covariance import bessel
from geomxp.covariance.ordering import hilbert
from geomxp.linalg import formats, nested, recursive
from geomxp.linalg.backend import backend_of
from geomxp.linalg.formats import FP8, FP16, FP32, FP64, TF32
from geomxp.linalg.mixed import operand, subtract_product
from geomxp.prediction.simulate import lay_out
from geomxp.tiles.factor import on_host
from geomxp.tiles.refine import refined, solve

DEEP = (("fp16",) * 5 + ("fp32",), ("fp8", "fp16", "fp16", "fp32"))
"""Besides the layers of experiments/nested_cholesky: paper 000's deepest, and FP8 outermost."""

LEAF_OF_VECTORS = 8192
"""Leaves of solves with one vector: fewer and larger products with inverses of their quarters."""

LEAVES = (512, 1024, 2048)
"""The package's leaves are tuned on a CPU; these are tried besides."""

DIRECT = "fp64: potrf, two solves"
LAYERS = (("fp16", "fp16", "fp16", "fp32"), ("fp16", "fp32"), ("fp32",))
"""Solvers of stage h: the baseline, and the layers of its factors."""


def generation(machine, budget):
    """Stage d: rates of the Matérn generator into each format, and how far it is from a formula."""
    for n in machine.sizes(8192, 16_384, 32_768, tiny=(192,)):
        places = _along_curve(n)
        for nu, what in product((0.5, 0.8, 1.5), ("correlation", "smoothness", "slope")):
            for form in (FP64, FP32, FP16, FP8) if what == "correlation" else (FP64,):
                if what != "correlation" and nu != 0.8:
                    continue
                yield _generated(machine, places, nu, what, form)
                machine.give_back()


def _along_curve(n):
    places = lay_out(n, "uniform", 0)
    return places[hilbert(places)]


def _generated(machine, places, nu, what, form):
    n = len(places)
    row = {"what": what, "format": form.name, "smoothness": nu, "n": n}
    pairs = gx.Matern(1.0, RANGES["medium"], nu).pairs(gx.Inputs(places))
    # the derivative by the range is -1/range times the slope
    what, size = ("range", -RANGES["medium"]) if what == "slope" else (what, 1.0)

    def measure():
        write = partial(_write, machine, pairs, what, form)
        out = vendor.empty(machine, (n, n), np.uint8 if form is FP8 else form.dtype)
        seconds = machine.seconds(lambda: write(slice(0, n), out))
        some = slice(0, min(n, 512))
        few = vendor.empty(machine, (some.stop, some.stop), out.dtype)
        write(some, few)
        found = _numbers(on_host(few), form)
        here = np.empty(found.shape, FP64.dtype if form is FP64 else FP32.dtype, order="F")
        pairs.write(what, some, some, here)
        kept = _numbers(formats.cast(here, form).values, form) if form in (FP16, FP8) else here
        return {
            "seconds": seconds,
            "entries_per_s": n * n / seconds,
            "gb_per_s": out.nbytes / seconds / 1e9,
            "entries_unlike_the_cpu": int((found != kept).sum()),
            "error": _error(pairs, what, found * size),
        }

    return tried(row, measure)


def _write(machine, pairs, what, form, some, out):
    """Out <- the values of some places among each other, in a format."""
    if machine.gpu:
        pairs.write_on_gpu(what, some, some, out)
        return
    wide = out if form in (FP64, FP32) else np.empty(out.shape, np.float32, order="F")
    pairs.write(what, some, some, wide)
    if wide is not out:
        out[...] = formats.cast(wide, form).values


def _numbers(array, form):
    """Return numbers of a format as FP64."""
    if form is FP8:
        return formats.Tile(FP8, np.asfortranarray(array)).widen()
    return array.astype(np.float64)


def _error(pairs, what, found):
    """Return the largest distance from SciPy's K_ν, whose own errors reach 1e-13."""
    function = {
        "correlation": bessel.correlation,
        "smoothness": bessel.correlation_by_smoothness,
        "range": bessel.correlation_slope,
    }[what]
    (part,) = pairs.parts
    x = part.x[:, : len(found)]
    apart = np.sqrt(((x[:, :, None] - x[:, None, :]) ** 2).sum(axis=0) * part.inverse)
    return float(abs(found - function(apart, pairs.model.smoothness)).max())


def recursions(machine, budget):
    """Stage e: nested POTRF, SYRK, TRSM and TRMM beside the vendor's FP64 routines."""
    layers = DEEP if machine.tiny else (*load("nested_cholesky").LAYERS, *DEEP)
    ranges = ("weak",) if machine.tiny else tuple(RANGES)
    known = {}
    for n in machine.sizes(8192, 16_384, 32_768, 65_536, tiny=(520,)):
        # the correlations differ in error, hardly in time
        kinds = ("uniform + n I", *(ranges if n <= 8192 else ("medium",)))
        for what, kind in [("potrf", kind) for kind in kinds] + [
            (what, "uniform + n I") for what in ("syrk", "trsm", "trmm")
        ]:
            prediction = known.setdefault(what, Prediction())
            if why := budget.refuses(prediction.of(n)):
                yield {"what": what, "matrix": kind, "n": n, "note": why}
                continue
            start = time.perf_counter()
            yield from Recursion(machine, what, kind, n).rows(layers)
            prediction.learn(n, time.perf_counter() - start)
            machine.give_back()


class Recursion:
    """One routine on one matrix: the vendor's in FP64, and the recursions' in many layers.

    Parameters
    ----------
    machine : Machine
    what : {"potrf", "syrk", "trsm", "trmm"}
    kind : str
        Paper 000's matrix, or the correlation of a Matérn one.
    n : int
    """

    def __init__(self, machine, what, kind, n):
        self.machine, self.what, self.n = machine, what, n
        self.row = {"what": what, "matrix": kind, "n": n}
        self.operands, self.reference = Operands(machine, what, n, np.float64), None
        if kind in RANGES:
            model, places = gx.Matern(1.0, RANGES[kind], 0.5, 1e-2), _along_curve(n)
            target = self.operands.target
            self.operands.fresh = lambda: vendor.fill_matern(machine, target, places, model)

    def rows(self, layers):
        """Yield the row of the vendor, then those of the recursions."""
        # the largest once: cuBLAS has slow routines
        once, best = self.n > 40_000, None
        for title, work in self._vendors():
            found = tried(self.row | {"layers": title}, partial(self._timed, work, 1, once))
            if "seconds" in found:
                best = min(best or np.inf, found["seconds"])
                if self.what == "potrf":
                    # what was factored last is what the others are compared with
                    self.reference = self.operands.target.copy(order="F")
            yield found
        for form, leaf in [(form, None) for form in layers] + self._leaves():
            row = self.row | {"layers": " ".join(form), "leaf": leaf or "default"}
            row["quantity"] = "error of the factor" if self.what == "potrf" else ""
            ours = partial(self._ours, form, leaf)
            measure = partial(self._measured, ours, best, once)
            yield tried(row, measure)
        if self.what == "potrf":
            row = self.row | {"layers": " ".join(DEEP[0]), "leaf": "default", "array": "fp32"}
            row["quantity"] = "error of the factor"
            yield tried(row, partial(self._stored_in_fp32, DEEP[0], best))

    def _leaves(self):
        if self.what == "syrk" or self.machine.tiny:
            return []
        return [(("fp16", "fp16", "fp16", "fp32"), leaf) for leaf in LEAVES]

    def _vendors(self):
        """Return the vendor's routines by name; the better one is the baseline."""
        found = [("vendor", lambda: getattr(vendor, self.what)(*self.operands.both))]
        if self.what == "potrf" and self.machine.gpu and self.n <= LEGACY:
            found.append(("vendor, legacy", lambda: vendor.legacy_potrf(self.operands.target)))
        return found

    def _ours(self, layers, leaf):
        a, target = self.operands.source, self.operands.target
        if self.what == "potrf":
            nested.potrf(target, layers, leaf=leaf)
        elif self.what == "syrk":
            nested.syrk(a, target, alpha=-1.0, beta=1.0, layers=layers, leaf=leaf)
        else:
            call = getattr(nested, self.what)
            call(a, target, side="R", trans="T", layers=layers, leaf=leaf)

    def _stored_in_fp32(self, layers, best):
        """Measure a factorization of a matrix that the caller stores in FP32."""
        double = self.operands
        self.operands = copy(double)
        self.operands.target = vendor.empty(self.machine, double.target.shape, np.float32)

        def fresh():
            double.fresh()
            backend_of(double.target).assign(self.operands.target, double.target)

        self.operands.fresh = fresh
        try:
            return self._measured(partial(self._ours, layers, None), best, False)
        finally:
            self.operands = double

    def _timed(self, work, runs, once):
        seconds = self.machine.seconds(work, runs, self.operands.fresh, warm=not once)
        return {"seconds": seconds, "tflops": FLOPS[self.what] * self.n**3 / seconds / 1e12}

    def _measured(self, ours, best, once):
        found = self._timed(ours, 1 if self.machine.tiny else 2, once and self.n > 100_000)
        found["times_vendor"] = best / found["seconds"] if best else None
        if self.reference is not None:
            error = vendor.lower_difference(self.machine, self.operands.target, self.reference)
            logs = [vendor.log_determinant(self.machine, x) for x in self.lowers]
            found |= {"error": error, "digits": -np.log10(error) if error else None}
            found["log_determinant_error"] = logs[0] - logs[1]
        return found

    @property
    def lowers(self):
        """Our factor, and the vendor's."""
        return self.operands.target, self.reference


def refinement(machine, budget):
    """Stage h: FP64 answers from low factors on the device, beside potrf and two solves in FP64."""
    spectra = [("arithmetic", 1e2, 0.0), ("arithmetic", 1e4, 0.0), ("geometric", 1.7e5, 0.4)]
    correlations = ("weak", "medium")
    if machine.tiny:
        spectra, correlations = [spectra[0], ("geometric", 1e3, 0.4)], ("weak",)
    prediction = Prediction()
    for n in machine.sizes(8192, 16_384, 32_768, 65_536, tiny=(100,)):
        # a matrix of given spectrum is made on the CPU
        small = n <= 16_384
        for kind, condition, shift in spectra if small else []:
            if kind == "geometric" and n > 8192:
                continue
            about = {"matrix": kind, "condition": condition, "n": n, "shift": shift}
            yield from _refined_rows(machine, budget, prediction, about)
        for kind in correlations:
            about = {"matrix": f"Matérn {kind}", "condition": "", "n": n, "shift": 0.0}
            yield from _refined_rows(machine, budget, prediction, about)


def _refined_rows(machine, budget, prediction, about):
    n = about["n"]
    factored = {
        f"{' '.join(layers)}, {method}": (layers, method)
        for layers, method in product(LAYERS, ("gmres", "ir"))
    }
    in_tiles = {
        f"refine.solve, {rule} tiles, {method}": (rule, method)
        for rule, method in product(("fp16", "fp32-fp16", "fp32"), ("gmres", "cg"))
    }
    if not any(asked(about | {"solver": name}) for name in (DIRECT, *factored, *in_tiles)):
        # a large matrix takes long
        return
    if why := budget.refuses(prediction.of(n)):
        yield about | {"note": why}
        return
    start = time.perf_counter()
    try:
        system = System(machine, about)
    except Exception as error:
        yield about | {"note": FAILED + reason(error)}
        return
    direct = tried(about | {"solver": DIRECT}, system.direct)
    if "seconds" not in direct and n <= LEGACY:
        yield direct
        row = about | {"solver": "fp64: legacy potrf, two solves"}
        direct = tried(row, partial(system.direct, vendor.legacy_potrf))
    yield direct

    def beside(solver, work):
        found = tried(about | {"solver": solver}, work)
        if "seconds" in found and "seconds" in direct:
            found["times_fp64"] = direct["seconds"] / found["seconds"]
        return found

    for name, how in factored.items():
        yield beside(name, partial(system.refined, *how))
    for name, how in in_tiles.items():
        yield beside(name, partial(system.in_tiles, *how))
    del system
    machine.give_back()
    prediction.learn(n, time.perf_counter() - start)


class System:
    """Ax = b on the device, A whole in FP64, and both ways to solve it.

    Parameters
    ----------
    machine : Machine
    about : dict
        matrix, condition, n, shift.
    """

    def __init__(self, machine, about):
        self.machine, self.xp, n = machine, machine.xp, about["n"]
        self.shift = about["shift"]
        if about["condition"]:
            a = spd_matrix(about["matrix"], n, about["condition"])
            self.a = self.xp.asfortranarray(self.xp.asarray(a))
        else:
            kind = about["matrix"].split()[-1]
            model = gx.Matern(1.0, RANGES[kind], 0.5, 1e-2)
            pairs, whole = model.pairs(gx.Inputs(_along_curve(n))), slice(0, n)
            self.a = vendor.empty(machine, (n, n))
            _write(machine, pairs, "correlation", FP64, whole, self.a)
            entries = self.a.reshape(-1, order="F")[:: n + 1]
            entries += model.nugget
        self.b = np.random.default_rng(1).standard_normal(n)
        parts = range(0, n, vendor.PANEL)
        sums = sum(abs(self.a[:, j : j + vendor.PANEL]).sum(axis=1) for j in parts)
        self.norm = float(sums.max())

    def direct(self, potrf=vendor.potrf):
        """Solve in FP64."""
        solution = {}

        def work():
            lower = self.a.copy(order="F")
            potrf(lower)
            half = recursive.trsm(lower, self.xp.asarray(self.b))
            solution["x"] = recursive.trsm(lower, half, transposed=True)

        seconds = self.machine.seconds(work, 1)
        return {"seconds": seconds, "residual": self._residual(on_host(solution["x"]))}

    def refined(self, layers, method):
        """Solve by a factor of FP32's copy of A in layers, and an iteration on A."""
        begin = time.perf_counter()
        lower = formats.cast(self.a, FP32).values
        if self.shift:
            entries = lower.reshape(-1, order="F")[:: len(lower) + 1]
            entries += np.float32(self.shift * 2.0**-11)
        self.machine.finish()
        start = time.perf_counter()
        nested.potrf(lower, layers)
        self.machine.finish()
        factored = time.perf_counter()
        # factors are well scaled: on a GPU leaves are inverted once, and then multiplied
        bound = float(abs(lower.diagonal()).max())
        triangle = recursive.Triangle(lower, (FP32,), min(LEAF_OF_VECTORS, len(lower)), bound=bound)
        if self.machine.gpu:
            recursive.prepare(triangle, {FP32})
        x, progress = refined(self, partial(self._precondition, triangle), self.b, method=method)
        end = time.perf_counter()
        return {
            "seconds": end - begin,
            "seconds_copy": start - begin,
            "seconds_factor": factored - start,
            "seconds_iterate": end - factored,
            "iterations": progress.iterations,
            "residual": self._residual(x),
            "ending": progress.ending,
        }

    def in_tiles(self, rule, method):
        """Solve by the package: tiles of A, scaled to a unit diagonal, shifted by c·u."""
        found, about = [], {"method": method, "scaling": True, "shift": self.shift}

        def work():
            found.append(solve(self.a, self.b, gx.uniform(rule), **about))

        seconds = self.machine.seconds(work, 1, warm=not self.machine.tiny)
        latest = found[-1]
        return {
            "seconds": seconds,
            "iterations": latest.iterations,
            "residual": self._residual(on_host(latest.solution)),
            "ending": str(latest.outcome.ending).lower(),
        }

    def multiply(self, x):
        """Return Ax."""
        return on_host(self.a @ self.xp.asarray(x))

    def _precondition(self, triangle, r):
        # FP32 may not hold what FP64 does
        unit = np.abs(r).max() or 1.0
        x = self.xp.asfortranarray(self.xp.asarray((r / unit).astype(np.float32)))
        # L y = r is y'L' = r', and L'x = y is x'L = y'
        rows = recursive.Rows(x.reshape(len(x), -1, order="F").T, ())
        for transposed in (True, False):
            recursive.solve(triangle, rows, slice(0, len(x)), transposed)
        return on_host(x).astype(np.float64) * unit

    def _residual(self, x):
        """‖b - Ax‖∞ / (n ‖A‖∞), paper 002's, with max|b| = 1."""
        r = self.b - self.multiply(x.reshape(-1))
        return float(abs(r).max() / abs(self.b).max() / (len(x) * self.norm))


def products(machine, budget):
    """Stage m: products of FP32 matrices in two FP16 planes, FP32, FP16 and TF32: errors, rates."""
    prediction = Prediction()
    for n in machine.sizes(2048, 4096, tiny=(64,)):
        if reason := budget.refuses(prediction.of(n)):
            yield {"order": n, "note": reason}
            continue
        start = time.perf_counter()
        columns = [c for c in (16, 256, 512, 1024, 2048) if (c < n) and (c > 16) != machine.tiny]
        ways = [("fp32", ""), *(("fp32 in planes", c) for c in (*columns, n))]
        for matrices, operands in _pairs_of_matrices(n).items():
            for way, count in (*ways, ("fp16", ""), ("tf32", "")):
                row = {"matrices": matrices, "order": n, "products": way, "columns": count}
                yield tried(row, partial(_multiplied, machine, operands, way, count or 0))
                machine.give_back()
        prediction.learn(n, time.perf_counter() - start)


def _pairs_of_matrices(n):
    """Return pairs of FP32 matrices of order n by name."""
    random = np.random.default_rng(0)
    model, places = gx.Matern(1.0, RANGES["medium"], 0.5, 1e-2), _along_curve(3 * n)
    sigma = np.asfortranarray(model(places, places))
    sigma[np.diag_indices(len(sigma))] += model.nugget
    lower = recursive.potrf(sigma)
    pairs = {
        "normal": random.standard_normal((2, n, n)),
        "positive": random.random((2, n, n)),
        "blocks of a Matérn factor": (lower[n : 2 * n, :n], lower[2 * n :, :n]),
    }
    return {
        name: [np.asfortranarray(one, np.float32) for one in pair] for name, pair in pairs.items()
    }


def _multiplied(machine, pair, way, columns):
    """Return the error of AB', its part along AB', and the rate."""
    split = way == "fp32 in planes"
    if split and not machine.gpu:
        raise LeftOut("a CPU has other units")
    form = {"fp16": FP16, "tf32": TF32}.get(way, FP32)
    xp, n = machine.xp, len(pair[0])
    exact = xp.asarray(pair[0], np.float64) @ xp.asarray(pair[1], np.float64).T
    tiles = [formats.quantize(xp.asfortranarray(xp.asarray(x)), FP32, split=split) for x in pair]
    a, b = (tile if form is FP32 else operand(tile, form) for tile in tiles)
    c = vendor.empty(machine, (n, n), np.float32)
    c[...] = 0.0
    missed = exact + subtract_product(c, a, b, form, columns=columns)
    seconds = machine.seconds(lambda: subtract_product(c, a, b, form, columns=columns), 10)
    square = float(xp.vdot(exact, exact))
    return {
        "error": float((xp.vdot(missed, missed) / square) ** 0.5),
        "bias": float(xp.vdot(missed, exact) / square),
        "seconds": seconds,
        "tflops": 2e-12 * n**3 / seconds,
    }
