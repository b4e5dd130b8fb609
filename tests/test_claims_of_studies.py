"""Numbers in the READMEs of studies and in the documentation are those of the results."""

import csv
import re
from itertools import groupby
from math import ceil, floor, log, log10, sqrt
from statistics import mean, median, stdev

import pytest
from scipy.stats import binom, binomtest
from studies import ROOT, cells, column, digits, ends, missing, power, results, times_of_fast_roots

from geomxp.linalg.batched import SHIPPED_GPU_VARIANTS


def peers():
    rows = results("peers", "likelihood")
    for row in rows:
        matrix = 8 * int(row["n"]) ** 2
        lowest, highest = (row[f"cpu_seconds_{end}"] for end in ("lowest", "highest"))
        held, peak = (row[f"{what}_bytes"] for what in ("prepared", "peak"))
        memory = ""
        if peak:
            share = f"{float(held) / matrix:.2f}"
            memory = f"{'0' if share == '0.00' else share} + {float(peak) / matrix:.2f}"
        yield cells(
            row["method"].replace("geomxp", "**geomxp**"),
            row["smoothness"],
            digits(float(row["cpu_seconds"]), 3),
            f"{digits(float(lowest), 3)}–{digits(float(highest), 3)}",
            digits(float(row["wall_seconds"]), 3),
            "1" if row["method"] == "dpotrf" else digits(float(row["over_dpotrf"]), 3),
            memory,
        )
    largest = max(column(rows, "relative_difference"))
    yield f"all agreed to {digits(10 ** ceil(log10(largest)), 1)}"
    ours = column(results("peers", "likelihood", method="geomxp"), "over_dpotrf")
    yield f"geomxp takes {100 * min(ours) - 100:.0f}–{100 * max(ours) - 100:.0f} % longer"
    half, other = (
        results("peers", "likelihood", method="scipy", smoothness=nu) for nu in ("0.5", "0.8")
    )
    over = column(half, "over_dpotrf")
    yield f"({min(over):.2f}–{max(over):.2f} times the factorization"
    seconds = zip(column(half, "cpu_seconds"), column(other, "cpu_seconds"), strict=True)
    ratios = [slow / fast for fast, slow in seconds]
    yield f"SciPy takes {min(ratios):.0f} to {max(ratios):.0f} times as long as at ½"
    four, eight = results("peers", "likelihood", method="geomxp", smoothness="0.5")
    more = [float(row["peak_bytes"]) - 8 * int(row["n"]) ** 2 for row in (four, eight)]
    yield f"by {more[0] / 1e6:.0f} MB at n = 4,000 and by {more[1] / 1e6:.0f} MB at 8,000"
    (seconds,) = column(results("peers", "likelihood", method="openturns"), "cpu_seconds")
    yield f"Eight times its time at 4,000 is {8 * seconds:.0f} s, above the limit of 60 s"
    yield from whole_fits()


def whole_fits():
    names = {
        "geomxp": "**geomxp**",
        "scipy": "SciPy, analytic gradient, in place",
        "scipy-plain": "SciPy with numerical differences",
        "gpy": "GPy",
        "scikit-learn": "scikit-learn",
        "gpboost": "GPBoost",
        "gpytorch": "GPyTorch",
    }
    peaks = {}
    for n, smoothness in (("2000", "0.5"), ("2000", "free"), ("4000", "0.5")):
        rows = results("peers", "fits", n=n, smoothness=smoothness)
        ours = median(column([row for row in rows if row["method"] == "geomxp"], "cpu_seconds"))
        for method in dict.fromkeys(row["method"] for row in rows):
            mine = [row for row in rows if row["method"] == method]
            seconds, below = median(column(mine, "cpu_seconds")), max(column(mine, "below_best"))
            peak = median(column(mine, "peak_bytes")) / (8 * int(n) ** 2)
            peaks.setdefault(method, peak)
            first = method == "geomxp"
            nu = "ν free" if smoothness == "free" else "ν = ½"
            yield cells(
                f"{int(n):,}, {nu}" if first else "",
                names[method],
                digits(seconds, 3),
                "1" if first else f"{seconds / ours:.1f}",
                f"{peak:.1f}",
                digits(below, 1),
            )
    rows = results("peers", "fits", method="geomxp")
    counts = column(rows, "evaluations")
    assert (min(counts), max(counts)) == (4, 11)
    yield "geomxp evaluates ℓ four to eleven times"
    needs = [float(row["gradient_bytes"]) / (8 * int(row["n"]) ** 2) for row in rows]
    yield f"The likelihood with its gradient needs {median(needs):.1f} matrices"
    yield f"The peak of {peaks['geomxp']:.0f} matrices comes from the information"
    others = (peaks[name] / peaks["geomxp"] for name in ("scikit-learn", "gpy", "gpytorch"))
    learn, gpy, torch = (f"{ratio:.1f}" for ratio in others)
    yield f"scikit-learn, GPy and GPyTorch need {learn}, {gpy} and {torch} times as much"
    free = {
        method: column(
            results("peers", "fits", n="2000", smoothness="free", method=method), "cpu_seconds"
        )
        for method in ("geomxp", "gpboost")
    }
    first, second, third = (f"{seconds:.1f}" for seconds in free["geomxp"])
    yield f"geomxp took {first}, {second} and {third} s on the three fields"
    ratios = [slow / fast for fast, slow in zip(*free.values(), strict=True)]
    first, second, third = (f"{ratio:.0f}" for ratio in ratios)
    yield f"and GPBoost {first}, {second} and {third} times as long"


def cluster():
    tables = {name: results("cluster", name) for name in ("scaling", "faults", "vecchia")}
    assert all(row["same_bits"] == "True" for rows in tables.values() for row in rows)
    one, two, four = results("cluster", "scaling", study="strong")
    moved, formula = (float(two[f"bytes_{what}"]) / 1e6 for what in ("moved", "formula"))
    yield f"{moved:.2f} MB (by the formula {formula:.2f} MB)"
    shares = [
        f"{100 * share:.1f} %" for share in column(results("cluster", "overhead"), "overhead")
    ]
    yield f"{shares[0]} with tiles of 512 rows, {shares[1]} with 1,024, {shares[2]} with 2,048"
    seconds = [f"{float(row['seconds']):.1f} s" for row in (one, two, four)]
    yield f"{seconds[0]} with one worker, {seconds[1]} with two, {seconds[2]} with four sharing"
    yield f"{float(one['seconds_in_process']):.1f} s in a single process with one thread"
    times, (unharmed, *_) = (column(tables["faults"], s) for s in ("seconds", "seconds_unharmed"))
    yield f"{len(times)} of {len(times)} runs with two workers killed gave the correct result"
    yield f"after {median(times):.1f} s (median) and at most {max(times):.1f} s"
    yield f"instead of {unharmed:.1f} s"
    largest = tables["vecchia"][-1]
    assert largest["n"] == "10000000"
    yield f"maximin ordering {float(largest['seconds_order']):.0f} s in the client"
    yield f"first likelihood {float(largest['seconds_search_and_first']):.0f} s"
    yield f"then {float(largest['seconds_evaluation']):.1f} s per likelihood"
    yield f"and {float(largest['seconds_gradient_and_information']):.0f} s per gradient"
    yield f"at most {float(largest['worker_peak_gb']):.1f} GB in a worker"
    yield f"and {float(largest['client_peak_gb']):.1f} GB in the client"
    yield from simulated_clusters()


def simulated_clusters():
    rows = results("cluster", "simulation", study="validation")
    ratios = [float(row["measured_seconds"]) / float(row["seconds"]) for row in rows]
    yield f"The runs took {min(ratios):.2f} to {max(ratios):.2f} times the simulated seconds"
    alike = min(column(rows, "map_alike"))
    yield f"{100 * alike:.1f} % of the tiles get the format that their own norms give"
    savings = []
    for n, rule, link in (
        ("100000", "fp64", "25 Gbit/s"),
        ("100000", "fp64", "100 Gbit/s"),
        ("200000", "fp64", "25 Gbit/s"),
        ("200000", "fp64", "100 Gbit/s"),
        ("200000", "norm 1e-6", "25 Gbit/s"),
        ("200000", "norm 1e-6", "100 Gbit/s"),
    ):
        about = {"study": "prediction", "tile": "1024", "n": n, "rule": rule, "link": link}
        seconds = column(results("cluster", "simulation", **about), "seconds")
        formats = "FP64" if rule == "fp64" else f"by {rule}"
        yield cells(f"{int(n):,}, {formats}", link, *(f"{each:.0f}" for each in seconds))
        if link == "25 Gbit/s":
            savings.append(1 - min(seconds[3:]) / seconds[2])
    yield f"more than 16 nodes save at most {100 * max(savings):.0f} % of the time"


def vecchia():
    for n, label in (("1000000", "10⁶"), ("3000000", "3·10⁶")):
        (row,) = results("vecchia", "time", n=n, neighbours="30")
        names = ("evaluation", "gradient_and_information", "order_and_search")
        seconds = [f"{digits(float(row[f'seconds_{name}']), 2)} s" for name in names]
        yield cells(label, *seconds, f"{digits(float(row['resident_gb']), 2)} GB")
    for m, text in (("30", "with 30 neighbours (ν = 0.5, 0.8, 1.5)"), ("60", "with 60")):
        factors = []
        for model in ("rough", "nu = 0.8", "smooth"):
            maximin, coordinate = (
                float(row["kl"])
                for ordering in ("maximin", "by coordinate")
                for row in results(
                    "vecchia", "accuracy", model=model, ordering=ordering, neighbours=m
                )
            )
            factors.append(digits(coordinate / maximin, 2))
        yield f"of {factors[0]}, {factors[1]} and {factors[2]} {text}"
    yield from gpboost()
    yield from heaton()


def gpboost():
    def pair(n, task):
        return results("vecchia", "peers", n=n, task=task)

    ours, theirs = pair("100000", "value")
    seconds = [f"{digits(float(row['seconds']), 2)} s" for row in (ours, theirs)]
    likelihoods = column((ours, theirs), "log_likelihood")
    alike = floor(-log10(abs(likelihoods[0] / likelihoods[1] - 1)))
    yield cells("log-likelihood, 100,000 locations", *seconds, f"{alike} digits")
    ours, theirs = pair("100000", "fit")
    stopped = f"stopped after {float(theirs['seconds']):.0f} s"
    assert theirs["note"] == stopped
    mine = f"{digits(float(ours['seconds']), 2)} s, with standard errors"
    yield cells("whole fit with ν free, 100,000 locations", mine, stopped, "")
    fits = pair("2000", "fit")
    seconds = [f"{digits(float(row['seconds']), 2)} s" for row in fits]
    likelihoods = column(fits, "log_likelihood")
    alike = f"{digits(abs(likelihoods[0] - likelihoods[1]), 1)} in log-likelihood"
    yield cells("whole fit with ν free, 2,000 locations", *seconds, alike)


SCORES = ("mae", "rmse", "crps", "coverage")


def scores(row, places):
    """Return MAE, RMSE, CRPS and coverage of a row, rounded."""
    return [f"{float(row[name]):.{k}f}" for name, k in zip(SCORES, places, strict=True)]


def heaton():
    prefix = "geomxp Vecchia(30), "
    rows = {row["method"].removeprefix(prefix): row for row in results("vecchia", "heaton")}
    models = {
        row["method"].removeprefix(prefix): row
        for row in results("vecchia", "heaton", data="satellite", predicted_from="200")
    }
    linear, constant, best, free = (
        models[name]
        for name in (
            "exponential, linear trend, degrees",
            "exponential, constant, km",
            "exponential, anisotropic, constant",
            "nu free, linear trend, degrees",
        )
    )
    shown = (linear, constant, best, free)
    for row in shown:
        name = row["method"].removeprefix(prefix).replace("nu free", "smoothness free")
        yield cells(name, *scores(row, (2, 3, 3, 3)))
    others = [row for row in models.values() if row not in shown]
    assert len(others) == 2
    assert all(float(row["mae"]) > float(best["mae"]) for row in others)
    for name, row in rows.items():
        if row["data"] == "satellite" and name.endswith(" (published)"):
            yield cells(name.removesuffix(" (published)"), *scores(row, (2, 2, 2, 2)))
    again = rows["GpGp 0.5.1, m = 30 and 60 (rerun)"]
    name = "GpGp 0.5.1 (run again: exponential, linear trend, m = 30 and 60)"
    yield cells(name, *scores(again, (3, 3, 3, 3)))
    about = {"method": linear["method"], "predicted_from": "60"}
    a, b, c, d = scores(results("vecchia", "heaton", **about)[0], (3, 3, 3, 3))
    yield f"with 60 neighbours geomxp has {a}, {b}, {c} and {d}"
    gain = float(free["log_likelihood"]) - float(linear["log_likelihood"])
    yield f"a free smoothness ({float(free['smoothness']):.2f}, by {round(gain, -2):,.0f} units)"
    yield f"({float(best['angle']):.0f}° from east, ratio {float(best['ratio']):.2f})"
    about = {"data": "simulated", "predicted_from": "200"}
    ours = results("vecchia", "heaton", **about)[0]
    a, b, c, d = scores(ours, (3, 3, 3, 3))
    yield f"On the simulated data, MAE, RMSE and CRPS are {a}, {b} and {c}"
    published = rows["best published"]
    yield f"The best published values are {published['mae']} and {published['rmse']}"
    a, b, c, theirs = scores(rows["GpGp 0.5.1 (rerun)"], (3, 3, 3, 3))
    yield f"GpGp, run again, has {a}, {b} and {c} with a coverage of {theirs} (geomxp: {d})"


PARAMETERS = {"variance": 3, "range": 5, "smoothness": 4, "nugget": 4}
EXACT = "Exact, 4000 places"


def kaust():
    rows = results("kaust", "fields")
    fits = [row for row in rows if row["method"] != "true model"]
    assert {row["outcome"] for row in fits} == {"CONVERGED"}
    yield f"All {len(fits)} fits converged"
    for row in rows:
        truth, shown = row["method"] == "true model", []
        for name, places in PARAMETERS.items():
            error, value = row[f"error_{name}"], float(row[name])
            tiny = 0 < value < 0.5 * 10**-places
            number, *error = (
                digits(each, 2) if tiny else f"{each:.{places}f}"
                for each in (value, *([float(error)] if error else []))
            )
            shown.append(" ± ".join((number, *error)))
        method = "truth" if truth else row["method"].replace("4000 places", "4,000 locations")
        if method != "Vecchia(30)":
            yield cells(row["field"], method, *shown)
    near = [
        abs(float(row[name]) - float(row[f"true_{name}"])) / float(row[f"error_{name}"])
        for row in fits
        if row["true_nugget"] == "0.0" and row["method"] != EXACT
        for name in ("variance", "range", "smoothness")
    ]
    yield f"every estimate of `Vecchia` is within {max(near):.1f} standard errors of the truth"
    bare = [r for r in fits if r["true_nugget"] == "0.0" and r["method"] != EXACT]
    noise = [row for row in bare if row["nugget"] != "0.0"]
    assert {row["field"] for row in noise} == {"G6"}
    first, second = (digits(nugget, 2) for nugget in column(noise, "nugget"))
    yield f"is estimated as 0, but for G6, the smoothest, as {first} and {second}"
    noisy = [r for r in fits if r["true_nugget"] != "0.0" and r["method"] == "Vecchia(60)"]
    low, high = ends(column(noisy, "nugget"))
    yield f"`Vecchia(60)` estimates {low:.4f} to {high:.4f}"
    low, high = ends(column(noisy, "error_nugget"))
    yield f"with standard errors of {low:.4f} to {high:.4f}"
    _, second, third = (
        (float(row["nugget"]) - float(row["true_nugget"])) / float(row["error_nugget"])
        for row in noisy
    )
    yield f"for G10 and G13 they are {second:.1f} and {third:.1f} standard errors above 0.2647"
    yield from kaust_predictions(rows)


def kaust_predictions(rows):
    lines = (ROOT / "experiments" / "kaust" / "true_model.csv").read_text().splitlines()
    elsewhere = csv.DictReader(line for line in lines if not line.startswith("#"))
    elsewhere = {row["field"]: row for row in elsewhere}
    losses, exact = [], []
    for field, group in groupby(rows, key=lambda row: row["field"]):
        true, thirty, sixty, few = group
        other = elsewhere[field]
        mloe = [f"{float(row['mloe']):.1e}" for row in (thirty, sixty, few)]
        mmom = [f"{float(row['mmom']):.3f}" for row in (thirty, sixty, few)]
        yield cells(
            field,
            f"{float(other['rmse']):.5g} ({float(other['theoretical_rmse']):.5g})",
            *(f"{float(row['rmse']):.5g}" for row in (true, thirty, sixty, few)),
            f"{float(sixty['crps']):.4g}",
            ", ".join(f"{float(row['coverage']):.3f}" for row in (true, sixty, few)),
            ", ".join(mloe),
            ", ".join(mmom),
        )
        losses += [float(row["rmse"]) / float(true["rmse"]) - 1 for row in (thirty, sixty)]
        exact.append((float(few["rmse"]) / float(true["rmse"]) - 1, field))
        if field == "G1":
            for name in ("rmse", "mae", "crps", "coverage"):
                assert float(true[name]) == pytest.approx(float(other[name]), rel=1e-15)
    yield f"the RMSE differs by at most {100 * max(map(abs, losses)):.3f} %"
    *rest, second, worst = sorted(exact)
    assert all(loss < 1e-3 for loss, _ in rest)
    (one, first), (other, field) = worst, second
    yield f"({100 * one:.1f} % for {first}, {100 * other:.1f} % for {field}, below 0.1 % elsewhere)"
    few = [row for row in rows if row["method"] == EXACT]
    low, high = ends(column(few, "error_smoothness"))
    yield f"(± {low:.2f} to {high:.2f})"
    low, high = ends(map(abs, column(few, "mmom")))
    yield f"wrong by {100 * low:.0f} to {100 * high:.0f} %"
    low, high = ends(column(few, "coverage"))
    yield f"intervals cover {100 * low:.1f} to {100 * high:.1f} %"
    thirty, sixty, few = (
        f"{median(column([r for r in rows if r['method'] == method], 'seconds_fit')):.0f} s"
        for method in ("Vecchia(30)", "Vecchia(60)", EXACT)
    )
    yield f"{thirty} for `Vecchia(30)`, {sixty} for `Vecchia(60)`, {few} for `Exact()`"
    assert max(column(rows, "seconds_predict")) < 1


def kaust_likelihood():
    quantities = ("log_likelihood", "log_determinant", "quadratic_form")
    conditions, stored = [], []
    for row in results("kaust_likelihood", "likelihood"):
        differences = column([row], "difference_log_likelihood")
        shown = [digits(float(row[f"difference_{name}"]), 2) for name in quantities]
        condition, tools = row["condition_number"], row["difference_between_tools"]
        if condition:
            yield cells(f"κ = {digits(float(condition), 2)})", row["n"], *shown, "")[2:]
            conditions.append(abs(float(condition) / float(row["reference_condition_number"]) - 1))
        elif row["coordinates"] == "as stored" and row["nugget"] != "0.0":
            stored += differences
        else:
            rounded = row["coordinates"] == "6 decimals"
            field = f"{row['field']}{', coordinates to 6 decimals' if rounded else ''}"
            yield cells(field, "10,000", *shown, digits(float(tools), 2) if tools else "")
    first, second = (digits(each, 1) for each in conditions)
    yield f"agree with their references to {first} and {second}"
    low, high = ends(stored)
    yield f"log-likelihoods differ by {digits(low, 1)} to {digits(high, 1)}"


def refinement():
    rows = results("refinement", "kriging")
    (failed,) = (row for row in rows if row["message"])
    done = [row for row in rows if not row["message"]]
    worst = [
        max(done, key=lambda row: float(row[f"{what}_error"])) for what in ("mean", "variance")
    ]
    assert {(row["correlation"], row["smoothness"]) for row in worst} == {("strong", "1.5")}
    mean, variance = worst[0]["mean_error"], worst[1]["variance_error"]
    yield f"by at most {short(mean, 1)}, relatively, and variances by at most {short(variance, 1)}"
    assert (failed["correlation"], failed["smoothness"], failed["method"]) == (
        "medium",
        "1.5",
        "ir",
    )
    residual = failed["message"].partition("residual ")[2].partition(":")[0].replace("e-0", "e-")
    beside = {
        r["iterations"] for r in done if r["correlation"] == "medium" and r["smoothness"] == "1.5"
    }
    (iterations,) = beside
    yield f"One of {len(rows)} rows of kriging.csv has no result"
    yield f"stalls at a residual of {residual}; CG and GMRES converge there in {iterations}"
    rows = results("refinement", "log_determinant")
    hard = ("medium", "1.5")

    def of(rule, easy):
        found = [
            row
            for row in rows
            if row["rule"] == rule and easy != ((row["correlation"], row["smoothness"]) == hard)
        ]
        return [abs(error) for error in column(found, "error")], column(found, "over_fp64")

    errors, times = of("by_tile_norm(1e-08)", True)
    (least, most), (low, high) = ends(errors), ends(times)
    error = f"{digits(least, 1)} to {digits(most, 1)}"
    yield f"`by_tile_norm(1e-8)` gives {error} in {low:.2f} to {high:.2f} of the time"
    (error,), (time,) = of("for_divergence(1e-06)", False)
    assert error < 1e-6
    yield f"`for_divergence(1e-6)` gives {digits(error, 1)} in {time:.2f} of the time"
    (error,), (time,) = of("by_tile_norm(1e-09)", False)
    yield f"and `by_tile_norm(1e-9)` {digits(error, 1)} in {time:.2f}"
    fp32 = [of("fp32", easy) for easy in (True, False)]
    (low, high), (least, most) = (
        ends([value for pair in fp32 for value in pair[k]]) for k in (1, 0)
    )
    error = f"{digits(least, 1)} to {digits(most, 1)}"
    yield f"takes {low:.2f} to {high:.2f} of the time, with errors of {error}"


def recovery():
    for row in results("recovery", "summary"):
        numbers = {name: float(row[name]) for name in row if name != "parameter"}
        mean = f"{numbers['mean']:.4f}"
        if row["parameter"] == "smoothness":
            mean += f" (median {numbers['median']:.3f})"
        errors = ("error_of_mean", "spread", "spread_by_inverse_fisher")
        shown = [f"{numbers[name]:.4f}" for name in errors]
        size, truth = f"{int(row['n']):,}", f"{numbers['truth']:g}"
        yield cells(size, row["parameter"], truth, mean, *shown)
    rows = results("recovery", "estimates")
    assert {row["outcome"] for row in rows} == {"CONVERGED"}
    yield f"All {len(rows)} fits converged"
    small = column(results("recovery", "estimates", n="400"), "smoothness")
    yield f"the largest estimate is {max(small):.0f}"


def batched():
    orders = ("5", "8", "12", "16", "24", "32", "48", "64", "100")
    for label, what in (
        ("interleaved, in place", "interleaved"),
        ("canonical, in place", "in place"),
        ("canonical, new result", "potrf"),
        ("MKL compact, faster format", "mkl compact"),
    ):
        rows = results("batched", "size", dtype="float64")
        rows = [row for row in rows if row["what"].startswith(f"{what}, ")]
        speed = (max(column([r for r in rows if r["n"] == n], "speedup")) for n in orders)
        yield cells(label, *(f"{each:.1f}" for each in speed))
    yield from solutions()
    yield from batched_findings()


def solutions():
    def of(layout, part, dtype="float64"):
        rows = results("batched", "solve", layout=layout, part=part, dtype=dtype)
        return {int(row["n"]): row for row in rows}

    orders = (5, 8, 16, 32, 64, 100)
    parts = ("factorization", "forward", "backward", "complete")
    factor, forward, backward, complete = (of("interleaved", part) for part in parts)
    for label, rows in (
        ("factorization", factor),
        ("forward substitution", forward),
        ("complete solution", complete),
    ):
        shown = [
            f"{float(rows[n]['gflops']):.1f} ({100 * float(rows[n]['ceiling']):.0f} %)"
            for n in orders
        ]
        yield cells(f"{label}, GFLOP/s (share of the ceiling)", *shown)
    for layout in ("interleaved", "canonical"):
        one, other = (of(layout, part) for part in ("forward", "backward"))
        shares = {n: 100 * (float(one[n]["share"]) + float(other[n]["share"])) for n in one}
        low, high = ends(shares.values())
        if layout == "interleaved":
            shown = [f"{shares[n]:.0f} %" for n in orders]
            yield cells("separate substitutions, share of the time", *shown)
            yield f"Here they take {low:.0f} to {high:.0f} % on interleaved batches"
        else:
            yield f"and {low:.0f} to {high:.0f} % on canonical ones (FP64)"
    ratios = [float(complete[n]["seconds"]) / float(factor[n]["seconds"]) for n in orders]
    shown = [f"{ratio:.2f}" for ratio in ratios]
    yield cells("complete solution, time over factorization alone", *shown)
    large = [row for rows in (forward, backward) for n, row in rows.items() if n >= 20]
    low, high = ends(column(large, "ceiling"))
    yield f"{low:.2f} to {high:.2f} of the memory ceiling from order 20 on in FP64"
    for dtype in ("float64", "float32"):
        limits = {n: row["limit"] for n, row in of("interleaved", "factorization", dtype).items()}
        assert min(n for n, limit in limits.items() if limit == "products") == 40
    yield "order 40 in FP64 and FP32"
    yield f"Here the factorization reaches {100 * float(factor[64]['ceiling']):.0f} % of the peak"
    low, high = ends(float(rows[64]["ceiling"]) for rows in (forward, backward))
    span = f"{100 * low:.0f} to {100 * high:.0f} %"
    yield f"and the substitutions {span} of the bandwidth (order 64, FP64)"
    shares = {
        dtype: {
            n: 100 * float(row["share"]) for n, row in of("interleaved", "complete", dtype).items()
        }
        for dtype in ("float64", "float32")
    }
    (low, high), (least, most) = (
        ends(share for n, share in each.items() if n >= 8) for each in shares.values()
    )
    yield f"In FP64 it takes {low:.0f} to {high:.0f} % of the time of the three separate calls"
    yield f"(FP32: {least:.0f} to {most:.0f} %), and {shares['float64'][5]:.0f} % at order 5"


def batched_findings():
    rows = results("batched", "variants", dtype="float64")

    def fastest(n, **wanted):
        return max(
            float(row["gflops"])
            for row in rows
            if row["n"] == str(n) and all(row[name] in values for name, values in wanted.items())
        )

    chunks = ("8", "16", "32", "64", "128", "256", "512")
    loops = {"unroll": ("False",), "chunk": chunks}
    *some, last = (f"{fastest(64, tile=(tile,)):.1f}" for tile in ("1", "2", "3", "4", "6", "8"))
    yield f"tiles of 1, 2, 3, 4, 6 and 8 reach {', '.join(some)} and {last} GFLOP/s"
    for n in (16, 20, 24, 32, 48, 64, 100):
        others = fastest(n, tile=("1", "2", "3", "6", "8"), **loops)
        assert fastest(n, tile=("4",), **loops) > others
    right, top, left = (f"{fastest(64, looking=(name,)):.1f}" for name in ("right", "top", "left"))
    yield f"right-, top- and left-looking loops reach {right}, {top} and {left} GFLOP/s"
    *some, last = (f"{fastest(64, chunk=(chunk,)):.1f}" for chunk in chunks)
    yield f"chunks of 8, 16, 32, 64, 128, 256 and 512 matrices reach {', '.join(some)} and {last}"
    yield f"and the layout without chunks {fastest(64, chunk=('batch',)):.1f}"
    with_8, without = (fastest(16, unroll=("False",), chunk=(chunk,)) for chunk in ("8", "batch"))
    yield f"the loops reach {with_8:.1f} with chunks of 8 and {without:.1f} without"
    unrolled, looped = (
        [f"{fastest(n, tile=('4',), unroll=(value,), chunk=chunks):.1f}" for n in (16, 24)]
        for value in ("True", "False")
    )
    yield f"On chunks the fastest unrolled variant reaches {unrolled[0]} GFLOP/s at order 16"
    yield f"loops of tile 4 {looped[0]}; at order 24 {unrolled[1]} and {looped[1]}"
    winners = results("batched", "search", winner="True")
    small = [row for row in winners if int(row["n"]) <= 24]
    assert {row["unroll"] for row in small} == {"True"}
    spans = []
    for layout in ("interleaved", "canonical"):
        low, high = ends(column([r for r in small if r["layout"] == layout], "speedup"))
        spans.append(f"{low:.2f} to {high:.2f}")
    yield f"{spans[0]} times as fast as the untuned variant on interleaved batches, {spans[1]} on"
    (better,) = (r for r in winners if int(r["n"]) > 24 and float(r["speedup"]) > 1)
    found = [better[name] for name in ("n", "dtype", "layout", "chunk")]
    assert found == ["48", "float32", "canonical", "2"]
    yield f"chunks of two registers are {100 * float(better['speedup']) - 100:.0f} % faster"
    about = {"n": "32", "dtype": "float64", "layout": "interleaved", "part": "factorization"}
    one, two, three = (f"{g:.1f}" for g in column(results("batched", "batch", **about), "gflops"))
    yield f"reach {one}, {two} and {three} GFLOP/s with 1,000, 10,000 and 16,384 matrices"


def intervals():
    found = {
        (table, row["method"], row["parameter"]): row
        for table in ("coverage", "coverage_reml")
        for row in results("intervals", table)
    }
    ways = [(t, method) for t in ("coverage", "coverage_reml") for method in ("wald", "profile")]
    for name in PARAMETERS:
        shown = (f"{float(found[(*way, name)]['coverage']):.3f}" for way in ways)
        yield cells(name, *shown)

    def off(table):
        rows = {name: found[table, "profile", name] for name in PARAMETERS}
        return {n: float(r["binomial_standard_errors_from_95"]) for n, r in rows.items()}

    furthest = max(map(abs, off("coverage_reml").values()))
    yield f"Profile intervals are within {furthest:.1f} binomial standard errors of 95 %"
    by_ml = off("coverage")
    low = -by_ml.pop("range")
    furthest = max(map(abs, by_ml.values()))
    yield f"within {furthest:.1f} binomial standard errors, except for the range ({low:.1f} below)"
    row = found["coverage", "profile", "range"]
    above, below = (round(500 * float(row[f"truth_{side}"])) for side in ("above", "below"))
    yield f"Of the {above + below} intervals that miss the true range, {above} lie below it"
    row = found["coverage", "wald", "variance"]
    known = int(row["with_interval"])
    zero = known - int(found["coverage", "wald", "nugget"]["with_interval"])
    unbounded = f"{500 - known} fields, whose profile intervals are open"
    yield f"as 0 ({zero} of 500 fields by ML) or the fit has no finite maximum ({unbounded})"
    yield f"One binomial standard error is {sqrt(0.95 * 0.05 / 500):.4f}"
    misses, above = (
        round(known * share) for share in (1 - float(row["coverage"]), float(row["truth_above"]))
    )
    yield f"{above} of {misses} misses of the variance lie below the truth"
    opened = {}
    for name in ("range", "nugget"):
        shares = [100 * float(found[t, "profile", name]["open_ended"]) for t, _ in ways[::2]]
        opened[name] = "{:.0f} to {:.0f} %".format(*shares)
    yield f"In {opened['range']} of these fields the interval of the range is open"
    yield f"in {opened['nugget']} that of the nugget begins at 0"
    ml, reml = (
        f"{float(row['mean']):.4f} ± {float(row['monte_carlo_error']):.4f}"
        for row in results("intervals", "reml")
    )
    yield f"is {ml} by ML, where theory gives (n - 3)/n = 0.95, and {reml} by REML"


def covariance():
    rows = results("covariance", "errors")
    absolute, relative = (digits(max(column(rows, n)), 2) for n in ("absolute", "relative"))
    yield f"absolute at most {absolute}, relative at most {relative} where it exceeds 1e-13"
    slopes = max(column(rows, "slope") + column(rows, "by_smoothness"))
    yield f"derivatives by range and smoothness: at most {digits(slopes, 2)}"
    double, single = (
        results("covariance", "rates", what=f"table, {form}", smoothness="0.8")[0]
        for form in ("fp64", "fp32")
    )
    rates = [
        (f"{float(row['million_per_second']):.0f} million", f"{float(row['times_scipy_kv']):.0f}")
        for row in (double, single)
    ]
    yield f"smoothness 0.8: {rates[0][0]} in FP64 ({rates[0][1]} times SciPy's K_ν)"
    yield f"{rates[1][0]} in FP32 ({rates[1][1]} times)"
    for table, name, places, what in (
        ("likelihood", "times_dpotrf", 3, {"what": "log-likelihood"}),
        ("memory", "times_matrix", 2, {}),
    ):
        four, eight = (
            f"{float(results('covariance', table, n=n, **what)[0][name]):.{places}f}"
            for n in ("4000", "8000")
        )
        yield f"{four} times at n = 4,000, {eight} times at n = 8,000"
    (row,) = results("covariance", "table")
    yield f"{1000 * float(row['seconds']):.1f} ms"


def h200():
    def recursion(what, n, layers, matrix="uniform + n I", leaf="default"):
        (row,) = results(
            *("h200", "e_recursions"),
            **dict(what=what, n=str(n), layers=layers, matrix=matrix, leaf=leaf),
        )
        return row

    deep, three = "fp16 fp16 fp16 fp16 fp16 fp32", "fp16 fp16 fp16 fp32"
    row = recursion("potrf", 65536, deep)
    yield f"({float(row['seconds']):.3f} s before)"
    yield from h200_large(deep)
    found = [
        f"{float(recursion('syrk', 65536, one)['times_vendor']):{form}}"
        for one, form in (("fp64", ".2f"), (three, ".1f"), (deep, ".1f"))
    ]
    yield "FP64 {} times, three FP16 layers {}, five {}".format(*found)
    yield f"at 32,768: {float(recursion('trsm', 32768, deep)['times_vendor']):.2f} times"
    both = [float(recursion(one, 32768, "fp64")["times_vendor"]) for one in ("trsm", "trmm")]
    yield "square, 32,768: {:.2f} and {:.2f} times".format(*both)
    profiles = {row["operation"]: row for row in results("h200", "profiles")}
    best = profiles["by norm, weak, 1e-5, n = 65536, tile 4096"]
    yield f"At n = 65,536 they take {float(best['seconds']):.3f} s"
    rates = {
        form: max(
            column(
                results("h200", "d_generation", what="correlation", format=form), "entries_per_s"
            )
        )
        for form in ("fp64", "fp32", "fp16", "fp8")
    }
    yield f"{rates.pop('fp64') / 1e9:.0f} · 10⁹ in FP64"
    yield f"up to {max(rates.values()) / 1e9:.0f} · 10⁹ in FP32, FP16 and FP8"
    brief = {row["n"]: row for row in results("h200", "routines", format="fp32")}
    small, four = (1e3 * float(brief[n]["seconds_potrf"]) for n in ("1024", "4096"))
    yield f"potrf takes {small:.2f} ms at order 1,024 and {four:.2f} ms at 4,096"
    by_norm = results("h200", "f_by_norm", n="32768", tile="4096")
    whole, weak = (float(row["seconds"]) for row in by_norm[:2])
    yield f"they take {1e3 * weak:.0f} ms, FP64 tiles {1e3 * whole:.0f} ms"
    assert {row["entries_unlike_the_cpu"] for row in results("h200", "d_generation")} == {"0"}
    refined = results("h200", "h_refinement", n="8192")
    yield f"at most {max(column(refined, 'times_fp64')):.2f} times at n = 8,192"
    steps = [
        float(row["seconds_iterate"]) / float(row["iterations"])
        for row in refined
        if row["iterations"]
    ]
    assert 7e-3 < min(steps) <= max(steps) < 12e-3
    batches = [row for row in results("h200", "i_batches") if row["what"].startswith("potrf, ")]
    low, high = ends(column(batches, "speedup"))
    yield f"orders 5 to 12: {low:.1f} to {high:.1f} times"
    tests = [row for row in results("h200", "c_tests") if not row["test"]]
    passed, failed, skipped = (
        sum(int(r[k]) for r in tests) for k in ("passed", "failed", "skipped")
    )
    yield f"{passed:,} passed, {failed} failed and {skipped} were skipped"
    for n in (8192, 16384, 32768, 65536):
        kinds = ("fp64", "fp32", "bf16 bf16 bf16 fp32", deep)
        shown = [f"{float(recursion('potrf', n, one)['times_vendor']):.2f}" for one in kinds]
        (base,) = results(
            *("h200", "e_recursions"),
            **dict(what="potrf", n=str(n), layers="vendor", matrix="uniform + n I"),
        )
        seconds = digits(1e3 * float(base["seconds"]), 2 if n == 8192 else 3)
        seconds = f"{1e3 * float(base['seconds']):,.0f}" if n == 65536 else seconds
        row = recursion("potrf", n, deep)
        yield cells(f"{n:,}", f"{seconds} ms", *shown, f"{float(row['digits']):.1f}")
    for row in results("h200", "a_ceilings", n="16384", what="C + AB'"):
        rate = float(row["tflops"])
        yield f"{row['format'].upper()} {f'{rate:,.0f}' if rate > 100 else digits(rate, 3)}"
    small, large = (
        profiles["potrf, n = 8192, fp16 x5 fp32"],
        profiles["potrf, n = 65536, fp16 x5 fp32"],
    )
    yield f"{small['launches']} launches and {1e3 * float(small['seconds']):.1f} ms at n = 8,192"
    yield f"{1e3 * float(large['seconds_busy']):.0f} of {1e3 * float(large['seconds']):.0f} ms"
    for tile in (2048, 4096):
        row = profiles[f"by norm, weak, 1e-5, n = 65536, tile {tile}"]
        seconds = digits(float(row["seconds"]), 3)
        yield f"({seconds} s, busy for {float(row['seconds_busy']):.3f} s)"
    likelihoods = column(results("h200", "j_exact", what="log-likelihood"), "seconds")
    yield (
        "{:.1f} ms in FP64 as one array, {:.1f} ms in FP64 tiles, {:.1f} ms by norm".format(
            *(1e3 * seconds for seconds in likelihoods)
        )
    )
    million = results("h200", "k_vecchia", n="1000000")
    cpu, gpu = (
        [1e3 * float(r[f"seconds_{k}"]) for k in ("evaluation", "gradient_and_information")]
        for r in million
    )
    yield "{:.1f} ms for an evaluation and {:.1f} ms with gradient".format(*gpu)
    yield "{:.0f} ms and {:.0f} ms".format(*cpu)


def h200_large(deep):
    """What the second session measured."""

    def one(name, **values):
        (row,) = results("h200", name, **values)
        return row

    def seconds(row):
        return float(row["seconds"])

    row = one("e_recursions_large", what="potrf", matrix="uniform + n I", layers=deep)
    yield f"five FP16 layers took {seconds(row):.3f} s"
    row = one("e_recursions_large", what="potrf", matrix="medium", layers=deep)
    yield f"with medium correlation {seconds(row):.3f} s, {float(row['times_vendor']):.2f} times"
    ours, theirs, same = (
        one("e_recursions_large", what="trsm", layers=x) for x in (deep, "vendor", "fp64")
    )
    yield f"{float(ours['times_vendor']):.2f} times; at 32,768:"
    yield f"{seconds(ours):.3f} s, cuBLAS {seconds(theirs):.2f} s"
    yield f"and in FP64 {seconds(same):.2f} s"
    tests = results("h200", "c_tests_again")
    passed, failed, skipped = (sum(int(r[k]) for r in tests) for k in list(tests[0])[2:])
    assert failed == 0
    yield f"{passed:,} passed, none failed and {skipped} were skipped"
    weak = results("h200", "f_by_norm_large", correlation="weak", tile="4096")
    assert len(weak) == 2
    whole, tiles, *mixed = (seconds(row) for row in results("h200", "j_exact_large"))
    yield (
        f"{whole:.2f} s as one array, {tiles:.2f} s in FP64 tiles, and by norm {mixed[0]:.2f} s "
        f"with ε = 1e-5, {mixed[1]:.2f} s with 1e-6 and {mixed[2]:.2f} s with 1e-8"
    )
    fits = [seconds(row) for row in results("h200", "fits")]
    yield f"{fits[0]} s as one array and {fits[1]} s in tiles, and {fits[2]} s as one array"
    solved = results("h200", "h_refinement_large")
    assert all(3.3 < float(row["times_fp64"]) < 3.5 for row in solved if row["solver"][-2:] == "ir")
    (row,) = results("h200", "k_vecchia_large")
    evaluation, gradient, order = (
        float(row[f"seconds_{k}"])
        for k in ("evaluation", "gradient_and_information", "order_and_search")
    )
    yield f"{evaluation:.3f} s; with gradient and information {gradient:.3f} s"
    yield f"{1e3 * evaluation:.0f} ms and {1e3 * gradient:.0f} ms"
    yield f"and order and neighbours {order:.0f} s"
    steps = {row["phase"]: row for row in results("h200", "l_satellite")}
    top, way = steps["FP64, the top"], steps["mixed, 1e-06, the way"]
    yield f"{float(top['seconds_since_start']):.0f} s, standard errors included"
    yield f"{seconds(way):.1f} s, and four in FP64 {seconds(top):.1f} s"
    yield f"the start {seconds(steps['Vecchia, the start']):.1f} s"
    held = steps["predicted from all"]
    yield f"from all observations take {float(held['seconds_predict']):.0f} s"
    gain = float(top["log_likelihood"]) - float(steps["Vecchia, the start"]["log_likelihood"])
    assert gain > 0
    yield cells(
        "geomxp, exact, exponential, linear trend",
        *(f"{float(held[k]):.3f}" for k in ("mae", "rmse", "crps", "coverage")),
    )
    stored = results("h200", "g_out_of_core")
    assert {r["same_bits_as_in_core"] for r in stored if r["policy"]} == {"True"}


def h200_third():
    """What the third session measured."""
    whole, single, medium, stored = (
        row for row in results("h200", "e_recursions_third") if row["layers"] != "vendor"
    )
    vendor = results("h200", "e_recursions_third", layers="vendor")[0]
    yield (
        f"{float(whole['times_vendor']):.2f} times in {float(whole['seconds']):.3f} s, "
        f"{float(whole['digits']):.1f} digits"
    )
    yield f"in the same run ({float(vendor['seconds']):.2f} s)"
    yield (
        f"with medium correlation {float(medium['seconds']):.3f} s, "
        f"{float(medium['times_vendor']):.2f} times, with {float(medium['digits']):.1f} digits"
    )
    assert {single["array"], stored["array"]} == {"fp32"}
    yield f"take {float(single['seconds']):.3f} s and {float(stored['seconds']):.3f} s."
    solved = [r for r in results("h200", "h_refinement_third") if r["solver"].endswith(", ir")]
    yield "{:.3f} s for weak and medium".format(*{round(float(r["seconds"]), 3) for r in solved})
    yield "{:.1f} and {:.1f} times as fast".format(*(float(r["times_fp64"]) for r in solved))
    fp64, _, coarse, fine = results("h200", "j_exact_third")
    yield f"ε = 1e-5: {float(coarse['seconds']):.2f} s, FP64 {float(fp64['seconds']):.2f} s"
    yield f"{float(coarse['seconds']):.2f} s with ε = 1e-5 (1.17 s before)"
    yield f"{float(fine['seconds']):.2f} s with 1e-6 (1.52 s)"
    yield f"by {float(coarse['from_fp64']):.3f} with ε = 1e-5 and {float(fine['from_fp64']):.3f}"
    core, beside = results("h200", "g_out_of_core_third")
    yield f"{float(beside['seconds']):.2f} s, {100 * float(beside['of_in_core_rate']):.0f} % of the"
    yield f"rate in core ({float(core['seconds']):.2f} s), with the same bits"
    assert beside["same_bits_as_in_core"] == "True"
    yield f"takes {float(beside['seconds_first']):.0f} s"
    batches = results("h200", "i_batches_third", what="potrf, untuned")
    (ratio,) = {f"{float(r['speedup']):.1f}" for r in batches}
    yield f"{ratio} times `potrfBatched`, copies included"
    for products, columns in (
        ("fp32", ""),
        *(("fp32 in planes", c) for c in ("256", "1024", "4096")),
    ):
        about = {"order": "4096", "products": products, "columns": columns}
        found = {row["matrices"]: row for row in results("h200", "planes", **about)}
        factor, positive = found["blocks of a Matérn factor"], found["positive"]
        milliseconds = 1e3 * float(factor["seconds"])
        yield f"| {short(factor['error'])} | {short(positive['error'])} | {milliseconds:.2f} ms |"
    profiles = results("h200", "profiles_third")
    for start in ("potrf, n = 65536, fp16", "by norm, medium", "by norm, weak"):
        first, *_, last = (row for row in profiles if row["operation"].startswith(start))
        for row in (first, last):
            yield (
                f"{int(row['launches']):,}, {float(row['seconds']):.3f} s, "
                f"{float(row['seconds_busy']):.3f} s"
            )
    weak = [row for row in profiles if row["operation"].startswith("by norm, weak")]
    again = results("h200", "by_norm_planes", commit=weak[-1]["commit"], correlation="weak")
    (slow,) = (r for r in again if (r["columns"], r["leaf"]) == ("1024", "4096"))
    yield f"took {float(slow['seconds']):.3f} s in the third session"


def h200_fourth():
    """What the fourth session measured."""
    rows = results("h200", "i_batches_fourth")
    found = {
        (row["what"].split(",")[0], row["n"], row["dtype"]): row
        for row in rows
        if not row["what"].startswith(("search", "potrf, untuned"))
    }
    gains, alone = [], []
    for n in ("5", "8", "12", "16", "24", "32", "48", "64"):
        shown = [n]
        for dtype in ("float64", "float32"):
            ours, kernel, vendor = (
                found[what, n, dtype] for what in ("potrf", "kernel alone", "potrfBatched alone")
            )
            gains.append(float(ours["speedup"]))
            alone.append(float(vendor["seconds"]) / float(kernel["seconds"]))
            milliseconds = f"{1e3 * float(ours['seconds']):.3f} ms"
            shown += [milliseconds, f"{gains[-1]:.1f}", f"{alone[-1]:.1f}"]
        yield cells(*shown)
    (low, high), (least, most) = ends(gains), ends(alone)
    yield f"{low:.1f} to {high:.1f} times at orders 5 to 64, copies included; kernels alone"
    yield f"kernels alone {least:.1f} to {most:.1f} times"
    search = [row for row in rows if row["what"] == "search, canonical"]
    seconds = {(row["n"], row["dtype"], row["variant"]): float(row["seconds"]) for row in search}
    threads = [s for (n, _, v), s in seconds.items() if v == "left 4 x1" and int(n) <= 32]
    low, high = ends(1e3 * s for s in threads)
    yield f"up to order 32, took {low:.1f} to {high:.1f} ms"
    fastest = {
        key: min((s, v) for (*k, v), s in seconds.items() if k == [*key])[1]
        for key in {(n, dtype) for n, dtype, _ in seconds}
    }
    for (n, dtype), variant in fastest.items():
        in_rows = variant.startswith("block")
        assert in_rows == ((n, dtype) != ("64", "float64")), (n, dtype, variant)
    whole = {(row["n"], row["dtype"]): row for row in rows if row["what"] == "potrf, untuned"}
    for n in ("24", "32"):
        shared, chosen = (
            1e3 * float(row["seconds"])
            for row in (whole[n, "float64"], found["potrf", n, "float64"])
        )
        yield f"{shared:.3f} instead of {chosen:.3f} ms"
    small = [row for (n, _), row in whole.items() if int(n) <= 16]
    low, high = ends(1e3 * each for each in column(small, "seconds"))
    least, most = ends(column(small, "speedup"))
    yield f"{low:.3f} to {high:.3f} ms and was {least:.1f} to {most:.1f} times as fast"
    for (n, dtype), variant in fastest.items():
        shipped = next(v for m, v in SHIPPED_GPU_VARIANTS["canonical"] if int(n) <= m).title
        if (n, dtype, shipped) in seconds:
            assert seconds[n, dtype, shipped] < 4 / 3 * seconds[n, dtype, variant]
    low, high = ends(times_of_fast_roots(rows))
    yield f"{low:.2f} to {high:.2f} times as long"
    solved = results("h200", "h_refinement_fourth")
    best = {
        (row["n"], row["matrix"]): float(row["times_fp64"])
        for row in solved
        if row["solver"] == "fp16 fp16 fp16 fp32, ir"
    }
    weak, medium = best["65536", "Matérn weak"], best["65536", "Matérn medium"]
    yield f"{weak:.1f} times as fast as FP64 at n = 65,536 with weak correlation"
    yield f"weak correlation and {medium:.1f} with medium;"
    (smaller,) = {f"{gain:.1f}" for (n, _), gain in best.items() if n == "32768"}
    yield f"{smaller} times for both"
    tiled = [r for r in solved if "refine.solve, fp" in r["solver"] and r["n"] == "65536"]
    low, high = ends(column([r for r in tiled if "fp16" in r["solver"]], "seconds"))
    yield f"takes {low:.2f} to {high:.2f} s at n = 65,536"
    low, high = ends(column([r for r in tiled if "fp16" in r["solver"]], "times_fp64"))
    yield f"{low:.1f} to {high:.1f} times as fast as FP64; at n = 32,768"
    smaller = [r for r in solved if "refine.solve, fp" in r["solver"] and r["n"] == "32768"]
    low, high = ends(column([r for r in smaller if "fp16" in r["solver"]], "times_fp64"))
    yield f"{low:.2f} to {high:.2f} times as fast. With FP32"
    assert max(column([r for r in tiled if "fp16" not in r["solver"]], "times_fp64")) < 1
    policies = results("h200", "g_out_of_core_fourth")[1:]
    assert {row["same_bits_as_in_core"] for row in policies} == {"True"}
    share = {row["policy"]: 100 * float(row["of_in_core_rate"]) for row in policies}
    yield f"`v3` {share['v3']:.0f} % and `v2` {share['v2']:.0f} % of the rate in core"
    yield f"`v1` {share['v1']:.0f} %, `async`"
    yield f"{share['async']:.0f} %, `sync` {share['sync']:.0f} %, all with the same bits"
    read = {row["policy"]: float(row["bytes_in"]) / 1e9 for row in policies}
    yield f"`v3` reads {read['v3']:.1f} GB, `v2` {read['v2']:.0f} GB, `v1` {read['v1']:.0f} GB"
    yield f"the others {read['sync']:.0f} GB"
    by_norm = results("h200", "f_by_norm_fourth")
    yield f"FP64 tiles take {float(by_norm[0]['seconds']):.2f} s:"
    for name in ("weak", "medium", "strong"):
        some = [row for row in by_norm if row["correlation"] == name]
        yield cells(name, *(f"{float(row['seconds']):.3f} s" for row in some))
    tests = results("h200", "c_tests_fourth")[0]
    passed, failed, skipped = (int(tests[name]) for name in ("passed", "failed", "skipped"))
    yield f"{passed:,} passed, {failed} failed, {skipped} were skipped"


def h200_fifth():
    """What the fifth session measured."""
    profiles = results("h200", "n_profiles")
    names = {
        "by norm, weak, 1e-05, tile 4096": "by norm, weak, ε = 1e-5",
        "by norm, medium, 1e-05, tile 4096": "by norm, medium, ε = 1e-5",
        "by norm, weak, 1e-06, tile 4096": "by norm, weak, ε = 1e-6",
        "potrf, fp16 x5 fp32": "five FP16 layers",
    }
    for operation, name in names.items():
        mine = [row for row in profiles if row["operation"] == operation]
        timed, *traced = (row for row in mine if row["kind"].startswith("whole"))
        low, high = ends(map(float, timed["all_seconds"].split()))
        more = ["not recorded"] * 3
        if traced:
            seconds = timed["seconds_issuing"], traced[0]["seconds_busy"]
            more = [*(f"{float(one):.3f}" for one in seconds), f"{int(traced[0]['count']):,}"]
        yield cells(name, f"{float(timed['seconds']):.3f}", f"{low:.3f}, {high:.3f}", *more)
    yield f"{low:.3f} to {high:.3f} s in six runs of the fifth session, without cuSOLVER"
    runs = results("h200", "by_norm_runs")
    groups = {row["process"]: [] for row in runs}
    for row in runs:
        groups[row["process"]].append(float(row["seconds"]))
    busy, quiet, uncollected, frozen = groups.values()
    assert [len(group) for group in groups.values()] == [6, 6, 6, 4]
    fast, *slow = sorted(busy)[2:]
    yield f"took {slow[0]:.2f}, {slow[1]:.2f} and {slow[2]:.2f} s, the others"
    yield f"the others {min(busy):.3f} to {fast:.3f} s"
    (low, high), times = ends(quiet), "{:.3f} to {:.3f} s"
    rates = [65536**3 / 3e12 / seconds for seconds in (high, low)]
    rate = f"{rates[0]:.0f} to {rates[1]:.0f} TFLOP/s"
    yield f"six runs took {times.format(low, high)} ({rate})"
    yield f"{rate} with generation, tiles of 4,096: {times.format(low, high)} in six runs"
    yield f"| {rate}, with generation and nothing else running |"
    yield f"{min(busy):.2f} to {max(busy):.2f} s in six runs shortly after"
    yield f"garbage collection {times.format(*ends(uncollected))}, and four"
    yield f"objects frozen {times.format(*ends(frozen))}"
    tests = results("h200", "c_tests_fifth")[0]
    passed, skipped = int(tests["passed"]), int(tests["skipped"])
    assert tests["failed"] == "0"
    yield f"{passed:,} tests of the GPU code passed and none failed; {skipped} were skipped"
    found = results("h200", "f_by_norm_fifth")
    for name in ("weak", "medium", "strong"):
        some = [short(row["kl"], 1) for row in found if row["correlation"] == name]
        yield cells(name, *some, *["not stored"] * (4 - len(some)))
    low, high = ends(column(found, "seconds_of_all_divergences"))
    yield f"took {low:.0f} to {high:.0f} s"
    solved = results("h200", "h_refinement_fifth")
    gains = {(row["matrix"], row["solver"]): float(row["times_fp64"] or 1) for row in solved}
    weak, medium = (gains[f"Matérn {name}", "fp16 fp32, ir"] for name in ("weak", "medium"))
    yield f"is {weak:.2f} (weak) and {medium:.2f} times"
    best = max(gain for (_, solver), gain in gains.items() if "refine" not in solver)
    yield f"at most {best:.2f} times at 16,384"
    low, high = ends(1 / gain for (_, solver), gain in gains.items() if "refine" in solver)
    yield f"`refine.solve` takes {low:.1f} to {high:.1f} times as long as FP64"
    (row,) = results("h200", "l_satellite_fifth")
    one, score = float(row["seconds_of_one"]), float(row["seconds_of_score"])
    yield f"with preparation, takes {one:.1f} s, and the first"
    yield f"score with its information {score:.1f} s. `gx.fit`"
    needed, left = row["note"].split()[3], row["note"].split()[5]
    assert needed == f"{12 * score:.0f}"
    yield f"an estimated {needed} s (12 scores), and {left} s remained"
    yield f"(measured, first calls: {one:.1f} and {score:.1f} s)"


def short(number, digits=2):
    """Write 1.34e-06 as 1.34e-6."""
    return f"{float(number):.{digits}e}".replace("e-0", "e-")


def mutants():
    sample, able = results("mutants", "first"), set()
    for row in sample:
        if not row["same_result"]:
            able.add((row["file"], row["line"], row["column"], row["new"]))
    before = [
        row
        for row in results("mutants", "first_before")
        if (row["file"], row["line"], row["column"], row["new"]) in able
    ]
    assert len(before) == len(able)
    yield f"Of the {len(sample)} mutants of the first sample, {len(sample) - len(able)} cannot"
    yield f"change a result. Of the other {len(able)}:"
    caught = [row for row in before if row["caught_by"]]
    thinned = results("mutants", "first_thinned")
    assert all(row["caught_by"] for row in thinned)
    yield cells("caught within 60 s", str(len(caught)), str(len(caught)))
    yield cells("survived", str(len(before) - len(caught)), "0")
    yield f"Of the {len(caught)}, {len(caught) - len(thinned)} were caught by tests that have not"
    yield f"The other {len(thinned)} were run again"
    some = [row for row in before if row["file"].startswith("covariance/")]
    first = sum(bool(row["caught_by"]) for row in some)
    yield f"`covariance` {first} of {len(some)} mutants were caught within 60 s before"
    found = [results("mutants", f"second_{when}") for when in ("before", "after")]
    common = min(map(len, found))
    missed, again = (
        [(row["file"], row["new"]) for row in rows[:common] if not row["caught_by"]]
        for rows in found
    )
    assert missed == again
    yield f"Of the first {common} mutants of the second sample the same {len(missed)} survive"
    rest, known = results("mutants", "second_rest"), results("mutants", "second")
    same = {(row["file"], row["line"]) for row in known if row["same_result"]}
    missed = [(row["file"], row["line"]) for row in rest if not row["caught_by"]]
    yield f"Of the other {len(rest)}, run on a CPU without AVX-512, {len(rest) - len(missed)} were"
    assert (len(missed), len(same.intersection(missed))) == (8, 4)
    yield "Four of the 8 survivors cannot change a result"
    tables = (results("mutants", f"branches_{when}") for when in ("before", "after"))
    for one, other in zip(*tables, strict=True):
        assert (one["room"], one["branches"]) == (other["room"], other["branches"])
        lost = int(one["reached"]) - int(other["reached"])
        if one["room"] == "linalg":
            shares = (100 * float(row["share"]) for row in (one, other))
            yield "before ({:.1f} %) and after ({:.1f} %)".format(*shares)
        else:
            assert lost <= 2, one["room"]
    runs = {}
    for row in results("mutants", "runs"):
        assert row["failed"] == "0"
        seconds, spent = (int(row[name]) for name in ("seconds", "cpu_seconds"))
        quick = ", not slow" if "not slow" in row["options"] else ""
        compiled = "yes" if row["compiled_before"] == "True" else "no"
        runs[row["commit"] + quick, compiled] = seconds, spent, int(row["passed"])
        yield cells(row["commit"] + quick, compiled, f"{seconds:,}", f"{spent:,}")
    ratios = [
        [x / y for x, y in zip(runs["26a08bc0", c][:2], runs["46bb8ed0", c][:2], strict=True)]
        for c in ("yes", "no")
    ]
    yield "take {:.2f} of the time and {:.2f} of the CPU time".format(*ratios[0])
    yield "and {:.2f} and {:.2f} without".format(*ratios[1])
    yield f"has {runs['26a08bc0', 'yes'][2] - runs['46bb8ed0', 'yes'][2]} more tests"


PACKAGES = ("geomxp", "GPBoost")


def share(row):
    """A share of a study with its band, bold where the band excludes the nominal share."""
    value, low, high, nominal = (
        100 * float(row[key]) for key in ("share", "lower", "upper", "nominal")
    )
    text = f"{value:.1f} % ({low:.1f}–{high:.1f})"
    return text if low <= nominal <= high else f"**{text}**"


def recovered():
    fields, tests = results("space_time", "estimates"), results("space_time", "separability")
    rows = results("space_time", "shares")
    for study, count in (("estimates", 14), ("separability", 4)):
        family = [row for row in rows if row["study"] == study]
        assert len(family) == count
        for row in family:
            hits = binomtest(int(row["hits"]), int(row["replicates"]))
            found = hits.proportion_ci(1 - 0.01 / count)
            assert column([row], "lower") == pytest.approx([found.low], rel=1e-9)
            assert column([row], "upper") == pytest.approx([found.high], rel=1e-9)
    truth = {"variance": 1.0, "range": 0.2, "time_range": 2.0, "smoothness": 0.5}
    truth |= {"time_power": 0.6, "interaction": 0.5, "nugget": 0.1}
    for name, value in truth.items():
        both = [row for row in rows if row["what"] == name]
        for row in both:
            lower, upper = (f"{name}_{row['rule']}_{end}" for end in ("lower", "upper"))
            known = [each for each in fields if each[lower]]
            inside = sum(float(one[lower]) <= value <= float(one[upper]) for one in known)
            assert (inside, len(known)) == (int(row["hits"]), int(row["replicates"]))
        wald, profile = both
        yield cells(
            *(name.replace("_", " "), f"{value:g}", f"{median(column(fields, name)):.2f}"),
            *(share(wald), wald["replicates"], share(profile), profile["replicates"]),
        )
    profiles = [row for row in rows if row["rule"] == "profile"]
    yield f"in at least {100 * min(column(profiles, 'share')):.1f} % of the fits"
    wide = [row["what"] for row in profiles if float(row["lower"]) > 0.95]
    assert wide == ["time_range", "time_power", "interaction"]
    draws = column(tests, "draw")
    for nominal, words in (("0.05", "5 %"), ("0.1", "10 %")):
        plain, bootstrap = (row for row in rows if row["nominal"] == nominal)
        rejected = sum(p <= float(nominal) for p in column(tests, "p_value"))
        assert rejected == int(plain["hits"])
        most = float(nominal) * (1 + len(draws)) - 1
        above = [sum(draw >= value for draw in draws) for value in column(tests, "statistic")]
        assert sum(one <= most for one in above) == int(bootstrap["hits"])
        yield cells(words, share(plain), share(bootstrap))


def space_time():
    rows = results("space_time", "kaust")
    for row in rows:
        value, fitted = float(row["log_likelihood"]), float(row["seconds_of_fit"])
        yield cells(
            row["set"],
            row["model"],
            f"{value:,.0f}".replace("-", "−"),
            *(f"{float(row[name]):.4f}" for name in ("rmse", "crps")),
            f"{100 * float(row['coverage']):.1f} %",
            f"{fitted:.0f} s",
            row["evaluations"],
        )
    gained, errors = [], {}
    for number in sorted({row["set"] for row in rows}):
        values = {row["model"]: row for row in rows if row["set"] == number}
        gneiting, third = values["gneiting"], values["matern, scaled time"]
        assert gneiting["log_likelihood"] == max(
            (row["log_likelihood"] for row in values.values()), key=float
        )
        factor = "0.03" if number in "147" else "0.3"
        assert third["factor_of_time"] == factor
        gained.append(float(gneiting["log_likelihood"]) - float(third["log_likelihood"]))
        errors[number] = float(gneiting["rmse"]) / float(third["rmse"]) - 1
        assert (errors[number] < 0) == (number != "8")
        assert (float(gneiting["crps"]) < float(third["crps"])) == (number != "8")
    yield f"by {min(gained):.0f} to {max(gained):,.0f} more than the model"
    yield f"by up to {-100 * min(errors.values()):.1f} %; on set 8"
    yield f"is {100 * errors['8']:.1f} % larger"
    assert max(column(rows, "seconds_of_prediction")) < 1.5
    true, other = results("space_time", "fit")
    yield f"takes {float(true['seconds']):.0f} s and {true['evaluations']} evaluations"
    yield f"takes {float(other['seconds']):.0f} s and ends"
    truth = float(true["log_likelihood_of_truth"])
    yield f"ends {float(true['log_likelihood']) - truth:.1f} above the log-likelihood of the truth"
    yield f"ends {truth - float(other['log_likelihood']):,.0f} below it"
    yield f"{max(column((true, other), 'peak_gb')):.1f} GB of memory"
    cases = results("space_time", "validity")
    assert {row["family"] for row in cases} == {"gneiting", "separable", "matern-space-time"}
    yield f"draws {sum(int(row['draws']) for row in cases):,} models"
    yield f"each with {cases[0]['n']} locations and times"
    least = min(column(cases, "smallest_eigenvalue"))
    rounding = max(column(cases, "rounding"))
    yield f"is −{-least * 1e14:.1f} · 10⁻¹⁴"
    yield f"allows −{-rounding * 1e13:.1f} · 10⁻¹³"
    assert rounding < least
    yield from recovered()
    kinds = ("smallest divergence", "correlation one half", "correlation")
    ours, half, theirs = (results("space_time", "neighbours", nearest_by=one) for one in kinds)
    ratios = {(one, kind): [] for one in ("stations", "random") for kind in kinds[1:]}
    for best, *others in zip(ours, half, theirs, strict=True):
        for other in others:
            assert other["model"] == best["model"]
            ratio = float(best["kl"]) / float(other["kl"])
            ratios[best["design"], other["nearest_by"]].append(ratio)
    (a, b), (c, d), (e, f), (g, h) = map(ends, ratios.values())
    yield f"has {a:.2f} to {b:.2f} times the divergence of the scale"
    yield f"and {c:.2f} to {d:.2f} times that of the neighbours"
    yield f"locations and times {e:.2f} to {f:.2f} and {g:.2f} to {h:.2f} times"
    gains, errors, speeds = [], {}, []
    for ours, theirs in zip(
        *(results("space_time", "subsets", package=one) for one in PACKAGES), strict=True
    ):
        for row in (ours, theirs):
            value = float(row["exact_log_likelihood"])
            yield cells(
                row["set"],
                row["package"],
                f"{value:,.1f}".replace("-", "−"),
                *(f"{float(row[name]):.4f}" for name in ("rmse", "crps")),
                f"{float(row['seconds_of_fit']):.1f} s",
                f"{float(row['seconds_of_prediction']):.2f} s",
            )
        values = [float(row["exact_log_likelihood"]) for row in (ours, theirs)]
        gains.append(values[0] - values[1])
        errors[ours["set"]] = float(ours["rmse"]) / float(theirs["rmse"]) - 1
        speeds.append(float(theirs["seconds_of_fit"]) / float(ours["seconds_of_fit"]))
    yield f"by {min(gains):.1f} to {max(gains):.1f}, and its fits are"
    yield f"{min(speeds):.0f} to {max(speeds):.0f} times faster"
    assert {number for number, error in errors.items() if error > 0} == {"7"}
    yield f"and {100 * errors['7']:.2f} % larger on set 7"
    eight = {row["model"]: float(row["log_likelihood"]) for row in rows if row["set"] == "8"}
    yield f"whose log-likelihood is {eight['gneiting'] - eight['separable']:.0f} lower"


def multivariate():
    kinds = (results("multivariate", "neighbours", nearest_by=one) for one in NEAREST)
    ratios = [float(a["kl"]) / float(b["kl"]) for a, b in zip(*kinds, strict=True)]
    yield f"is {min(ratios):.1f} to {max(ratios):.1f} times that of geomxp's neighbours"
    metals, alone, shares = results("multivariate", "jura"), {}, []
    for row in metals:
        known = float(row["mae"])
        single = row["family"] == "matern"
        if single:
            alone[row["metal"], row["scale"]] = known
        else:
            shares.append(known / alone[row["metal"], row["scale"]])
        yield cells(
            *(row["metal"], row["scale"], "kriging alone" if single else row["family"]),
            *(f"{known:.3f}", f"{float(row['rmse']):.3f}", f"{100 * float(row['coverage']):.0f} %"),
        )
    yield f"has {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the mean absolute error"
    cases = results("multivariate", "validity")
    assert len({row["family"] for row in cases}) == 4
    assert set(column(cases, "refused")) == {0.0}
    yield f"draws {sum(int(row['models']) for row in cases):,} models"
    yield f"is −{-min(column(cases, 'least_eigenvalue')) * 1e15:.1f} · 10⁻¹⁵"
    yield from speed_of_variables()
    yield from recovery_of_variables()


def speed_of_variables():
    rows = results("multivariate", "time")
    alone = {row["values"]: row for row in rows if row["family"] == "matern"}
    kinds = ("seconds", "seconds_with_derivatives")
    for row in rows:
        base, seconds = alone[row["values"]], [float(row[kind]) for kind in kinds]
        ratios = [one / float(base[kind]) for one, kind in zip(seconds, kinds, strict=True)]
        yield cells(
            *(f"{int(row['values']):,}", row["family"], *(f"{one:.2f} s" for one in seconds)),
            "1" if row is base else "{:.1f}, {:.1f}".format(*ratios),
        )
    fits = results("multivariate", "fit")
    assert {row["outcome"] for row in fits} == {"CONVERGED"}
    assert min(column(fits, "gain")) > 0
    for row in fits:
        seconds = float(row["seconds"])
        yield f"`{row['family']}` in {seconds:.0f} s and {row['evaluations']} evaluations"
    one, two = column(results("multivariate", "mixed"), "times_fp64")[1::2]
    yield f"one variable is {one:.2f} times as fast"
    yield f"are {two:.2f} times as fast (the first ratio times {two / one:.2f})"


def recovery_of_variables():
    biases = []
    for name in ("parsimonious", "flexible"):
        rows = results("multivariate", name)
        ends = [row["outcome"] for row in rows]
        yield (
            f"{ends.count('CONVERGED')} converge"
            if name == "parsimonious"
            else (f"of the flexible one {ends.count('CONVERGED')}")
        )
        truth = {"variance_1": 1.0, "variance_2": 2.0, "range": 0.15, "range_1": 0.2}
        truth |= {"range_2": 0.1, "smoothness_1": 0.5, "smoothness_2": 1.0}
        truth |= {"correlation_12": 0.5, "nugget_1": 0.05, "nugget_2": 0.1}
        converged = [row for row in rows if row["outcome"] == "CONVERGED"]
        for parameter in (name for name in truth if name in rows[0]):
            values = column(converged, parameter)
            bias, spread = mean(values) - truth[parameter], stdev(values)
            numbers = (f"{x:.3g}" for x in (truth[parameter], median(values), mean(values), spread))
            biases.append(abs(bias) / spread)
            yield cells(name, parameter, *numbers, f"{bias / spread:.2f}")
        kinds = [title[:-6] for title in rows[0] if title.endswith("_lower")]
        for parameter, _, kind in (title.rpartition("_") for title in kinds):
            pairs = [
                [row[f"{parameter}_{kind}_{end}"] for end in ("lower", "upper")] for row in rows
            ]
            pairs = [(float(low), float(high)) for low, high in pairs if low]
            hits, count = sum(a <= truth[parameter] <= b for a, b in pairs), len(pairs)
            low, high = binomtest(hits, count).proportion_ci(1 - 0.01 / len(kinds))
            below = kind == "wald" and (
                parameter == "nugget_1" or (name, parameter) == ("flexible", "smoothness_1")
            )
            assert (high < 0.95) == below
            above = (name, parameter, kind) == ("parsimonious", "nugget_1", "profile")
            assert (low > 0.95) == above
            yield cells(
                *(name, parameter, kind.replace("wald", "Wald"), str(count)),
                f"{100 * hits / count:.1f} % ({100 * low:.1f} to {100 * high:.1f})",
            )
    yield f"is at most {max(biases):.2f} standard deviations"


NEAREST = "place", "place and variable"
"""Kinds of neighbours of several variables."""


def low_rank():
    rows = results("low_rank", "divergence")
    parts = column(rows, "kl_over_target")
    assert max(parts) < 1
    assert not any(column(rows, "promotions"))
    yield f"All {len(rows)} cases keep the target, without a promotion"
    yield f"between {min(parts):.2f} and {max(parts):.2f} times the target"
    yield from low_rank_time()
    yield from low_rank_growth()
    yield from low_rank_satellite()


def low_rank_satellite():
    """Rows of both tables of the satellite's temperatures, and sentences."""
    fits = results("low_rank", "satellite")
    for fit, name in zip(fits, ("exponential", "free smoothness"), strict=True):
        yield cells(
            *(name, f"{float(fit['seconds_fit']):,.0f} s", f"{float(fit['resident_gb']):.1f} GB"),
            *(fit["evaluations"], f"{float(fit['log_likelihood']):.3f}"),
        )
        about = {"method": f"geomxp Vecchia(30), {fit['model']}", "predicted_from": "200"}
        (vecchia,) = results("vecchia", "heaton", data="satellite", **about)
        for method, row in (("low-rank tiles, CPU", fit), ("Vecchia, 200 neighbours", vecchia)):
            mae = f"{float(row['mae']):.3f}" if row is fit else f"{float(row['mae']):.2f}"
            scores = (f"{float(row[k]):.3f}" for k in ("rmse", "crps", "coverage"))
            yield cells(f"{name}, {method}", mae, *scores)
    (top,) = results("h200", "l_satellite", phase="FP64, the top")
    yield f"is {float(top['log_likelihood']):.3f}"
    smoothness, error = (float(fit[k]) for k in ("smoothness", "error_smoothness"))
    yield f"is estimated as {smoothness:.3f} with a standard error of {error:.3f}"
    yield f"finds {float(vecchia['smoothness']):.3f}"
    yield f"log-likelihood is {float(vecchia['log_likelihood']):.3f} there"
    first, second = (float(fit["log_likelihood"]) for fit in fits)
    yield f"raises the log-likelihood by {second - first:,.0f}"
    first, second = (float(fit["seconds_predict"]) for fit in fits)
    yield f"took {second:,.0f} s"
    yield f"took {first:,.0f} s"


def low_rank_time():
    """Rows of the table of times, and their extremes."""
    rows = {(r["n"], r["correlation"], r["method"]): r for r in results("low_rank", "time")}
    dense, alone = (
        median(column(results("low_rank", "time", n="16384", method=method), "seconds"))
        for method in ("FP64", "dpotrf")
    )
    yield f"takes {dense:.1f} s at n = 16,384, MKL's `dpotrf` alone {alone:.1f} s"
    ratios = {}
    for n, correlation, method in rows:
        if method != "low rank":
            continue
        low = rows[n, correlation, method]
        others = [rows.get((n, correlation, one)) for one in ("mixed", "FP64")]
        seconds = [float(r["seconds"]) if r else None for r in others]
        whole = dense * (int(n) / 16384) ** 3 if seconds[-1] is None else seconds[-1]
        ratio = whole / float(low["seconds"])
        smaller = 4 * int(n) * (int(n) + 1) / float(low["bytes"])
        ratios.setdefault(n, []).append((ratio, smaller, float(low["seconds"])))
        yield cells(
            *(f"{int(n):,}", correlation),
            f"{float(low['seconds']):.3g} s, {float(low['bytes']) / 1e6:.0f} MB",
            *("" if one is None else f"{one:.3g} s" for one in seconds),
            f"{ratio:.1f}" if seconds[-1] else f"{ratio:.0f} (from n³)",
            f"{smaller:.1f}",
        )
    faster, smaller, _ = zip(*ratios["16384"], strict=True)
    yield (
        f"it is {min(faster):.1f} to {max(faster):.1f} times as fast as FP64, and its "
        f"tiles take 1/{max(smaller):.1f} to 1/{min(smaller):.1f} of the bytes"
    )
    faster, _, seconds = zip(*ratios["65536"], strict=True)
    yield f"it takes {min(seconds):.1f} to {max(seconds):.1f} s"
    yield f"FP64 would take {min(faster):.0f} to {max(faster):.0f} times as long as low rank"


def low_rank_growth():
    """Rows of the table of growth, and exponents."""
    rows = {(r["n"], r["method"]): r for r in results("low_rank", "growth")}
    sizes = list(dict.fromkeys(n for n, _ in rows))
    first, last = (rows[n, "low rank"] for n in (sizes[0], sizes[-1]))
    time, size = (
        log(float(last[k]) / float(first[k])) / log(int(sizes[-1]) / int(sizes[0]))
        for k in ("seconds", "bytes")
    )
    yield f"the time grows as n^{time:.1f} and the bytes as n^{size:.1f}"
    yield f"decreases from {short(first['kl'], 1)} to {short(last['kl'], 1)}"
    faster = []
    for n in sizes:
        parts = []
        for method in ("low rank", "vecchia 30", "vecchia 60", "vecchia 120"):
            row = rows[n, method]
            parts += [f"{float(row['seconds']):.3g} s", f"{float(row['kl']):.2g}"]
        faster.append(float(rows[n, "low rank"]["seconds"]) / float(row["seconds"]))
        yield cells(f"{int(n):,}", *parts)
        assert float(row["kl"]) > 1e-3 > float(rows[n, "low rank"]["kl"])
    yield f"{min(faster):.0f} to {max(faster):.0f} times as fast"


def responses():
    yield from scale_of_responses()
    yield from calibration_of_responses()
    yield from errors_of_zilber_and_katzfuss()
    yield from censored_values()
    yield from fits_of_responses()


def scale_of_responses():
    for row in results("responses", "scale"):
        assert row["outcome"] == "CONVERGED"
        assert row["predictions_finite"] == "True"
        fit, predicted = (f"{float(row[f'seconds_{what}']):.1f}" for what in ("fit", "predict"))
        whole, peak = f"{float(row['seconds']):.0f}", f"{float(row['peak_gb']):.2f}"
        error = f"{float(row['log_likelihood_error']):.3f}"
        yield cells(f"{int(row['n']):,}", row["evaluations"], fit, predicted, whole, peak, error)


RESPONSES = {
    "poisson": (0.5, None),
    "binomial": (0.0, None),
    "negative-binomial": (1.0, 2.0),
    "gamma": (0.5, 2.0),
    "censored": (0.0, 0.1),
}
"""True mean of η and own parameter of the responses of the study of calibration."""


def calibration_of_responses():
    kept = {}
    for response, (middle, own) in RESPONSES.items():
        rows = results("responses", "calibration", response=response)
        biases, covered = [], []
        truths = {"variance": 0.8, "range": 0.12, "own": own, "mean": middle}
        for name, truth in truths.items():
            if truth is None or not rows[0][name]:
                biases.append("")
                covered.append("")
                continue
            found = column(rows, name)
            # the size of a negative binomial is infinite where the counts look like Poisson's
            typical = median(found) if response == "negative-binomial" and name == "own" else None
            biases.append(f"{(mean(found) if typical is None else typical) - truth:+.3f}")
            kept[response, name] = column(rows, f"kept_{name}")
            covered.append(f"{100 * mean(kept[response, name]):.1f}")
        kept[response, "all"] = column(rows, "kept_all")
        covered.append(f"{100 * mean(kept[response, 'all']):.1f}")
        predicted = (
            f"{100 * mean(column(rows, name)):.1f}" for name in ("observations", "pit", "field")
        )
        yield cells(response, str(len(rows)), *biases)
        yield cells(response, *covered, *predicted)
    tail = 0.05 / len(kept) / 2
    low, high = (binom.ppf(p, 200, 0.95) / 200 for p in (tail, 1 - tail))
    assert [key for key, one in kept.items() if not low <= mean(one) <= high] == [
        ("censored", "own")
    ]
    yield f"If all {len(kept)} shares of the first five columns were 95 % in truth"
    yield f"between {100 * low:.1f} and {100 * high:.1f} % with a probability of 95 %"
    ends_of = [
        float(row[f"drop_at_{end}"])
        for row in results("responses", "profiles")
        for end in ("lower", "upper")
        if row[f"drop_at_{end}"]
    ]
    low, high = ends(ends_of)
    yield f"at the {len(ends_of)} finite ends ℓ is {low:.3f} to {high:.3f} below its maximum"


def errors_of_zilber_and_katzfuss():
    names, theirs = ("logistic", "poisson", "gamma"), {"90": "0.550, 0.315, 0.248"}
    theirs["550"], shares = "0.198, 0.118, 0.0887", []
    for side, length in (("50", "0.05"), ("90", "0.03"), ("550", "0.03")):
        found = []
        for name in names:
            rows = results("responses", "zilber_katzfuss", side=side, length=length, response=name)
            errors = column(rows, "mean_squared_error")
            found.append(f"{mean(errors):.4f} ± {stdev(errors) / sqrt(len(errors)):.4f}")
        printed = theirs.get(side, "")
        yield cells(f"{side}²", length, *found, printed)
        if printed:
            pairs = zip(found, printed.split(", "), strict=True)
            shares += [float(one.split()[0]) / float(other) for one, other in pairs]
    low, high = ends(shares)
    yield f"they are {low:.2f} to {high:.2f} times the printed ones"
    ratios = []
    for name in names:
        rows = results("responses", "zilber_katzfuss", side="50", response=name)
        ratios.append(mean(column(rows, "mean_squared_error")) / mean(column(rows, "dense")))
    yield "are {:.4f} (logistic), {:.4f} (Poisson) and {:.4f} (gamma) times".format(*ratios)


def censored_values():
    for share in ("0.1", "0.2", "0.3", "0.4", "0.5"):
        for treatment in ("censored", "limit", "half", "drop"):
            rows = results("responses", "censored", share=share, treatment=treatment)
            fields = f"{100 * float(share):.0f} %" if treatment == "censored" else ""
            estimates = (
                f"{median(column(rows, name)):.3f}"
                for name in ("variance", "range", "error_variance", "mean")
            )
            scores = (f"{mean(column(rows, name)):.3f}" for name in ("rmse", "bias", "crps"))
            covered = (
                f"{100 * mean(column(rows, name)):.0f}"
                for name in ("covered_field", "covered_values")
            )
            yield cells(fields, treatment, *estimates, *scores, *covered)
        errors = column(results("responses", "censored_exact", share=share), "laplace_minus_exact")
        (low, high), rows = ends(errors), results("responses", "censored_exact", share=share)
        yield cells(f"{100 * float(share):.0f} %", rows[0]["censored"], f"{low:.2f}", f"{high:.2f}")
    rows = results("responses", "censored", treatment="censored")
    assert all(row["outcome"] == "CONVERGED" for row in rows)
    yield f"All {len(rows)} fits of the response converged"


def fits_of_responses():
    for n in ("5000", "10000"):
        for response in ("bernoulli", "poisson"):
            rows = results("responses", "fits", n=n, response=response)
            ours = [row for row in rows if row["package"] == "geomxp"]
            seconds = median(column(ours, "seconds"))
            found = [f"{int(n):,}", response, f"{seconds:.2f}"]
            for method in ("cholesky", "pivoted_cholesky", "vadu"):
                mine = [row for row in rows if row["method"] == method]
                ratios = column(mine, "times_as_long")
                found.append(
                    f"{median(column(mine, 'seconds')):.1f} ({digits(median(ratios), 2)})"
                    if mine
                    else ""
                )
            yield cells(*found, str(len(ours)))
    rows = [row for row in results("responses", "fits") if row["package"] != "geomxp"]
    assert not any(row["outcome"] for row in rows)
    low, high = ends(column(rows, "below_geomxp"))
    yield f"{-low:.4f} above to {high:.4f} below those of geomxp"
    rows = results("responses", "maximizers")
    for n in ("1000", "2000", "3000"):
        mine = [row for row in rows if row["n"] == n]
        yield cells(
            f"{int(n):,}",
            str(len(mine)),
            *(
                f"{max(column(mine, f'distance_{name}')):.4f}"
                for name in ("variance", "range", "mean")
            ),
            f"{max(column(mine, 'gain')):.4f}",
        )


STUDIES = (
    *(peers, cluster, vecchia, kaust, kaust_likelihood, low_rank),
    *(
        refinement,
        recovery,
        batched,
        intervals,
        covariance,
        h200,
        h200_third,
        h200_fourth,
        h200_fifth,
        space_time,
        multivariate,
        mutants,
        responses,
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__)
def test_numbers_of_a_study_are_those_of_its_results(study):
    folder = re.sub("_(third|fourth|fifth)$", "", study.__name__)
    assert missing(study(), f"experiments/{folder}/README.md") == []


def documented():
    """Yield pages and what they must say."""
    page = "how-to/large-data.md"
    (fit,) = results("vecchia", "peers", n="100000", task="fit", package="geomxp")
    yield page, f"100,000 locations with ν free took {float(fit['seconds']):.1f} s"
    on_disk, in_core = results("out_of_core", "rate", n="44900")
    assert round(float(on_disk["triangle_over_budget"])) == 4
    share = float(on_disk["gflops"]) / float(in_core["gflops"])
    yield page, f"as large as the memory limit was factored at {100 * share:.0f} %"
    cases = results("static_schedule_mxp", "target")
    low, high = ends(column(cases, "bytes_over_fp64"))
    yield page, f"with {100 * low:.0f} to {100 * high:.0f} % of the memory of FP64 tiles"
    assert all(float(row["kl"]) <= float(row["target"]) for row in cases)
    strong = (
        results("static_schedule_mxp", f"kl_{n}", n=n, correlation="strong")
        for n in ("8192", "32768")
    )
    largest = [power(max(column(rows, "kl"))) for rows in strong]
    grows = f"largest divergence is {largest[0]} at n = 8,192 and {largest[1]} at 32,768"
    yield "how-to/accuracy.md", grows
    yield "how-to/accuracy.md", f"The target was met in all [{len(cases)} measured cases]"
    about = {"study": "sizes", "cell": "anisotropy", "n": "60", "rule": "plain"}
    low, high = ends(
        100 * each for each in column(results("calibration", "summary", **about), "share")
    )
    rejected = f"chi-square rejects isotropy in {low:.0f} to {high:.0f} % of isotropic fields"
    yield "how-to/uncertainty.md", rejected
    sizes = results("space_time", "shares", nominal="0.05")
    asymptotic, drawn = (f"{100 * each:.1f} %" for each in column(sizes, "share"))
    yield "how-to/uncertainty.md", f"½χ²₀ + ½χ²₁ rejects no interaction in {asymptotic}"
    yield "how-to/uncertainty.md", f"the bootstrap in {drawn}"
    low, high = ends(column(results("cluster", "overhead"), "milliseconds_a_task"))
    yield "how-to/cluster.md", f"each task costs {low:.0f} to {high:.0f} ms of scheduling"
    rows = results("vecchia", "heaton", predicted_from="60", data="satellite")
    seconds = {f"{each:.1f}" for each in column(rows, "seconds_predict")}
    assert len(seconds) == 1
    took = f"42,740 locations from 60 neighbours each took {seconds.pop()} s on two cores"
    yield "how-to/prediction.md", took
    fits = results("peers", "fits", method="geomxp")
    assert median(column(fits, "evaluations")) == 5
    yield "mathematics/likelihood.md", "a fit takes about five exact factorizations"
    peaks = [float(row["peak_bytes"]) / (8 * int(row["n"]) ** 2) for row in fits]
    assert {round(peak) for peak in peaks} == {4}
    yield "../../README.md", "Standard errors need four such matrices"
    fit, other = results("low_rank", "satellite")
    seconds, size = float(fit["seconds_fit"]), float(fit["resident_gb"])
    free = float(other["seconds_fit"])
    yield "../../README.md", f"fit in {seconds:.0f} s and {size:.1f} GB, with ν free {free:,.0f} s"
    took = f"a fit of 105,569 locations took {seconds / 60:.0f} minutes and {size:.1f} GB"
    yield "how-to/large-data.md", f"{took}, with a free smoothness {free / 60:.0f} minutes"
    parts = []
    for method in ("whole: " + "fp16 " * 3 + "fp32", "tiles: by_tile_norm 0.0001"):
        about = {"n": "16384", "correlation": "weak", "smoothness": "0.5", "method": method}
        (row,) = results("nested_cholesky", "divergence", **about)
        parts.append((f"{100 * float(row['bytes_over_fp64']):.0f} %", short(row["kl"], 1)))
    (size, layers), (less, norms) = parts
    yield "how-to/accuracy.md", f"layers in {size} of FP64's bytes diverge by {layers} nats"
    yield "how-to/accuracy.md", f"`by_tile_norm(1e-4)` in {less} by {norms}"
    (faster,) = (line for line in low_rank_time() if "times as fast as" in line)
    yield "../../README.md", faster.removeprefix("it is ").split(" as FP64")[0]


def test_numbers_of_the_documentation_are_those_of_the_results():
    for page, claim in documented():
        assert missing([claim], f"docs/pages/{page}") == []


def test_seconds_of_space_time_families_are_those_of_the_results():
    text = (ROOT / "experiments" / "space_time" / "README.md").read_text()
    rows = [row for row in results("space_time", "time", n="1000000") if row["family"] != "matern"]
    for row in rows:
        seconds = (row["seconds"], row["seconds_with_derivatives"])
        cells = " | ".join(f"{float(one):.2f} s" for one in seconds)
        assert f"| {row['family']} | {cells} | {float(row['seconds_first']):.1f} s |" in text
    assert f"{max(float(row['peak_gb']) for row in rows):.1f} GB" in text
    for times, words in (("4096", "all different"), ("64", "64 different ones")):
        for kind in ("float64", "float32"):
            found = results("space_time", "generation", type=kind, times=times)
            ratio = {row["family"]: f"{float(row['over_spatial']):.2f}" for row in found}
            families = ("matern-space-time", "separable", "gneiting")
            cells = " | ".join(ratio[family] for family in families)
            assert f"| {words}, {kind.replace('float', 'FP')} | {cells} |" in text
