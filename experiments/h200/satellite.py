"""Stage l: the exact fit of the satellite temperature data, 105,569 places, on one GPU.

Vecchia's likelihood gives the start, and `gx.fit` the rest, by Fisher scoring in FP64: one matrix
on the device, which is L and then Σ⁻¹. Where the device or the time is too small for that, a mixed
factor is the way to the top, and FP64 the top itself: its log-likelihood at the points of a small
stencil, the Newton step that they say, standard errors from the same numbers, and what one more
step promises; σ² and the trend are profiled out at every point. Then all held-out places are
predicted from all observations. README.md has the arithmetic of memory and time.
"""

import time
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
from harness import FAILED, LeftOut, load, reason, tried

import geomxp as gx
from geomxp.errors import NotEnoughMemory
from geomxp.estimation.search import maximize
from geomxp.likelihood.base import profile_variance
from geomxp.likelihood.trend import Trend

LABELS = (
    "exponential, linear trend, degrees",
    "nu free, linear trend, degrees",
    "exponential, anisotropic, constant",
)
"""Of the ways of experiments/vecchia/heaton.py: GpGp's model, the same with its smoothness, and
the best predictor, whose long range leaves little to formats below FP32."""

ACCURACY, TILE = 1e-6, 4096
SEARCH, NEAR, ENOUGH = 40, 0.05, 0.05
"""Evaluations of the mixed search at most, its first step, and the gain at which it ends."""

STEPS = {"anisotropy_angle": 0.3}
"""Of the stencil: 0.01 in logarithms, degrees of the angle."""

SCORE, ENOUGH_STEPS = 3.5, 8
"""Likelihoods that a score with its information costs: a factorization, the inverse of its factor
and what that makes of Σ⁻¹ are n³/3 operations each. Scores that a fit takes before its errors."""


def satellite(machine, budget):
    """Stage l: exact fits and predictions of the satellite data, beside the published table."""
    study = load("vecchia/heaton")
    small = machine.tiny or machine.data is None
    if small and not machine.tiny:
        yield {"note": "no --data: a synthetic set of 900 places stands in"}
    if small:
        observed, held = study.synthetic(225 if machine.tiny else 900)
    else:
        observed, held = study.load("satellite", machine.data)
    data, took = "synthetic stand-in" if small else "satellite", 0.0
    for label in LABELS[:1] if machine.tiny else LABELS:
        way = dict(study.WAYS["satellite"])[label]
        if why := budget.refuses(took):
            yield {"data": data, "model": label, "note": why}
            continue
        start = time.perf_counter()
        try:
            problem = Problem(machine, observed, way, small)
        except Exception as error:
            yield {"data": data, "model": label, "note": FAILED + reason(error)}
            continue
        for row in _rows(machine, budget, problem, held, study.scores):
            yield {"data": data, "model": label} | row
        took = time.perf_counter() - start
    for method, *numbers in study.PUBLISHED["satellite"]:
        pairs = zip(("mae", "rmse", "crps", "coverage"), numbers, strict=True)
        yield {"data": "satellite", "phase": method} | dict(pairs)


class Problem:
    """One model of one data set: its likelihood in FP64 and mixed, with σ² profiled out.

    Parameters
    ----------
    machine : Machine
    observed : (places, values)
    way : dict
        Of `gx.fit`: fixed, trend, metric, anisotropy.
    small : bool
    """

    def __init__(self, machine, observed, way, small):
        self.machine, self.way = machine, {k: v for k, v in way.items() if k != "metric"}
        with warnings.catch_warnings():
            # degrees are what the paper's other methods used
            warnings.simplefilter("ignore", gx.GeomxpWarning)
            self.seen = gx.Observations(*observed, metric=way.get("metric", "euclidean"))
        start = time.perf_counter()
        about = self.way | {"progress": False, "raise_on_failure": False}
        self.start = gx.fit(self.seen, None, gx.Vecchia(10 if small else 30), **about)
        self.seconds_start = time.perf_counter() - start
        self.names = tuple(name for name in self.start.free if name != "variance")
        self.point = self._point(self.start.model)
        trend = Trend.of(self.seen, self.way.get("trend", "constant"))
        self.design = trend.design(self.seen.locations, self.seen.covariates)
        tile = min(TILE, 64 if small else TILE)
        self.whole = gx.Exact(on=machine.on)
        self.fp64 = gx.Exact(tile=tile, on=machine.on)
        self.mixed = gx.Exact(gx.by_tile_norm(ACCURACY), tile, on=machine.on)

    def _point(self, model):
        values = model.parameters()
        return np.array(
            [
                values[name] if name in STEPS else np.log(values[name] / self._unit(model, name))
                for name in self.names
            ]
        )

    @staticmethod
    def _unit(model, name):
        """Return what a parameter goes with: a nugget with the variance."""
        return model.variance if name == "nugget" else 1.0

    def model(self, x):
        """Return the model of a point, of variance 1."""
        values = replace(self.start.model, variance=1.0, nugget=0.0).parameters()
        values |= {
            name: float(value if name in STEPS else np.exp(value))
            for name, value in zip(self.names, x, strict=True)
        }
        return gx.Matern.from_parameters(values)

    def evaluator(self, method):
        """Return x -> (ℓ at the best variance, that variance, the evaluation)."""
        prepared = method.prepare(self.seen, self.design)

        def evaluate(x):
            found = prepared(self.model(x))
            self.machine.finish()
            if not np.isfinite(found.log_likelihood):
                return -np.inf, 1.0, found
            return *profile_variance(found)[::-1], found

        return evaluate

    def fixed(self, model):
        """Return the parameters of a model that are not estimated."""
        return {k: v for k, v in model.parameters().items() if k not in self.start.free}

    @property
    def steps(self):
        """Steps of the stencil, by coordinate."""
        return np.array([STEPS.get(name, 0.01) for name in self.names])


def _rows(machine, budget, problem, held, scores):
    """Yield the phases of one fit."""
    start = problem.start
    yield (
        {"phase": "Vecchia, the start", "n": len(problem.seen)}
        | start.model.parameters()
        | {
            "log_likelihood": start.log_likelihood,
            "seconds": problem.seconds_start,
            "evaluations": start.evaluations,
            "outcome": str(start.outcome.ending),
        }
    )
    begin = time.perf_counter()
    row = {"phase": "FP64, gx.fit by scoring", "n": len(problem.seen)}
    found = tried(row, partial(_scored, problem, budget))
    scored = found.pop("model", None)
    yield found | {"seconds_since_start": time.perf_counter() - begin + problem.seconds_start}
    machine.give_back()
    model, top = scored, None
    if scored is None or machine.tiny:
        # a rehearsal has both ways
        for found in _by_stencil(machine, budget, problem):
            stencil, top = found.pop("model", None), found.pop("value", None)
            yield found
        model = scored or stencil
    if model is None:
        return
    for neighbours in (None, min(200, len(problem.seen) // 2)):
        row = {"phase": f"predicted from {neighbours or 'all'}", "n": len(held[0])}
        yield tried(row, partial(_predicted, problem, model, held, scores, neighbours, budget))
        machine.give_back()
    if top is not None:
        row = {"phase": "gx.fit, FP64, without scores", "n": len(problem.seen)}
        yield tried(row, partial(_whole, problem, stencil, top, found, budget))
    else:
        row = {"phase": f"mixed, {ACCURACY:g}", "n": len(problem.seen)}
        found = tried(row, partial(_searched, problem, budget))
        found.pop("point", None)
        yield found
    machine.give_back()


def _by_stencil(machine, budget, problem):
    """Yield the mixed way, and the top by FP64's stencil; the last row has its model and ℓ."""
    begin = time.perf_counter()
    row = {"phase": f"mixed, {ACCURACY:g}, the way", "n": len(problem.seen)}
    found = tried(row, partial(_searched, problem, budget))
    point = found.pop("point", problem.point)
    yield found
    machine.give_back()
    row = {"phase": "FP64, the top", "n": len(problem.seen)}
    found = tried(row, partial(_finished, problem, point, budget))
    yield found | {"seconds_since_start": time.perf_counter() - begin + problem.seconds_start}
    machine.give_back()


def _scored(problem, budget):
    """Fit by `gx.fit` in FP64 from Vecchia's estimate, where memory and time allow."""
    free, start = len(problem.names) + 1, time.perf_counter()
    try:
        evaluator = problem.whole.prepare(problem.seen, problem.design)
    except NotEnoughMemory as error:
        raise LeftOut(f"left out: {error}") from None
    if not evaluator.scoring:
        raise LeftOut("left out: no room for scores")
    # the first one compiles and allocates
    for _ in range(2):
        start = time.perf_counter()
        evaluator(problem.start.model)
        problem.machine.finish()
    one, scores = time.perf_counter() - start, ENOUGH_STEPS + 2 * free
    # errors by differences of scores cost two for each parameter
    if why := budget.refuses(2 * one * scores):
        return {"note": why, "seconds_of_one": one}
    start = time.perf_counter()
    evaluator.derivatives(problem.start.model, problem.start.free)
    problem.machine.finish()
    score = time.perf_counter() - start
    if why := budget.refuses(score * scores):
        return {"note": why, "seconds_of_one": one, "seconds_of_score": score}
    fit = gx.fit(
        *(problem.seen, problem.start.model, problem.whole),
        **problem.way | {"fixed": problem.fixed(problem.start.model)},
        evaluations=max(ENOUGH_STEPS, int(min(1e3, 0.9 * budget.left / score)) - 2 * free),
        progress=False,
        raise_on_failure=False,
    )
    values = fit.model.parameters()
    known = {k: error for k, error in fit.standard_errors.items() if error and values[k]}
    return values | {
        **{"model": fit.model, "log_likelihood": fit.log_likelihood},
        **{f"error_{k}": e if k in STEPS else e / values[k] for k, e in known.items()},
        "errors_are": "of logarithms, of the angle in degrees",
        **{"evaluations": fit.evaluations, "seconds": fit.seconds},
        **{"seconds_of_one": one, "seconds_of_score": score},
        "outcome": str(fit.outcome),
    }


def _searched(problem, budget):
    """Go up by the mixed likelihood; return the point reached."""
    evaluate, best, seconds = problem.evaluator(problem.mixed), [-np.inf, None, None, None], []

    def function(x):
        begin = time.perf_counter()
        value, variance, found = evaluate(x)
        seconds.append(time.perf_counter() - begin)
        if value > best[0]:
            best[:] = [value, np.array(x), variance, found]
        return value

    # the first tells how many there is time for: as much again is left to FP64
    function(problem.point)
    allowed = int(min(SEARCH, 0.3 * budget.left / seconds[0]))
    if allowed < 5 or best[1] is None:
        raise LeftOut(f"left out: {seconds[0]:.1f} s each, {budget.left:.0f} s left")
    reach = np.array([20.0 if name in STEPS else 1.0 for name in problem.names])
    upper = problem.point + reach
    if "anisotropy_ratio" in problem.names:
        upper[problem.names.index("anisotropy_ratio")] = 0.0
    scales = np.array([40.0 if name in STEPS else 1.0 for name in problem.names])
    maximize(
        *(function, problem.point, problem.point - reach, upper),
        **{"scales": scales, "tolerance": ENOUGH, "evaluations": allowed, "step": NEAR},
    )
    value, point, variance, found = best
    formats = found.precision_map.counts()
    return _scaled(problem.model(point), variance).parameters() | {
        "point": point,
        "log_likelihood": value,
        "evaluations": len(seconds),
        "seconds": sum(seconds),
        "seconds_of_one": float(np.median(seconds)),
        "formats": " ".join(f"{name}:{count}" for name, count in formats.items()),
        "promotions": found.promotions,
    }


def _scaled(unit, variance):
    """Return a model of unit variance with this one, the nugget a share of it."""
    return replace(unit, variance=variance, nugget=unit.nugget * variance)


def _finished(problem, point, budget):
    """Return the top of the FP64 likelihood, from the values of a stencil about a point."""
    evaluate, steps, seconds = problem.evaluator(problem.fp64), problem.steps, []

    def value(x):
        begin = time.perf_counter()
        found = evaluate(x)
        seconds.append(time.perf_counter() - begin)
        if not np.isfinite(found[0]):
            raise RuntimeError(found[2].outcome.message)
        if len(seconds) == 1:
            needed = 2 + 2 * len(x) + len(x) * (len(x) - 1) // 2
            if why := budget.refuses(needed * seconds[0]):
                raise LeftOut(why)
        return found[0], np.log(found[1]), found[2]

    middle, slope, curvature, drift = _parabola(value, point, steps)
    if not np.linalg.eigvalsh(curvature * np.outer(steps, steps))[0] > 0:
        raise RuntimeError("the log-likelihood has no maximum near the stencil")
    step = np.linalg.solve(curvature, slope)
    # where the stencil's parabola may be believed
    step /= max(1.0, float(np.max(np.abs(step) / (20 * steps))))
    top = value(point + step)
    if top[0] < middle[0]:
        top, step = middle, 0.0 * step
    left, covariance = slope - curvature @ step, np.linalg.inv(curvature)
    errors = dict(zip(problem.names, np.sqrt(np.diag(covariance)), strict=True))
    # what the variance owes to the others, and its own
    errors["variance"] = np.sqrt(2 / len(problem.seen) + drift @ covariance @ drift)
    unit = problem.model(point + step)
    return _described(problem, unit, top, errors, seconds) | {
        "gain_of_the_step": top[0] - middle[0],
        "gain_promised_now": float(0.5 * left @ covariance @ left),
        "log_likelihood_with_a_nugget": _with_nugget(problem, unit, budget, seconds),
    }


def _described(problem, unit, top, errors, seconds):
    """Return the row of a top, and what the next phases want of it."""
    value, logarithm, found = top
    model = _scaled(unit, float(np.exp(logarithm)))
    return model.parameters() | {
        "model": model,
        "value": value,
        "log_likelihood": value,
        **{f"error_{name}": float(error) for name, error in errors.items()},
        "errors_are": "of logarithms, of the angle in degrees",
        "evaluations": len(seconds),
        "seconds": sum(seconds),
        "seconds_of_one": float(np.median(seconds)),
        "coefficients": " ".join(f"{number:.6g}" for number in found.coefficients),
    }


def _with_nugget(problem, unit, budget, seconds):
    """Return ℓ with a nugget of 1e-4 of the variance, where Vecchia's likelihood wants none."""
    if "nugget" in problem.names or "nugget" in problem.way.get("fixed", {}):
        return None
    if budget.refuses(seconds[0]):
        return None
    prepared = problem.fp64.prepare(problem.seen, problem.design)
    return profile_variance(prepared(replace(unit, nugget=1e-4)))[1]


def _parabola(value, point, steps):
    """Return ℓ and log σ² in the middle, ∂ℓ, -∂²ℓ, and ∂ log σ², by differences."""
    d, middle = len(point), value(point)
    slope, curvature, drift = np.zeros(d), np.zeros((d, d)), np.zeros(d)
    moves, ahead = np.diag(steps), []
    for k in range(d):
        up, down = value(point + moves[k]), value(point - moves[k])
        ahead.append(up[0])
        slope[k] = (up[0] - down[0]) / (2 * steps[k])
        drift[k] = (up[1] - down[1]) / (2 * steps[k])
        curvature[k, k] = (2 * middle[0] - up[0] - down[0]) / steps[k] ** 2
    for j in range(d):
        for k in range(j):
            corner = value(point + moves[j] + moves[k])[0]
            mixed = (corner - ahead[j] - ahead[k] + middle[0]) / (steps[j] * steps[k])
            curvature[j, k] = curvature[k, j] = -mixed
    return middle, slope, curvature, drift


def _predicted(problem, model, held, scores, neighbours, budget):
    """Predict the held-out places, from all observations or the nearest; return their scores."""
    if not neighbours and (why := budget.refuses(60 if problem.machine.gpu else 0)):
        raise LeftOut(why)
    start = time.perf_counter()
    # nothing is estimated here, so that the neighbours of this likelihood do not matter
    given = gx.fit(
        *(problem.seen, model, gx.Vecchia(1)),
        fixed=tuple(model.parameters()),
        trend=problem.way.get("trend", "constant"),
        progress=False,
    )
    given = given if neighbours else replace(given, method=problem.fp64)
    fitted = time.perf_counter()
    there = gx.predict(given, held[0], neighbours=neighbours, progress=False)
    end = time.perf_counter()
    found = {name: float(value) for name, value in scores(there, held[1]).items()}
    return found | {"seconds": end - start, "seconds_predict": end - fitted}


def _whole(problem, model, top, finished, budget):
    """Fit by `gx.fit` in FP64 from the top: it should stay there."""
    free = len(problem.names) + 1
    evaluations = 35 + 15 * free
    if why := budget.refuses(evaluations * finished["seconds_of_one"]):
        raise LeftOut(why)
    fit = gx.fit(
        *(problem.seen, model, problem.fp64),
        **problem.way | {"fixed": problem.fixed(model)},
        search="bobyqa",
        progress=False,
        raise_on_failure=False,
    )
    return fit.model.parameters() | {
        "log_likelihood": fit.log_likelihood,
        "above_the_top": fit.log_likelihood - top,
        "evaluations": fit.evaluations,
        "seconds": fit.seconds,
        "outcome": str(fit.outcome),
    }
