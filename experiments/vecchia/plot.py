"""Draw results/*.csv of this folder: figures/accuracy.png and figures/time.png."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
MARKERS = {"maximin": "o-", "morton": "s--", "given": "^:", "by coordinate": "v-."}


def accuracy():
    """Draw the KL divergence from the exact model against the neighbours."""
    frame = pd.read_csv(HERE / "results" / "accuracy.csv", comment="#")
    models = list(frame.model.unique())
    figure = Figure(figsize=(2.8 * len(models), 3.2), layout="constrained")
    axes = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for ax, model in zip(axes, models, strict=True):
        for ordering, mine in frame[frame.model == model].groupby("ordering"):
            ax.plot(mine.neighbours, mine.kl.clip(lower=1e-9), MARKERS[ordering], label=ordering)
        ax.set(yscale="log", xlabel="neighbours", title=model)
    axes[0].set_ylabel(f"KL divergence, {frame.n.iloc[0]:,} locations")
    axes[-1].legend(frameon=False)
    return figure


def time():
    """Draw the seconds of one evaluation, and of order and search, against the locations."""
    frame = pd.read_csv(HERE / "results" / "time.csv", comment="#")
    ax = (figure := Figure(figsize=(5.6, 4), layout="constrained")).subplots()
    for m, mine in frame.groupby("neighbours"):
        line = ax.plot(mine.n, mine.seconds_evaluation, "o-", label=f"likelihood, m = {m}")
        ax.plot(mine.n, mine.seconds_order_and_search, ":", color=line[0].get_color())
    ax.set(
        xscale="log", yscale="log", xlabel="locations", ylabel="seconds (dotted: order and search)"
    )
    ax.legend(frameon=False)
    return figure


def main():
    """Draw both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for drawing in (accuracy, time):
        drawing().savefig(arguments.output / f"{drawing.__name__}.png", dpi=150)


if __name__ == "__main__":
    main()
