"""Accuracy and speed of space-time models.

    python experiments/space_time/run.py [neighbours] [time] [fit] [generation] [validity]
    python experiments/space_time/run.py kaust subsets --data FOLDER [--sets 1 2 ...]
    python experiments/space_time/run.py --tiny

neighbours.csv: KL divergence of Vecchia's approximation with neighbours by scaled distance, where
the scale of time has the smallest divergence, as in geomxp, or is that of correlation ½, and by
correlation. time.csv: seconds of an evaluation, and of gradient and
information, at up to 10⁶ observations. fit.csv: whole fits of 10⁶ simulated ones. generation.csv:
seconds of a covariance matrix, beside that of a spatial model, one thread. validity.csv: smallest
eigenvalues of correlation matrices of random models, locations and times.

kaust: FOLDER holds 2a_1.npz, 2a_2.npz, … of the KAUST Competition 2022 (arXiv 2211.03119; arrays
`train` and `test` of x, y, t, z; github.com/TimGyger/SpaceTimeGPApprox, Data/2a). kaust.csv
has for each set and model the seconds of fit and prediction, estimates, the
log-likelihood, and scores of the 10,000 predictions. "matern, scaled time" is a spatial model with
time as a third coordinate, times the best of five factors. --tiny uses a simulated set.

subsets: GPBoost's space_time_gneiting (`pip install gpboost`) and geomxp's Gneiting on the same
5,000 observations of each set, with as many neighbours; each predicts the 10,000 values from them.
subsets.csv has also the exact log-likelihoods at both estimates, by geomxp.
"""

import argparse
import resource
import sys
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist

import geomxp as gx
from geomxp import testing
from geomxp.covariance.ordering import order_points
from geomxp.runtime.devices import usable_cores
from geomxp.vecchia.blocks import Neighbours

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import QUIET, TINY, resume, write_rows

HERE = Path(__file__).parent
FAMILIES = ("gneiting", "separable", "matern-space-time")
SPATIAL = "matern, scaled time"
FACTORS = (0.03, 0.1) if TINY else (0.003, 0.01, 0.03, 0.1, 0.3)
"""Units of length that a unit of time counts."""

NEIGHBOURS, PREDICTED_FROM = 30, 60
ABOUT = QUIET | ({"fixed": {"smoothness": 0.5}} if TINY else {})
"""Options of fits; with this smoothness a correlation is a formula."""


def simulated():
    """Return a small set like those of the competition: train and test, of x, y, t, z."""
    random = np.random.default_rng(0)
    stations, times = random.random((12, 2)), np.arange(1.0, 6.0)
    where = np.column_stack((np.repeat(stations, 5, axis=0), np.tile(times, 12)))
    truth = gx.Gneiting(1.0, 0.2, 3.0, 0.5, 0.8, 0.6, 0.3, 0.01)
    values = gx.simulate(truth, where[:, :2], time=where[:, 2], seed=1)[0]
    whole = np.column_stack((where, values))
    return whole[:45], whole[45:]


def data_of(number, folder):
    """Return train and test of a set, or of a simulated one."""
    if folder is None:
        return simulated()
    with np.load(folder / f"2a_{number}.npz") as arrays:
        return arrays["train"], arrays["test"]


def fitted(train, family):
    """Return the fit of a family, and the factor of time of the spatial model."""
    method = gx.Vecchia(NEIGHBOURS)
    about = ABOUT | {"trend": "zero"}
    if family != SPATIAL:
        seen = gx.Observations(train[:, :2], train[:, 3], time=train[:, 2])
        return gx.fit(seen, family=family, method=method, **about), None
    fits = {}
    for factor in FACTORS:
        seen = gx.Observations(train[:, :3] * [1.0, 1.0, factor], train[:, 3])
        fits[factor] = gx.fit(seen, method=method, **about)
    factor = max(fits, key=lambda one: fits[one].log_likelihood)
    return fits[factor], factor


def predicted(fit, factor, test):
    """Return the predictions of a fit at the test data."""
    if factor is None:
        new, about = test[:, :2], {"time": test[:, 2]}
    else:
        new, about = test[:, :3] * [1.0, 1.0, factor], {}
    return gx.predict(fit, new, neighbours=PREDICTED_FROM, progress=False, **about)


def kaust_rows(number, model, folder):
    """Yield the row of one set and model."""
    train, test = data_of(number, folder)
    start = time.perf_counter()
    fit, factor = fitted(train, model)
    middle = time.perf_counter()
    found = predicted(fit, factor, test)
    end = time.perf_counter()
    scores = gx.scores.summary(found.mean, found.variance_of_observation, test[:, 3])
    parameters = ("variance", "range", "time_range", "smoothness", "nugget")
    others = ("time_smoothness", "time_power", "interaction", "time_decay")
    values = fit.model.parameters()
    yield {
        "n": len(train),
        "seconds_of_fit": middle - start,
        "seconds_of_prediction": end - middle,
        "evaluations": fit.evaluations,
        "outcome": str(fit.outcome.ending),
        "log_likelihood": fit.log_likelihood,
        **{name: scores[name] for name in ("rmse", "mae", "crps", "coverage")},
        **{name: values.get(name, "") for name in (*parameters, *others)},
        "factor_of_time": "" if factor is None else factor,
    }


def by_geomxp(seen, new, when, neighbours):
    """Return fit and prediction of a Gneiting model: model, log-likelihood, mean, variance."""
    method = gx.Vecchia(neighbours)
    about = ABOUT | {"trend": "zero"}
    start = time.perf_counter()
    fit = gx.fit(seen, family="gneiting", method=method, **about)
    fitted = time.perf_counter()
    found = gx.predict(fit, new, time=when, neighbours=PREDICTED_FROM, progress=False)
    seconds = fitted - start, time.perf_counter() - fitted
    return fit.model, fit.log_likelihood, found.mean, found.variance_of_observation, seconds


def by_gpboost(seen, new, when, neighbours):
    """Return the same by GPBoost, whose coordinates begin with time."""
    import gpboost

    start = time.perf_counter()
    process = gpboost.GPModel(
        gp_coords=np.column_stack((seen.time, seen.locations)),
        cov_function="space_time_gneiting",
        likelihood="gaussian",
        gp_approx="vecchia",
        num_neighbors=neighbours,
    )
    process.fit(y=seen.values)
    fitted = time.perf_counter()
    process.set_prediction_data(num_neighbors_pred=PREDICTED_FROM)
    found = process.predict(
        gp_coords_pred=np.column_stack((when, new)), predict_var=True, predict_response=True
    )
    seconds = fitted - start, time.perf_counter() - fitted
    given = np.asarray(process.get_cov_pars()).ravel()
    nugget, variance, a, c, alpha, smoothness, interaction, decay = map(float, given)
    scales = variance, 1 / c, a ** (-0.5 / alpha)
    model = gx.Gneiting(*scales, smoothness, min(alpha, 1.0), min(interaction, 1.0), decay, nugget)
    value = -process.get_current_neg_log_likelihood()
    return model, float(value), found["mu"], found["var"], seconds


PACKAGES = {"geomxp": by_geomxp, "GPBoost": by_gpboost}


def subset_rows(number, package, folder):
    """Yield the row of one set and package."""
    train, test = data_of(number, folder)
    count, neighbours = (40, 10) if folder is None else (5000, NEIGHBOURS)
    rows = np.sort(np.random.default_rng(number).choice(len(train), count, replace=False))
    seen = gx.Observations(train[rows, :2], train[rows, 3], time=train[rows, 2])
    model, value, mean, variance, (fitting, predicting) = PACKAGES[package](
        seen, test[:, :2], test[:, 2], neighbours
    )
    scores = gx.scores.summary(mean, variance, test[:, 3])
    yield {
        "n": count,
        "neighbours": neighbours,
        "seconds_of_fit": fitting,
        "seconds_of_prediction": predicting,
        "log_likelihood": value,
        "exact_log_likelihood": gx.log_likelihood(seen, model, trend="zero").log_likelihood,
        **{name: scores[name] for name in ("rmse", "mae", "crps", "coverage")},
        **model.parameters(),
    }


MODELS = (
    gx.Gneiting(1.0, 0.3, 4.0, 0.5, 0.7, 0.9, 0.1, 0.02),
    gx.Gneiting(1.0, 0.1, 4.0, 0.5, 0.5, 0.3, 0.3, 0.02),
    gx.Separable(1.0, 0.3, 6.0, 0.5, 0.5, 0.02),
    gx.MaternSpaceTime(1.0, 0.2, 5.0, 0.8, 0.02),
)


def divergence(sigma, order, near, m):
    """Return KL(N(0, Σ) ‖ Vecchia's), each row given the m predecessors that are nearest."""
    logs = 0.0
    for k, i in enumerate(order):
        before = order[:k]
        some = before[np.argsort(near[i, before], kind="stable")[:m]]
        variance = sigma[i, i]
        if len(some):
            cross = sigma[some, i]
            variance -= cross @ np.linalg.solve(sigma[np.ix_(some, some)], cross)
        logs += np.log(variance)
    return 0.5 * (logs - np.linalg.slogdet(sigma)[1])


def neighbour_rows(stations, times, neighbours):
    """Yield rows of neighbours.csv."""
    random, n = np.random.default_rng(0), stations * times
    designs = {
        "stations": (
            np.repeat(random.random((stations, 2)), times, axis=0),
            np.tile(np.arange(float(times)), stations),
        ),
        "random": (random.random((n, 2)), random.random(n) * times),
    }
    for design, (locations, when) in designs.items():
        inputs = gx.Inputs(locations, time=when)
        for model in MODELS:
            covariance = model(inputs, inputs)
            first = model.neighbour_points(inputs, model.neighbour_key(inputs))
            sigma, near = covariance + model.nugget * np.eye(n), {}
            order = order_points(first, "maximin")
            for m in neighbours:
                best = model.neighbour_points(inputs, Neighbours(inputs, m).key_of(model))
                near["smallest divergence", m] = cdist(best, best), order_points(best, "maximin")
                near["correlation one half", m] = cdist(first, first), order
                near["correlation", m] = -covariance, order
            for (kind, m), (away, order) in near.items():
                yield {
                    "design": design,
                    "n": n,
                    "model": repr(model),
                    "neighbours": m,
                    "nearest_by": kind,
                    "kl": divergence(sigma, order, away, m),
                }


def observed(n):
    """Return n observations at random places and times."""
    random = np.random.default_rng(0)
    return gx.Observations(random.random((n, 2)), random.standard_normal(n), time=random.random(n))


def time_rows(sizes):
    """Yield rows of time.csv: medians of three, after the neighbours are found."""
    for n in sizes:
        scale = (1e5 / n) ** 0.5
        models = (
            gx.Matern(1.0, 0.01 * scale, 0.8, 0.1),
            gx.MaternSpaceTime(1.0, 0.05, 0.05, 0.8, 0.1),
            gx.Separable(1.0, 0.05, 0.05, 0.8, 0.6, 0.1),
            gx.Gneiting(1.0, 0.05, 0.05, 0.8, 0.8, 0.5, 0.5, 0.1),
        )
        seen = observed(n)
        for model in models:
            data = seen if model.uses else gx.Observations(seen.locations, seen.values)
            evaluator = gx.Vecchia(NEIGHBOURS).prepare(data, np.ones((n, 1)))
            start = time.perf_counter()
            evaluator(model)
            first, seconds, slopes = time.perf_counter() - start, [], []
            names = tuple(model.parameters())
            for k in range(3):
                moved = model.replace(variance=1.0 + 1e-3 * (k + 1))
                start = time.perf_counter()
                evaluator(moved)
                seconds.append(time.perf_counter() - start)
                moved = model.replace(variance=1.0 - 1e-3 * (k + 1))
                start = time.perf_counter()
                evaluator.derivatives(moved, names, curvature=False)
                slopes.append(time.perf_counter() - start)
            yield {
                "n": n,
                "family": model.family,
                "neighbours": NEIGHBOURS,
                "threads": usable_cores(),
                "seconds_first": first,
                "seconds": float(np.median(seconds)),
                "seconds_with_derivatives": float(np.median(slopes)),
                "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            }


def fit_rows(n):
    """Yield rows of fit.csv: whole fits of n values simulated from Gneiting's model."""
    random, scale = np.random.default_rng(0), (1e5 / n) ** 0.5
    truth = gx.Gneiting(1.0, 0.05 * scale, 0.05, 0.5, 0.6, 0.5, 0.5, 0.1)
    locations, when, method = random.random((n, 2)), random.random(n), gx.Vecchia(NEIGHBOURS)
    values = gx.simulate(truth, locations, time=when, method=method, progress=False)[0]
    seen = gx.Observations(locations, values, time=when)
    for family in ("gneiting", "matern-space-time"):
        start = time.perf_counter()
        fit = gx.fit(seen, family=family, method=method, trend="constant", **ABOUT)
        seconds = time.perf_counter() - start
        known = gx.log_likelihood(seen, truth, method, trend="constant")
        yield {
            "n": n,
            "family": family,
            "neighbours": NEIGHBOURS,
            "threads": usable_cores(),
            "seconds": seconds,
            "evaluations": fit.evaluations,
            "outcome": str(fit.outcome.ending),
            "log_likelihood": fit.log_likelihood,
            "log_likelihood_of_truth": known.log_likelihood,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            **{name: fit.model.parameters().get(name, "") for name in truth.parameters()},
        }


def generation_rows(n, repeats):
    """Yield rows of generation.csv: a whole matrix, interleaved, one thread.

    All times are different, or there are 64 of them.
    """
    seen, spatial = observed(n), gx.Matern(1.0, 0.1, 0.8)
    few = gx.Observations(seen.locations, seen.values, time=np.arange(n) % 64)
    models = {model.family: model for model in (spatial, *MODELS[1:])}
    for times, dtype in product((n, 64), ("float64", "float32")):
        data = seen if times == n else few
        pairs = {
            name: model.pairs(data.inputs if model.uses else gx.Inputs(data.locations))
            for name, model in models.items()
        }
        out, whole = np.empty((n, n), dtype, order="F"), slice(0, n)
        seconds = {name: [] for name in pairs}
        for _ in range(repeats + 1):
            for name, one in pairs.items():
                start = time.perf_counter()
                one.write("correlation", whole, whole, out)
                seconds[name].append(time.perf_counter() - start)
        medians = {name: float(np.median(some[1:])) for name, some in seconds.items()}
        for name, median in medians.items():
            yield {
                "family": name,
                "type": dtype,
                "n": n,
                "times": times,
                "seconds": median,
                "over_spatial": median / medians[spatial.family],
            }


SPACES = (
    *(("euclidean", d) for d in (1, 2, 3)),
    *((metric, 2) for metric in ("chordal", "great-circle")),
)
ENTRY_ERROR = 1e-15
"""Largest error of a correlation; tests compare with formulas in 30 digits."""


def random_inputs(n, metric, dimensions, random):
    """Return random locations; times are regular, random or repeated. n is a multiple of 6.

    On the sphere a third of the locations are opposite to others.
    """
    locations = random.random((n, dimensions))
    if metric != "euclidean":
        latitude = np.degrees(np.arcsin(2 * locations[:, 1] - 1))
        locations = np.column_stack((360 * locations[:, 0] - 180, latitude))
        locations[1::3] = locations[::3] * [1, -1] + [180, 0]
    kind, count = random.integers(3), random.choice([2, 3, 6])
    if kind == 0:
        locations = np.repeat(locations[: n // count], count, axis=0)
    times = (np.arange(n) % count, random.random(n), random.integers(count, size=n))[kind]
    return gx.Inputs(locations, metric, time=times)


def validity_rows(n, draws):
    """Yield rows of validity.csv: the smallest eigenvalue of so many correlation matrices.

    Of a matrix that is positive semidefinite rounding makes it at least -n(1e-15 + n u): entries
    err by 1e-15, and LAPACK's eigenvalues by about u times the norm, which is at most n.
    """
    families = (gx.MaternSpaceTime, gx.Separable, gx.Gneiting)
    for seed, (family, (metric, dimensions)) in enumerate(product(families, SPACES)):
        if metric == "great-circle" and family.on_sphere is None:
            continue
        random, smallest = np.random.default_rng(seed), []
        for _ in range(draws):
            model = testing.random_model(family, random, metric, dimensions)
            inputs = random_inputs(n, metric, dimensions, random)
            values = np.linalg.eigvalsh(model(inputs, inputs))
            smallest.append((float(values[0]), repr(model)))
        least, model = min(smallest)
        yield {
            "family": family.family,
            "metric": metric,
            "dimensions": dimensions,
            "n": n,
            "draws": draws,
            "smallest_eigenvalue": least,
            "rounding": -n * (ENTRY_ERROR + n * 2.0**-53),
            "below_1e-12": sum(value < 1e-12 for value, _ in smallest),
            "model": model,
        }


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "studies", nargs="*", help="neighbours, time, fit, generation, validity, kaust, subsets"
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", type=int, nargs="+", default=[1, 2, 4, 5, 7, 8])
    parser.add_argument("--models", nargs="+", default=[*FAMILIES, SPATIAL])
    parser.add_argument("--tiny", action="store_true", help="a small simulated set: seconds")
    parser.add_argument("--anew", action="store_true", help="replace the rows of earlier runs")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    tiny = options.tiny
    known = {
        "neighbours": lambda: neighbour_rows(*((6, 8, (5,)) if tiny else (30, 30, (10, 20, 30)))),
        "time": lambda: time_rows((100,) if tiny else (100_000, 1_000_000)),
        "fit": lambda: fit_rows(40 if tiny else 1_000_000),
        "generation": lambda: generation_rows(*((70, 1) if tiny else (4096, 9))),
        "validity": lambda: validity_rows(30, 3 if tiny else 2500),
    }
    for name in options.studies or known:
        rows = []
        for row in known[name]() if name in known else ():
            rows.append(row)
            print(name, *row.values(), flush=True)
            write_rows(options.output / f"{name}.csv", rows)
    packages = PACKAGES if find_spec("gpboost") else ["geomxp"]
    with_data = {
        "kaust": ("model", options.models, kaust_rows),
        "subsets": ("package", packages, subset_rows),
    }
    asked = [name for name in with_data if name in (options.studies or (with_data if tiny else ()))]
    if asked and options.data is None and not tiny:
        parser.error("kaust and subsets need --data FOLDER; --tiny needs none")
    sets, folder = ([0], None) if tiny else (options.sets, options.data)
    for name in asked:
        column, kinds, rows = with_data[name]
        cells = [{"set": number, column: kind} for number in sets for kind in kinds]

        def rows_of(column=column, rows=rows, **cell):
            return rows(cell["set"], cell[column], folder)

        resume(options.output / f"{name}.csv", cells, rows_of, anew=options.anew)


if __name__ == "__main__":
    main()
