"""Simulated fields of Gneiting's model: estimates, intervals, and the test of separability.

    python experiments/space_time/recovery.py [estimates] [separability] [--every PART OF] [--tiny]

estimates.csv: 400 fields of 500 values (50 stations, 10 times), the decay in time held at its true
value, estimates and Wald intervals of the others. separability.csv: 1,000 separable fields of 200
values (20 stations, 10 times) and the p-value of the likelihood-ratio test of no interaction; the
smoothness and the decay in time are known; where the larger model ends below the smaller one, it
is fitted again from there. Interrupted runs resume; processes share the work by
--every 0 2 and --every 1 2, and a run without it joins their files.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import geomxp as gx

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import resume

HERE = Path(__file__).parent
TRUTH = gx.Gneiting(1.0, 0.2, 2.0, 0.5, 0.6, 0.5, 0.3, 0.1)
SEPARABLE = TRUTH.replace(interaction=0.0, time_decay=1.0)
ABOUT = {"method": gx.Exact(), "trend": "zero", "progress": False, "raise_on_failure": False}


def field(truth, stations, times, seed):
    """Return a field that stations observe at the times 0, 1, 2 and so on."""
    places = np.random.default_rng([seed, 1]).random((stations, 2))
    locations = np.repeat(places, times, axis=0)
    when = np.tile(np.arange(float(times)), stations)
    values = gx.simulate(truth, locations, time=when, seed=seed, progress=False)[0]
    return gx.Observations(locations, values, time=when)


def estimates_row(replicate, stations):
    """Yield estimates and intervals of one field."""
    seen = field(TRUTH, stations, 10, replicate)
    held = {"time_decay": TRUTH.time_decay}
    fit = gx.fit(seen, family="gneiting", fixed=held, **ABOUT)
    known = gx.log_likelihood(seen, TRUTH, trend="zero").log_likelihood
    row = {
        "n": len(seen),
        "outcome": str(fit.outcome.ending),
        "evaluations": fit.evaluations,
        "gain": fit.log_likelihood - known,
    }
    intervals = fit.confidence_intervals()
    for name, value in fit.model.parameters().items():
        if name in held:
            continue
        row[name] = value
        lower, upper = intervals.get(name) or ("", "")
        row |= {f"{name}_lower": lower, f"{name}_upper": upper}
    yield row


def separability_row(replicate, stations):
    """Yield the test of no interaction for one separable field."""
    seen = field(SEPARABLE, stations, 10, 10_000 + replicate)
    known = {name: SEPARABLE.parameters()[name] for name in ("smoothness", "time_decay")}
    full = gx.fit(seen, family="gneiting", fixed=known, **ABOUT)
    separable = gx.fit(seen, family="gneiting", fixed=known | {"interaction": 0.0}, **ABOUT)
    if full.log_likelihood < separable.log_likelihood:
        # the search ended at a lower maximum
        start = {name: separable.model.parameters()[name] for name in full.free}
        start = {**start, "interaction": 0.05}
        full = gx.fit(seen, family="gneiting", fixed=known, start=start, **ABOUT)
    test = gx.likelihood_ratio_test(separable, full)
    yield {
        "n": len(seen),
        "statistic": test.statistic,
        "p_value": test.p_value,
        "interaction": full.model.interaction,
        "outcome": str(full.outcome.ending),
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
    for name in options.studies or STUDIES:
        count, stations, rows = STUDIES[name]
        count, stations = (2, 6) if options.tiny else (count, stations)
        cells = [{"replicate": k} for k in range(count)]

        def rows_of(replicate, rows=rows, stations=stations):
            return rows(replicate, stations)

        path = options.output / f"{name}.csv"
        resume(path, cells, rows_of, every=options.every, anew=options.anew)


if __name__ == "__main__":
    main()
