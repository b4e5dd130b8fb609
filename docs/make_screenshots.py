"""Take screenshots of the report, the terminal and the built site: python docs/make_screenshots.py.

This needs Chromium, and a site built by mkdocs build --strict.
"""

import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
SCREENS = ROOT / "docs" / "pages" / "pictures" / "screens"
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser, Tab, executable  # noqa: E402 (the tests' own driver)

COLOURS = 256

FIT = ("geomxp", "fit", "meuse", "--fix", "smoothness=0.5", "--intervals", "wald")
TERMINALS = {
    "terminal-fit": (100, FIT),
    "terminal-fit-phone": (44, FIT),
    "terminal-help": (100, ("geomxp", "--help")),
}
"""Columns of the terminal, and the command."""

PAGE = (
    '<body style="margin:0;background:{background};padding:16px;display:inline-block">'
    "<pre style=\"font:14px/1.3 'DejaVu Sans Mono',monospace;margin:0\">{code}</pre></body>"
)


def typed(words, columns):
    """Run a command in a pseudo-terminal and return its output, including colours."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color", "LINES": "60"}
    process = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            some = os.read(ours, 1 << 16)
        except OSError:
            # the process has closed its side
            break
        if not some:
            break
        shown += some
    os.close(ours)
    if process.wait():
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}")
    return shown.decode().replace("\r\n", "\n").strip("\n")


def as_page(words, columns):
    """Return an HTML page that shows a command and its output as a terminal would."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True)
        console.print(Text("$ " + " ".join(words), style="bold"))
        console.print(Text.from_ansi(typed(words, columns)))
        return console.export_html(code_format=PAGE, inline_styles=True)


def taken(browser, address, name, width, height, **options):
    """Write one screenshot with an adaptive palette."""
    path = SCREENS / f"{name}.png"
    tab = Tab(browser, address, width, height, **options)
    if name.startswith("terminal"):
        box = "document.querySelector('pre').getBoundingClientRect()"
        width, height = (round(tab.ask(f"{box}.{side}")) + 16 for side in ("right", "bottom"))
        tab(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
    tab.screenshot(path, whole=False)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main():
    """Take all screenshots and print their names."""
    if executable() is None:
        raise SystemExit("no screenshots: there is no Chromium (apt install chromium).")
    site = ROOT / "site" / "gallery" / "index.html"
    if not site.is_file():
        raise SystemExit("no screenshots: build the site first (mkdocs build --strict).")
    SCREENS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        report = [sys.executable, "-m", "geomxp", "fit", "meuse", "--quiet"]
        subprocess.run(
            [*report, "--fix", "smoothness=0.5", "--report", "meuse.html"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        explore = [sys.executable, "-m", "geomxp", "explore", "meuse", "--value", "zinc"]
        subprocess.run(
            [*explore, "--report", "zinc.html"], cwd=folder, stdout=subprocess.DEVNULL, check=True
        )
        (folder / "profile").mkdir()
        browser = Browser(executable(), folder / "profile")
        for name, (columns, words) in TERMINALS.items():
            page = folder / f"{name}.html"
            page.write_text(f'<meta charset="utf-8">{as_page(words, columns)}', encoding="utf-8")
            taken(browser, page.as_uri(), name, 1000, 800)
        taken(browser, (folder / "meuse.html").as_uri(), "report", 1100, 1300)
        taken(browser, (folder / "meuse.html").as_uri(), "report-phone", 390, 844, touch=True)
        taken(browser, (folder / "zinc.html").as_uri(), "explore", 1280, 1500)
        taken(browser, (folder / "zinc.html").as_uri(), "explore-phone", 390, 844, touch=True)
        taken(browser, site.as_uri(), "gallery", 1400, 1000)
        taken(browser, site.as_uri(), "gallery-phone", 390, 844, touch=True)
        browser.close()
    for path in sorted(SCREENS.glob("*.png")):
        print(f"{path.relative_to(ROOT)} {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
