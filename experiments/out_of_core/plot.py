"""Draw results/* of this folder into figures/, each figure for which there are results."""

import argparse
import json
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from geomxp.plots.comparisons import timeline
from geomxp.runtime.trace import Event

HERE = Path(__file__).parent
MARKERS = {
    "sync": "v",
    "sync, larger tiles": "<",
    "async": "o",
    "v1": "s",
    "v2": "^",
    "v3-lru": "P",
    "v3": "D",
}


def table(name):
    """Return a results file as a frame."""
    return pd.read_csv(HERE / "results" / f"{name}.csv", comment="#")


def volume():
    """Draw the bytes that move against n for each policy (Figure 8), and the seconds."""
    frame = table("volume")
    kinds = ["GB in and out"] + ["seconds"] * ("seconds" in frame)
    figure = Figure(figsize=(5.6 * len(kinds), 4), layout="constrained")
    for ax, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        for policy, marker in MARKERS.items():
            mine = frame[frame.policy == policy]
            height = mine.seconds if kind == "seconds" else (mine.bytes_in + mine.bytes_out) / 1e9
            ax.plot(mine.n, height, marker + "-", label=policy)
        whole = frame[frame.policy == ("in core" if kind == "seconds" else "v3")]
        height = whole.seconds if kind == "seconds" else whole.lower_triangle / 1e9
        words = "all in RAM" if kind == "seconds" else "lower triangle"
        ax.plot(whole.n, height, "k:", label=words)
        ax.set(yscale="log", xlabel="locations", ylabel=kind)
        ax.legend(frameon=False, fontsize="small")
    bounded = frame[frame.policy == "v3"]
    memory = f"{float(bounded.budget.iloc[0]) / 1e6:.0f} MB of fast memory"
    figure.suptitle(f"{memory}, tiles of {bounded.tile.iloc[0]}", fontsize="medium")
    return figure


def mixed():
    """Draw the bytes that move by v3 in formats by norm against n (Figure 12)."""
    frame = table("mixed")
    axes = (figure := Figure(figsize=(10, 3.6), layout="constrained")).subplots(1, 3, sharey=True)
    for ax, (name, some) in zip(axes, frame.groupby("correlation", sort=False), strict=True):
        for number, (accuracy, mine) in enumerate(some.groupby("accuracy", sort=False)):
            label = "FP64" if accuracy == "fp64" else f"ε = {accuracy}"
            style = ("k" if accuracy == "fp64" else f"C{number}") + "osv^D"[number] + "-"
            ax.plot(mine.n, (mine.v3_in + mine.v3_out) / 1e9, style, label=label)
        ax.set(xscale="log", yscale="log", xlabel="locations", title=f"{name} correlation")
        ax.set_xticks(sorted(frame.n.unique()), [f"{n:,}" for n in sorted(frame.n.unique())])
        ax.minorticks_off()
    axes[0].set_ylabel("GB in and out, v3")
    axes[0].legend(frameon=False, fontsize="small")
    return figure


def paper_mixed():
    """Draw the bytes that async and v3 move on a simulated GH200 (Figure 12)."""
    frame = table("paper_mixed")
    axes = (figure := Figure(figsize=(10, 3.8), layout="constrained")).subplots(1, 3, sharey=True)
    for ax, (name, some) in zip(axes, frame.groupby("correlation", sort=False), strict=True):
        for policy, line in (("async", "--"), ("v3", "-")):
            mine = some[some.policy == policy].groupby("accuracy", sort=False)
            for number, (accuracy, group) in enumerate(mine):
                label = "FP64" if accuracy == "fp64" else f"ε = {float(accuracy):g}"
                style = ("k" if accuracy == "fp64" else f"C{number}") + "osv^D"[number] + line
                moved = (group.bytes_in + group.bytes_out) / 1e9
                ax.plot(group.n, moved, style, label=f"{label}, {policy}")
        ax.set(yscale="log", xlabel="locations", title=f"{name} correlation")
    axes[0].set_ylabel("GB in and out, simulated")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right", fontsize="small")
    return figure


def scaling():
    """Draw the rate of 1 to 4 simulated GPUs against n (Figure 9)."""
    frame = table("scaling")
    axes = (figure := Figure(figsize=(10, 3.8), layout="constrained")).subplots(1, 3)
    for ax, (machine, some) in zip(axes, frame.groupby("machine", sort=False), strict=True):
        for (count, links), mine in some[some.tile == 4096].groupby(["devices", "links"]):
            label = f"{count} GPU{'s' if count > 1 else ''}" + ", one link" * (links == "one")
            style = f"C{count - 1}" + ("s--" if links == "one" else "o-")
            ax.plot(mine.n, mine.teraflops, style, label=label)
        published = some.paper_largest_teraflops.max()
        ax.axhline(published, color="k", lw=0.8, ls=":", label="4 GPUs, published maximum")
        ax.set(xlabel="locations", title=machine, ylim=(0, None))
        ax.set_xticks([40_000, 160_000, 240_000], ["40,000", "160,000", "240,000"])
    axes[0].set_ylabel("TFLOP/s, FP64, simulated")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right", fontsize="small")
    return figure


def rate():
    """Draw FP64 GFLOP/s against n, in core and with a budget (Figure 6)."""
    frame = table("rate")
    ax = (figure := Figure(figsize=(5.6, 4), layout="constrained")).subplots()
    for budget, mine in frame.groupby("budget"):
        whole = budget == "in core"
        label = "all in RAM" if whole else f"{float(budget) / 1e9:g} GB of RAM over a disk"
        ax.plot(mine.n, mine.gflops, "o-" if whole else "s--", label=label)
    ax.set(xlabel="locations", ylabel="GFLOP/s, FP64", ylim=(0, None))
    ax.legend(frameon=False)
    return figure


def timelines(name="timeline"):
    """Draw the traces of a results file below one another (Figures 7 and 13)."""
    document = json.loads((HERE / "results" / f"{name}.json").read_text())
    count = len(document)
    axes = (figure := Figure(figsize=(9, 2.5 * count), layout="constrained")).subplots(count, 1)
    longest = max(event["end"] for events in document.values() for event in events)
    for ax, (title, events) in zip(axes, document.items(), strict=True):
        timeline([Event(**event) for event in events], ax=ax)
        ax.set(title=title, xlim=(0, longest))
    return figure


def main():
    """Draw all, or those that are named."""
    drawings = {
        "volume.csv": volume,
        "mixed.csv": mixed,
        "paper_mixed.csv": paper_mixed,
        "scaling.csv": scaling,
        "rate.csv": rate,
        "timeline.json": timelines,
        "correlations.json": partial(timelines, "correlations"),
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for file, draw in drawings.items():
        if (HERE / "results" / file).exists():
            draw().savefig(arguments.output / f"{file.split('.')[0]}.png", dpi=150)


if __name__ == "__main__":
    main()
