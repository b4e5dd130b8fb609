"""Draw results/*.csv of this folder: figures/recursions.png, by_norm.png and out_of_core.png."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent


def recursions(read):
    """Draw speed-ups over the vendor's FP64 routine against n, by layers."""
    frame = read("e_recursions")
    frame = frame[(frame.matrix == "uniform + n I") & (frame.leaf == "default")]
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    whats = ("potrf", "syrk", "trsm", "trmm")
    for ax, what in zip(figure.subplots(1, 4), whats, strict=True):
        for layers, group in frame[frame.what == what].groupby("layers", sort=False):
            ax.plot(group.n, group.times_vendor, "o-", label=layers)
        ax.axhline(1.0, color="0.6", linewidth=0.8)
        ax.set(xscale="log", xlabel="n", title=what.upper())
    figure.axes[0].set_ylabel("times the vendor's FP64")
    figure.axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def by_norm(read):
    """Draw the rate of the tile Cholesky against the accuracy, by correlation, largest n."""
    frame = read("f_by_norm")
    frame = frame[(frame.n == frame.n.max()) & (frame.tile == frame.tile.max())]
    figure = Figure(figsize=(5, 3.8), layout="constrained")
    ax = figure.subplots()
    for name, group in frame[frame.correlation.notna()].groupby("correlation", sort=False):
        ax.plot(group.accuracy.astype(float), group.tflops, "o-", label=name)
    for rate in frame[frame.correlation.isna()].tflops:
        ax.axhline(rate, color="0.6", linewidth=0.8, label="FP64")
    ax.set(xscale="log", xlabel="accuracy asked for", ylabel="TFLOP/s, n³/3 over time")
    ax.set_title(f"n = {frame.n.max():,}")
    ax.legend(frameon=False)
    return figure


def out_of_core(read):
    """Draw the bytes that come in by policy, and the share of the in-core rate."""
    frame = read("g_out_of_core")
    frame = frame[frame.policy.notna() & frame.seconds.notna()]
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    volume, rate = figure.subplots(1, 2)
    for (n, budget), group in frame.groupby(["n", "budget"], sort=False):
        label = f"n = {n:,}, {float(budget) / 1e9:g} GB"
        volume.plot(group.policy, group.bytes_in / 1e9, "o-", label=label)
        rate.plot(group.policy, group.of_in_core_rate, "o-", label=label)
    volume.set(ylabel="GB in")
    rate.set(ylabel="of the rate in core")
    volume.legend(frameon=False, fontsize="small")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    options = parser.parse_args()

    def read(name):
        return pd.read_csv(options.results / f"{name}.csv", comment="#")

    options.output.mkdir(parents=True, exist_ok=True)
    for draw in (recursions, by_norm, out_of_core):
        try:
            draw(read).savefig(options.output / f"{draw.__name__}.png", dpi=120)
        except FileNotFoundError as error:
            print(f"{draw.__name__}: {error}")


if __name__ == "__main__":
    main()
