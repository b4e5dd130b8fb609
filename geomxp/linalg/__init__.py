"""Dense linear algebra: number formats, array backends, mixed products, factorizations.

`potrf`, `trsm`, `trmm` and `syrk` compute by halves in layered formats; `batched` has `potrf` and
`solve` for thousands of small matrices. They take NumPy and CuPy arrays.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import batched as batched
    from .nested import potrf, syrk, trmm, trsm

PUBLIC_MODULES = {
    "potrf": "nested",
    "trsm": "nested",
    "trmm": "nested",
    "syrk": "nested",
    "batched": "",
}
"""Public names, and the module of each; they are imported when they are first used."""

__all__ = ["batched", "potrf", "syrk", "trmm", "trsm"]


def __getattr__(name):
    if name not in PUBLIC_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not PUBLIC_MODULES[name]:
        return import_module(f".{name}", __name__)
    return getattr(import_module(f".{PUBLIC_MODULES[name]}", __name__), name)


def __dir__():
    return sorted({*globals(), *PUBLIC_MODULES})
