"""What a shell proposes for a word that is being typed: data sets, files, columns, known words."""

import csv
from pathlib import Path

import typer

ENDINGS = (
    *(".csv", ".txt", ".tsv", ".csv.gz", ".parquet", ".npz"),
    *(".gpkg", ".geojson", ".shp", ".nc"),
)
"""Of files that may hold a table."""


def among(words):
    """Return what proposes those of some words that begin as what is typed."""

    def known(incomplete: str):
        return [word for word in words if word.startswith(incomplete)]

    return known


def tables(incomplete: str):
    """Propose data sets with what they hold, and files that may be tables."""
    from ..data.datasets import DATASETS

    found = [(name, entry.about) for name, entry in DATASETS.items() if name.startswith(incomplete)]
    return found + _files(incomplete, ENDINGS)


def fits(incomplete: str):
    """Propose files that may be fits."""
    return _files(incomplete, (".json",))


def columns(ctx: typer.Context, incomplete: str):
    """Propose columns of the table that stands before; after a comma the next one."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    # while an option still wants its word, arguments are not told apart
    table = ctx.params.get("table") or ctx.params.get("at") or next(iter(ctx.args), None)
    return [
        f"{before}{comma}{name}"
        for name in _columns_of(table)
        if name.startswith(last) and name not in taken
    ]


def _files(incomplete, endings):
    """Return files with these endings, and folders, whose path begins as what is typed."""
    typed = Path(incomplete)
    folder, start = (typed, "") if incomplete.endswith("/") else (typed.parent, typed.name)
    try:
        entries = sorted(folder.iterdir()) if incomplete else sorted(Path().iterdir())
    except OSError:
        return []
    found = []
    for entry in entries:
        shown = entry.name.startswith(start) and (start or not entry.name.startswith("."))
        if shown and entry.is_dir():
            found.append(f"{entry}/")
        elif shown and entry.name.lower().endswith(endings):
            found.append(str(entry))
    return found


def _columns_of(table):
    """Return the columns of a data set or a file; none where that would take long."""
    from ..data.datasets import DATASETS, path
    from ..data.tables import separator_of

    if table is None:
        return []
    file = path(table) if table in DATASETS else Path(table)
    try:
        if file.suffix.lower() == ".parquet":
            from pyarrow.parquet import read_schema

            return read_schema(file).names
        if file.suffix.lower() in (".csv", ".txt", ".tsv"):
            with open(file, encoding="utf-8-sig", newline="") as lines:
                line = next(lines, "")
            separator = "\t" if file.suffix.lower() == ".tsv" else separator_of(line)
            names = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
            return [name.strip() for name in names]
    except (OSError, UnicodeError, ValueError, csv.Error):
        # a shell that completes has nowhere to say what is wrong
        return []
    return []
