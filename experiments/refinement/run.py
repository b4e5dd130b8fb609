"""FP64 answers from low-precision factors: convergence, speed, kriging, memory (paper 002).

    python experiments/refinement/run.py [NAME ...] [--tiny] [--sizes N ...]

Writes results/iterations.csv (Figures 4-7: iterations and condition numbers on five spectra, three
methods, with and without preprocessing, FP16, FP32-FP16, BF16 and FP32 factors), histories.csv (the
residual at each iteration, Figure 3), definiteness.csv (why a factor with FP16 products needs a
shift: the rounding error beside the smallest eigenvalue), tiles.csv (iterations by the order of
tiles, Figure 7), factor.csv (Figure 2: rates of
factorizations), speed.csv (Figures 4-7: time to solution beside the fastest solver in FP64 of the
same run), kriging.csv (means and variances beside FP64's), memory.csv (Σ is never stored in FP64)
and log_determinant.csv (what refinement does not repair: error against cost). The first six, those
of the paper, if none is named.

A run that is repeated at the same commit keeps the rows that are there and adds those that are
missing; delete a file to measure it again.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import scipy.linalg

import geomxp as gx
from geomxp.benchmarks.bench import interleaved
from geomxp.benchmarks.spectra import infinity_condition, spd_matrix
from geomxp.data.observations import Observations
from geomxp.errors import NotPositiveDefinite
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg import blas, nested
from geomxp.linalg.formats import FP16, quantize
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.devices import blas_threads, usable_cores
from geomxp.tiles.cholesky import factorize
from geomxp.tiles.layout import Layout
from geomxp.tiles.refine import Dense, Preconditioner, RefinedFactor, solve
from geomxp.tiles.stores import InCore

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import COMMIT, ceilings, keep_memory, let_mkl_rest, peak, write_rows

HERE = Path(__file__).parent
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
METHODS = ("ir", "cg", "gmres")
FACTORS = ("fp16", "fp32-fp16", "bf16", "fp32")
HARDEST = {"arithmetic": 1e8, "clustered": 1e8, "logarithmic": 1.7e5, "geometric": 1.7e5}
HARDEST["custom-clustered"] = 1e4
PREPROCESSING = (
    {"scaling": True, "shift": 0.0},
    {"scaling": False, "shift": 0.4},
    {"scaling": True, "shift": 0.4},
    {"scaling": True, "shift": 10.0},
)
FIGURES = {
    "4a": ("arithmetic", 1e2, {"scaling": True, "shift": 0.0}),
    "4b": ("arithmetic", 1e4, {"scaling": True, "shift": 0.0}),
    "5a": ("clustered", 1e2, {"scaling": True, "shift": 0.0}),
    "5b": ("clustered", 1e8, {"scaling": False, "shift": 0.4}),
    "6a": ("logarithmic", 1.7e5, {"scaling": True, "shift": 0.4}),
    "6b": ("geometric", 1.7e5, {"scaling": True, "shift": 0.4}),
    "7": ("custom-clustered", 1e4, {"scaling": True, "shift": 10.0}),
}
"""The paper's figures of speed: spectrum, κ₂ (not stated for 4b), and our preprocessing."""

SOLVERS = (
    ("fp16", "gmres"),
    ("fp16", "ir"),
    ("fp32-fp16", "gmres"),
    ("bf16", "gmres"),
    ("bf16", "ir"),
    ("fp32", "ir"),
)
LARGEST_OF_OPENBLAS = 15_000
"""OpenBLAS 0.3.30 crashes on two threads above."""


CASES = [
    *product(("arithmetic",), (1e2, 1e4, 1e8)),
    *product(("clustered",), (1e2, 1e8)),
    *((spectrum, 1.7e5) for spectrum in ("logarithmic", "geometric")),
    *product(("custom-clustered",), (1e2, 1e4)),
]
"""Spectra and κ₂ of iterations.csv."""


def system(spectrum, n, condition):
    """Return A and b of a case."""
    return spd_matrix(spectrum, n, condition), np.random.default_rng(1).random(n)


def solved(a, b, factor, method, about, **options):
    """Return the outcome of a solution for a row, and the history."""
    try:
        found = solve(a, b, gx.uniform(factor), method=method, **about, **options)
    except NotPositiveDefinite as error:
        return {
            "iterations": None,
            "residual": None,
            "formats": None,
            "outcome": "NOT_POSITIVE_DEFINITE",
            "message": str(error),
        }, ()
    return {
        "iterations": found.iterations,
        "residual": found.residual,
        "formats": " ".join(f"{form}:{count}" for form, count in found.formats.items()),
        "outcome": str(found.outcome.ending),
        "message": found.outcome.message,
    }, found.history


# Each study is a list of units: a key, and a function that returns the rows with this key.


def iteration_rows(spectrum, condition, n, tile=None):
    """Return rows of iterations.csv."""
    a, b = system(spectrum, n, condition)
    infinity, rows = infinity_condition(a, spectrum, condition), []
    for factor, method, about in product(FACTORS, METHODS, PREPROCESSING):
        plain = about["scaling"] and not about["shift"]
        if (factor == "fp32" and not plain) or (factor == "fp32-fp16" and method != "gmres"):
            continue
        row = {"infinity_condition": infinity, "factor": factor, "method": method} | about
        rows.append(row | solved(a, b, factor, method, about, tile=tile)[0])
    return rows


def tile_rows(n, tile):
    """Return rows of tiles.csv: the custom-clustered spectrum by the order of tiles (Figure 7)."""
    a, b = system("custom-clustered", n, 1e4)
    rows = []
    for factor, shift in product(FACTORS[:2], (0.0, 0.4, 10.0)):
        about = {"scaling": True, "shift": shift}
        row = {"factor": factor, "method": "gmres"} | about
        rows.append(row | solved(a, b, factor, "gmres", about, tile=tile)[0])
    return rows


def history_rows(spectrum, condition, n, about, tile=None):
    """Return rows of histories.csv: the residual at each iteration."""
    a, b = system(spectrum, n, condition)
    return [
        {"method": method, **about, "iteration": iteration, "residual": residual}
        for method in METHODS
        for iteration, residual in solved(a, b, "fp16", method, about, tile=tile)[1]
    ]


def factored(source, factor, shift, promotes=False):
    """Return the store of a factor of a source's matrix with a shift, or None if it has none.

    As in the paper, no tile gets a finer format where a diagonal tile fails, unless it `promotes`.
    """
    tiles = source.layout.tiles
    source.shift = shift * FP16.unit_roundoff
    store = InCore(source, gx.uniform(factor)(np.ones((tiles, tiles))))
    try:
        factorize(store) if promotes else store.run(store.order())
    except NotPositiveDefinite:
        return None
    return store


def lower_of(store):
    """Return L, (n, n)."""
    layout = store.layout
    lower = np.zeros((layout.n, layout.n))
    for i, k in layout.lower:
        lower[layout.rows(i), layout.rows(k)] = store.final(i, k).widen()
    return np.tril(lower)


def definiteness_rows(spectrum, condition, n, tile):
    """Return rows of definiteness.csv: errors and eigenvalues in units of u = 2⁻¹¹.

    Of the matrix G that is factored, with a unit diagonal or ‖A‖₂ near 1: its smallest and largest
    eigenvalue and their standard deviation (not in units of u); the shifts c, of those tried, with
    which an FP16 factor exists, without and with promoted tiles (`factors`, `promoted_factors`);
    ‖G - LL'‖₂ of the factor with the least of these from
    0.4 on (`shift_of_error`), stored in FP16 and in FP32; the 2-norm of the error in the Schur
    complement from rounding the first block column to FP16, c = 0.4 (`column_error`); and GMRES's
    iterations with c = 0.
    """
    a, b = system(spectrum, n, condition)
    u, rows = FP16.unit_roundoff, []
    tried = (0.0, 1 / 16, 1 / 8, 1 / 4, 0.4, 1.0, 2.0, 4.0, 10.0)
    for scaling in (True, False):
        source = Dense(a, Layout.of(n, tile), scaling)
        matrix = a / source.scale / source.scale[:, None]
        values = np.linalg.eigvalsh(matrix)
        stores = {c: factored(source, "fp16", c) for c in tried}
        row = {
            "scaling": scaling,
            "smallest_eigenvalue": values[0] / u,
            "largest_eigenvalue": values[-1] / u,
            "deviation_of_eigenvalues": values.std(),
            "column_error": column_error(matrix, tile) / u,
            "factors": " ".join(f"{c:g}" for c, store in stores.items() if store),
            "promoted_factors": " ".join(
                f"{c:g}" for c in tried if stores[c] or factored(source, "fp16", c, promotes=True)
            ),
        }
        c = next((c for c in tried if c >= 0.4 and stores[c]), None)
        row["shift_of_error"] = c
        for factor in ("fp16", "fp32-fp16"):
            store = None if c is None else factored(source, factor, c)
            error = None
            if store:
                lower = lower_of(store)
                error = matrix + source.shift * np.eye(n) - lower @ lower.T
                error = np.abs(np.linalg.eigvalsh(error)).max() / u
            row[f"error_{factor}"] = error
        about = {"scaling": scaling, "shift": 0.0}
        rows.append(row | solved(a, b, "fp16", "gmres", about, tile=tile)[0])
    return rows


def column_error(matrix, tile, c=0.4):
    """Return ‖L₂₁L₂₁' - RR'‖₂, where R is L₂₁ of the first block column rounded to FP16."""
    first = matrix[:tile, :tile] + c * FP16.unit_roundoff * np.eye(tile)
    column = np.linalg.solve(np.linalg.cholesky(first), matrix[:tile, tile:]).T
    rounded = quantize(np.asfortranarray(column), FP16).widen()
    return float(np.abs(np.linalg.eigvalsh(column @ column.T - rounded @ rounded.T)).max())


def libraries(n):
    """Return {name: potrf in FP64 and FP32 that overwrites an array in Fortran order}."""
    found = {}
    if n <= LARGEST_OF_OPENBLAS or usable_cores() == 1:
        kinds = {8: scipy.linalg.lapack.dpotrf, 4: scipy.linalg.lapack.spotrf}
        found["SciPy"] = lambda a: kinds[a.itemsize](a, lower=1, clean=0, overwrite_a=1)
    if blas.mkl():
        found["MKL"] = blas.library("MKL")(blas.potrf)
    found["recursion"] = lambda a: nested.potrf(a, ("fp64",) if a.itemsize == 8 else ("fp32",))
    return found


def restore(target, a):
    """Copy a matrix to where it was factored, and wait until no thread of MKL is busy."""
    np.copyto(target, a)
    let_mkl_rest()


def on_all_cores(work, n):
    """Return the function with BLAS and MKL on all usable cores."""

    def run(*arguments):
        with blas_threads(n), blas.cores(usable_cores()):
            return work(*arguments)

    return run


def share(rate, form):
    """Return the share of a rate in GFLOP/s of the peak in a format on all usable cores."""
    return rate / peak(ceilings(), form, usable_cores())


def factor_rows(n, rounds, tiles):
    """Return rows of factor.csv: rates of n³/3 operations, in turns (Figure 2)."""
    a = spd_matrix("arithmetic", n, 1e2)
    target = {form: np.empty_like(a, dtype=form) for form in ("f8", "f4")}
    works, fresh, about = {}, {}, {}
    for (name, potrf), form in product(libraries(n).items(), target):
        key = f"{name} {form}"
        works[key] = partial(on_all_cores(potrf, n), target[form])
        fresh[key] = partial(restore, target[form], a)
        about[key] = {"potrf": name, "factor": {"f8": "fp64", "f4": "fp32"}[form], "tile": None}
    for factor, tile in product(("fp64", *reversed(FACTORS)), tiles):
        key = f"tiles {factor} {tile}"
        works[key] = partial(factored, Dense(a, Layout.of(n, tile)), factor, 0.0)
        about[key] = {"potrf": "tiles", "factor": factor, "tile": Layout.of(n, tile).tile}
    seconds = interleaved(works, rounds, fresh=fresh)
    fp64 = {key: value for key, value in seconds.items() if about[key]["factor"] == "fp64"}
    baseline = min(fp64, key=fp64.get)
    rows = []
    for key, value in seconds.items():
        rate = n**3 / 3 / value / 1e9
        form = about[key]["factor"].split("-")[-1]
        rows.append(
            about[key]
            | {"threads": usable_cores(), "seconds": value, "gflops": rate}
            | {"share_of_ceiling": share(rate, form)}
            | {"baseline": about[baseline]["potrf"], "over_baseline": fp64[baseline] / value}
        )
    return rows


def direct_solvers(a, b, tile):
    """Return ({name: solver in FP64}, {name: what restores its matrix}); A is kept."""
    n, work = len(a), np.empty_like(a)

    def by(potrf):
        potrf(work)
        x = b[:, None].copy(order="F")
        for trans in "NT":
            blas.trsm(work, x, side="L", trans=trans)
        return x[:, 0]

    potrfs = libraries(n)
    solvers = {name: on_all_cores(partial(by, potrf), n) for name, potrf in potrfs.items()}
    fresh = dict.fromkeys(potrfs, partial(restore, work, a)) | {"tiles": let_mkl_rest}
    source = Dense(a, Layout.of(n, tile), scaling=False)

    def by_tiles():
        x = Preconditioner(factored(source, "fp64", 0.0))(b[:, None] / source.scale[:, None])
        return x[:, 0] / source.scale

    return solvers | {"tiles": by_tiles}, fresh


def speed_rows(n, figure, rounds, tile=None, baseline=None):
    """Return rows of speed.csv: times to solution, in turns (Figures 4-7).

    The solvers in FP64 do not depend on the matrix: the fastest one, the baseline, is found with
    the first figure of each n and timed again in turns with the solvers of the others. An
    iteration that does not converge has no rate.
    """
    spectrum, condition, about = FIGURES[figure]
    a, b = system(spectrum, n, condition)
    direct, fresh = direct_solvers(a, b, tile)
    works = dict(direct) if baseline is None else {baseline: direct[baseline]}
    outcomes, described = {}, {}

    def work(name, factor, method, mine):
        # more iterations than 60 cost more than a factorization
        outcomes[name], _ = solved(a, b, factor, method, mine, tile=tile, iterations=60)

    settings = [
        (factor, method, about if factor != "fp32" else about | {"shift": 0.0})
        for factor, method in SOLVERS
    ]
    if figure == "7":
        settings.append(("fp16", "gmres", about | {"shift": 0.0}))
    for factor, method, mine in settings:
        name = f"{factor} {method} {mine['shift']:g}"
        described[name] = {"factor": factor, "method": method} | mine
        works[name] = partial(work, name, factor, method, mine)
    seconds = interleaved(works, rounds, fresh=fresh)
    baseline = min((name for name in direct if name in seconds), key=seconds.get)
    operations, rows = n**3 / 3 + 5 * n**2 / 2 + n / 6, []
    head = {"spectrum": spectrum, "condition": condition, "threads": usable_cores()}
    head["infinity_condition"] = infinity_condition(a, spectrum, condition)
    for name, value in seconds.items():
        row = head | described.get(name, {"factor": "fp64", "method": name})
        outcome = outcomes.get(name, {"outcome": "CONVERGED"})
        if outcome["outcome"] == "CONVERGED":
            rate = operations / value / 1e9
            row |= {"seconds": value, "gflops": rate}
            row["share_of_ceiling"] = share(rate, row["factor"].split("-")[-1])
            row |= {"baseline": baseline, "over_baseline": seconds[baseline] / value}
        rows.append(row | outcome)
    return rows


def kriging_rows(correlation, smoothness, n, targets, accuracy, tile=None):
    """Return rows of kriging.csv: refined means and variances beside those in FP64."""
    places, there = lay_out(n, "uniform", 0), np.random.default_rng(5).random((targets, 2))
    model = gx.Matern(1.0, RANGES[correlation], smoothness, 1e-4)
    seen = Observations(places, gx.simulate(model, places, seed=1)[0])
    fixed = ("variance", "range", "smoothness", "nugget")
    exact, rows = gx.predict(gx.fit(seen, model, fixed=fixed), there), []
    for method in METHODS:
        how = gx.Exact(gx.by_tile_norm(accuracy), tile, refine=method)
        row = {"nugget": 1e-4, "accuracy": accuracy, "method": method}
        try:
            start = time.perf_counter()
            evaluation = gx.log_likelihood(seen, model, how)
            found = gx.predict(gx.fit(seen, model, how, fixed=fixed), there)
        except gx.GeomxpError as error:
            rows.append(row | {"iterations": None, "mean_error": None, "message": str(error)})
            continue
        formats = evaluation.precision_map.counts().items()
        row |= {
            "iterations": evaluation.refinement.iterations,
            "mean_error": float(np.max(np.abs(found.mean / exact.mean - 1))),
            "variance_error": float(np.max(np.abs(found.variance / exact.variance - 1))),
            "seconds": time.perf_counter() - start,
            "formats": " ".join(f"{form}:{count}" for form, count in formats),
        }
        rows.append(row)
    return rows


def memory_rows(n, tile=None):
    """Return the row of memory.csv, from a process of its own."""
    command = [sys.executable, __file__, "--memory-of", json.dumps([n, tile])]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    document = json.loads(run.stdout)
    del document["n"]
    return [document]


def memory_of(n, tile):
    """Return what one refined solution of Σx = b takes of memory."""
    import psutil

    model, places = gx.Matern(1.0, RANGES["weak"], 0.5, 1e-4), lay_out(n, "uniform", 0)
    seen = Observations(places, np.zeros(n))
    process = psutil.Process()
    before = process.memory_info().rss
    factor = tile_factor(model, seen, gx.by_tile_norm(1e-4), tile)
    refined = RefinedFactor(factor, "gmres")
    b = np.random.default_rng(1).standard_normal(n)
    x = refined.solve(b)
    import resource

    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "n": n,
        "fp64_matrix": 8 * n * n,
        "factor": factor.nbytes,
        "peak_above_start": peak - before,
        "over_fp64_matrix": (peak - before) / (8 * n * n),
        "iterations": refined.last.iterations,
        "residual": refined.last.residual,
        "largest": float(np.abs(x).max()),
    }


def determinant_rows(correlation, smoothness, n, rounds, tile=None):
    """Return rows of log_determinant.csv: error against cost of rules, FP64 beside them."""
    seen = Observations(lay_out(n, "uniform", 0), np.zeros(n))
    rules = {f"by_tile_norm({e:g})": gx.by_tile_norm(e) for e in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9)}
    rules |= {f"for_divergence({k:g})": gx.for_divergence(k) for k in (1e-4, 1e-6, 1e-8)}
    rules |= {"fp32": gx.uniform("fp32"), "fp64": gx.uniform("fp64")}
    model, found = gx.Matern(1.0, RANGES[correlation], smoothness, 1e-4), {}

    def work(label):
        factor = tile_factor(model, seen, rules[label], tile)
        found[label] = factor.log_determinant(), factor.precision_map, factor.promotions

    seconds = interleaved({label: partial(work, label) for label in rules}, rounds)
    exact, rows = found["fp64"][0], []
    for label, value in seconds.items():
        determinant, formats, promotions = found[label]
        counts = formats.counts().items()
        row = {"rule": label, "error": determinant - exact, "seconds": value}
        row |= {"over_fp64": value / seconds["fp64"], "promotions": promotions}
        rows.append(row | {"formats": " ".join(f"{form}:{count}" for form, count in counts)})
    return rows


def units_of(names, cases, n, work):
    """Return units for cases: keys with these names and n, and work(*case)."""
    return [
        (dict(zip(names, case, strict=True)) | {"n": n}, lambda _, case=case: work(*case))
        for case in cases
    ]


def studies(tiny, sizes):
    """Return the units of each study: {name: [(key, function of the rows so far)]}."""
    n, tile, rounds = (128, 32, 1) if tiny else (2048, None, 2)
    matrix, field = ("spectrum", "condition"), ("correlation", "smoothness")
    hardest, fields = list(HARDEST.items()), list(product(RANGES, (0.5, 1.5)))
    # as Figure 3, the clustered spectrum with two condition numbers
    lines, cases, figures = [("clustered", 1e2), *hardest], CASES, list(FIGURES)
    orders = {"kriging": 4096, "memory": 16_384, "log_determinant": 8192}
    if tiny:
        hardest, lines, cases, fields = hardest[:2], lines[:2], cases[:2], fields[:1]
        figures, orders = ["4a", "7"], {"kriging": 70, "memory": 200, "log_determinant": 100}
    setting = {("clustered", 1e8): FIGURES["5b"][2]}

    def histories(*case):
        about = setting.get(case, {"scaling": True, "shift": 0.4})
        return history_rows(*case, n, about, tile)

    def definiteness(n, tile):
        work = partial(definiteness_rows, n=n, tile=tile)
        units = units_of(matrix, hardest, n, work)
        return [(key | {"tile": tile}, work) for key, work in units]

    def speed(rows, n, figure):
        known = [row["baseline"] for row in rows if row["n"] == str(n) and row.get("baseline")]
        more = rounds + (rounds > 1 and n < 8192)
        return speed_rows(n, figure, more, tile, known[0] if known else None)

    def factor(_, n):
        return factor_rows(n, rounds, (256, 512, 1024) if n == 4096 else (tile,))

    def kriging(*case):
        return kriging_rows(*case, orders["kriging"], 5 if tiny else 100, 1e-4, tile)

    def determinants(*case):
        return determinant_rows(*case, orders["log_determinant"], rounds, tile)

    by_order = product(sizes, figures)
    return {
        "iterations": units_of(matrix, cases, n, partial(iteration_rows, n=n, tile=tile)),
        "histories": units_of(matrix, lines, n, histories),
        "definiteness": [
            unit
            for order, rows in (((n, tile),) if tiny else ((1024, 128), (2048, 512)))
            for unit in definiteness(order, rows)
        ],
        "tiles": [
            ({"n": order, "tile": rows}, lambda _, n=order, tile=rows: tile_rows(n, tile))
            for order, rows in product(
                (n,) if tiny else (2048, 4096), (tile,) if tiny else (128, 256, 512)
            )
        ],
        "factor": [({"n": n}, partial(factor, n=n)) for n in sizes],
        "speed": [({"n": n, "figure": f}, partial(speed, n=n, figure=f)) for n, f in by_order],
        "kriging": units_of(field, fields, orders["kriging"], kriging),
        "memory": [
            ({"n": orders["memory"]}, lambda _: memory_rows(orders["memory"], 64 if tiny else None))
        ],
        "log_determinant": units_of(
            field,
            [case for case in fields if case[0] != "strong"],
            orders["log_determinant"],
            determinants,
        ),
    }


PAPER = ("iterations", "histories", "definiteness", "tiles", "factor", "speed")
TIMED = ("factor", "speed")


def rows_there(path):
    """Return the rows of a file that a run at this clean commit has written."""
    if not path.exists() or COMMIT.endswith("-dirty"):
        return []
    lines = path.read_text().splitlines()
    if f"# commit: {COMMIT}" not in lines:
        return []
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def run(name, units, path):
    """Write a file after each unit, with the rows that are there already."""
    rows = rows_there(path)
    for key, work in units:
        if any(all(row[k] == str(value) for k, value in key.items()) for row in rows):
            continue
        # as rows that are read
        rows += [{k: str(v) for k, v in key.items()} | row for row in work(rows)]
        names = dict.fromkeys(k for row in rows for k in row)
        if name in TIMED:
            keep_memory()
        rates = {"ceilings": ceilings()} if name in TIMED else {}
        write_rows(path, [dict.fromkeys(names) | row for row in rows], **rates)
        print(name, key, flush=True)


def main():
    """Read the command line and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", help="n of factor.csv and speed.csv")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--memory-of", help="(a process of its own)")
    arguments = parser.parse_args()
    if arguments.memory_of:
        print(json.dumps(memory_of(*json.loads(arguments.memory_of))))
        return
    sizes = arguments.sizes or ([128] if arguments.tiny else [2048, 4096, 8192])
    units = studies(arguments.tiny, sizes)
    for name in arguments.names or (units if arguments.tiny else PAPER):
        run(name, units[name], arguments.output / f"{name}.csv")


if __name__ == "__main__":
    main()
