"""Draw results/* of this folder: figures/volume.png, rate.png and timeline.png."""

import argparse
import json
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from geomxp.plots.comparisons import timeline
from geomxp.runtime.trace import Event

HERE = Path(__file__).parent
MARKERS = {"sync": "v", "async": "o", "v1": "s", "v2": "^", "v3": "D"}


def volume():
    """Draw the bytes that move against n for each policy (Figure 8)."""
    frame = pd.read_csv(HERE / "results" / "volume.csv", comment="#")
    ax = (figure := Figure(figsize=(5.6, 4), layout="constrained")).subplots()
    for policy, marker in MARKERS.items():
        mine = frame[frame.policy == policy]
        total = (mine.bytes_in + mine.bytes_out) / 1e9
        ax.plot(mine.n, total, marker + "-", label=policy)
    ax.plot(frame.n, frame.lower_triangle / 1e9, "k:", label="lower triangle")
    ax.set(yscale="log", xlabel="places", ylabel="GB in and out")
    ax.set_title(f"{frame.budget[0] / 1e6:.0f} MB of fast memory, tiles of {frame.tile[0]}")
    ax.legend(frameon=False)
    return figure


def rate():
    """Draw FP64 GFLOP/s against n, in core and with a budget (Figure 6)."""
    frame = pd.read_csv(HERE / "results" / "rate.csv", comment="#")
    ax = (figure := Figure(figsize=(5.6, 4), layout="constrained")).subplots()
    for budget, mine in frame.groupby("budget"):
        whole = budget == "in core"
        label = "all in RAM" if whole else f"{float(budget) / 1e9:g} GB of RAM over a disk"
        ax.plot(mine.n, mine.gflops, "o-" if whole else "s--", label=label)
    ax.set(xlabel="places", ylabel="GFLOP/s, FP64", ylim=(0, None))
    ax.legend(frameon=False)
    return figure


def timelines():
    """Draw what happened when without reuse and with V3 (as Figure 7)."""
    document = json.loads((HERE / "results" / "timeline.json").read_text())
    axes = (figure := Figure(figsize=(9, 6), layout="constrained")).subplots(len(document), 1)
    for ax, (policy, events) in zip(axes, document.items(), strict=True):
        timeline([Event(**event) for event in events], ax=ax)
        ax.set_title(policy)
    return figure


def main():
    """Draw all, or those that are named."""
    drawings = {"volume": volume, "rate": rate, "timeline": timelines}
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", choices=[*drawings, []])
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or drawings:
        drawings[name]().savefig(arguments.output / f"{name}.png", dpi=150)


if __name__ == "__main__":
    main()
