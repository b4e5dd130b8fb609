"""Draw results/*.csv of this folder: figures/scaling.png, measured and simulated.

python experiments/cluster/plot.py [--input results] [--output figures]
"""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

HERE = Path(__file__).parent
LINES = {"fp64": "-", "norm 1e-6": "--"}
NAMES = {"fp64": "FP64", "norm 1e-6": "formats by norm, 1e-6"}
SHOWN = {"link": "25 Gbit/s", "tile": 1024, "threads": 16}
"""Of the predictions, if they are there."""


def read(folder, name):
    """Return a results file as a frame, None if it is not there."""
    path = folder / f"{name}.csv"
    return pd.read_csv(path, comment="#") if path.is_file() else None


def here(ax, played, scaling):
    """Draw what runs on worker processes here took, and what the simulation says."""
    runs = played[played.study == "validation"]
    for rule, mine in runs.groupby("rule"):
        mine = mine.sort_values("nodes")
        line = ax.plot(mine.nodes, mine.seconds, LINES[rule], label=f"{NAMES[rule]}, simulated")
        colour = line[0].get_color()
        label = f"{NAMES[rule]}, measured"
        ax.plot(mine.nodes, mine.measured_seconds, "o", color=colour, label=label)
    if scaling is not None:
        mine = scaling[scaling.study == "strong"]
        label = f"scaling.csv, {mine.n.iloc[0]:,} locations"
        ax.plot(mine.workers, mine.seconds, "kx", label=label)
    about = runs.iloc[0]
    ax.set(xlabel="worker processes here", ylabel="seconds", ylim=(0, None))
    ax.set_title(f"{about.n:,} locations, tiles of {about.tile:,}", fontsize="medium")
    ax.set_xticks(range(1, 1 + int(ax.get_xlim()[1])))


def elsewhere(ax, played):
    """Draw the speed that the simulation says of clusters that are not here."""
    some = played[played.study == "prediction"]
    # one link, one tile, one kind of node of what was played
    for name, wanted in SHOWN.items():
        there = wanted if (some[name] == wanted).any() else some[name].iloc[0]
        some = some[some[name] == there]
    tile, threads, link = some[["tile", "threads", "link"]].iloc[0]
    for number, (n, mine) in enumerate(some.groupby("n")):
        for rule, line in LINES.items():
            one = mine[mine.rule == rule].sort_values("nodes")
            label = f"{n:,} locations" if rule == "fp64" else None
            ax.plot(one.nodes, one.gflops, line, marker=".", color=f"C{number}", label=label)
    ax.set(xscale="log", yscale="log", xlabel="nodes, simulated", ylabel="GFLOP/s (n³/3)")
    ax.set_xticks(sorted(some.nodes.unique()))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(ScalarFormatter())
    title = f"tiles of {tile:,}, {threads} threads, {link}; dashed: formats by norm"
    ax.set_title(title, fontsize="medium")


def main():
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--input", type=Path, default=HERE / "results")
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    asked = parser.parse_args()
    played = read(asked.input, "simulation")
    if played is None:
        parser.error(f"{asked.input} has no simulation.csv: run.py simulation writes it")
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    here(left, played, read(asked.input, "scaling"))
    elsewhere(right, played)
    left.legend(frameon=False, fontsize="x-small")
    right.legend(frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    asked.output.mkdir(parents=True, exist_ok=True)
    figure.savefig(asked.output / "scaling.png", dpi=150)


if __name__ == "__main__":
    main()
