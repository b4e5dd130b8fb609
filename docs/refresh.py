"""Run pages and rewrite their outputs and pictures: python docs/refresh.py [PAGE…]."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import blocks

DPI, COLOURS = 150, 256


def _picture(figure, path):
    """Write a small PNG with an adaptive palette."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def _console(block):
    """Return a console block with new outputs below the commands that had one."""
    lines = []
    pairs = zip(blocks.commands(block.code), block.printed, strict=True)
    for (command, said), printed in pairs:
        lines.append("$ " + command)
        lines += [printed] if said else []
    return "\n".join(lines) + "\n"


def refresh(path):
    """Run one page, and rewrite its outputs and its pictures."""
    changes = []
    with tempfile.TemporaryDirectory() as folder:
        for block, namespace in blocks.run(path, folder):
            if block.picture:
                _picture(blocks.figure_of(namespace), path.parent / block.picture)
            if block.language == "console":
                changes.append((block.span, _console(block)))
            elif block.output:
                changes.append((block.output.span, block.printed[0] + "\n"))
    text = path.read_text(encoding="utf-8")
    for (start, end), new in reversed(changes):
        text = text[:start] + new + text[end:]
    path.write_text(text, encoding="utf-8")


def main(arguments):
    """Refresh the given pages, or all pages."""
    for path in map(Path, arguments) if arguments else blocks.pages():
        print(path)
        refresh(path.resolve())


if __name__ == "__main__":
    main(sys.argv[1:])
