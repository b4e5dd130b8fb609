"""Run the code blocks of the pages in order and compare their outputs with the printed ones.

The ```python and ```console blocks of a page share one namespace and one empty folder. The output
of a python block, with its warnings, is in the ```text block after it; that of a command is below
the command; and a picture after a block shows the block's `ax`. A block with the title "Not run in
the tests: reason" is not run.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path

import geomxp.cli.main
from geomxp.errors import GeomxpWarning

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "pages"

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"\s*!\[[^\]]*\]\(([^)]*pictures/[^)]*\.png)\)")
UNTESTED = re.compile(r'title="Not run in the tests: [^"]{10,}"')
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
VARYING = re.compile(
    r"(?:(?:about|less than) )?\d[\d.,e-]* (?:s|ms|seconds|evaluations)\b|a gain of \S+"
    r"|\d+ [kMG]?B\b"
)

MEASURED = {"seconds", "speedup", "kl", "kl_log_determinant", "log_determinant_error"}
"""Columns of tables with times and with effects of rounding, which are not compared."""


@dataclass
class Block:
    """One fenced block of a page.

    Parameters
    ----------
    language : str
        python, console or text.
    about : str
        The text after the language on the first line.
    code : str
    line : int
        Line of the page where the block begins.
    span : (int, int)
        Start and end of the text between the fences.
    output : Block or None
        The text block with the printed output.
    picture : str or None
        Path of the picture after the block, as in the page.
    """

    language: str
    about: str
    code: str
    line: int
    span: tuple[int, int]
    output: "Block | None" = None
    picture: str | None = None
    printed: list = field(default_factory=list)

    @property
    def runs(self):
        """Whether the block is run."""
        return self.language in ("python", "console") and not UNTESTED.search(self.about)


def pages():
    """Return the paths of all pages, sorted by name."""
    return sorted(PAGES.rglob("*.md"))


def blocks(text):
    """Return the blocks of a page, with their outputs and pictures."""
    found, end = [], 0
    for match in FENCE.finditer(text):
        language, about, code = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        block = Block(language, about, code, line, match.span(3))
        follows = found and not text[end : match.start()].strip()
        if language == "text" and follows and found[-1].language == "python":
            found[-1].output = block
        else:
            found.append(block)
        end = match.end()
        picture = PICTURE.match(text, end)
        if picture and found[-1].runs:
            found[-1].picture = picture.group(1)
    return found


def commands(code):
    """Return (command, output) of each `$ ` line of a console block; join continued lines."""
    result = []
    for line in code.splitlines():
        if result and result[-1][0].endswith("\\"):
            result[-1][0] += "\n" + line
        elif line.startswith("$ "):
            result.append([line[2:], []])
        elif result:
            result[-1][1].append(line)
        else:
            raise ValueError(f"a console block begins with a command. Got {line!r}.")
    return [(command, "\n".join(output)) for command, output in result]


@contextlib.contextmanager
def _folder(path):
    """Change to a folder and set a terminal of 100 columns without colours."""
    before, kept = Path.cwd(), dict(os.environ)
    os.chdir(path)
    os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)


def _call(command, said):
    """Run a `geomxp …` line, or a script of the repository; return what it prints, or its error.

    Parameters
    ----------
    command : str
    said : str
        The printed output; an error is expected if it begins with "geomxp: ".
    """
    words = shlex.split(command.replace("\\\n", " "))
    if words[0] == "python":
        script = [sys.executable, ROOT / words[1], *words[2:]]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONPATH": paths}
        return subprocess.check_output(script, env=environment, text=True).rstrip()
    if words[0] != "geomxp":
        raise ValueError(f"only geomxp and the repository's scripts can be run. Got {command!r}.")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = geomxp.cli.main.main(words[1:])
    if status and not said.startswith("geomxp: "):
        raise RuntimeError(f"{command!r} ended with {status}: {err.getvalue()}")
    return (out.getvalue() or err.getvalue() if status else out.getvalue()).rstrip()


def run(path, folder):
    """Run a page, and yield each block that ran with its namespace.

    Parameters
    ----------
    path : Path
    folder : Path
        Empty folder for the files that the blocks write.

    Yields
    ------
    block : Block
        `printed` has its output: one text, or one per command.
    namespace : dict
    """
    namespace = {"__name__": "page"}
    with _folder(folder):
        for block in blocks(path.read_text(encoding="utf-8")):
            if not block.runs:
                continue
            if block.language == "console":
                block.printed = [_call(*pair) for pair in commands(block.code)]
            else:
                code = "\n" * block.line + block.code
                recorded = warnings.catch_warnings(record=True)
                with contextlib.redirect_stdout(out := io.StringIO()), recorded as caught:
                    warnings.simplefilter("error")
                    warnings.simplefilter("always", GeomxpWarning)
                    exec(compile(code, str(path), "exec"), namespace)
                said = [f"GeomxpWarning: {one.message}" for one in caught]
                block.printed = ["\n".join([*said, out.getvalue()]).rstrip()]
            yield block, namespace


def figure_of(namespace):
    """Return the figure of a block's `ax`, which is axes, an array of axes, or a figure."""
    ax = namespace["ax"]
    first = next(iter(ax.flat)) if hasattr(ax, "flat") else ax
    return first if hasattr(first, "savefig") else first.figure


def _without_columns(text):
    """Return a text without the columns of tables that differ between machines."""
    lines, leave, width = [], (), 0
    for line in text.splitlines():
        words = line.split()
        if MEASURED & set(words):
            leave = {k for k, word in enumerate(words) if word in MEASURED}
            width = len(words)
        elif len(words) != width:
            leave = ()
        lines.append(" ".join(word for k, word in enumerate(words) if k not in leave))
    return "\n".join(lines)


def alike(said, printed):
    """Whether two outputs have the same words, and the same numbers to 0.2 %; times are ignored.

    Examples
    --------
    >>> alike("8 places in 1.5 s, range 2.0000", "8 places in 0.9 s, range 2.0001")
    True
    >>> alike("8 places, range 2.00", "8 places, range 2.01")
    False
    """
    said, printed = (VARYING.sub("~", _without_columns(text)) for text in (said, printed))
    if NUMBER.sub("#", said).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(said), NUMBER.findall(printed), strict=True)
    return all(
        isclose(float(a.replace(",", "")), float(b.replace(",", "")), rel_tol=2e-3, abs_tol=1e-8)
        for a, b in pairs
    )


def differences(block):
    """Return (said, printed) of the outputs of a block that differ from those of the page."""
    if block.language == "console":
        pairs = [
            (said, p) for (_, said), p in zip(commands(block.code), block.printed, strict=True)
        ]
        pairs = [(said, printed) for said, printed in pairs if said]
    else:
        pairs = [(block.output.code, block.printed[0])] if block.output else []
    return [(said, printed) for said, printed in pairs if not alike(said, printed)]
