"""Draw results/*.csv of this folder as PNG."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent


def read(name):
    """Return a results file as a frame."""
    return pd.read_csv(HERE / "results" / f"{name}.csv", comment="#")


def by_n(ax, frame, **about):
    """Finish an axis over the orders of a frame."""
    sizes = sorted(frame.n.unique())
    ax.set(xscale="log", xlabel="n", **about)
    ax.minorticks_off()
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])


def title(what, cores):
    """Return the title of an axis."""
    return f"{what.upper()}, {cores} core{'s' if cores > 1 else ''}"


def speed():
    """Draw speed-ups over the FP64 library against n for POTRF, SYRK and TRSM, by cores."""
    frame = read("speed")
    every = sorted(frame.cores.unique())
    figure = Figure(figsize=(11, 3.8 * len(every)), layout="constrained")
    axes = figure.subplots(len(every), 3, squeeze=False)
    for cores, line in zip(every, axes, strict=True):
        for ax, what in zip(line, ("potrf", "syrk", "trsm"), strict=True):
            some = frame[(frame.what == what) & (frame.cores == cores)]
            some = some[some.baseline != "library"]
            for layers, group in some.groupby("layers", sort=False):
                ax.plot(group.n, group.speedup, "o-", label=layers)
            ax.axhline(1.0, color="0.6", linewidth=0.8)
            by_n(ax, some, title=title(what, cores))
        line[0].set_ylabel("times the better FP64 library")
    figure.axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def throughput():
    """Draw POTRF's rate and its share of a product's in the first format (Figure 6), by cores."""
    frame = read("speed")
    frame = frame[frame.what == "potrf"]
    every = sorted(frame.cores.unique())
    figure = Figure(figsize=(9.5, 3.8 * len(every)), layout="constrained")
    axes = figure.subplots(len(every), 2, squeeze=False)
    for cores, (rate, share) in zip(every, axes, strict=True):
        some = frame[frame.cores == cores]
        for layers, group in some.groupby("layers", sort=False):
            style = "x--" if (group.baseline == "library").all() else "o-"
            rate.plot(group.n, group.gflops, style, label=layers)
            share.plot(group.n, 100 * group.share_of_product, style)
        by_n(rate, some, title=title("potrf", cores), ylabel="GFLOP/s")
        by_n(share, some, title=title("potrf", cores), ylabel="% of a product in the first format")
        share.set_ylim(bottom=0)
    lines = figure.axes[0].get_lines()
    figure.legend(handles=lines, loc="outside lower center", ncols=3, frameon=False)
    return figure


def depth():
    """Draw POTRF's speed-up against the number of low layers."""
    frame = read("depth")
    figure = Figure(figsize=(5, 3.8), layout="constrained")
    ax = figure.subplots()
    ax.plot(frame.low_layers, frame.speedup, "o-", label="FP64 matrix")
    ax.plot(frame.low_layers, frame.speedup_fp32_input, "s--", label="FP32 matrix")
    ax.set(
        xlabel=f"{frame.format[0].upper()} layers above FP32",
        ylabel="times dpotrf",
        title=f"n = {frame.n[0]:,}",
    )
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


def digits():
    """Draw correct digits of the factor against n (Figure 8), of dense factors and of trees."""
    frame = read("digits")
    figure = Figure(figsize=(10, 4), layout="constrained")
    pure = frame[frame.layers == "pure fp16"]
    for ax, stored in zip(figure.subplots(1, 2, sharey=True), ("dense", "tree"), strict=True):
        some = frame[(frame.stored == stored) & (frame.layers != "pure fp16")]
        for layers, group in some.groupby("layers", sort=False):
            ax.plot(group.n, group.digits, "o-", label=layers)
        ax.plot(pure.n, pure.digits, "kx--", label="pure fp16")
        by_n(ax, some, title=f"{stored} factor, uniform + n·I", ylim=(0, 17))
    figure.axes[0].set_ylabel("-log10 of the relative error of L")
    lines = figure.axes[0].get_lines()
    figure.legend(handles=lines, loc="outside lower center", ncols=4, frameon=False)
    return figure


LEAST = 1e-10
"""Divergences below this one are drawn here."""


def divergence():
    """Draw divergences at the largest n against bytes (above) and seconds, both over FP64's."""
    frame = read("divergence")
    frame = frame[frame.n == frame.n.max()]
    frame["over_fp64"] = frame.seconds / frame.seconds_fp64
    frame["rule"] = frame.method.str.replace(r" [\de.-]+$", "", regex=True)
    models = list(frame.groupby(["smoothness", "correlation"], sort=False))
    figure = Figure(figsize=(15, 6.5), layout="constrained")
    axes = figure.subplots(2, len(models), sharex="row", sharey=True)
    shares = {"bytes_over_fp64": "bytes over FP64's triangle", "over_fp64": "seconds over FP64's"}
    for line, (column, label) in zip(axes, shares.items(), strict=True):
        for ax, ((smoothness, correlation), some) in zip(line, models, strict=True):
            for rule, group in some.groupby("rule", sort=False):
                style = "o-" if len(group) > 1 else "x" if rule.startswith("whole") else "s"
                ax.plot(group[column], group.kl.clip(lower=LEAST), style, label=rule)
            ax.set(yscale="log", title=f"{correlation}, ν = {smoothness:g}", xlabel=label)
            ax.axvline(1.0, color="0.8", linewidth=0.8, zorder=0)
        line[0].set_ylabel("divergence, nats")
    lines = axes[0, 0].get_lines()[:-1]
    figure.legend(handles=lines, loc="outside lower center", ncols=4, frameon=False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for draw in (speed, throughput, depth, accuracy, digits, divergence):
        draw().savefig(output / f"{draw.__name__}.png", dpi=120)


if __name__ == "__main__":
    main()
