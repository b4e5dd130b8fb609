"""Draw results/fields.csv: figures/estimates.png, and figures/predictions.png.

python experiments/kaust/plot.py [--input results] [--output figures]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
NAMES = ("variance", "range", "smoothness", "nugget")
COLOURS = ("black", "#0072B2", "#E69F00", "#009E73", "#CC79A7")
"""Of Okabe and Ito, which the colour-blind tell apart; black for the true model."""


def spread(frame):
    """Yield (method, its rows, where they stand, colour): beside each other at each field."""
    fields, methods = list(frame.field.unique()), list(frame.method.unique())
    for k, method in enumerate(methods):
        mine = frame[frame.method == method]
        at = np.array([fields.index(field) for field in mine.field])
        yield method, mine, at + 0.18 * (k - len(methods) / 2), COLOURS[k % len(COLOURS)]


def estimates(frame):
    """Draw each estimate over its truth, with two standard errors; of the nugget over σ² + τ²."""
    fields = frame.field.unique()
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    for ax, name in zip(figure.subplots(2, 2).flat, NAMES, strict=True):
        for method, mine, at, colour in spread(frame):
            if method == "true model":
                continue
            unit, base = mine[f"true_{name}"], 0.0
            if name == "nugget":
                unit, base = mine.true_variance + mine.true_nugget, mine.true_nugget
            error = 2 * mine[f"error_{name}"].fillna(0.0) / unit
            ax.errorbar(
                at, (mine[name] - base) / unit, error, fmt="o", ms=4, color=colour, label=method
            )
        ax.axhline(float(name != "nugget"), color="black", linewidth=0.8)
        ax.set_xticks(range(len(fields)), fields)
        ax.set_ylabel(f"{name}: {'error over σ² + τ²' if name == 'nugget' else 'over truth'}")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def predictions(frame):
    """Draw root-mean-square errors over the true model's, coverage, MLOE and MMOM."""
    fields = frame.field.unique()
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    best = frame[frame.method == "true model"].set_index("field").rmse
    columns = {
        "RMSE over the true model's, - 1": lambda rows: rows.rmse / best[rows.field].to_numpy() - 1,
        "coverage of 95 % intervals": lambda rows: rows.coverage,
        "MLOE": lambda rows: rows.mloe,
        "MMOM": lambda rows: rows.mmom,
    }
    for ax, (label, of) in zip(figure.subplots(2, 2).flat, columns.items(), strict=True):
        coverage = label.startswith("coverage")
        for method, mine, at, colour in spread(frame):
            if coverage or method != "true model":
                ax.plot(at, of(mine), "o", ms=4, color=colour, label=method)
        if label == "MLOE":
            ax.set_yscale("log")
        else:
            ax.axhline(0.95 if coverage else 0.0, color="black", linewidth=0.8)
        if coverage:
            figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=4)
        ax.set_xticks(range(len(fields)), fields)
        ax.set_ylabel(label)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", type=Path, default=HERE / "results")
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    options = parser.parse_args()
    frame = pd.read_csv(options.input / "fields.csv", comment="#")
    options.output.mkdir(parents=True, exist_ok=True)
    for draw in (estimates, predictions):
        draw(frame).savefig(options.output / f"{draw.__name__}.png", dpi=110)


if __name__ == "__main__":
    main()
