"""Draw results/*.csv of this folder: figures/histories.png, speed.png and log_determinant.png."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
MARKERS = {"ir": "o-", "cg": "s--", "gmres": "^-"}


def read(name):
    """Return a results file as a frame."""
    return pd.read_csv(HERE / "results" / f"{name}.csv", comment="#")


def histories():
    """Draw the residual at each iteration, a panel for each spectrum (as Figure 3)."""
    frame = read("histories")
    spectra = list(frame.spectrum.unique())
    figure = Figure(figsize=(2.6 * len(spectra), 3), layout="constrained")
    axes = figure.subplots(1, len(spectra), sharey=True, squeeze=False)[0]
    for ax, spectrum in zip(axes, spectra, strict=True):
        mine = frame[frame.spectrum == spectrum]
        for method, group in mine.groupby("method"):
            ax.plot(group.iteration, group.residual, MARKERS[method], ms=3, label=method)
        ax.axhline(1e-14, color="0.6", lw=0.8)
        ax.set(yscale="log", xlabel="iterations", ylim=(1e-17, 10))
        ax.set_title(f"{spectrum}, κ₂ = {mine.condition.iloc[0]:.2g}", fontsize=9)
    axes[0].set_ylabel("‖b - Ax‖∞ / (n ‖A‖∞)")
    axes[-1].legend(frameon=False)
    return figure


def speed():
    """Draw the speed of a solution over that of run.py's `dposv` against n (as Figure 4)."""
    frame = read("speed")
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots(1, frame.condition.nunique(), sharey=True, squeeze=False)[0]
    for ax, (condition, mine) in zip(axes, frame.groupby("condition"), strict=True):
        for solver, group in mine.groupby("solver"):
            ax.plot(group.n, group.times_dposv, "o-", label=solver)
        ax.set(xlabel="n", title=f"arithmetic, κ₂ = {condition:g}")
    axes[0].set_ylabel("times dposv's speed")
    axes[-1].legend(frameon=False)
    return figure


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
    drawings = {"histories": histories, "speed": speed, "log_determinant": log_determinant}
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or drawings:
        drawings[name]().savefig(arguments.output / f"{name}.png", dpi=150)


if __name__ == "__main__":
    main()
