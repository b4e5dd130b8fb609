"""Draw results/*.csv of this folder: figures/seconds.png, ratios.png, cases.png and leaves.png.

With --table the smallest ratio of each case is printed as a table in Markdown.
"""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).parent
NAMES = {"scipy": "OpenBLAS", "mkl": "MKL", "cublas": "cuBLAS", "masked_product": "masked product"}
STYLES = {"fp64": "o-", "fp32": "s--"}


def read(name):
    """Return a results file as a frame; a column of a frame cannot be called `columns`."""
    frame = pd.read_csv(HERE / "results" / f"{name}.csv", comment="#")
    return frame.rename(columns={"columns": "width"})


def shapes(frame):
    """Return the square and the rectangular rows of a frame by their names."""
    rectangular = frame.width != frame.n
    several = frame.width[rectangular].iloc[0]
    # the square case of so many rows belongs to both
    both = frame[frame.width == several]
    return {"square": frame[~rectangular], f"{several} columns": both}


def by_n(ax, some, **about):
    """Finish an axis over the orders of some rows."""
    sizes = sorted(some.n.unique())
    ax.set(xscale="log", **about)
    ax.minorticks_off()
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])


def grid(frame, width=10.5, height=7.0):
    """Return a figure and {(routine, shape): (axis, rows)} for TRMM and TRSM in two shapes."""
    figure, cells = Figure(figsize=(width, height), layout="constrained"), {}
    for line, what in zip(figure.subplots(2, 2), ("trmm", "trsm"), strict=True):
        parts = shapes(frame[frame.what == what])
        for ax, (shape, some) in zip(line, parts.items(), strict=True):
            cells[what, shape] = ax, some
            ax.set_title(f"{what.upper()}, {shape}")
    return figure, cells


def seconds():
    """Draw seconds against n beside the libraries, left, not transposed (Figure 2)."""
    frame = read("ratios")
    frame = frame[(frame.side == "L") & (frame.trans == "N") & (frame.cores == 1)]
    figure, cells = grid(frame)
    for ax, some in cells.values():
        for form, group in some.groupby("format", sort=False):
            (line,) = ax.plot(group.n, group.seconds, "o-", label=f"geomxp, {form.upper()}")
            for name in (name for name in NAMES if f"ratio_{name}" in group):
                label = f"{NAMES[name]}, {form.upper()}"
                baseline = group.seconds * group[f"ratio_{name}"]
                mark = "x:" if name == "scipy" else "+--"
                ax.plot(group.n, baseline, mark, color=line.get_color(), label=label)
        by_n(ax, some, yscale="log", xlabel="n", ylabel="seconds, one core")
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


def ratios():
    """Draw runtime ratios against n, left, not transposed, by format and cores (Figure 3)."""
    frame = read("ratios")
    figure, cells = grid(frame[(frame.side == "L") & (frame.trans == "N")])
    for ax, some in cells.values():
        for (form, cores), group in some.groupby(["format", "cores"], sort=False):
            label = f"{form.upper()}, {cores} core{'s' if cores > 1 else ''}"
            ax.plot(group.n, 100 * group.ratio, STYLES[form], label=label)
        ax.axhline(100, color="0.6", linewidth=0.8)
        by_n(ax, some, xlabel="n", ylabel="time of the faster library, % of ours")
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


def cases():
    """Draw runtime ratios against n of all sides and transpositions, on one core."""
    frame = read("ratios")
    figure, cells = grid(frame[frame.cores == 1])
    for ax, some in cells.values():
        for (side, trans, form), group in some.groupby(["side", "trans", "format"], sort=False):
            label = f"{'left' if side == 'L' else 'right'}{', transposed' * (trans == 'T')}"
            color = f"C{'LR'.index(side) * 2 + 'NT'.index(trans)}"
            label = f"{label}, {form.upper()}"
            ax.plot(group.n, 100 * group.ratio, STYLES[form], color=color, label=label)
        ax.axhline(100, color="0.6", linewidth=0.8)
        by_n(ax, some, xlabel="n", ylabel="time of the faster library, % of ours")
    figure.axes[0].legend(frameon=False, fontsize="x-small", ncols=2)
    return figure


def leaves():
    """Draw runtime ratios against the size of the leaves."""
    frame = read("leaves")
    figure, cells = grid(frame)
    for ax, some in cells.values():
        for (n, form), group in some.groupby(["n", "format"], sort=False):
            ax.plot(group.leaf, 100 * group.ratio, STYLES[form], label=f"n = {n:,}, {form.upper()}")
        ax.axhline(100, color="0.6", linewidth=0.8)
        sizes = sorted(some.leaf.unique())
        ax.set(xscale="log", xlabel="leaf", ylabel="time of the faster library, % of ours")
        ax.minorticks_off()
        ax.set_xticks(sizes, [f"{leaf:,}" for leaf in sizes])
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


def table():
    """Return the smallest ratio of each case as a table in Markdown, a row for each shape."""
    frame = read("worst")
    heads = list(frame.groupby(["what", "format", "cores"], sort=False))
    names = [f"{what.upper()} {form.upper()}, {cores}" for (what, form, cores), _ in heads]
    lines = [f"| case | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    keys = ["side", "trans", "shape"]
    for (side, trans, shape), rows in frame.groupby(keys, sort=False):
        found = rows.set_index(["what", "format", "cores"])
        cells = [f"{found.worst[key]:.3f} ({int(found.at_n[key]):,})" for key, _ in heads]
        name = f"{'left' if side == 'L' else 'right'}{', transposed' * (trans == 'T')}, {shape}"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    parser.add_argument("--table", action="store_true", help="print the table of worst ratios")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    options.output.mkdir(parents=True, exist_ok=True)
    for draw in (seconds, ratios, cases, leaves):
        draw().savefig(options.output / f"{draw.__name__}.png", dpi=120)


if __name__ == "__main__":
    main()
