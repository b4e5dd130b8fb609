"""Simulated fields of two variables: estimates, and their intervals.

    python experiments/multivariate/recovery.py [parsimonious] [flexible] [--every PART OF] [--tiny]

Each of 400 fields has 200 values of either variable, at 100 common places and 100 of its own.
parsimonious.csv and flexible.csv have estimates, Wald intervals, profile intervals of the
correlation and of the first nugget, which is near its limit, and by how much the maximum exceeds
the log-likelihood of the truth. Interrupted runs resume; processes share the work by --every 0 2
and --every 1 2, and a run without it joins their files.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import geomxp as gx

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import resume

HERE = Path(__file__).parent
TRUTHS = {
    "parsimonious": gx.ParsimoniousMatern((1.0, 2.0), 0.15, (0.5, 1.0), 0.5, (0.05, 0.1)),
    "flexible": gx.FlexibleMatern((1.0, 2.0), (0.2, 0.1), (0.5, 1.0), 0.5, (0.05, 0.1)),
}
PROFILED = ("correlation_12", "nugget_1")


def field(truth, n, seed):
    """Return values of two variables at n places each, half of them common."""
    places = np.random.default_rng([seed, 1]).random((3 * n // 2, 2))
    rows = np.concatenate((np.arange(n), np.arange(n // 2, 3 * n // 2)))
    kinds = np.repeat([0, 1], n)
    order = np.lexsort((kinds, rows))
    locations, kinds = places[rows[order]], kinds[order]
    values = gx.simulate(truth, locations, variable=kinds, seed=seed, progress=False)[0]
    return gx.Observations(locations, values, variable=kinds)


def rows(name, replicate, n):
    """Yield estimates and intervals of one field."""
    truth = TRUTHS[name]
    seen = field(truth, n, replicate)
    about = {"trend": "zero", "progress": False, "raise_on_failure": False}
    fit = gx.fit(seen, family=truth.family, method=gx.Exact(), **about)
    known = gx.log_likelihood(seen, truth, trend="zero").log_likelihood
    row = {
        "n": len(seen),
        "outcome": str(fit.outcome.ending),
        "evaluations": fit.evaluations,
        "gain": fit.log_likelihood - known,
    }
    wald = fit.confidence_intervals() if fit.outcome.good and fit.free else {}
    known_top = fit.outcome.good or str(fit.outcome.ending) == "UNIDENTIFIED"
    profile = dict.fromkeys(PROFILED)
    if known_top:
        profile = fit.confidence_intervals(method="profile", names=PROFILED)
    for parameter, value in fit.model.parameters().items():
        row[parameter] = value
        kinds = {"wald": wald, "profile": profile}
        for kind in kinds if parameter in profile else ("wald",):
            intervals = kinds[kind]
            lower, upper = intervals.get(parameter) or ("", "")
            row |= {f"{parameter}_{kind}_lower": lower, f"{parameter}_{kind}_upper": upper}
    yield row


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="parsimonious, flexible")
    parser.add_argument("--every", type=int, nargs=2, default=(0, 1), metavar=("PART", "OF"))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--anew", action="store_true", help="replace the rows of earlier runs")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    count, n = (2, 40) if options.tiny else (400, 200)
    for name in options.studies or TRUTHS:
        cells = [{"replicate": k} for k in range(count)]

        def rows_of(replicate, name=name):
            return rows(name, replicate, n)

        path = options.output / f"{name}.csv"
        resume(path, cells, rows_of, every=options.every, anew=options.anew)


if __name__ == "__main__":
    main()
