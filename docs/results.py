"""Pages of results: each experiment's README, figures and tables, as they lie in its folder."""

import ast
import csv
import html
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ROOT / "experiments"

OPEN, SHOWN = 24, 60
"""Rows of a table that is open, and of one that is shown whole."""


def experiments():
    """Return the folders of the experiments that have results."""
    return sorted(path.parent for path in EXPERIMENTS.glob("*/results"))


def title(text):
    """Return the heading of a page."""
    return re.search(r"^# (.+)$", text, re.MULTILINE).group(1).replace("`", "")


def page(folder):
    """Return the page of an experiment, as Markdown.

    Parameters
    ----------
    folder : Path
        With README.md, or run.py whose docstring then stands in, and results/*.csv.
    """
    readme = folder / "README.md"
    if readme.is_file():
        text = readme.read_text(encoding="utf-8")
    else:
        text = f"# {folder.name.replace('_', ' ').capitalize()}\n\n" + ast.get_docstring(
            ast.parse((folder / "run.py").read_text(encoding="utf-8"))
        )
    parts = [text.rstrip(), "## Tables", "As the scripts wrote them."]
    parts += [table(path) for path in sorted((folder / "results").glob("*.csv"))]
    return "\n\n".join(parts) + "\n"


def read(path):
    """Return what the comment lines of a CSV file say (a dict), its header and its rows."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = list(file)
    comments = [line for line in lines if line.startswith("#")]
    about = dict(line[1:].strip().split(": ", 1) for line in comments if ": " in line)
    rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    return about, rows[0], rows[1:]


def table(path):
    """Return one CSV file as Markdown: where it comes from, and its rows in a folded table."""
    about, header, rows = read(path)
    shown = rows if len(rows) <= SHOWN else rows[: OPEN // 2]
    count = f"{len(rows)} rows" if shown is rows else f"the first {len(shown)} of {len(rows)} rows"
    origin = "; ".join(f"{k.replace('_', ' ')} {v}" for k, v in about.items() if v != "none")
    body = "".join(_row(row, "td") for row in shown)
    return "\n".join(
        (
            f"### {path.name}",
            "",
            f"[{path.name}](results/{path.name}): {origin or 'no origin noted'}.",
            "",
            f"<details{' open' if len(rows) <= OPEN else ''}><summary>{count}</summary>",
            f'<div class="results"><table><thead>{_row(header, "th")}</thead>'
            f"<tbody>{body}</tbody></table></div></details>",
        )
    )


def _row(cells, tag):
    """Return a row of HTML, numbers shortened."""
    return "<tr>" + "".join(f"<{tag}>{html.escape(short(c))}</{tag}>" for c in cells) + "</tr>"


def short(cell):
    """Return a number with six significant digits; other text as it is."""
    if not re.fullmatch(r"[-+]?\d+\.\d{3,}(e[-+]?\d+)?", cell):
        return cell
    return f"{float(cell):.6g}"


def index(pages):
    """Return the page that lists the others, with the first sentence of each.

    Parameters
    ----------
    pages : dict of str to str
        Name of the folder to Markdown.
    """
    lines = [
        "# Results",
        "",
        "Studies that compare geomxp with theory, with papers and with other packages. Each page",
        "holds the text and the tables of a folder `experiments/…`, whose script made them; every",
        "table says the commit and the machine.",
        "",
    ]
    for name, text in pages.items():
        lines.append(f"- [{title(text)}]({name}/index.md) (`experiments/{name}`)")
    return "\n".join(lines) + "\n"
