"""Pages of results: README, figures and tables of each study."""

import ast
import csv
import html
import re
from pathlib import Path

from captions import CAPTIONS, GROUPS, PAPERS

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ROOT / "experiments"

OPEN, SHOWN = 24, 60
"""Largest number of rows of a table that is unfolded, and of one that is shown completely."""

INDEX = """# Results

Studies that compare geomxp with theory, with papers and with other packages. Each page has the
text, figures and tables of a folder `experiments/…` and comes from its script. Every table names
the machine and the commit; `-dirty` means that the code had uncommitted changes. Times are those of
that machine and that commit.
"""


def experiments():
    """Return the folders of the studies that have results."""
    return sorted({path.parent.parent for path in EXPERIMENTS.glob("*/results/*.csv")})


def title(text):
    """Return the heading of a page."""
    return re.search(r"^# (.+)$", text, re.MULTILINE).group(1).replace("`", "")


def written(folder):
    """Return the text of a study: its README, or the docstring of its run.py."""
    readme = folder / "README.md"
    if readme.is_file():
        return readme.read_text(encoding="utf-8").rstrip()
    text = ast.get_docstring(ast.parse((folder / "run.py").read_text(encoding="utf-8")))
    return f"# {folder.name.replace('_', ' ').capitalize()}\n\n{text}"


def page(folder):
    """Return the page of a study, as Markdown.

    Parameters
    ----------
    folder : Path
        Contains README.md (or run.py with a docstring), results/*.csv and figures/*.png.
    """
    text = written(folder)
    parts = [text, *_papers(text), *_figures(folder, text), "## Tables"]
    for path in sorted((folder / "results").glob("*.csv")):
        parts.append(table(path, caption(folder, path.name, text)))
    for path in sorted((folder / "results").glob("*.json")):
        about = caption(folder, path.name, text)
        parts.append(f"### {path.name}\n\n{about} [{path.name}](results/{path.name})")
    return "\n\n".join(parts) + "\n"


def _papers(text):
    """Return the full references of the papers that a text cites by number."""
    named = sorted(set(re.findall(r"[Pp]aper (\d{3})", text)))
    return [f"Paper {number}: {PAPERS[number]}." for number in named]


def _figures(folder, text):
    """Return the figures that are not in a text, below a heading."""
    names = [path.name for path in sorted(folder.glob("figures/*.png"))]
    left = [name for name in names if f"figures/{name}" not in text]
    shown = [f"![{about}](figures/{name})\n\n{about}" for name, about in _captioned(folder, left)]
    return ["## Figures", *shown] if shown else []


def _captioned(folder, names):
    return [(name, CAPTIONS.get(f"{folder.name}/{name}", name)) for name in names]


def caption(folder, name, text):
    """Return the caption of a table or figure; "" if there is none.

    Parameters
    ----------
    folder : Path
    name : str
        Of the file.
    text : str
        README of the study; its row or item on the file is used if `CAPTIONS` has none.
    """
    known = CAPTIONS.get(f"{folder.name}/{name}")
    if known:
        return known
    file = rf"`(?:results/)?{re.escape(name)}`"
    row = re.search(rf"^\|(?:[^|\n]*\|)?[^|\n]*{file} *\|(.+)\|$", text, re.MULTILINE)
    item = re.search(rf"^- {file}: (.+?)(?=\n- |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    if not (row or item):
        return ""
    # the last cell of a row may have the paper's figure numbers
    words = row.group(1).replace(r"\|", "¦").split("|")[0] if row else item.group(1)
    words = " ".join(words.replace("¦", r"\|").split()).rstrip(".")
    return words[0].upper() + words[1:] + "."


def read(path):
    """Return the comments of a CSV file as a dict, its header and its rows."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = list(file)
    comments = [line for line in lines if line.startswith("#")]
    about = dict(line[1:].strip().split(": ", 1) for line in comments if ": " in line)
    rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    return about, rows[0], rows[1:]


def origin(about):
    """Return the origin of a table in one line: machine, commit, versions, remarks.

    Examples
    --------
    >>> origin({"commit": "0abb42f", "date": "2026-11-21", "machine": "AMD", "cores": "2"})
    'Machine: AMD, 2 cores. Commit 0abb42f, 2026-11-21.'
    """
    left = dict(about)
    machine, cores = left.pop("machine", "not noted"), left.pop("cores", "")
    units, avx512 = left.pop("matrix_units", ""), left.pop("avx512_products", "none")
    where = [machine, f"{cores} core{'s' * (cores != '1')}" if cores else ""]
    if units:
        where.append("no matrix units" if units == "none" else f"matrix units for {units}")
    if avx512 != "none":
        where.append(f"{avx512} in AVX-512")
    when = f"Commit {left.pop('commit', 'not noted')}, {left.pop('date', 'date not noted')}"
    versions = [f"{k} {v}" for k, v in left.items() if re.fullmatch(r"none|[\d.]+\w*", v)]
    remarks = [f"{k}: {v}" for k, v in left.items() if f"{k} {v}" not in versions]
    sentences = [f"Machine: {', '.join(filter(None, where))}", when, ", ".join(versions), *remarks]
    return ". ".join(filter(None, sentences)) + "."


def table(path, about_it):
    """Return one CSV file as Markdown: caption, origin, and rows in a folded table.

    Parameters
    ----------
    path : Path
    about_it : str
    """
    about, header, rows = read(path)
    shown = rows if len(rows) <= SHOWN else rows[: OPEN // 2]
    count = f"{len(rows)} rows" if shown is rows else f"the first {len(shown)} of {len(rows)} rows"
    body = "".join(_row(row, "td") for row in shown)
    return "\n".join(
        (
            f"### {path.name}",
            "",
            f"{about_it} [{path.name}](results/{path.name})",
            "",
            f"*{origin(about)}*",
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
    """Return a number with six significant digits; return other text unchanged."""
    if not re.fullmatch(r"[-+]?\d+\.\d{3,}(e[-+]?\d+)?", cell):
        return cell
    return f"{float(cell):.6g}"


def index(pages):
    """Return the page that lists all studies by topic.

    Parameters
    ----------
    pages : dict of str to str
        Name of the folder to Markdown.
    """
    groups = {heading: dict(studies) for heading, studies in GROUPS.items()}
    known = {name for studies in groups.values() for name in studies}
    groups["More"] = {name: "" for name in pages if name not in known}
    lines = [INDEX]
    for heading, studies in groups.items():
        listed = [(name, about) for name, about in studies.items() if name in pages]
        if listed:
            lines += [f"## {heading}", "", "| study | what it shows |", "|---|---|"]
            lines += [f"| [{title(pages[n])}]({n}/index.md) | {about} |" for n, about in listed]
            lines.append("")
    return "\n".join(lines)
