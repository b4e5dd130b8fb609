"""Draw results/*.csv of this folder into figures/, each figure for which there are results."""

import argparse
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from geomxp.linalg.formats import FORMATS
from geomxp.linalg.precision import PrecisionMap
from geomxp.plots import precision_map

HERE = Path(__file__).parent
CORRELATIONS = ("weak", "medium", "strong")
MARKERS = dict(zip((1e-5, 1e-6, 1e-7, 1e-8), "os^D", strict=True))


def read(name):
    """Return a results file as a frame, or None where it is not there."""
    path = HERE / "results" / f"{name}.csv"
    return pd.read_csv(path, comment="#") if path.exists() else None


def kl():
    """Draw the divergence and Equation 3 against n, a panel for each correlation (Figure 10)."""
    names = ("kl", "kl_8192", "kl_16384", "kl_16384_more", "kl_32768")
    frame = pd.concat([f for f in map(read, names) if f is not None])
    frame = frame[(frame.smoothness == 0.5) & (frame.nugget == 0)].sort_values("n")
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, name in zip(axes, CORRELATIONS, strict=True):
        for number, (accuracy, group) in enumerate(
            frame[frame.correlation == name].groupby("accuracy", sort=False)
        ):
            style = {"color": f"C{number}", "marker": MARKERS[accuracy]}
            # rounding of FP64 sums hides divergences below this
            ax.plot(group.n, group.kl.clip(lower=1e-13), label=f"ε = {accuracy:g}", **style)
            equation = group.kl_log_determinant.abs().clip(lower=1e-13)
            ax.plot(group.n, equation, "--", markerfacecolor="none", **style)
        ax.set(xscale="log", yscale="log", xlabel="locations", title=f"{name} correlation")
        sizes = sorted(frame.n.unique())
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes], rotation=45)
        ax.minorticks_off()
    axes[0].set_ylabel("KL divergence from FP64, nats\n(dashed: |Equation 3|)")
    axes[2].legend(frameon=False)
    return figure


def smooth():
    """Draw the divergence against ε for ν = 1.5 without a nugget, where ε does not bound it."""
    frame = read("kl")
    frame = frame[(frame.smoothness == 1.5) & (frame.nugget == 0)]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    sizes = sorted(frame.n.unique())
    for ax, n in zip(figure.subplots(1, len(sizes), sharey=True), sizes, strict=True):
        for name, marker in zip(CORRELATIONS, "os^", strict=True):
            mine = frame[(frame.n == n) & (frame.correlation == name)]
            label = f"{name}, all FP64" if (mine.promotions > 0).any() else name
            ax.plot(mine.accuracy, mine.kl.clip(lower=1e-13), marker + "-", label=label)
        ax.axhline(0.01, color="0.6", linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel="ε", title=f"{n:,} locations, ν = 1.5, no nugget")
        ax.invert_xaxis()
        ax.legend(frameon=False, fontsize="x-small", loc=(0.02, 0.27))
    figure.axes[0].set_ylabel("KL divergence from FP64, nats")
    return figure


def maps():
    """Draw the formats of the tiles by one rule that chooses among one to four (Figure 4)."""
    frame = read("maps")
    figure = Figure(figsize=(10, 9), layout="constrained")
    letters = {form.letter: form for form in FORMATS.values()}
    for ax, row in zip(figure.subplots(2, 2).flat, frame.itertuples(), strict=True):
        rows = tuple(tuple(letters[letter] for letter in line) for line in row.map.split())
        precision_map(PrecisionMap(rows), ax=ax)
        ax.set_title(
            f"{len(row.choice.split())} formats, {row.bytes_over_fp64:.0%} of FP64's bytes"
        )
    return figure


def rate():
    """Draw FP64-equivalent GFLOP/s against n at each ε, and dpotrf's (Figure 11)."""
    frame = read("rate")
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, name in zip(axes, CORRELATIONS, strict=True):
        some = frame[frame.correlation == name]
        for accuracy, group in some.groupby("accuracy"):
            ax.plot(group.n, group.gflops, MARKERS[accuracy] + "-", label=f"ε = {accuracy:g}")
        one = some[some.accuracy == some.accuracy.min()]
        if "seconds_dpotrf_halves" in one:
            # OpenBLAS's own dpotrf crashes at the largest order
            column = "seconds_dpotrf_openblas"
            one = one.assign(**{column: one[column].fillna(one.seconds_dpotrf_halves)})
        for library, (style, title) in {
            "openblas": ("k:", "OpenBLAS"),
            "mkl": ("k--", "MKL"),
        }.items():
            if f"seconds_dpotrf_{library}" in one:
                gflops = one.n.astype(float) ** 3 / 3 / one[f"seconds_dpotrf_{library}"] / 1e9
                ax.plot(one.n, gflops, style, label=f"FP64, {title}")
        ax.set(xscale="log", xlabel="locations", title=f"{name} correlation", ylim=(0, None))
        sizes = sorted(some.n.unique())
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        ax.minorticks_off()
    axes[0].set_ylabel("n³/3 operations, GFLOP/s")
    axes[2].legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def estimates(name):
    """Draw box plots of the estimates of a results file at each ε, beside FP64's.

    Of the fields that have been fitted in all formats.
    """
    frame = read(name)
    fitted = frame.groupby(["correlation", "replicate"]).accuracy.transform("nunique")
    frame = frame[fitted == frame.accuracy.nunique()].reset_index(drop=True)
    counts = sorted(set(frame.groupby("correlation").replicate.nunique()))
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(f"{frame.n[0]:,} locations, {' to '.join(map(str, counts))} replicates")
    rows = figure.subplots(3, 3)
    labels = ["fp64", *sorted({x for x in frame.accuracy if x != "fp64"}, key=float, reverse=True)]
    truth = {"variance": 1.0, "smoothness": 0.5}
    ranges = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
    for axes, correlation in zip(rows, CORRELATIONS, strict=True):
        some = frame[frame.correlation == correlation]
        for ax, parameter in zip(axes, ("variance", "range", "smoothness"), strict=True):
            ax.boxplot([some[some.accuracy.astype(str) == label][parameter] for label in labels])
            ax.set_xticks(range(1, len(labels) + 1), labels)
            ax.axhline(truth.get(parameter, ranges[correlation]), color="0.6", linewidth=0.8)
            ax.set(ylabel=f"{parameter}, {correlation}")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "figures")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    figures = {"kl": kl, "smooth": smooth, "rate": rate} | (
        {} if read("maps") is None else {"maps": maps}
    )
    for file in sorted((HERE / "results").glob("estimates*.csv")):
        if "_part" not in file.stem:
            figures[file.stem] = partial(estimates, file.stem)
    for name, draw in figures.items():
        draw().savefig(output / f"{name}.png", dpi=120)


if __name__ == "__main__":
    main()
