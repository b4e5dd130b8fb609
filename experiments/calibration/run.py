"""Sizes of tests at nominal 5 %, and coverage of 95 % intervals, simulated.

    python experiments/calibration/run.py [sizes | trend | vecchia | transform | summary]
        [--replicates 1000] [--seconds 3600] [--every PART OF] [--output DIR]

sizes: likelihood-ratio tests of smoothness, nugget, anisotropy and trend where the restricted model
is true. trend: t intervals of the trend's coefficients by ML and REML. vecchia: Wald intervals of
Vecchia's approximation and of the exact likelihood, with the smoothness held. transform: intervals
of all parameters of transformed fields, and of predictions. Each study appends
its replicates to results/<study>.csv, goes on where the last run stopped, and ends after
--replicates in each cell or --seconds. With --every, seeds PART + 1, PART + OF + 1, ... go to
<study>_PART.csv; summary joins the parts. summary.csv has the shares with simultaneous 99 % bands.
Replicate k has the seed k.
"""

import argparse
import csv
import os
import sys
import time
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import chi2

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import band, compared, warp_speed, write_rows

import geomxp as gx

HERE = Path(__file__).parent
NOMINAL, CONFIDENCE = 0.05, 0.99
MARK = "<!-- tables written by `run.py summary` -->\n"
SAVE = 60.0
"""Before and after the tables in README.md; seconds between two writings of a file."""

FIELDS = {"weak": gx.Matern(1.0, 0.05, 0.5, 0.25), "strong": gx.Matern(1.0, 0.2, 0.5, 0.1)}
SIZES = (60, 200)
HALF = {"fixed": {"smoothness": 0.5}}
BARE = {"fixed": {"smoothness": 0.5, "nugget": 0.0}}
TESTS = {
    "smoothness": (HALF, {}),
    "nugget": (BARE, HALF),
    "anisotropy": (HALF, HALF | {"anisotropy": True}),
    "trend": (HALF, HALF | {"trend": "x"}),
}
"""Options of the restricted and of the full fit."""

DEGREES = {"smoothness": 1, "nugget": 1, "anisotropy": 2, "trend": 1}
APART = 10**6
"""Added to the seed of a bootstrap draw: NumPy's generators of the seeds k and [k, 0] are the same,
so that a draw with the seed of its data would have their random numbers."""

EFFECTIVE, NEIGHBOURS, SMOOTHNESSES = 0.15, (10, 30), (0.5, 2.3)
TRANSFORMS = {
    "log": gx.Log(),
    "sqrt": gx.Sqrt(),
    "logit": gx.Logit(),
    "boxcox": gx.BoxCox(0.3),
    "tukey-gh": gx.TukeyGH(0.5, 0.1),
}
MEANS = {"sqrt": 5.0, "boxcox": 4.0}
"""Laws of the values, and means on the Gaussian scale that keep √y and 1 + λz positive."""

QUIET = {"progress": False, "raise_on_failure": False}


def field(truth, n, seed):
    """Return simulated observations at uniform locations of their own."""
    places = np.random.default_rng([n, seed]).random((n, 2))
    return gx.Observations(places, gx.simulate(truth, places, seed=seed)[0])


# One replicate of a cell: a list of rows


def sizes(cell, seed):
    """Return the statistic of a test, its p-values, and the statistic of one bootstrap draw."""
    test, n, strength = cell
    truth = FIELDS[strength]
    seen = field(truth.replace(nugget=0.0) if test == "nugget" else truth, n, seed)
    restricted, full = (gx.fit(seen, **options, **QUIET) for options in TESTS[test])
    smaller, larger, draw = compared(restricted, full, APART + seed)
    statistic = 2 * max(larger.log_likelihood - smaller.log_likelihood, 0.0)
    tail = float(chi2.sf(statistic, DEGREES[test])) if statistic > 0 else 1.0
    plain = 0.5 * tail if test == "nugget" and statistic > 0 else tail
    try:
        p_value, why = gx.likelihood_ratio_test(restricted, full).p_value, ""
    except gx.InvalidInput as error:
        p_value, why = None, str(error)
    return [
        {
            "restricted": str(restricted.outcome.ending),
            "full": str(full.outcome.ending),
            "statistic": statistic,
            "p_plain": plain,
            "p_value": p_value,
            "draw": draw,
            "why_not": why,
        }
    ]


def trend(cell, seed):
    """Return whether the intervals of a trend's coefficients hold 0, the truth."""
    method, n, strength = cell
    seen = field(FIELDS[strength], n, seed)
    fit = gx.fit(seen, **HALF, trend="x", reml=method == "reml", **QUIET)
    table = fit.coefficient_table()
    plain = np.abs(fit.coefficients) < 1.959964 * fit.coefficient_errors
    return [
        {
            "outcome": str(fit.outcome.ending),
            "coefficient": row.coefficient,
            "estimate": row.estimate,
            "standard_error": row.standard_error,
            "degrees_of_freedom": row.degrees_of_freedom,
            "covers": int(row.lower <= 0 <= row.upper),
            "covers_plain": int(inside),
        }
        for row, inside in zip(table.itertuples(), plain, strict=True)
    ]


def vecchia(cell, seed):
    """Return whether Wald intervals hold the truth, with sandwich and with plain information."""
    method, n, nu = cell
    unit = gx.Matern(1.0, 1.0, nu)
    truth = gx.Matern(1.0, EFFECTIVE / unit.effective_range(), nu, 0.1)
    how = gx.Exact() if method == "exact" else gx.Vecchia(int(method))
    began = time.perf_counter()
    held = {"smoothness": nu}
    fit = gx.fit(field(truth, n, seed), method=how, reml=True, fixed=held, **QUIET)
    seconds, rows = time.perf_counter() - began, []
    plain = np.zeros(0) if fit.information is None else np.diag(np.linalg.inv(fit.information))
    for name, value in truth.parameters().items():
        if name in held:
            continue
        row = {"outcome": str(fit.outcome.ending), "parameter": name, "estimate": None}
        row |= {"error": None, "covers": None, "covers_plain": None, "seconds": round(seconds, 2)}
        if fit.outcome.good and name in fit.free:
            estimate = fit.model.parameters()[name]
            lower, upper = fit.confidence_intervals(names=[name])[name]
            half = 1.959964 * np.sqrt(plain[fit.free.index(name)])
            row |= {"estimate": estimate, "error": fit.standard_errors[name] / estimate}
            row |= {"covers": int(lower <= value <= upper)}
            row |= {"covers_plain": int(abs(np.log(estimate / value)) <= half)}
        rows.append(row)
    return rows


def transform(cell, seed):
    """Return whether intervals of parameters and of back-transformed predictions hold the truth."""
    name, n, strength = cell
    law = TRANSFORMS[name]
    truth = replace(FIELDS[strength], transform=law)
    random = np.random.default_rng([n, seed])
    places, new = random.random((n, 2)), random.random((1, 2))
    z = (
        MEANS.get(name, 0.0)
        + gx.simulate(FIELDS[strength], np.vstack((places, new)), seed=seed, of="field")[0]
    )
    noisy = z + np.sqrt(truth.nugget) * random.standard_normal(n + 1)
    seen = gx.Observations(places, law.inverse(noisy[:n]))
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, transform=law, reml=True, **QUIET)
    rows, own = [], law.parameters()
    about = {"outcome": str(fit.outcome.ending)}
    for parameter, value in truth.parameters().items():
        row = about | {"quantity": parameter, "truth": value, "estimate": None}
        row |= {"covers": None, "covers_plain": None}
        if fit.outcome.good and parameter in fit.free:
            row |= {"estimate": fit.model.parameters()[parameter]}
            # with parameters of the transformation a profile of another one takes seconds
            better = "profile" if parameter in own or not own else "wald"
            for column, method in (("covers", better), ("covers_plain", "wald")):
                found = fit.confidence_intervals(names=[parameter], method=method)[parameter]
                row[column] = int(found[0] <= value <= found[1])
        if parameter != "smoothness":
            rows.append(row)
    if fit.outcome.good:
        prediction = gx.predict(fit, new)
        for of, value in (("field", z[n]), ("observation", noisy[n])):
            value = float(law.inverse(np.array([value]))[0])
            lower, upper = prediction.interval(0.95, of=of)
            row = about | {"quantity": f"predicted {of}", "truth": value}
            row |= {"estimate": float(prediction.median[0])}
            rows.append(
                row | dict.fromkeys(("covers", "covers_plain"), int(lower[0] <= value <= upper[0]))
            )
    return rows


STUDIES = {
    "sizes": (sizes, ("test", "n", "field"), list(product(TESTS, SIZES, FIELDS)), 1000),
    "trend": (trend, ("method", "n", "field"), list(product(("ml", "reml"), SIZES, FIELDS)), 1000),
    "vecchia": (
        *(vecchia, ("method", "n", "smoothness")),
        *(list(product(("exact", *map(str, NEIGHBOURS)), (900,), SMOOTHNESSES)), 500),
    ),
    "transform": (
        *(transform, ("transform", "n", "field")),
        *(list(product(TRANSFORMS, (200,), ("strong",))), 400),
    ),
}
TINY_CELLS = {
    "sizes": [(test, 30, "weak") for test in ("nugget", "trend")],
    "trend": [("ml", 40, "weak"), ("reml", 40, "weak")],
    "vecchia": [("exact", 60, 0.5), (str(NEIGHBOURS[0]), 60, 1.5)],
    "transform": [(name, 30, "strong") for name in ("log", "boxcox")],
}
"""Cells of --tiny, of fields with few values: whatever the functions above tell apart."""


def run(study, replicates, seconds, output, every=(0, 1)):
    """Add replicates of all cells in turn, until there are enough or the time is over."""
    replicate, names, cells, usual = STUDIES[study]
    part, of = every
    path = output / (f"{study}_{part}.csv" if of > 1 else f"{study}.csv")
    rows, began = read(path), time.monotonic()
    done = {(int(row["seed"]), *(row[name] for name in names)) for row in rows}
    saved = began
    for seed in range(1 + part, (replicates or usual) + 1, of):
        for cell in cells:
            if (seed, *map(str, cell)) in done:
                continue
            if time.monotonic() - began > seconds:
                write_rows(path, rows)
                return
            about = {"seed": seed, **dict(zip(names, cell, strict=True))}
            rows += [about | rounded(row) for row in replicate(cell, seed)]
            if time.monotonic() - saved > SAVE:
                write_rows(path, rows)
                saved = time.monotonic()
                print(study, seed, *cell, flush=True)
    write_rows(path, rows)


def rounded(row):
    """Return a row with six digits of each number."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}


def join(study, output):
    """Join the parts of a study, if there are any."""
    whole, parts = output / f"{study}.csv", sorted(output.glob(f"{study}_*.csv"))
    if parts:
        rows = [row for part in [whole, *parts] for row in read(part)]
        # a row may be in the whole and in a part
        rows = list({tuple(row.values()): row for row in rows}.values())
        rows.sort(key=lambda row: int(row["seed"]))
        text = parts[0].read_text()
        head = text[: text.index("\nseed,") + 1]
        with open(whole, "w", newline="") as file:
            file.write(head)
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        for part in parts:
            part.unlink()


def read(path):
    """Return the rows of a file, none if it does not exist."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


# The shares with their bands


def summary(output):
    """Write the shares of all cells and the bands that hold them all with 99 %."""
    rows = [*sizes_of(output), *coverage_of(output, "trend", "coefficient")]
    rows += coverage_of(output, "vecchia", "parameter")
    rows += coverage_of(output, "transform", "quantity")
    for row in rows:
        family = [r for r in rows if (r["study"], r["rule"]) == (row["study"], row["rule"])]
        low, high = band(row["hits"], row["replicates"], 1 - (1 - CONFIDENCE) / len(family))
        holds = low <= row["nominal"] <= high
        row |= {"lower": round(low, 4), "upper": round(high, 4), "holds": int(holds)}
    write_rows(output / "summary.csv", rows)
    print(f"{sum(row['holds'] for row in rows)} of {len(rows)} bands hold the nominal value")
    if output == HERE / "results":
        readme = HERE / "README.md"
        head, *_, tail = readme.read_text().split(MARK)
        inside = "\n".join(f"\n{markdown(table)}\n" for table in tables(rows))
        readme.write_text(MARK.join((head, f"{inside}\n", tail)))


def tables(rows):
    """Return the rows of each study."""
    groups = ([row for row in rows if row["study"] == study] for study in STUDIES)
    return [group for group in groups if group]


def markdown(rows):
    """Return the shares of a study as a table: a line for each cell, a column for each rule."""
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    names = ["cell", "n", "field"] + ["quantity"] * (rows[0]["study"] != "sizes")
    lines = [f"| {' | '.join([*names, 'replicates', *rules])} |"]
    lines.append("|" + "---|" * (len(names) + 1 + len(rules)))
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
        mine = [row for row in rows if tuple(row[name] for name in names) == key]
        cells = [*key, max(row["replicates"] for row in mine), *map(share, mine)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def share(row):
    """Return a share with its band; bold where the band excludes the nominal value."""
    text = f"{row['share']:.3f} ({row['lower']:.2f}-{row['upper']:.2f})"
    return text if row["holds"] else f"**{text}**"


def sizes_of(output):
    """Return the shares of rejections by asymptotic distributions and by the bootstrap."""
    rows, result = read(output / "sizes.csv"), []
    for cell in STUDIES["sizes"][2]:
        mine = [r for r in rows if (r["test"], r["n"], r["field"]) == tuple(map(str, cell))]
        if not mine:
            continue
        values, draws = (np.array([float(r[key]) for r in mine]) for key in ("statistic", "draw"))
        known = [float(r["p_value"]) for r in mine if r["p_value"]]
        hits = {"plain": np.array([float(r["p_plain"]) for r in mine]) <= NOMINAL}
        hits |= {
            "default": np.array(known) <= NOMINAL,
            "bootstrap": warp_speed(values, draws) <= NOMINAL,
        }
        for rule, hit in hits.items():
            if len(hit):
                result.append(line("sizes", cell, "size", rule, hit, NOMINAL))
    return result


def coverage_of(output, study, what):
    """Return the coverage of intervals, plain and by default."""
    _, names, cells, _ = STUDIES[study]
    rows, result = read(output / f"{study}.csv"), []
    for cell in cells:
        mine = [r for r in rows if tuple(r[name] for name in names) == tuple(map(str, cell))]
        for name in dict.fromkeys(r[what] for r in mine):
            for rule, key in (("plain", "covers_plain"), ("default", "covers")):
                hit = np.array([int(r[key]) for r in mine if r[what] == name and r[key] != ""])
                if len(hit):
                    result.append(line(study, cell, name, rule, hit, 1 - NOMINAL))
    return result


def line(study, cell, quantity, rule, hit, nominal):
    """Return one row of the summary."""
    first, n, second = cell
    about = {"study": study, "cell": first, "n": n, "field": second, "quantity": quantity}
    about |= {"rule": rule, "replicates": len(hit), "hits": int(hit.sum())}
    return about | {"share": round(float(hit.mean()), 4), "nominal": nominal}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="?", choices=(*STUDIES, "summary"))
    parser.add_argument("--replicates", type=int, help="in each cell; 1,000, of vecchia 500")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each study")
    parser.add_argument("--every", type=int, nargs=2, default=(0, 1), metavar=("PART", "OF"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--tiny", action="store_true", help="one replicate of a few cells, small")
    options = parser.parse_args()
    if options.tiny:
        options.replicates = 1
        for study, cells in TINY_CELLS.items():
            STUDIES[study][2][:] = cells
    os.nice(10)
    warnings.simplefilter("ignore", gx.GeomxpWarning)
    for study in STUDIES:
        if options.study in (None, study):
            run(study, options.replicates, options.seconds, options.output, options.every)
    if options.every[1] == 1:
        for study in STUDIES:
            join(study, options.output)
        summary(options.output)


if __name__ == "__main__":
    main()
