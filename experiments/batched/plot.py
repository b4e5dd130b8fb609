"""Draw results/*.csv of this folder in figures/: size, ratio, variants, solve and rates."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
TYPES = {"float64": "FP64", "float32": "FP32"}
SHOWN = {
    "potrf, tuned": "potrf",
    "in place, tuned": "potrf, in place",
    "interleaved, tuned": "potrf_interleaved",
    "mkl": "MKL compact, the faster format",
    "numpy": "numpy.linalg.cholesky",
}
LAYOUTS = ("canonical", "interleaved")
PARTS = ("factorization", "forward", "backward")


def read(name):
    """Return a results file as a frame."""
    return pd.read_csv(HERE / "results" / f"{name}.csv", comment="#")


def sizes():
    """Return size.csv, with the faster format of MKL as "mkl"."""
    frame = read("size")
    compact = frame[frame.what.str.startswith("mkl compact")]
    best = compact.loc[compact.groupby(["dtype", "n"]).gflops.idxmax()].assign(what="mkl")
    return pd.concat([frame, best])


def size():
    """Draw rates against n, packed, in place and interleaved, beside NumPy and MKL."""
    frame, figure = sizes(), Figure(figsize=(10, 4), layout="constrained")
    for ax, (dtype, title) in zip(figure.subplots(1, 2), TYPES.items(), strict=True):
        for what, label in SHOWN.items():
            some = frame[(frame.dtype == dtype) & (frame.what == what)]
            if len(some):
                ax.plot(some.n, some.gflops, "o-", label=label)
        ax.set(xlabel="n", yscale="log", title=f"{title}, one thread")
    figure.axes[0].set_ylabel("GFLOP/s")
    figure.axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def ratio():
    """Draw speed-ups over the faster library, as the paper's Figure 21."""
    frame, figure = sizes(), Figure(figsize=(10, 4), layout="constrained")
    for ax, (dtype, title) in zip(figure.subplots(1, 2), TYPES.items(), strict=True):
        rates = frame[frame.dtype == dtype].pivot_table(index="n", columns="what", values="gflops")
        library = rates[[name for name in ("numpy", "mkl") if name in rates]].max(axis=1)
        for what in [name for name in SHOWN if name.endswith("tuned")]:
            ax.plot(rates.index, rates[what] / library, "o-", label=SHOWN[what])
        ax.axhline(1, color="gray", linewidth=0.8)
        ax.set(xlabel="n", title=f"{title}, one thread", ylim=(0, None))
    figure.axes[0].set_ylabel("speed relative to the faster library")
    figure.axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def variants():
    """Draw the best rate with one parameter fixed, as the paper's Figures 15 to 19."""
    frame = read("variants")
    names = ("tile", "looking", "unroll", "chunk")
    figure = Figure(figsize=(13, 6), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True)
    for row, (dtype, title) in zip(axes, TYPES.items(), strict=True):
        for ax, name in zip(row, names, strict=True):
            for value, group in frame[frame.dtype == dtype].groupby(name, sort=False):
                best = group.groupby("n").gflops.max()
                label = "without chunks" if value == "batch" else str(value)
                ax.plot(best.index, best, "o-", label=label)
            ax.set(title=f"{title}: {name}", xlabel="n")
            ax.legend(frameon=False, fontsize="x-small")
        row[0].set_ylabel("GFLOP/s")
    return figure


def solve():
    """Draw what the parts of a solution take, as the paper's Figure 13.

    The dashed line is the time of `posv_interleaved`, or of `potrf` and `solve`.
    """
    frame = read("solve")
    figure = Figure(figsize=(9, 7), layout="constrained")
    for row, layout in zip(figure.subplots(2, 2, sharex=True), LAYOUTS, strict=True):
        for ax, (dtype, title) in zip(row, TYPES.items(), strict=True):
            some = frame[(frame.dtype == dtype) & (frame.layout == layout)]
            shares = some.pivot(index="n", columns="part", values="share")
            ax.stackplot(shares.index, *(shares[part] for part in PARTS), labels=PARTS)
            ax.plot(shares.index, shares.complete, "k--", label="complete")
            ax.set(xlabel="n", ylabel="share of the time", title=f"{title}, {layout}", ylim=(0, 1))
    figure.axes[0].legend(fontsize="x-small", loc="lower right")
    return figure


def rates():
    """Draw rates of factorizations, substitutions and solutions, as the paper's Figure 14."""
    frame = read("solve")
    figure = Figure(figsize=(10, 4), layout="constrained")
    for ax, (dtype, title) in zip(figure.subplots(1, 2), TYPES.items(), strict=True):
        for layout, line in zip(LAYOUTS, (":", "-"), strict=True):
            for k, part in enumerate(("factorization", "solve", "complete")):
                some = frame[(frame.dtype == dtype) & (frame.layout == layout)]
                some = some[some.part == part]
                label = f"{part}, {layout}"
                ax.plot(some.n, some.gflops, f"o{line}C{k}", markersize=4, label=label)
        ax.set(xlabel="n", title=f"{title}, one thread")
    figure.axes[0].set_ylabel("GFLOP/s")
    figure.axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for draw in (size, ratio, variants, solve, rates):
        draw().savefig(output / f"{draw.__name__}.png", dpi=120)


if __name__ == "__main__":
    main()
