"""Draw results/estimates.csv: histograms of estimates beside the inverse Fisher information.

python experiments/recovery/plot.py [--input results] [--output figures]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", type=Path, default=HERE / "results")
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    options = parser.parse_args()
    estimates = pd.read_csv(options.input / "estimates.csv", comment="#")
    summary = pd.read_csv(options.input / "summary.csv", comment="#")
    names, sizes = list(summary.parameter.unique()), list(summary.n.unique())
    figure = Figure(figsize=(3.1 * len(names), 2.4 * len(sizes)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(sizes), len(names), squeeze=False)
    for row, n in enumerate(sizes):
        for column, name in enumerate(names):
            ax = axes[row, column]
            line = summary[(summary.n == n) & (summary.parameter == name)].iloc[0]
            good = estimates[(estimates.n == n) & (estimates.outcome == "CONVERGED")][name]
            deviation = line.spread_by_inverse_fisher
            low, high = line.truth - 4.5 * deviation, line.truth + 4.5 * deviation
            bins = np.linspace(max(low, 0.0), high, 25)
            # what lies beyond is in the last bar
            weights = np.full(len(good), 1 / (len(good) * (bins[1] - bins[0])))
            ax.hist(good.clip(upper=high), bins, weights=weights, color="#56B4E9", ec="white")
            x = np.linspace(low, high, 200)
            density = np.exp(-0.5 * ((x - line.truth) / deviation) ** 2)
            ax.plot(x, density / (deviation * np.sqrt(2 * np.pi)), color="#D55E00")
            ax.axvline(line.truth, color="black", linewidth=0.8)
            ax.set_yticks([])
            if row == 0:
                ax.set_title(name)
            if column == 0:
                ax.set_ylabel(f"n = {n}\n{line.converged} of {line.fits} converged")
    figure.suptitle(
        "Estimates (bars; the last one holds all beyond), and the normal density of the "
        "inverse Fisher information"
    )
    options.output.mkdir(exist_ok=True)
    figure.savefig(options.output / "recovery.png", dpi=110)


if __name__ == "__main__":
    main()
