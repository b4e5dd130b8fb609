"""Does a default fit end at the global maximum? Simulated fits against an exhaustive search.

    python experiments/maxima/run.py [--cases FIRST LAST] [--label NAME] [--seconds S] [--tiny]
    python experiments/maxima/run.py --sample COUNT SEED --label NAME
    python experiments/maxima/run.py --summary
    python experiments/maxima/run.py --compare TABLE OTHER

Case k is the same in every run on x86 processors: 30 to 400 locations in one of five designs, a
family, a trend, ML or REML, and a field from no to strong correlation. The reference evaluates the
log-likelihood on a grid of ranges, shapes and nugget ratios, and improves every local maximum of
the grid by L-BFGS-B and Nelder-Mead; it shares only the correlation functions and the trend with
geomxp's fits.

results/reference.csv has the reference's maximum of each case, results/fits_NAME.csv the fit's. A
run adds the cases that are missing there, so that it can be stopped and resumed; `--label` names
the version of the code. `--sample` fits a random subset of the cases, without references.
`--summary` writes results/shares.csv from them; `--compare` prints how two versions differ on the
cases in both of their tables, such as fits_NAME: log-likelihoods, outcomes, and Cholesky
factorizations, those of the grids of starts included.
"""

import argparse
import csv
import os
import sys
import time
import warnings
from itertools import product
from pathlib import Path

# the fields come from eigenvectors, whose signs differ between kernels and numbers of threads
os.environ |= {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import scipy
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import provenance, write_rows

import geomxp as gx
from geomxp.covariance.base import family_of
from geomxp.covariance.distance import embed
from geomxp.likelihood.exact import ExactEvaluator
from geomxp.likelihood.trend import Trend

HERE = Path(__file__).parent
DESIGNS = ("uniform", "clustered", "grid", "transect", "lonlat")
FAMILIES = ("matern",) * 10 + ("gaussian", "powered-exponential", "spherical") * 2
FAMILIES += ("rational-quadratic", "rational-quadratic", "cauchy", "wendland")
SHAPES = {
    "matern": {"smoothness": (0.02, 0.1, 0.3, 0.7, 1.5, 4.0, 12.0, 30.0)},
    "powered-exponential": {"power": (0.05, 0.3, 0.7, 1.2, 1.7, 2.0)},
    "cauchy": {"power": (0.05, 0.6, 1.4, 2.0), "decay": (0.05, 0.5, 3.0, 50.0)},
    "rational-quadratic": {"shape": (0.02, 0.1, 0.4, 1.5, 10.0, 1000.0)},
    "wendland": {"smoothness": (0.0, 0.5, 2.0, 10.0), "shape": (1.5, 3.0, 6.0, 13.0, 30.0)},
}
"""Grid of the reference, from end to end of the search's box."""

NUGGETS = np.array([1e-13, 1e-10, 1e-7, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 100, 1e4])
BASIN = 4.0
"""Local maxima of the grid this far below the best one are improved."""


def locations(rng, design, n):
    """Return the locations of a case, (n, 2), and their metric."""
    if design == "clustered":
        centres = rng.random((max(3, n // 15), 2))
        return centres[rng.integers(len(centres), size=n)] + 0.02 * rng.normal(
            size=(n, 2)
        ), "euclidean"
    if design == "grid":
        side = int(np.sqrt(n))
        return np.stack(np.meshgrid(range(side), range(side)), -1).reshape(
            -1, 2
        ) / side, "euclidean"
    if design == "transect":
        along = np.sort(rng.random(n))
        return np.column_stack([along, 0.01 * rng.random(n)]), "euclidean"
    if design == "lonlat":
        return np.column_stack([rng.uniform(5, 15, n), rng.uniform(45, 55, n)]), "chordal"
    return rng.random((n, 2)), "euclidean"


def distances(points, metric):
    """Return all distances, (n, n)."""
    if metric == "chordal":
        lon, lat = np.radians(points).T
        points = 6371.0088 * np.column_stack(
            [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
        )
    return scipy.spatial.distance.cdist(points, points)


def case(k):
    """Return case k: observations, options of the fit, distances, and a dict that describes it."""
    rng = np.random.default_rng([21, k])
    n = round(np.exp(rng.uniform(np.log(30), np.log(400))))
    design, family = DESIGNS[k % 5], FAMILIES[rng.integers(len(FAMILIES))]
    points, metric = locations(rng, design, n)
    n = len(points)
    h = distances(points, metric)
    kind = family_of(family)
    shapes = {}
    if family in ("matern", "wendland"):
        shapes["smoothness"] = np.exp(rng.uniform(np.log(0.3), np.log(2.5)))
    if family == "wendland":
        shapes["shape"] = 2.0 if metric == "chordal" else 1.5
        shapes["shape"] += shapes["smoothness"] + rng.uniform(0, 3)
    for name, (low, high) in {"power": (0.3, 1.9), "decay": (0.3, 3.0)}.items():
        if family == "cauchy" or (family, name) == ("powered-exponential", "power"):
            shapes[name] = rng.uniform(low, high)
    if family == "rational-quadratic":
        shapes["shape"] = np.exp(rng.uniform(np.log(0.2), np.log(5)))
    practical = h.max() * np.exp(rng.uniform(np.log(0.02), np.log(1.5)))
    share = (0.0, rng.random(), rng.random(), rng.random() ** 3, 1.0)[rng.integers(5)]
    unit = kind.from_parameters({p.name: p.value for p in kind.declared} | shapes | {"range": 1.0})
    length = practical / unit.practical_range()
    r = unit.correlation(h / length)
    cov = (1 - share) * r + (share + 1e-9) * np.eye(n)
    values, vectors = np.linalg.eigh(cov)
    z = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.normal(size=n))
    trend = ("constant", "constant", "linear", "zero")[rng.integers(4)]
    reml = bool(rng.random() < 0.4) and trend != "zero"
    held = {}
    if family == "matern" and rng.random() < 0.3:
        held["smoothness"] = (0.5, 1.5)[rng.integers(2)]
    about = {
        "case": k, "n": n, "design": design, "family": family, "trend": trend, "reml": int(reml),
        "held": held.get("smoothness", ""), "practical_range": practical / h.max(),
        "nugget_share": share,
    }  # fmt: skip
    about |= {f"true_{p}": shapes.get(p, "") for p in ("smoothness", "shape", "power", "decay")}
    options = {"family": family, "trend": trend, "reml": reml, "fixed": held}
    return gx.Observations(points, z, metric=metric), options, h, about


# The reference


class Reference:
    """Log-likelihood of one case, with variance and trend profiled out, in plain NumPy."""

    def __init__(self, observations, options, h):
        self.h, self.z, self.inputs = h, observations.values, observations.inputs
        trend = Trend.of(observations, options["trend"])
        design = trend.design(observations.locations, observations.covariates)
        # orthonormal columns; the restricted likelihood depends on |X'X|
        self.x, triangle = np.linalg.qr(design)
        self.reml = options["reml"]
        self.shift = -np.log(np.abs(np.diag(triangle))).sum() if self.reml else 0.0
        self.kind = family_of(options["family"])
        self.held = options["fixed"]
        self.base = {p.name: p.value for p in self.kind.declared} | {"variance": 1.0}
        positive = h[h > 0]
        corners = np.ptp(embed(observations.locations, observations.metric), axis=0)
        self.lengths = 0.1 * positive.min(), 1e3 * float(np.linalg.norm(corners))
        dimensions = observations.locations.shape[1]
        self.metric = observations.metric, dimensions

    def correlation(self, practical, shapes):
        """Return R; None where the family is not valid."""
        model = self.kind.from_parameters(self.base | shapes | {"range": 1.0})
        length = practical / model.practical_range()
        model = model.replace(range=length)
        if not model.valid_on(*self.metric):
            return None
        return model.matrix(self.inputs, self.inputs)

    def _of_sums(self, log_det, zz, xx, xz):
        n, p = len(self.z), self.x.shape[1]
        if p:
            zz = zz - xz @ np.linalg.solve(xx, xz)
        m = n - p if self.reml else n
        if zz <= 0:
            return -np.inf
        value = -0.5 * (m * np.log(2 * np.pi * zz / m) + log_det + m)
        if self.reml:
            value -= 0.5 * np.linalg.slogdet(xx)[1]
        return value + self.shift

    def at(self, practical, ratio, shapes):
        """Return ℓ by a Cholesky factorization; -inf where the family is not valid."""
        r = self.correlation(practical, shapes)
        return -np.inf if r is None else self.of_matrix(r, ratio)

    def of_matrix(self, r, ratio):
        """Return ℓ of R and a nugget ratio; -inf if there is no Cholesky factor."""
        r = r.copy()
        np.einsum("ii->i", r)[:] += ratio
        factor, info = scipy.linalg.lapack.dpotrf(r.T, lower=1, overwrite_a=1)
        if info:
            return -np.inf
        both = scipy.linalg.lapack.dtrtrs(factor, np.column_stack([self.z, self.x]), lower=1)[0]
        z, x = both[:, 0], both[:, 1:]
        return self._of_sums(2 * np.log(np.diag(factor)).sum(), z @ z, x.T @ x, x.T @ z)

    def maximum(self):
        """Return the largest ℓ found, and its parameters."""
        positive = self.h[self.h > 0]
        nearest = np.median(np.where(self.h > 0, self.h, np.inf).min(axis=1))
        low = max(self.lengths[0], min(0.15 * nearest, 2 * positive.min()))
        top = 3 * self.h.max()
        lengths = np.concatenate([np.geomspace(low, top, 24), self.h.max() * np.array([30, 1000])])
        free = {n: g for n, g in SHAPES.get(self.kind.family, {}).items() if n not in self.held}
        axes = list(product(*free.values()))
        surface = np.full((len(axes), len(lengths), len(NUGGETS)), -np.inf)
        for (i, shape), (j, length) in product(enumerate(axes), enumerate(lengths)):
            r = self.correlation(length, dict(zip(free, shape, strict=True)) | self.held)
            if r is not None:
                surface[i, j] = [self.of_matrix(r, ratio) for ratio in NUGGETS]
        best = np.nanmax(surface)
        sizes = [len(g) for g in free.values()] + [len(lengths), len(NUGGETS)]
        surface = surface.reshape(sizes)
        higher = scipy.ndimage.maximum_filter(surface, size=3, mode="nearest")
        peaks = np.argwhere((surface >= higher) & (surface > best - BASIN))
        peaks = sorted(peaks, key=lambda at: -surface[tuple(at)])[:8]
        ends = []
        for at in peaks:
            grids = [*free.values(), lengths, NUGGETS]
            start = [grid[k] for grid, k in zip(grids, at, strict=True)]
            ends.append(self._improve(free, start, thorough=False))
        ends = sorted(ends, key=lambda end: -end[0])[:2]
        ends += [self._improve(free, start, thorough=True) for _, start in ends]
        value, at = max(ends, key=lambda end: end[0])
        return value, dict(zip([*free, "practical_range", "ratio"], at, strict=True))

    def _improve(self, grids, start, thorough):
        names = list(grids)
        boxes = [(g[0], g[-1]) for g in grids.values()]
        boxes += [self.lengths, (NUGGETS[0], NUGGETS[-1])]
        logs = [low > 0 for low, _ in boxes]
        inward = [np.log if of else float for of in logs]
        box = [tuple(f(end) for end in ends) for f, ends in zip(inward, boxes, strict=True)]

        def values(x):
            return [np.exp(v) if of else v for v, of in zip(x, logs, strict=True)]

        def loss(x):
            *shapes, length, ratio = values(x)
            shapes = dict(zip(names, shapes, strict=True)) | self.held
            value = self.at(length, ratio, shapes)
            return -value if np.isfinite(value) else 1e6

        x = np.array([f(v) for f, v in zip(inward, start, strict=True)])
        end = minimize(loss, x, method="L-BFGS-B", bounds=box, options={"eps": 1e-5})
        x = end.x if end.fun < loss(x) else x
        if thorough:
            most = {"maxiter": 50 * len(x), "fatol": 1e-6}
            end = minimize(loss, x, method="Nelder-Mead", bounds=box, options=most)
            x = end.x if end.fun < loss(x) else x
        # the smallest of some values: a search ends where rounding errors are largest
        near = x * (1 + 1e-9 * np.random.default_rng(0).normal(size=(5, len(x))))
        low, high = np.transpose(box)
        return -max(map(loss, np.clip(near, low, high))), values(x)


# The runs


def read(path):
    """Return the rows of a CSV by case; none if it does not exist."""
    if not path.exists():
        return {}
    with open(path, newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return {int(row["case"]): row for row in csv.DictReader(lines)}


def append(path, row):
    """Append a row to a CSV, below a header if the file is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with open(path, "a", newline="") as file:
        if new:
            file.writelines(f"# {name}: {value}\n" for name, value in provenance().items())
        writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def count_factorizations():
    """Count the Cholesky factorizations of exact likelihoods from now on: a list with one number.

    A factorization that fails counts too.
    """
    count, factorize = [0], ExactEvaluator.factorize

    def counted(self, *arguments):
        count[0] += 1
        return factorize(self, *arguments)

    ExactEvaluator.factorize = counted
    return count


def fitted(observations, options, count):
    """Return how a default fit ends; `count` is that of `count_factorizations`."""
    began, before = time.process_time(), count[0]
    row = {"outcome": "", "log_likelihood": "", "evaluations": "", "seconds": "", "model": ""}
    try:
        fit = gx.fit(observations, progress=False, raise_on_failure=False, **options)
        row |= {
            "outcome": str(fit.outcome.ending),
            "log_likelihood": repr(fit.log_likelihood),
            "evaluations": fit.evaluations,
            "model": " ".join(f"{n}={v:.8g}" for n, v in fit.model.parameters().items()),
        }
    except gx.GeomxpError as error:
        row["outcome"] = type(error).__name__
    row["seconds"] = f"{time.process_time() - began:.3f}"
    return row | {"factorizations": count[0] - before}


USABLE = ("CONVERGED", "ON_BOUND", "COMPUTED", "AT_LIMIT")
ENDINGS = (*USABLE, "UNIDENTIFIED", "EVALUATION_LIMIT", "STALLED", "NO_FINITE_MAXIMUM")
LOST, SAME = 0.01, 0.001
"""Log-likelihood by which a lower fit falls short; difference between values of one field, whose
parameters are rounded to 8 digits."""


def summarize(folder):
    """Write shares.csv: how the fits of each version end, and how many miss the maximum."""
    reference = read(folder / "reference.csv")
    versions = {p.stem.removeprefix("fits_"): read(p) for p in sorted(folder.glob("fits_*.csv"))}
    best = {k: value_of(row) for k, row in reference.items()}
    for fits in versions.values():
        for k, row in fits.items():
            if row["outcome"] in USABLE:
                best[k] = max(best[k], value_of(row))
    groups = {"all": sorted(reference)}
    for name in ("family", "design", "reml"):
        for k in groups["all"]:
            groups.setdefault(f"{name} {reference[k][name]}", []).append(k)
    rows = []
    for label, fits in versions.items():
        for group, members in groups.items():
            members = [k for k in members if k in fits]
            usable = [k for k in members if fits[k]["outcome"] in USABLE]
            short = [best[k] - value_of(fits[k]) for k in usable]
            endings = [fits[k]["outcome"] for k in members]
            rows.append(
                {"version": label, "cases": group, "fits": len(members), "usable": len(usable)}
                | {"lower": sum(each > LOST for each in short), "most": f"{max(short):.3g}"}
                | {ending.lower(): endings.count(ending) for ending in ENDINGS}
                | {"other": sum(ending not in ENDINGS for ending in endings)}
                | {"seconds": f"{sum(float(fits[k]['seconds']) for k in members):.0f}"}
            )
    write_rows(folder / "shares.csv", rows)


def compare(folder, first, second):
    """Print how the fits of two versions differ on the cases that both have fitted."""
    fits = [read(folder / f"{table}.csv") for table in (first, second)]
    both = sorted(set(fits[0]) & set(fits[1]))
    rows = [[of[k] for of in fits] for k in both]
    usable = [pair for pair in rows if all(row["outcome"] in USABLE for row in pair)]
    gains = [value_of(after) - value_of(before) for before, after in usable]
    print(f"{len(both)} cases, {len(usable)} usable in both")
    for margin in (1e-6, 1e-4, LOST):
        below, above = sum(g < -margin for g in gains), sum(g > margin for g in gains)
        print(f"log-likelihood of {second} differs by more than {margin:g}: lower in {below}, "
              f"higher in {above}")  # fmt: skip
    for name in ("evaluations", "factorizations", "seconds"):
        sums = [sum(float(row[k][name] or 0) for row in rows) for k in (0, 1)]
        print(f"{name}: {sums[0]:,.0f} {first}, {sums[1]:,.0f} {second}")
    for k, (before, after) in zip(both, rows, strict=True):
        gain = value_of(after) - value_of(before)
        if before["outcome"] != after["outcome"] or gain < -1e-6 or gain > LOST:
            ends = [f"{row['outcome']} {row['model']}" for row in (before, after)]
            print(k, f"{gain:+.3g}", *ends, sep="; ")


def is_of(row, reference):
    """Whether a reference's maximum in a table is one of this field."""
    shapes = dict(pair.split("=") for pair in row["model"].split())
    shapes = {name: float(value) for name, value in shapes.items()}
    practical, ratio = shapes.pop("practical_range"), shapes.pop("ratio")
    value = reference.at(practical, ratio, shapes | reference.held)
    return abs(value - value_of(row)) < SAME


def value_of(row):
    """Return the log-likelihood of a row; -inf without one."""
    return float(row["log_likelihood"] or "-inf")


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, nargs=2, default=(0, 5000))
    parser.add_argument("--every", type=int, nargs=2, default=(0, 1), metavar=("PART", "OF"))
    parser.add_argument("--sample", type=int, nargs=2, metavar=("COUNT", "SEED"))
    parser.add_argument("--label", default="")
    parser.add_argument("--seconds", type=float, default=np.inf)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--check", action="store_true", help="look at all fields again")
    parser.add_argument("--summary", action="store_true", help="write shares.csv only")
    parser.add_argument("--compare", nargs=2, metavar=("TABLE", "OTHER"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.summary:
        summarize(options.output)
        return
    if options.compare:
        compare(options.output, *options.compare)
        return
    if options.tiny:
        options.cases = (3, 5)
    part, of = options.every
    suffix = f"_{part}" if of > 1 else ""
    references = options.output / f"reference{suffix}.csv"
    fits = options.output / f"fits_{options.label}{suffix}.csv" if options.label else None
    known = read(references), {} if fits is None else read(fits)
    began = time.perf_counter()
    warnings.simplefilter("ignore")
    count, cases = count_factorizations(), range(*options.cases)
    if options.sample:
        size, seed = options.sample
        cases = np.random.default_rng(seed).permutation(cases)[:size].tolist()
    for k in cases[part::of]:
        if time.perf_counter() - began > options.seconds:
            break
        missing = k not in known[0], fits is not None and k not in known[1]
        if options.sample:
            missing = False, missing[1]
        if not any(missing) and not options.check:
            continue
        observations, request, h, about = case(k)
        if (
            not options.sample
            and k in known[0]
            and not is_of(known[0][k], Reference(observations, request, h))
        ):
            # eigenvectors of equal or close eigenvalues differ between processors
            missing = True, missing[1]
            print(f"case {k} is another field here: its reference is computed again", flush=True)
        if missing[0]:
            start = time.process_time()
            value, found = Reference(observations, request, h).maximum()
            found = " ".join(f"{n}={v:.8g}" for n, v in (found or {}).items())
            spent = f"{time.process_time() - start:.2f}"
            row = about | {"log_likelihood": repr(float(value)), "model": found, "seconds": spent}
            append(references, row)
        if missing[1]:
            append(fits, {"case": k} | fitted(observations, request, count))


if __name__ == "__main__":
    main()
