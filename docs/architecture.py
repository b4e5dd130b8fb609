"""Diagram and table of the layers of geomxp, from the import law and the imports themselves.

The law is `LAYERS` in tests/test_architecture.py, which the tests enforce. The imports are parsed
from the sources. Nothing is written by hand, so the page cannot become outdated.
"""

import ast
import html
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "geomxp"
LAW = ROOT / "tests" / "test_architecture.py"

WIDTH, HEIGHT, GAP, MARGIN = 700, 30, 10, 4
"""Pixels of the diagram: its width, the height of a box, the space between boxes, the margin."""

FACADE = ("__init__", "__main__")
"""Entry points above all layers; they are not drawn."""


def layers():
    """Return the import law: sets of rooms, from the lowest layer to the highest."""
    for node in ast.parse(LAW.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "LAYERS":
            return tuple(ast.literal_eval(node.value))
    raise ValueError(f"{LAW} does not assign LAYERS.")


@cache
def modules():
    """Return {room: paths of its modules}. A room is a folder or a module of the package."""
    rooms = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        rooms.setdefault(inside.parts[0].removesuffix(".py"), []).append(path)
    return rooms


def purpose(room):
    """Return the first line of a room's docstring."""
    paths = modules()[room]
    path = next((path for path in paths if path.name == "__init__.py"), paths[0])
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]


@cache
def imports(room):
    """Return the other rooms that the modules of a room import: eagerly, lazily or for types."""
    found = set()
    for path in modules()[room]:
        folders = path.relative_to(PACKAGE).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level > len(folders):
                names = [node.module] if node.module else [alias.name for alias in node.names]
                found |= {name.split(".")[0] for name in names}
    return (found & set(modules())) - {room, *FACADE}


def diagram():
    """Return the layers as an SVG image, the highest layer at the top."""
    rows = [sorted(rooms - set(FACADE)) for rooms in reversed(layers())]
    rows = [rooms for rooms in rows if rooms]
    height = 2 * MARGIN + len(rows) * (HEIGHT + GAP) - GAP
    parts = [
        f'<svg class="layers" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Layers of geomxp: a room imports rooms of lower rows only">'
    ]
    for row, rooms in enumerate(rows):
        width = (WIDTH - 2 * MARGIN - GAP * (len(rooms) - 1)) / len(rooms)
        y = MARGIN + row * (HEIGHT + GAP)
        for column, room in enumerate(rooms):
            x = MARGIN + column * (width + GAP)
            parts.append(
                f'<g><title>{html.escape(purpose(room))}</title><rect x="{x:.1f}" y="{y}" '
                f'width="{width:.1f}" height="{HEIGHT}" rx="4"/><text x="{x + width / 2:.1f}" '
                f'y="{y + HEIGHT / 2 + 5:.1f}">{room}</text></g>'
            )
    return "".join([*parts, "</svg>"])


def table():
    """Return the rooms as a Markdown table: purpose, number of modules, rooms they import."""
    lines = ["| room | purpose | modules | imports |", "|---|---|---|---|"]
    for rooms in reversed(layers()):
        for room in sorted(rooms - set(FACADE)):
            below = ", ".join(f"`{name}`" for name in sorted(imports(room)))
            lines.append(f"| `{room}` | {purpose(room)} | {len(modules()[room])} | {below} |")
    return "\n".join(lines)
