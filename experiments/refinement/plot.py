"""Draw results/*.csv of this folder: histories, factor, speed and log_determinant."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS = HERE / "results"
COLORS = {
    ("fp16", "gmres"): "C0",
    ("fp16", "ir"): "C1",
    ("fp32-fp16", "gmres"): "C2",
    ("bf16", "gmres"): "C4",
    ("bf16", "ir"): "C5",
    ("fp32", "ir"): "C3",
}
MARKERS = {"ir": "o-", "cg": "s--", "gmres": "^-"}


def read(name):
    """Return a results file as a frame."""
    return pd.read_csv(RESULTS / f"{name}.csv", comment="#")


def histories():
    """Draw the residual at each iteration, a panel for each matrix (as Figure 3)."""
    frame = read("histories")
    panels = list(frame.groupby(["spectrum", "condition"], sort=False))
    figure = Figure(figsize=(2.6 * len(panels), 3), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, ((spectrum, condition), mine) in zip(axes, panels, strict=True):
        for method, group in mine.groupby("method"):
            ax.plot(group.iteration, group.residual, MARKERS[method], ms=3, label=method)
        ax.axhline(1e-14, color="0.6", lw=0.8)
        ax.set(yscale="log", xlabel="iterations", ylim=(1e-17, 10))
        ax.set_title(f"{spectrum}, κ₂ = {condition:.2g}", fontsize=9)
    axes[0].set_ylabel("‖b - Ax‖∞ / (n ‖A‖∞)")
    axes[-1].legend(frameon=False)
    return figure


def factor():
    """Draw the rate of factorizations against n, the best of each format (as Figure 2)."""
    frame = read("factor")
    frame = frame.loc[frame.groupby(["n", "factor"]).gflops.idxmax()]
    ax = (figure := Figure(figsize=(5, 3.2), layout="constrained")).subplots()
    for form, group in frame.groupby("factor"):
        ax.plot(group.n, group.gflops, "o-", label=form)
    ax.set(xlabel="n", ylabel="n³/3 / time, GFLOP/s", ylim=(0, None))
    ax.legend(frameon=False)
    return figure


def speed():
    """Draw rates, iterations and κ∞ against n, a panel for each of Figures 4 to 7."""
    frame = read("speed")
    panels = list(frame.groupby("figure"))
    figure = Figure(figsize=(15, 6.4), layout="constrained")
    axes = figure.subplots(2, -(-len(panels) // 2), sharey=True, squeeze=False).ravel()
    top = 1.15 * frame.gflops.max()
    for ax, (panel, mine) in zip(axes, panels, strict=False):
        right = ax.twinx()
        right.plot(*_line(mine, "infinity_condition"), "k:", lw=0.8)
        right.set(yscale="log", ylim=(1e2, 1e11), ylabel="κ∞ (dotted)")
        fp64 = mine[mine.factor == "fp64"]
        best = fp64.loc[fp64.groupby("n").gflops.idxmax()]
        ax.plot(best.n, best.gflops, "ks-", label="fp64, fastest")
        low = mine[(mine.factor != "fp64") & mine.gflops.notna()]
        for (solver, method, shift), group in low.groupby(["factor", "method", "shift"]):
            about = {"color": COLORS[solver, method], "alpha": 1.0 if shift else 0.7}
            label = _name(solver, method, shift)
            ax.plot(group.n, group.gflops, MARKERS[method], label=label, **about)
            for row in group.itertuples():
                ax.annotate(f"{row.iterations:.0f}", (row.n, row.gflops), fontsize=7, **about)
        spectrum, condition = mine.spectrum.iloc[0], mine.condition.iloc[0]
        ax.set(xlabel="n", ylim=(0, top))
        ax.set_title(f"{panel}: {spectrum}, κ₂ = {condition:.2g}", fontsize=9)
        ax.legend(frameon=False, fontsize=6, loc="upper left")
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    axes[0].set_ylabel("operations of FP64 / time, GFLOP/s")
    return figure


def _line(frame, column):
    """Return n and a column that is the same in all rows of an n."""
    first = frame.groupby("n")[column].first()
    return first.index, first.to_numpy()


def _name(factor, method, shift):
    return f"{factor} {method}" + (f", c = {shift:g}" if factor != "fp32" else "")


def log_determinant():
    """Draw the error of the log-determinant against the time beside FP64."""
    frame = read("log_determinant")
    ax = (figure := Figure(figsize=(6, 4), layout="constrained")).subplots()
    for (name, nu), mine in frame[frame.rule != "fp64"].groupby(["correlation", "smoothness"]):
        ax.plot(
            mine.over_fp64, mine.error.abs().clip(lower=1e-12), "o", label=f"{name}, ν = {nu:g}"
        )
    ax.axhline(1e-6, color="0.6", lw=0.8)
    ax.axvline(1, color="0.6", lw=0.8)
    ax.set(yscale="log", xlabel="seconds over FP64's", ylabel="error of log|Σ|")
    ax.legend(frameon=False)
    return figure


def main():
    """Draw all, or those that are named."""
    drawings = {
        "histories": histories,
        "factor": factor,
        "speed": speed,
        "log_determinant": log_determinant,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or drawings:
        drawings[name]().savefig(arguments.output / f"{name}.png", dpi=150)


if __name__ == "__main__":
    main()
