"""Draw results/scale.csv of this folder: figures/scale.png."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent


def scale():
    """Draw seconds and memory of fits and predictions against the number of locations."""
    frame = pd.read_csv(HERE / "results" / "scale.csv", comment="#")
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    seconds, memory = figure.subplots(1, 2)
    seconds.plot(frame.n, frame.seconds_fit, "o-", label="fit with standard errors")
    seconds.plot(frame.n, frame.seconds_predict, "s--", label="100,000 predictions")
    seconds.plot(frame.n, frame.seconds_fit[0] * frame.n / frame.n[0], ":", color="0.5")
    seconds.set_ylabel("seconds (dotted: proportional to n)")
    seconds.legend(frameon=False, fontsize="small")
    memory.plot(frame.n, frame.peak_gb, "o-")
    memory.set_ylabel("peak memory, GB")
    memory.set_ylim(bottom=0.0)
    seconds.set_yscale("log")
    for ax in (seconds, memory):
        ax.set(xscale="log", xlabel="locations")
    return figure


def main():
    """Draw it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    scale().savefig(arguments.output / "scale.png", dpi=150)


if __name__ == "__main__":
    main()
