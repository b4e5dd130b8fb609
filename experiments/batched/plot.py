"""Draw results/*.csv of this folder: figures/size.png, variants.png and solve.png."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
TYPES = {"float64": "FP64", "float32": "FP32"}
SHOWN = {
    "potrf, tuned": "geomxp.linalg.batched.potrf",
    "in place, tuned": "the same, in place",
    "interleaved, tuned": "on interleaved chunks",
    "mkl": "MKL compact, the better format",
    "numpy": "numpy.linalg.cholesky",
}


def read(name):
    """Return a results file as a frame."""
    return pd.read_csv(HERE / "results" / f"{name}.csv", comment="#")


def size():
    """Draw rates against n, packed, in place and interleaved, beside NumPy and MKL."""
    frame = read("size")
    compact = frame[frame.what.str.startswith("mkl compact")]
    best = compact.loc[compact.groupby(["dtype", "n"]).gflops.idxmax()].assign(what="mkl")
    frame = pd.concat([frame, best])
    figure = Figure(figsize=(10, 4), layout="constrained")
    for ax, (dtype, title) in zip(figure.subplots(1, 2), TYPES.items(), strict=True):
        for what, label in SHOWN.items():
            some = frame[(frame.dtype == dtype) & (frame.what == what)]
            if len(some):
                ax.plot(some.n, some.gflops, "o-", label=label)
        ax.set(xlabel="n", yscale="log", title=f"{title}, 16,384 matrices, one thread")
    figure.axes[0].set_ylabel("GFLOP/s")
    figure.axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def variants():
    """Draw the best rate with one parameter fixed, as the paper's Figures 15 to 19."""
    frame = read("variants")
    names = ("tile", "looking", "chunk", "unroll")
    figure = Figure(figsize=(13, 6), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True)
    for row, (dtype, title) in zip(axes, TYPES.items(), strict=True):
        for ax, name in zip(row, names, strict=True):
            for value, group in frame[frame.dtype == dtype].groupby(name):
                best = group.groupby("n").gflops.max()
                ax.plot(best.index, best, "o-", label=str(value))
            ax.set(title=f"{title}: {name}", xlabel="n")
            ax.legend(frameon=False, fontsize="x-small")
        row[0].set_ylabel("GFLOP/s")
    return figure


def solve():
    """Draw what the parts of a solution take, as the paper's Figure 13."""
    frame = read("solve")
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for ax, (dtype, title) in zip(figure.subplots(1, 2), TYPES.items(), strict=True):
        shares = frame[frame.dtype == dtype].pivot(index="n", columns="part", values="share")
        parts = ["factorization", "forward", "backward"]
        ax.stackplot(shares.index, *(shares[part] for part in parts), labels=parts)
        ax.set(xlabel="n", ylabel="share of the time", title=title, ylim=(0, 1))
    figure.axes[0].legend(fontsize="x-small", loc="lower right")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for draw in (size, variants, solve):
        draw().savefig(output / f"{draw.__name__}.png", dpi=120)


if __name__ == "__main__":
    main()
