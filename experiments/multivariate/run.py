"""Accuracy and speed of models of several variables.

    python experiments/multivariate/run.py [neighbours] [validity] [time] [fit] [mixed] [jura]
    python experiments/multivariate/run.py --tiny

neighbours.csv: KL divergence of Vecchia's approximation by neighbours: nearest whatever their
variable, and by a distance in which variables are apart, as geomxp finds them. validity.csv:
smallest eigenvalues of random models at random places. time.csv: seconds of an evaluation, and of
gradient and information, of two variables at n places each, beside one variable at 2n places.
fit.csv: whole fits of 2 × 250,000 values. mixed.csv: exact log-likelihoods of 2 × 8,000 values in
FP64 and mixed precision, beside one variable at 16,000 places, interleaved, one thread. jura.csv:
errors of four metals at the 100 validation places of Jura, by kriging of the metal alone, and by
cokriging with nickel and zinc known there too, of measured values and of logarithms.
"""

import argparse
import resource
import sys
import time
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd

import geomxp as gx
from geomxp.covariance.ordering import order_points
from geomxp.runtime.devices import usable_cores
from geomxp.vecchia.blocks import LocalPasses, Neighbours, wanted_for

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import QUIET, TINY, write_rows

HERE = Path(__file__).parent
NEIGHBOURS = 30
SECONDARY, CORRELATED = ("Ni", "Zn"), ("correlation_with_ni", "correlation_with_zn")
HALVES = {f"smoothness_{k}": 0.5 for k in (1, 2, 3)}
"""What tiny fits hold: such a correlation is a formula."""
FAMILIES = ("independent", "coregionalization", "parsimonious-matern", "flexible-matern")
"""Families of several variables."""


def log_determinant(model, inputs, count, points):
    """Return log|Σ| by Vecchia's approximation with neighbours that are nearest as points."""
    order = order_points(inputs.points, "maximin")
    passes = LocalPasses(inputs, order, count, points)
    passes.know(np.empty((0, len(inputs))))
    out, _ = passes.reduce(model, wanted_for(model, (), model.noise(inputs)))
    return float(out[0])


def neighbour_rows(n):
    """Yield rows of neighbours.csv: two variables, three designs of n places each."""
    random = np.random.default_rng(0)
    common = random.random((n, 2))
    designs = {
        "common places": (np.repeat(common, 2, axis=0), np.tile([0, 1], n)),
        "different places": (random.random((2 * n, 2)), np.repeat([0, 1], n)),
        "few of the first": (
            random.random((2 * n, 2)),
            np.repeat([0, 1], [n // 3, 2 * n - n // 3]),
        ),
    }
    for (design, (places, kinds)), rho, nu in product(
        designs.items(), (0.5,) if TINY else (0.2, 0.5, 0.8), ((0.5, 0.5), (0.5, 1.5))
    ):
        model = gx.ParsimoniousMatern((1.0, 1.0), 0.1, nu, 0.85 * rho, 0.05)
        inputs = gx.Inputs(places, variable=kinds)
        exact = gx.Exact().prepare(inputs).factorize(model).log_determinant()
        for count in (10, 30):
            key = Neighbours(inputs, count).key_of(model)
            kinds_of = {
                "place": inputs.points,
                "place and variable": model.neighbour_points(inputs, key),
            }
            for kind, points in kinds_of.items():
                yield {
                    "design": design,
                    "correlation": 0.85 * rho,
                    "smoothness": " ".join(map(str, nu)),
                    "neighbours": count,
                    "nearest_by": kind,
                    "kl": 0.5 * (log_determinant(model, inputs, count, points) - exact),
                }


def random_model(random, family, p, d):
    """Return a model at or near the end of what is valid in d dimensions."""
    variance, lengths = np.exp(random.normal(0, 1, p)), np.exp(random.normal(-1, 1, p))
    nu = np.exp(random.normal(-0.3, 0.6, p))
    if family == "independent":
        return gx.Independent(variance, lengths, nu)
    if family == "coregionalization":
        lower = np.tril(random.standard_normal((p, p)))
        np.fill_diagonal(lower, np.abs(np.diag(lower)))
        return gx.Coregionalization(lower, lengths, nu)
    zero = (0.0,) * (p * (p - 1) // 2)
    if family == "parsimonious-matern":
        model = gx.ParsimoniousMatern(variance, lengths[0], nu, zero)
    else:
        model = gx.FlexibleMatern(variance, lengths, nu, zero)
    # a correlation matrix of any rank: the ends of what is valid
    factor = random.standard_normal((p, random.integers(1, p + 1)))
    factor /= np.linalg.norm(factor, axis=1)[:, None]
    rho = (1 - 1e-9) * (factor @ factor.T) * model.factors(d)
    names = combinations(range(p), 2)
    return model.replace(**{f"correlation_{i + 1}{j + 1}": rho[i, j] for i, j in names})


def validity_rows(count, n):
    """Yield rows of validity.csv: the smallest eigenvalue of correlation matrices, by family."""
    for (number, family), space in product(enumerate(FAMILIES), (1, 2, 3, "sphere")):
        random, least, invalid = (
            np.random.default_rng([number, 9 if space == "sphere" else space]),
            1.0,
            0,
        )
        for _ in range(count):
            p, d = int(random.integers(2, 9)), 3 if space == "sphere" else space
            model = random_model(random, family, p, d)
            places, metric = random.random((n, d)), "euclidean"
            if space == "sphere":
                places = np.column_stack((random.uniform(-180, 180, n), random.uniform(-90, 90, n)))
                metric = "chordal"
                longer = {
                    k: 3000 * v for k, v in model.parameters().items() if k.startswith("range")
                }
                model = model.replace(**longer)
            inputs = gx.Inputs(places, metric, variable=random.integers(0, p, n))
            invalid += not model.valid_on(metric, inputs.dimensions)
            size = np.sqrt(model.diagonal(inputs))
            matrix = model(inputs, inputs) / np.outer(size, size)
            least = min(least, float(np.linalg.eigvalsh(matrix)[0]))
        yield {
            "family": family,
            "space": space,
            "models": count,
            "n": n,
            "refused": invalid,
            "least_eigenvalue": least,
        }


def interleaved(n):
    """Return n random places, twice each, and the variables."""
    places = np.random.default_rng(0).random((n, 2))
    return np.repeat(places, 2, axis=0), np.tile([0, 1], n)


def time_rows(sizes):
    """Yield rows of time.csv: medians of five, after the neighbours are found."""
    for n in sizes:
        length = 0.05 * (1e5 / n) ** 0.5
        places, kinds = interleaved(n)
        alone = np.random.default_rng(1).random((2 * n, 2))
        values = np.random.default_rng(2).standard_normal(2 * n)
        two = gx.Observations(places, values, variable=kinds)
        one = gx.Observations(alone, values)
        models = (
            (gx.Matern(1.0, length, 0.5, 0.1), one),
            (gx.ParsimoniousMatern((1.0, 2.0), length, (0.5, 1.0), 0.4, 0.1), two),
            (gx.FlexibleMatern((1.0, 2.0), (length, length / 2), (0.5, 1.0), 0.4, 0.1), two),
            (gx.Coregionalization((1.0, 0.5, 1.0), (length, length / 2), (0.5, 1.0), 0.1), two),
        )
        for model, data in models:
            evaluator = gx.Vecchia(NEIGHBOURS).prepare(data, np.ones((2 * n, 1)))
            start = time.perf_counter()
            evaluator(model)
            evaluator.freeze(model)
            first, seconds, slopes = time.perf_counter() - start, [], []
            names = tuple(model.parameters())
            for k in range(5):
                start = time.perf_counter()
                evaluator(model.scaled(1.0 + 1e-3 * (k + 1)))
                seconds.append(time.perf_counter() - start)
                start = time.perf_counter()
                evaluator.derivatives(model.scaled(1.0 - 1e-3 * (k + 1)), names, curvature=False)
                slopes.append(time.perf_counter() - start)
            yield {
                "values": 2 * n,
                "family": model.family,
                "neighbours": NEIGHBOURS,
                "threads": usable_cores(),
                "seconds_first": first,
                "seconds": float(np.median(seconds)),
                "seconds_with_derivatives": float(np.median(slopes)),
                "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            }


def fit_rows(n):
    """Yield rows of fit.csv: whole fits of two variables at n places."""
    length = 0.05 * (1e5 / n) ** 0.5
    truth = gx.ParsimoniousMatern((1.0, 2.0), length, (0.5, 1.0), 0.4, (0.1, 0.2))
    places, kinds = interleaved(n)
    method = gx.Vecchia(NEIGHBOURS)
    about = {"variable": kinds, "method": method, "seed": 1, "progress": False}
    values = gx.simulate(truth, places, **about)[0]
    seen = gx.Observations(places, values, variable=kinds)
    for family in ("parsimonious-matern", "flexible-matern"):
        start = time.perf_counter()
        about = QUIET | ({"fixed": dict(list(HALVES.items())[:2])} if TINY else {})
        fit = gx.fit(seen, family=family, method=method, trend="zero", **about)
        seconds = time.perf_counter() - start
        known = gx.log_likelihood(seen, truth, method, trend="zero").log_likelihood
        yield {
            "values": 2 * n,
            "family": family,
            "neighbours": NEIGHBOURS,
            "threads": usable_cores(),
            "seconds": seconds,
            "evaluations": fit.evaluations,
            "outcome": str(fit.outcome.ending),
            "gain": fit.log_likelihood - known,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            "correlation": fit.model.correlations[0, 1],
            "largest_variance": fit.model.largest_variance,
        }


def mixed_rows(n, repeats):
    """Yield rows of mixed.csv: medians of interleaved exact log-likelihoods."""
    random = np.random.default_rng(0)
    places, kinds = interleaved(n)
    values = random.standard_normal(2 * n)
    alone = np.random.default_rng(1).random((2 * n, 2))
    data = {
        "matern": (gx.Matern(1.0, 0.03, 0.5, 0.1), gx.Observations(alone, values)),
        "parsimonious-matern": (
            gx.ParsimoniousMatern((1.0, 2.0), 0.03, (0.5, 1.0), 0.4, 0.1),
            gx.Observations(places, values, variable=kinds),
        ),
    }
    methods = {"fp64": gx.Exact(), "by_tile_norm(1e-5)": gx.Exact(gx.by_tile_norm(1e-5))}
    cells = list(product(data, methods))
    seconds, last = {cell: [] for cell in cells}, {}
    for _ in range(repeats + 1):
        for family, name in cells:
            model, seen = data[family]
            evaluator = methods[name].prepare(seen, np.ones((2 * n, 1)))
            start = time.perf_counter()
            last[family, name] = evaluator(model).log_likelihood
            seconds[family, name].append(time.perf_counter() - start)
    medians = {cell: float(np.median(some[1:])) for cell, some in seconds.items()}
    for family, name in cells:
        yield {
            "n": 2 * n,
            "family": family,
            "method": name,
            "seconds": medians[family, name],
            "times_fp64": medians[family, "fp64"] / medians[family, name],
            "log_likelihood": last[family, name],
        }


def jura_rows(metals, scales, families=FAMILIES[1:], every=1):
    """Yield rows of jura.csv: absolute and squared errors in mg/kg.

    Predictions from logarithms are back-transformed: the median for the absolute error, the mean of
    a log-normal distribution for the squared one.
    """
    calibration, validation = (
        pd.read_csv(gx.datasets.path(name)).iloc[::every] for name in ("jura", "jura_validation")
    )
    whole = pd.concat((calibration, validation.assign(**dict.fromkeys(metals))))
    for metal, scale in product(metals, scales):
        names = (metal, *SECONDARY)
        columns = tuple(f"log({name})" for name in names) if scale == "log" else names
        for family in ("matern", *families):
            alone = family == "matern"
            frame, values = (calibration, columns[0]) if alone else (whole, columns)
            seen = gx.Observations.from_frame(frame, values=values, locations=("x", "y"))
            halves = {"smoothness": 0.5} if alone else HALVES
            fit = gx.fit(seen, family=family, **QUIET, **({"fixed": halves} if TINY else {}))
            variable = {} if alone else {"variable": columns[0]}
            found = gx.predict(fit, validation[["x", "y"]], progress=False, **variable)
            median = mean = found.mean
            if scale == "log":
                mean = np.exp(found.mean + found.variance_of_observation / 2)
                median = np.exp(median)
            truth = validation[metal].to_numpy()
            low, high = found.interval(0.95, of="observation")
            measured = np.log(truth) if scale == "log" else truth
            correlations = [] if alone else fit.model.correlations[0, 1:].tolist()
            yield {
                "metal": metal,
                "scale": scale,
                "family": family,
                "values": len(seen),
                "mae": np.abs(median - truth).mean(),
                "rmse": np.sqrt(((mean - truth) ** 2).mean()),
                "coverage": np.mean((measured >= low) & (measured <= high)),
                "log_likelihood": fit.log_likelihood,
                "parameters": fit.degrees_of_freedom,
                "outcome": str(fit.outcome.ending),
                **dict(zip(CORRELATED, correlations or (None, None), strict=True)),
                "seconds": fit.seconds,
            }


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="neighbours, validity, time, fit, mixed, jura")
    parser.add_argument("--tiny", action="store_true", help="small sizes: seconds")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    tiny = options.tiny
    known = {
        "neighbours": lambda: neighbour_rows(20 if tiny else 300),
        "validity": lambda: validity_rows(*((2, 10) if tiny else (700, 40))),
        "time": lambda: time_rows((40,) if tiny else (50_000, 250_000)),
        "fit": lambda: fit_rows(30 if tiny else 250_000),
        "mixed": lambda: mixed_rows(*((50, 1) if tiny else (8_000, 5))),
        "jura": lambda: (
            jura_rows(("Cd",), ("log",), ("parsimonious-matern",), every=15)
            if tiny
            else jura_rows(("Cd", "Cu", "Pb", "Co"), ("measured", "log"))
        ),
    }
    for name in options.studies or known:
        rows = []
        for row in known[name]():
            rows.append(row)
            print(name, *row.values(), flush=True)
            write_rows(options.output / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
