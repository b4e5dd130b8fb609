"""Draw results/*.csv of this folder: figures/speed.png, depth.png and accuracy.png."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent


def read(name):
    """Return a results file as a frame."""
    return pd.read_csv(HERE / "results" / f"{name}.csv", comment="#")


def speed():
    """Draw speed-ups over the FP64 library against n for POTRF, SYRK and TRSM."""
    frame = read("speed")
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    for ax, what in zip(figure.subplots(1, 3), ("potrf", "syrk", "trsm"), strict=True):
        some = frame[(frame.what == what) & (frame.baseline != "library")]
        for layers, group in some.groupby("layers", sort=False):
            ax.plot(group.n, group.speedup, "o-", label=layers)
        ax.axhline(1.0, color="0.6", linewidth=0.8)
        ax.set(xscale="log", xlabel="n", title=what.upper())
        ax.minorticks_off()
        ax.set_xticks(sorted(some.n.unique()), [str(n) for n in sorted(some.n.unique())])
    figure.axes[0].set_ylabel("times the better FP64 library")
    figure.axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def depth():
    """Draw POTRF's speed-up against the number of FP16 layers."""
    frame = read("depth")
    figure = Figure(figsize=(5, 3.8), layout="constrained")
    ax = figure.subplots()
    ax.plot(frame.low_layers, frame.speedup, "o-", label="FP64 matrix")
    ax.plot(frame.low_layers, frame.speedup_fp32_input, "s--", label="FP32 matrix")
    ax.set(xlabel="FP16 layers above FP32", ylabel="times dpotrf", title=f"n = {frame.n[0]:,}")
    ax.legend(frameon=False)
    return figure


def accuracy():
    """Draw backward errors of all layers on each matrix."""
    frame = read("accuracy")
    frame = frame[frame.n == frame.n.max()]
    figure = Figure(figsize=(8, 4), layout="constrained")
    ax = figure.subplots()
    for matrix, group in frame.groupby("matrix", sort=False):
        ax.plot(group.layers, group.backward_error, "o", label=matrix)
    ax.set(yscale="log", ylabel="‖A - LL'‖ / ‖A‖")
    ax.tick_params(axis="x", rotation=30)
    for label in ax.get_xticklabels():
        label.set_horizontalalignment("right")
    ax.legend(frameon=False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for draw in (speed, depth, accuracy):
        draw().savefig(output / f"{draw.__name__}.png", dpi=120)


if __name__ == "__main__":
    main()
