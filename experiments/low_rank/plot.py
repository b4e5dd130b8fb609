"""Draw results/growth.csv of this folder: figures/growth.png."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent


def growth(frame):
    """Draw seconds, bytes and divergence against the number of locations, by method."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    seconds, size, divergence = figure.subplots(1, 3)
    for method, mine in frame.groupby("method", sort=False):
        seconds.plot(mine.n, mine.seconds, "o-", label=method.replace("vecchia", "Vecchia, m ="))
        divergence.plot(mine.n, mine.kl, "o-")
    mine = frame[frame.method == "low rank"]
    size.plot(mine.n, mine.bytes / 1e9, "o-", label="low rank")
    size.plot(mine.n, 4 * mine.n * (mine.n + 1) / 1e9, ":", color="0.5", label="triangle in FP64")
    seconds.set_ylabel("seconds of a log-likelihood")
    size.set_ylabel("GB")
    divergence.set_ylabel("divergence from the exact model, nats")
    divergence.axhline(1e-3, color="0.6", linewidth=0.8)
    for ax in (seconds, size, divergence):
        ax.set(xscale="log", yscale="log", xlabel="locations")
    seconds.legend(frameon=False, fontsize="small")
    size.legend(frameon=False, fontsize="small")
    return figure


def main():
    """Draw it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    frame = pd.read_csv(HERE / "results" / "growth.csv", comment="#")
    growth(frame).savefig(arguments.output / "growth.png", dpi=150)


if __name__ == "__main__":
    main()
