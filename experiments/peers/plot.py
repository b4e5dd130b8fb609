"""Draw results/likelihood.csv: CPU seconds and memory of one exact log-likelihood, by method.

python experiments/peers/plot.py [--input results] [--output figures]
"""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

HERE = Path(__file__).parent
COLOURS = {"geomxp": "#D55E00", "dpotrf": "#999999"}
OTHERS = "#56B4E9"


def bars(ax, rows, values, spell, log):
    """Draw one bar a row, its number beside it."""
    labels = [f"{name}, ν = {nu:g}" for name, nu in zip(rows.method, rows.smoothness, strict=True)]
    colours = [COLOURS.get(name, OTHERS) for name in rows.method]
    drawn = ax.barh(labels, values, color=colours, log=log)
    ax.bar_label(drawn, [spell.format(value) for value in values], padding=2, fontsize=8)
    ax.margins(x=0.3 if log else 0.15)
    ax.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", type=Path, default=HERE / "results")
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    options = parser.parse_args()
    table = pd.read_csv(options.input / "likelihood.csv", comment="#")
    sizes = sorted(table.n.unique())
    figure = Figure(figsize=(10, 3.4 * len(sizes)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(sizes), 2, squeeze=False)
    for (left, right), n in zip(axes, sizes, strict=True):
        rows = table[table.n == n].sort_values("cpu_seconds", ascending=False)
        bars(left, rows, rows.cpu_seconds, "{:.3g}", log=True)
        left.set_title(f"n = {n:,}: CPU seconds, one thread (log scale)", fontsize=10)
        rows = rows[rows.peak_bytes.notna()]
        memory = rows.prepared_bytes + rows.peak_bytes
        bars(right, rows, memory / (8 * n * n), "{:.2f}", log=False)
        right.set_title(f"n = {n:,}: peak memory / 8n² bytes", fontsize=10)
    options.output.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output / "likelihood.png", dpi=110)


if __name__ == "__main__":
    main()
