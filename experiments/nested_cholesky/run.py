"""Nested, layered Cholesky: speed over the vendor library, throughput, accuracy, depth (paper 000).

    python experiments/nested_cholesky/run.py [speed] [depth] [leaves] [accuracy] [tree] [digits]
                                              [divergence] [--on gpu] [--tiny]

Writes results/speed.csv (POTRF, SYRK and TRSM against n, on one core and on all usable cores),
depth.csv (POTRF against the number of low layers, on one core), leaves.csv (POTRF and SYRK by the
size of the leaves), accuracy.csv (errors and KL divergence, on the paper's matrices and Matérn's),
tree.csv (seconds and bytes of dense factors and of trees, and seconds of pure FP16) and digits.csv
(the factor's error against n, as the paper's Figure 8). Baseline: the better of SciPy's LAPACK and
MKL in FP64 (cuSOLVER and cuBLAS on a GPU), in the same run, interleaved; casts and copies are part
of each time. Rates are also given as shares of the rate of a large product in the first layer's
format, measured in the same run.

divergence.csv, which is written only when asked for, has KL divergence, bytes and seconds of
likelihoods on all cores: matrices factored as a whole in layers, and tiles by four rules. It takes
most of an hour; a run continues from the rows that are there.
"""

import argparse
import csv
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from scipy.linalg import blas as scipy_blas
from scipy.linalg import lapack, solve_triangular

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.linalg import blas, nested
from geomxp.linalg.formats import BF16, FP16
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.devices import blas_threads, usable_cores
from geomxp.tiles.assemble import covariance_matrix

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import ceilings, peak, timings, write_rows

HERE = Path(__file__).parent
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
LAYERS = (
    ("fp64",),
    ("fp32",),
    ("bf16", "bf16", "bf16", "fp32"),
    ("fp16", "fp16", "fp16", "fp32"),
    ("fp16", "fp32"),
    ("fp16", "fp16", "fp64"),
    ("fp32", "fp32", "fp32", "fp64"),
    ("fp16", "fp32", "fp64"),
)
PUBLISHED = (
    *(("fp64",), ("fp32", "fp32", "fp32", "fp64"), ("fp32",), ("fp16", "fp32")),
    *(("fp16",) * 3 + ("fp32",), ("fp16",) * 5 + ("fp32",)),
)
"""Layers of the paper's Figure 8, besides pure FP16."""

LEAVES = (512, 1024, 2048, 4096)
LEAF = 256
"""Rows of a leaf in files where layers matter, so that all machines have the same layers."""


def paper_matrix(n, seed=0):
    """Return uniform random + n·I, symmetric, Fortran order: the paper's."""
    a = np.random.default_rng(seed).random((n, n))
    a = np.asfortranarray((a + a.T) / 2)
    a.reshape(-1, order="F")[:: n + 1] += n
    return a


def matern_matrix(n, correlation, nugget=1e-2):
    """Return a Matérn covariance matrix of places along Hilbert's curve, whole, Fortran order."""
    x = lay_out(n, "uniform", 0)
    model = gx.Matern(1.0, RANGES[correlation], 0.5, nugget)
    lower = np.tril(covariance_matrix(model, x[hilbert(x)], "euclidean"))
    return np.asfortranarray(lower + np.tril(lower, -1).T)


def libraries(on, what):
    """Return {library: work(a, b)} of the FP64 baselines; each overwrites its last argument."""
    if on == "gpu":
        return _on_gpu(what)
    found = {
        "potrf": {
            "scipy": lambda a, b: lapack.dpotrf(b, lower=1, clean=0, overwrite_a=1),
            "mkl": blas.library("MKL")(lambda a, b: blas.potrf(b)),
        },
        "syrk": {
            "scipy": lambda a, b: scipy_blas.dsyrk(-1.0, a, 1.0, b, lower=1, overwrite_c=1),
            "mkl": blas.library("MKL")(lambda a, b: blas.syrk(b, a, -1.0, 1.0)),
        },
        "trsm": {
            "scipy": lambda a, b: scipy_blas.dtrsm(1.0, a, b, 1, 1, 1, 0, overwrite_b=1),
            "mkl": blas.library("MKL")(lambda a, b: blas.trsm(a, b)),
        },
    }[what]
    return found if blas.mkl() else {"scipy": found["scipy"]}


def _on_gpu(what):
    import cupy

    from geomxp.linalg import recursive
    from geomxp.linalg.backend import backend_of

    work = {
        "potrf": lambda a, b: recursive.potrf(b),
        "syrk": lambda a, b: backend_of(b).syrk(b, a, -1.0, 1.0),
        "trsm": lambda a, b: backend_of(b).trsm(a, b, True),
    }[what]

    def timed(a, b):
        work(a, b)
        cupy.cuda.get_current_stream().synchronize()

    return {"cusolver" if what == "potrf" else "cublas": timed}


def ours(what, layers, leaf=None):
    """Return work(a, b) of the recursion."""
    about = {"layers": layers, "leaf": leaf}
    return {
        "potrf": lambda a, b: nested.potrf(b, **about),
        "syrk": lambda a, b: nested.syrk(a, b, alpha=-1.0, beta=1.0, **about),
        "trsm": lambda a, b: nested.trsm(a, b, side="R", trans="T", **about),
    }[what]


def pure_fp16(a, leaf=LEAF):
    """Overwrite a lower triangle by the recursion with every block rounded to FP16; return it.

    Blocks are computed in FP32 and stored in FP16, the leaves of LAPACK's factorization included:
    the paper's reference, which `nested.potrf` refuses. Entries must be within FP16's range.
    """
    n = len(a)
    if n <= leaf:
        factor, info = lapack.spotrf(a.astype(np.float32), lower=1, clean=1)
        if info:
            raise gx.NotPositiveDefinite("a leaf has no factor", info)
        a[...] = factor.astype(np.float16)
        return a
    h = n // 2
    pure_fp16(a[:h, :h], leaf)
    panel = solve_triangular(
        a[:h, :h].astype(np.float32), a[h:, :h].T.astype(np.float32), lower=True
    ).T.astype(np.float16)
    a[h:, :h] = panel
    wide = panel.astype(np.float32)
    a[h:, h:] = (a[h:, h:].astype(np.float32) - wide @ wide.T).astype(np.float16)
    pure_fp16(a[h:, h:], leaf)
    return a


FLOPS = {"potrf": lambda n: n**3 / 3, "syrk": lambda n: n**3, "trsm": lambda n: n**3}


def operands(what, n, on):
    """Return (a, b): b is overwritten, with what a does to it."""
    a = paper_matrix(n)
    if what == "trsm":
        lower = lapack.dpotrf(a, lower=1, clean=1)[0]
        a, b = np.asfortranarray(lower), paper_matrix(n, 1)
    else:
        b = a.copy(order="F")
    if on == "gpu":
        import cupy

        a, b = cupy.asfortranarray(cupy.asarray(a)), cupy.asfortranarray(cupy.asarray(b))
    return a, b


ROUTINES = ("potrf", "syrk", "trsm")


def speed_rows(sizes, repeats, on, routines=ROUTINES, layers=LAYERS):
    """Yield rows of speed.csv."""
    rates = ceilings(sizes[-1] // 4) if on == "cpu" else None
    every = (None,) if on == "gpu" else sorted({1, usable_cores()})
    for what, n in product(routines, sizes):
        a, b = operands(what, n, on)
        baselines = libraries(on, what)
        candidates = dict(baselines)
        candidates |= {" ".join(form): ours(what, form) for form in layers}
        for cores in every:
            again = repeats * max(1, 4096 // n) if repeats > 1 else 1
            seconds = timings(candidates, a, b, again, cores or 1)
            best = min(seconds[name] for name in baselines)
            for name, median in seconds.items():
                rate = FLOPS[what](n) / median / 1e9
                form = "fp64" if name in baselines else name.split()[0]
                yield {
                    "what": what,
                    "n": n,
                    "cores": cores or "",
                    "layers": name,
                    "seconds": median,
                    "gflops": rate,
                    "speedup": best / median,
                    "share_of_product": "" if rates is None else rate / peak(rates, form, cores),
                    "baseline": "library" if name in baselines else "",
                }


def depth_rows(sizes, repeats, on):
    """Yield rows of depth.csv: POTRF with 0 to 5 low layers, and FP32 input too.

    The layers are BF16 on a CPU that multiplies BF16 faster than FP32, but not FP16; else FP16.
    """
    form = "bf16" if on == "cpu" and blas.has_unit(BF16) and not blas.has_unit(FP16) else "fp16"
    for n in sizes:
        _, b = operands("potrf", n, on)
        baselines = libraries(on, "potrf")
        candidates = dict(baselines)
        candidates |= {
            k: ours("potrf", (form,) * k + ("fp32",), LEAF if k else None) for k in range(6)
        }
        seconds = timings(candidates, None, b, repeats)
        single = timings({k: candidates[k] for k in range(6)}, None, b.astype(np.float32), repeats)
        best = min(seconds[name] for name in baselines)
        for k in range(6):
            yield {
                "n": n,
                "low_layers": k,
                "format": form,
                "seconds": seconds[k],
                "speedup": best / seconds[k],
                "seconds_fp32_input": single[k],
                "speedup_fp32_input": best / single[k],
            }


def leaf_rows(sizes, repeats):
    """Yield rows of leaves.csv: POTRF and SYRK in one format by the size of the leaves."""
    for what, n, form in product(("potrf", "syrk"), sizes, ("fp64", "fp32")):
        a, b = (x.astype(form.replace("fp", "float"), order="F") for x in operands(what, n, "cpu"))
        leaves = [leaf for leaf in LEAVES if leaf < n] + [n]
        candidates = {leaf: ours(what, (form,), leaf) for leaf in leaves}
        for cores in sorted({1, usable_cores()}):
            seconds = timings(candidates, a, b, repeats * max(1, 4096 // n), cores)
            for leaf in leaves:
                about = {"what": what, "format": form, "n": n, "cores": cores, "leaf": leaf}
                speed = seconds[n] / seconds[leaf]
                yield about | {"seconds": seconds[leaf], "speed_over_one_leaf": speed}


def tree_rows(sizes, repeats):
    """Yield rows of tree.csv: POTRF of the paper's matrices stored densely and as a tree, one core.

    "generated" are seconds to store the tree from an array, "seconds" those of the factorization;
    bytes are those of a lower triangle. Pure FP16 has no arithmetic of its own, see `pure_fp16`.
    """
    for n in sizes:
        a = paper_matrix(n)
        times, size = {}, {}

        def timed(key, work, argument, times=times):
            start = time.perf_counter()
            result = work(argument)
            times.setdefault(key, []).append(time.perf_counter() - start)
            return result

        with blas_threads(0), blas.one_core():
            for _ in range(repeats + 1):
                for name, work in libraries("cpu", "potrf").items():
                    timed((name, "dense"), partial(work, None), a.copy(order="F"))
                for layers in PUBLISHED:
                    key, last = " ".join(layers), np.dtype(layers[-1].replace("fp", "float"))
                    dense = a.astype(last, order="F")
                    about = {"layers": layers, "leaf": LEAF if len(set(layers)) > 1 else None}
                    timed((key, "dense"), partial(nested.potrf, **about), dense)
                    make = partial(nested.SymmetricTree, **about)
                    tree = timed((key, "generated"), make, a)
                    timed((key, "tree"), nested.SymmetricTree.potrf, tree)
                    size[key, "dense"], size[key, "tree"] = last.itemsize / 8, tree.nbytes
                timed(("pure fp16", "dense"), pure_fp16, a.astype(np.float16))
        size["pure fp16", "dense"] = 0.25
        seconds = {key: float(np.median(some[1:])) for key, some in times.items()}
        best = min(seconds[name, "dense"] for name in libraries("cpu", "potrf"))
        for (layers, stored), share in size.items():
            yield {
                "n": n,
                "layers": layers,
                "stored": stored,
                "generated": seconds[layers, "generated"] if stored == "tree" else "",
                "seconds": seconds[layers, stored],
                "speedup": best / seconds[layers, stored],
                "bytes_over_fp64": share / (4 * n * (n + 1)) if stored == "tree" else share,
            }


def accuracy_rows(sizes, layers=LAYERS):
    """Yield rows of accuracy.csv.

    "tree" are factors of `SymmetricTree`, whose blocks are stored in their formats; "pure fp16" is
    `pure_fp16`, "rounded to fp16" an exact factor with rounded numbers.
    """
    for n in sizes:
        matrices = {"uniform + n I": paper_matrix(n)}
        matrices |= {f"Matérn {name}": matern_matrix(n, name) for name in RANGES}
        for name, a in matrices.items():
            exact = np.tril(lapack.dpotrf(a, lower=1, clean=1)[0])
            deepest = tuple(["fp16"] * 5 + ["fp32"])
            for form in (*layers, deepest, ("bf16",) * 5 + ("fp32",)):
                lower = a.copy(order="F")
                try:
                    nested.potrf(lower, form, leaf=LEAF)
                except gx.NotPositiveDefinite:
                    yield _accuracy(n, name, " ".join(form), a, exact, None)
                    continue
                yield _accuracy(n, name, " ".join(form), a, exact, np.tril(lower))
            for form in (("fp16", "fp32"), ("fp16",) * 3 + ("fp32",), deepest):
                try:
                    tree = nested.SymmetricTree(a, form, leaf=LEAF).potrf().to_dense()
                except gx.NotPositiveDefinite:
                    tree = None
                yield _accuracy(n, name, f"tree: {' '.join(form)}", a, exact, tree)
            try:
                # the diagonal of the factor is near 1, as FP16's range needs
                scale = 2.0 ** round(np.log2(a.diagonal().max()) / 2)
                pure = np.tril(pure_fp16(a / scale**2)) * scale
            except gx.NotPositiveDefinite:
                pure = None
            yield _accuracy(n, name, "pure fp16", a, exact, pure)
            yield _accuracy(n, name, "rounded to fp16", a, exact, _rounded(exact, a))


def digits_rows(sizes):
    """Yield rows of digits.csv: -log10 ‖L - L_exact‖ / ‖L_exact‖ on the paper's matrices, one core.

    "dense" factors have FP32 or FP64 numbers, those of a "tree" the formats of their blocks. The
    exact factor is LAPACK's in FP64.
    """
    for n in sizes:
        a = paper_matrix(n)
        with blas_threads(0), blas.one_core():
            exact = lapack.dpotrf(a, lower=1, clean=1)[0]
            for layers in PUBLISHED:
                lower = nested.potrf(a.copy(order="F"), layers, leaf=LEAF)
                yield _digits(n, " ".join(layers), "dense", lower, exact)
                lower = nested.SymmetricTree(a, layers, leaf=LEAF).potrf().to_dense()
                yield _digits(n, " ".join(layers), "tree", lower, exact)
            # without a scale, as published: a diagonal of n is within FP16's range
            rounded = a.astype(np.float16).astype(np.float64)
            yield _digits(n, "pure fp16", "dense", pure_fp16(rounded), exact)


def _digits(n, layers, stored, lower, exact):
    """Return a row of digits.csv; the norms are summed by columns, without another matrix."""
    error = size = 0.0
    for j in range(n):
        error += float(np.sum((lower[j:, j] - exact[j:, j]) ** 2))
        size += float(np.sum(exact[j:, j] ** 2))
    error = np.sqrt(error / size)
    about = {"n": n, "layers": layers, "stored": stored, "factor_error": error}
    return about | {"digits": -np.log10(error) if error else np.inf}


WHOLE = (("fp32",), ("fp16", "fp32"), ("fp16",) * 3 + ("fp32",), ("bf16",) * 3 + ("fp32",))


def methods():
    """Yield (name, method) of divergence.csv."""
    for layers in WHOLE:
        yield f"whole: {' '.join(layers)}", gx.Exact(gx.layered(*layers), tile="whole")
    yield "tiles: layered fp16 fp32", gx.Exact(gx.layered("fp16", "fp32"))
    yield "tiles: uniform fp32", gx.Exact(gx.uniform("fp32"))
    for accuracy in (1e-4, 1e-6, 1e-8):
        yield f"tiles: by_tile_norm {accuracy:g}", gx.Exact(gx.by_tile_norm(accuracy))
    for target in (1e-1, 1e-3, 1e-5):
        yield f"tiles: for_divergence {target:g}", gx.Exact(gx.for_divergence(target))


def divergence_rows(sizes, known=()):
    """Yield rows of divergence.csv after the known ones: three correlations, two smoothnesses."""
    yield from known
    done = {(row["n"], row["correlation"], row["smoothness"]) for row in known}
    for n, smoothness, correlation in product(sizes, (0.5, 1.5), RANGES):
        if (str(n), correlation, str(smoothness)) in done:
            continue
        model = gx.Matern(1.0, RANGES[correlation], smoothness, 1e-2)
        names, given = zip(*methods(), strict=True)
        found = gx.compare(model, lay_out(n, "uniform", 0), given, progress=False)
        for name, one in zip(names, found, strict=True):
            yield {
                "n": n,
                "correlation": correlation,
                "smoothness": smoothness,
                "method": name,
                "kl": one.kl,
                "bytes_over_fp64": one.bytes / (4 * n * (n + 1)),
                "seconds": one.seconds,
                "seconds_fp64": one.reference_seconds,
                "promotions": one.promotions,
            }


def rows_of(path):
    """Return the rows of a CSV with a header, or none."""
    if not path.exists():
        return []
    with open(path) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def _rounded(exact, a):
    """Return the exact factor of A/α with every entry in FP16, scaled back (α: the paper's)."""
    alpha = max(1.0, float(abs(a).max()) / 65504.0)
    return (exact / np.sqrt(alpha)).astype(np.float16).astype(np.float64) * np.sqrt(alpha)


def _accuracy(n, matrix, layers, a, exact, lower):
    row = {"n": n, "matrix": matrix, "layers": layers}
    if lower is None:
        return row | dict.fromkeys(("factor_error", "backward_error", "kl"), float("nan"))
    white = solve_triangular(lower, exact, lower=True)
    logs = 2 * np.sum(np.log(lower.diagonal() / exact.diagonal()))
    return row | {
        "factor_error": np.linalg.norm(lower - exact) / np.linalg.norm(exact),
        "backward_error": np.linalg.norm(lower @ lower.T - a) / np.linalg.norm(a),
        "kl": 0.5 * (float(np.sum(white * white)) - n + logs),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", help="speed, depth, accuracy, tree, ...")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--on", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument(
        "--routines", nargs="+", default=ROUTINES, choices=ROUTINES, help="those that speed times"
    )
    options = parser.parse_args()
    tiny, on = options.tiny, options.on
    sizes = (300,) if tiny else (1024, 2048, 4096, 8192) if on == "cpu" else (8192, 32768, 65536)
    last = sizes[-1:]
    known = {
        "speed": lambda: speed_rows(sizes, 1 if tiny else 3, on, options.routines),
        "depth": lambda: depth_rows(last, 1 if tiny else 3, on),
        "accuracy": lambda: accuracy_rows((200,) if tiny else (1024, 4096)),
        "leaves": lambda: leaf_rows((600,) if tiny else sizes[1:], 1 if tiny else 3),
        "tree": lambda: tree_rows((300,) if tiny else sizes[1:], 1 if tiny else 3),
        "digits": lambda: digits_rows((200, 300) if tiny else (1024, 2048, 4096, 8192, 16384)),
        "divergence": lambda: divergence_rows(
            (200,) if tiny else (1024, 4096, 16384), rows_of(options.output / "divergence.csv")
        ),
    }
    for name in options.studies or [name for name in known if tiny or name != "divergence"]:
        rows = []
        for row in known[name]():
            rows.append(row)
            shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
            print(name, *shown, flush=True)
            # a part of the routines does not replace the file of all
            part = "" if name != "speed" or set(options.routines) == set(ROUTINES) else "_part"
            where = f"{name}{part}.csv" if on == "cpu" else f"{name}{part}_gpu.csv"
            timed = on == "cpu" and name in ("speed", "depth", "leaves", "tree")
            rates = ceilings(sizes[-1] // 4) if timed else None
            write_rows(options.output / where, rows, rates)


if __name__ == "__main__":
    main()
