"""Simulated fields of Gneiting's model: estimates, intervals, and the test of separability.

    python experiments/space_time/recovery.py [estimates] [separability] [--every PART OF] [--tiny]

estimates.csv: 400 fields of 500 values (50 stations, 10 times), the decay in time held at its true
value; estimates, Wald intervals and profile intervals of the others. separability.csv: 1,000
separable fields of 200 values (20 stations, 10 times), the p-value of the likelihood-ratio test of
no interaction, and the statistic of one draw of its parametric bootstrap; the smoothness and the
decay in time are known. shares.csv: coverage of the intervals and sizes of the tests, with
simultaneous 99 % bands of Clopper and Pearson for each file. Interrupted runs resume; processes
share the work by --every 0 2 and --every 1 2, and a run without it joins their files.
"""

import argparse
import sys
import warnings
from itertools import product
from pathlib import Path

import numpy as np

import geomxp as gx

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import band, compared, read_rows, resume, warp_speed, write_rows

HERE = Path(__file__).parent
TRUTH = gx.Gneiting(1.0, 0.2, 2.0, 0.5, 0.6, 0.5, 0.3, 0.1)
SEPARABLE = TRUTH.replace(interaction=0.0, time_decay=1.0)
ESTIMATED = [name for name in TRUTH.parameters() if name != "time_decay"]
METHODS, LEVEL = ("wald", "profile"), 0.95
SIZES, CONFIDENCE = (0.05, 0.1), 0.99
APART = 10**6
"""Added to the seed of a bootstrap draw; see experiments/calibration."""

ABOUT = {"method": gx.Exact(), "trend": "zero", "progress": False, "raise_on_failure": False}


def field(truth, stations, times, seed):
    """Return a field that stations observe at the times 0, 1, 2 and so on."""
    places = np.random.default_rng([seed, 1]).random((stations, 2))
    locations = np.repeat(places, times, axis=0)
    when = np.tile(np.arange(float(times)), stations)
    values = gx.simulate(truth, locations, time=when, seed=seed, progress=False)[0]
    return gx.Observations(locations, values, time=when)


def columns(name, method):
    """Return the columns of the ends of an interval."""
    return [f"{name}_{method}_{end}" for end in ("lower", "upper")]


def estimates_row(replicate, stations):
    """Yield estimates and intervals of one field."""
    seen = field(TRUTH, stations, 10, replicate)
    held = {name: value for name, value in TRUTH.parameters().items() if name not in ESTIMATED}
    fit = gx.fit(seen, family="gneiting", fixed=held, **ABOUT)
    known = gx.log_likelihood(seen, TRUTH, trend="zero").log_likelihood
    row = {
        "n": len(seen),
        "outcome": str(fit.outcome.ending),
        "evaluations": fit.evaluations,
        "gain": fit.log_likelihood - known,
    }
    intervals = {method: fit.confidence_intervals(LEVEL, method) for method in METHODS}
    for name in ESTIMATED:
        row[name] = fit.model.parameters()[name]
        for method, found in intervals.items():
            ends = found.get(name) or ("", "")
            row |= dict(zip(columns(name, method), ends, strict=True))
    yield row


def separability_row(replicate, stations):
    """Yield the test of no interaction for one separable field."""
    seen = field(SEPARABLE, stations, 10, 10_000 + replicate)
    known = {name: SEPARABLE.parameters()[name] for name in ("smoothness", "time_decay")}
    full = gx.fit(seen, family="gneiting", fixed=known, **ABOUT)
    separable = gx.fit(seen, family="gneiting", fixed=known | {"interaction": 0.0}, **ABOUT)
    separable, full, draw = compared(separable, full, APART + replicate)
    test = gx.likelihood_ratio_test(separable, full)
    yield {
        "n": len(seen),
        "statistic": test.statistic,
        "p_value": test.p_value,
        "draw": draw,
        "interaction": full.model.interaction,
        "outcome": str(full.outcome.ending),
    }


def shares(output):
    """Return coverage and sizes with their bands; those of one file hold together."""
    found = {"estimates": [], "separability": []}
    rows = read_rows(output / "estimates.csv")
    for name, method in product(ESTIMATED, METHODS):
        ends = [[row[column] for column in columns(name, method)] for row in rows]
        truth = TRUTH.parameters()[name]
        hits = [float(lower) <= truth <= float(upper) for lower, upper in ends if lower]
        found["estimates"].append((name, method, LEVEL, hits))
    rows = read_rows(output / "separability.csv")
    statistics, draws, p_values = (
        np.array([float(row[column]) for row in rows])
        for column in ("statistic", "draw", "p_value")
    )
    for level in SIZES:
        tests = {"asymptotic": p_values, "bootstrap": warp_speed(statistics, draws)}
        for rule, values in tests.items():
            found["separability"].append(("no interaction", rule, level, values <= level))
    for study, cells in found.items():
        for what, rule, nominal, hits in cells:
            count, total = int(np.sum(hits)), len(hits)
            if not total:
                continue
            lower, upper = band(count, total, 1 - (1 - CONFIDENCE) / len(cells))
            yield {
                "study": study,
                "what": what,
                "rule": rule,
                "nominal": nominal,
                "replicates": total,
                "hits": count,
                "share": count / total,
                "lower": lower,
                "upper": upper,
            }


STUDIES = {"estimates": (400, 50, estimates_row), "separability": (1000, 20, separability_row)}


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="estimates, separability")
    parser.add_argument("--every", type=int, nargs=2, default=(0, 1), metavar=("PART", "OF"))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--anew", action="store_true", help="replace the rows of earlier runs")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    warnings.simplefilter("ignore", gx.GeomxpWarning)
    for name in options.studies or STUDIES:
        count, stations, rows = STUDIES[name]
        count, stations = (2, 6) if options.tiny else (count, stations)
        cells = [{"replicate": k} for k in range(count)]

        def rows_of(replicate, rows=rows, stations=stations):
            return rows(replicate, stations)

        path = options.output / f"{name}.csv"
        resume(path, cells, rows_of, every=options.every, anew=options.anew)
    if options.every[1] == 1 and all((options.output / f"{name}.csv").exists() for name in STUDIES):
        write_rows(options.output / "shares.csv", list(shares(options.output)))


if __name__ == "__main__":
    main()
