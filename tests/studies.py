"""Results and texts of the studies."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def results(study, table, /, **wanted):
    """Return the rows of a results table whose columns have the wanted values."""
    text = (ROOT / "experiments" / study / "results" / f"{table}.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def column(rows, name):
    """Return a column of numbers, without empty cells."""
    return [float(row[name]) for row in rows if row[name]]


def ends(numbers):
    """Return the smallest and the largest number."""
    low, *_, high = sorted(numbers)
    return low, high


def times_of_fast_roots(rows):
    """Return the times of batched kernels with approximate roots, relative to exact ones."""
    seconds = {
        (row["what"], row["n"], row["dtype"], row["variant"]): float(row["seconds"])
        for row in rows
        if row["seconds"]
    }
    return [
        each / seconds[*key, variant.removesuffix(" fast")]
        for (*key, variant), each in seconds.items()
        if variant.endswith(" fast")
    ]


def digits(number, count):
    """Return a number with so many significant digits: 0.30, 12, 2.1e-9; 0 stays 0.

    Examples
    --------
    >>> [digits(number, 2) for number in (0.3, 11.9, 2.1e-9, 7.35e6, 0.0)]
    ['0.30', '12', '2.1e-9', '7.4e6', '0']
    """
    if number == 0:
        return "0"
    return re.sub(r"\.?e\+?(-?)0*", r"e\1", f"{number:#.{count}g}").rstrip(".")


def power(number, count=2):
    """Format a number in scientific notation with so many significant digits: 1.2e-4.

    Examples
    --------
    >>> power(0.000123), power(52340.0, 3), power(0.5, 1)
    ('1.2e-4', '5.23e4', '5e-1')
    """
    return re.sub(r"e([+-])0*", lambda sign: "e" + sign[1].strip("+"), f"{number:.{count - 1}e}")


def cells(*texts):
    """Return the cells of a Markdown table."""
    return " ".join(("| " + " | ".join(texts) + " |").split())


def missing(claims, path):
    """Return the claims that a text does not make, whatever its line breaks."""
    text = " ".join((ROOT / path).read_text(encoding="utf-8").split())
    # 19.5 s does not say 9.5 s, nor does 1.25 say 1.2
    return [c for c in claims if not re.search(rf"(?<![\d.,]){re.escape(c)}(?!\d|[.,]\d)", text)]
