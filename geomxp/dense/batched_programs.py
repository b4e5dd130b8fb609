"""Programs of `geomxp.dense.batched_text` as functions of numba, kept on disk once compiled.

The text is written to a file of the user's cache directory: numba keeps what it compiles beside
it, and tracebacks and debuggers show it. Where that directory cannot be written to, functions are
compiled anew in each process (seconds).
"""

import hashlib
import importlib.util
import linecache
import os
import sys
import tempfile
import types
from functools import cache
from importlib.resources import files
from pathlib import Path

from ..errors import InvalidInput
from . import batched_text
from .batched_text import Variant

HEAD = '''"""Written by geomxp: {title}."""

import numpy as np
from numba import njit

from geomxp.dense import batched_layout as layout
from geomxp.dense.batched_vectors import (
    load,
    minus,
    reciprocal,
    root,
    store,
    times,
    touch,
    width_of,
)

'''

POTRF = """
@njit(nogil=True, cache={cache}, error_model="numpy")
def registers(a, n, ld, lanes, first, inverse):
    width = width_of(a)
{constants}{body}


@njit(nogil=True, cache={cache}, error_model="numpy")
def registers_ahead(a, n, ld, lanes, first, inverse, ahead):
    width = width_of(a)
{constants}{body_ahead}


@njit(nogil=True, cache={cache}, error_model="numpy")
def factor_chunk(a, n):
    lanes = a.shape[2]
    flat = a.reshape(-1)
    width = width_of(flat)
    if lanes % width or n > a.shape[0] or n > a.shape[1]{wrong}:
        raise ValueError("a chunk must be (n, n, lanes or more), with lanes of whole registers")
    inverse = np.empty(max(n, 1) * width, a.dtype)
    for first in range(0, lanes, width):
        registers(flat, n, a.shape[1], lanes, first, inverse)


@njit(nogil=True, cache={cache}, error_model="numpy")
def factor_chunks(chunks, info):
    n, lanes = chunks.shape[1], chunks.shape[3]
    flat = chunks.reshape(-1)
    width, size = width_of(flat), n * n * lanes
    if lanes % width or n != chunks.shape[2]{wrong}:
        raise ValueError("chunks must be (chunks, n, n, lanes), with lanes of whole registers")
    inverse = np.empty(max(n, 1) * width, flat.dtype)
    for c in range(len(chunks)):
        for first in range(c * size, c * size + lanes, width):
            registers_ahead(flat, n, n, lanes, first, inverse, 2 * size)
        layout.check(flat, c * size, n, lanes, lanes, info, c * lanes)


@njit(nogil=True, cache={cache}, error_model="numpy")
def factor_batch(a, out, info, lanes, past_cache):
    batch, n = a.shape[0], a.shape[1]
    source, target = a.reshape(-1), out.reshape(-1)
    chunk = np.zeros(n * n * lanes, a.dtype)
    width = width_of(chunk)
    inverse = np.empty(max(n, 1) * width, a.dtype)
    for member in range(0, batch, lanes):
        members = min(lanes, batch - member)
        layout.pack_lower(source, n, member, members, chunk, lanes)
        for first in range(0, lanes, width):
            registers(chunk, n, n, lanes, first, inverse)
        if layout.check(chunk, 0, n, lanes, members, info, member):
            layout.spoil(chunk, n, lanes, source, member, info[member : member + members])
        layout.unpack_lower(chunk, n, lanes, target, member, members, source, past_cache)
"""

SUBSTITUTION = """
@njit(nogil=True, cache={cache}, error_model="numpy")
def {name}_registers(a, b, n, ld, columns, lanes, first):
{body}


@njit(nogil=True, cache={cache}, error_model="numpy")
def {name}_chunk(lower, b, n):
    lanes = lower.shape[2]
    a, x = lower.reshape(-1), b.reshape(-1)
    width = width_of(a)
    if lanes % width or b.shape[2] != lanes or n > lower.shape[0] or n > b.shape[0]:
        raise ValueError("lower must be (n, n, lanes), b (n, k, lanes), with whole registers")
    for first in range(0, lanes, width):
        {name}_registers(a, x, n, lower.shape[1], b.shape[1], lanes, first)


@njit(nogil=True, cache={cache}, error_model="numpy")
def {name}_batch(lower, x, lanes):
    batch, n, columns = x.shape
    a, b = lower.reshape(-1), x.reshape(-1)
    chunk, room = np.zeros((n, n, lanes), x.dtype), np.zeros((n, columns, lanes), x.dtype)
    flat, some = chunk.reshape(-1), room.reshape(-1)
    for member in range(0, batch, lanes):
        members = min(lanes, batch - member)
        layout.pack_lower(a, n, member, members, flat, lanes)
        layout.pack(b, n * columns, member, members, some, lanes)
        {name}_chunk(chunk, room, n)
        layout.unpack(some, lanes, b, n * columns, member, members, b)
"""

LAST = """

@njit(nogil=True, cache={cache}, error_model="numpy")
def backward_last(lower, x, n):
    x[:n] = 0
    x[n - 1] = 1
    backward_chunk(lower, x, n)
"""


def cache_directory():
    """Return where the user's programs keep what they can make again."""
    named = os.environ.get("GEOMXP_CACHE_DIR")
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "geomxp"


def write_whole(path, text):
    """Write a file that other processes see whole or not at all.

    Raises
    ------
    OSError
        Where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)


def _indented(lines):
    return "\n".join("    " + line for line in lines)


def factorization(variant=None, n=None):
    """Return a module: `factor_chunk(a, n)`, and loops of it over chunks and over batches.

    Parameters
    ----------
    variant : Variant or None
    n : int or None
        The order, for a variant that is written out.

    Returns
    -------
    module
        `factor_chunk`, `factor_chunks`, `factor_batch`, compiled by numba when first called.
    """
    variant = variant or Variant()
    if variant.unroll and n is None:
        raise InvalidInput("a variant that is written out needs the order n.")
    order = n if variant.unroll else None
    return _factorization(variant.looking, variant.tile, variant.unroll, order)


@cache
def _factorization(looking, tile, unroll, n):
    variant = Variant(looking, tile, 1, unroll)
    constants = "" if n is None else f"    n = {n}\n"
    wrong = "" if n is None else f" or n != {n}"
    body = _indented(batched_text.potrf(variant, n))
    ahead = _indented(batched_text.potrf(variant, n, ahead=True))
    unrolled = "_unrolled" if unroll else ""
    title = f"potrf_{looking}_{tile}{unrolled}" + (f"_{n}" if n else "")
    form = HEAD.format(title=title) + POTRF
    return _module(title, form, constants=constants, body=body, body_ahead=ahead, wrong=wrong)


@cache
def substitution(backward, tile=4):
    """Return a module: `forward_chunk`, or `backward_chunk`, and the loop over a batch."""
    name = "backward" if backward else "forward"
    body = _indented(batched_text.substitution(tile, backward))
    form = HEAD.format(title=name) + SUBSTITUTION + (LAST if backward else "")
    return _module(name, form, body=body, name=name)


def _module(title, form, **parts):
    """Return a module made of a text, from the cache directory where that can be written to."""
    text = form.format(cache=True, **parts)
    own = "".join(
        files(__package__).joinpath(f"batched_{part}.py").read_text(encoding="utf-8")
        for part in ("vectors", "layout")
    )
    name = f"{title}_{hashlib.sha256((text + own).encode()).hexdigest()[:12]}"
    path = cache_directory() / "batched" / f"{name}.py"
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text)
        spec = importlib.util.spec_from_file_location(f"geomxp_batched_{name}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except (OSError, RuntimeError):
        # numba raises RuntimeError where it finds no place for its own files
        text = form.format(cache=False, **parts)
        module = types.ModuleType(f"geomxp_batched_{name}")
        linecache.cache[f"<{name}>"] = (len(text), None, text.splitlines(True), f"<{name}>")
        exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module
