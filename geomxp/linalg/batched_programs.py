"""Program text of small factorizations and substitutions, written once for CPU and GPU.

A program is a list of lines in a small subset of Python: loops, branches, assignments and calls.
Here it becomes a module compiled by numba; `batched_gpu` translates it to CUDA C++. A variable
stands for one number in CUDA and for one vector of `simd` in numba; `load`, `store`, `minus`
(c - a b), `times`, `root` and `reciprocal` exist in both. Tiles are held in variables, and
operations on tiles are written out.

    interleaved    entry (i, j) of a chunk is at (i ld + j) lanes + first; right-hand side c of row
                   i at (i columns + c) lanes + start
    packed         entry (i, j <= i) of eight matrices is at 8 (i (i + 1)/2 + j)

Every tile size and every order of tiles subtracts the same products from an entry in the same
order: all programs give the same bits.
"""

import hashlib
import importlib.util
import linecache
import os
import sys
import tempfile
import types
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from ..errors import InvalidInput

LARGEST_ORDER = 128
"""Largest order of a matrix in a batch."""

LOOKING = ("top", "left", "right")
SUBSTITUTION_COLUMNS = 4
"""Right-hand sides that go through a substitution together."""

TILE_ORDER = 4
"""Tile of substitutions and of packed matrices: its 16 numbers and 5 factors fit into the 32
registers of AVX-512."""


@dataclass(frozen=True)
class Variant:
    """One way to write the same factorization.

    Parameters
    ----------
    looking : {"top", "left", "right"}
        Order of the tiles: by rows; by columns; by columns, with all updates at once.
    tile : int
        Rows and columns of a tile.
    chunk : int or "batch"
        Interleaved matrices, in registers of a CPU or in warps of a GPU; "batch": all matrices of
        the batch, without chunks. 0, on a GPU only: matrices are not interleaved, and a block of
        threads factors each; `looking`, `tile` and `unroll` then have no effect.
    unroll : bool
        Unroll the loops over tiles too, for one order n.
    fast : bool
        On a GPU only: factor with one approximate instruction for 1/√ instead of a root and a
        division that are rounded correctly. Bits and errors then depend on the GPU.
    panel : int
        With chunk=0: columns of a panel in registers (Algorithm 5), for one order n. 0: the whole
        triangle is in shared memory, with one row for each thread.
    block : tuple of int
        With chunk=0: threads along the rows of a panel, threads along its columns, and matrices of
        a block. With panel=0: (lanes, 1, m); a block has m matrices, and the rows of each are in
        the registers of `lanes` lanes of a warp. In a substitution: (32, 1, m); a block has m
        warps with one matrix each. (): the kernel in shared memory, which chooses its block.
    """

    looking: str = "left"
    tile: int = 4
    chunk: int | Literal["batch"] = 1
    unroll: bool = False
    fast: bool = False
    panel: int = 0
    block: tuple[int, ...] = ()

    def __post_init__(self):
        # JSON has lists
        object.__setattr__(self, "block", tuple(self.block))

    @property
    def title(self):
        """Short description for tables."""
        if self.chunk:
            size = "no chunks" if self.chunk == "batch" else f"x{self.chunk}"
            text = f"{self.looking} {self.tile} {size}" + " unrolled" * self.unroll
        else:
            text = f"panel {self.panel}" if self.panel else "" if self.block else "shared memory"
            text += " block " * bool(self.block) + "x".join(map(str, self.block))
        return text.strip() + " fast" * self.fast


UNTUNED = Variant()


def _plus(a, b):
    """Return the text of a + b, or the number."""
    return a + b if isinstance(a, int) else f"{a} + {b}" if b else a


def _pairs(rows, columns, lower=False):
    return [(p, q) for p in range(rows) for q in range(columns) if not lower or q <= p]


class Program:
    """Lines of a program for matrices in tiles of `tile` rows and columns.

    A tile is held in variables c_p_q. Its row p begins at r_p; row q of the factor that it is
    multiplied with begins at s_q. With `unroll`, loops are unrolled: the order n must be known.
    With `ahead`, what lies `ahead` entries after each entry that is loaded once is prefetched.
    Matrices are `packed` or interleaved. With `fast`, 1/√ is one operation.
    """

    def __init__(self, tile, n=None, *, unroll=False, ahead=False, packed=False, fast=False):
        self.lines, self._depth = [], 0
        self._tile, self._n, self._unroll = tile, n, unroll
        self._ahead, self._packed, self._fast = ahead, packed, fast
        # rows that fill tiles
        self._whole = "n" if packed else "whole" if n is None else n // tile * tile

    def __call__(self, *lines):
        """Write lines."""
        self.lines += ["    " * self._depth + line for line in lines]

    def block(self, head, write, *arguments):
        """Write the head of a block, and its body by a call."""
        self(head)
        self._depth += 1
        write(*arguments)
        self._depth -= 1

    def loop(self, name, start, stop, step, write):
        """Write a loop; `write` receives the name of its variable, or each of its values."""
        if self._unroll:
            for value in range(start, stop, step):
                write(value)
            return
        steps = f", {step}" if step != 1 else ""
        self.block(f"for {name} in range({start}, {stop}{steps}):", write, name)

    def tiles(self, name, start, write):
        """Write what happens to the rows from `start` on, tile by tile: write(rows, first)."""
        self.loop(name, start, self._whole, self._tile, lambda first: write(self._tile, first))
        if self._packed:
            return
        if self._n is None:
            for rows in range(1, self._tile):
                self.block(f"if n - whole == {rows}:", write, rows, self._whole)
        elif self._n % self._tile:
            write(self._n % self._tile, self._whole)

    # Operations on a tile

    def rows(self, name, first, count):
        """name_p <- start of row first + p."""
        start, length = f"{first} * row + first", "row"
        if self._packed:
            start = f"{first} * ({first} + 1) // 2 * lanes"
        self(f"{name}0 = {start}")
        for p in range(1, count):
            if self._packed:
                length = f"({_plus(first, p)}) * lanes"
            self(f"{name}{p} = {name}{p - 1} + {length}")

    def load(self, rows, columns, column, lower=False):
        """C <- A(rows, columns)."""
        for p, q in _pairs(rows, columns, lower):
            self(f"at = r{p} + ({_plus(column, q)}) * lanes", f"c{p}_{q} = load(a, at)")
            if self._ahead:
                self("touch(a, at + ahead)")

    def store(self, rows, columns, column, lower=False):
        """A(rows, columns) <- C."""
        for p, q in _pairs(rows, columns, lower):
            self(f"store(a, r{p} + ({_plus(column, q)}) * lanes, c{p}_{q})")

    def update(self, rows, columns, start, stop, lower=False):
        """C <- C - Σ_k A(rows, k) A(columns, k)'."""
        other = "x" if lower else "y"

        def products(k):
            self(f"at = {k} * lanes")
            self(*(f"x{p} = load(a, r{p} + at)" for p in range(rows)))
            if not lower:
                self(*(f"y{q} = load(a, s{q} + at)" for q in range(columns)))
            for p, q in _pairs(rows, columns, lower):
                self(f"c{p}_{q} = minus(c{p}_{q}, x{p}, {other}{q})")

        self.loop("k", start, stop, 1, products)

    def solve(self, rows, columns, column):
        """C <- C L^-T, L the diagonal tile in rows s."""
        for q in range(columns):
            for t in range(q):
                self(f"y{t} = load(a, s{q} + ({_plus(column, t)}) * lanes)")
                self(*(f"c{p}_{q} = minus(c{p}_{q}, c{p}_{t}, y{t})" for p in range(rows)))
            self(f"v = load(inverse, ({_plus(column, q)}) * width)")
            self(*(f"c{p}_{q} = times(c{p}_{q}, v)" for p in range(rows)))

    def factor(self, rows, column):
        """C <- its Cholesky factor; the reciprocals of the diagonal are stored in `inverse`."""
        for q in range(rows):
            if self._fast:
                self(f"v = inverse_root(c{q}_{q})", f"c{q}_{q} = times(c{q}_{q}, v)")
            else:
                self(f"c{q}_{q} = root(c{q}_{q})", f"v = reciprocal(c{q}_{q})")
            self(f"store(inverse, ({_plus(column, q)}) * width, v)")
            for p in range(q + 1, rows):
                self(f"c{p}_{q} = times(c{p}_{q}, v)")
                for t in range(q + 1, p + 1):
                    self(f"c{p}_{t} = minus(c{p}_{t}, c{p}_{q}, c{t}_{q})")

    # Operations on a tile of a matrix

    def diagonal(self, rows, i, start=0, stop=None, factor=True):
        """A_ii <- A_ii - Σ_k A_ik A_ik', and its Cholesky factor."""
        self.rows("r", i, rows)
        self.load(rows, rows, i, lower=True)
        self.update(rows, rows, start, i if stop is None else stop, lower=True)
        if factor:
            self.factor(rows, i)
        self.store(rows, rows, i, lower=True)

    def inner(self, rows, j, start=0, stop=None, solve=True):
        """A_ij <- A_ij - Σ_k A_ik A_jk', and times L_jj^-T; i is where rows r are."""
        self.rows("s", j, self._tile)
        self.load(rows, self._tile, j)
        self.update(rows, self._tile, start, j if stop is None else stop)
        if solve:
            self.solve(rows, self._tile, j)
        self.store(rows, self._tile, j)

    # Orders of the tiles; the last tile has the rows left over

    def top(self):
        """Row by row: the rows above are only read."""

        def row(rows, i):
            self.rows("r", i, rows)
            self.loop("j", 0, i, self._tile, lambda j: self.inner(rows, j))
            self.diagonal(rows, i)

        self.tiles("i", 0, row)

    def left(self):
        """Column by column: a column is brought up to date when it is reached."""

        def column(columns, j):
            def below(rows, i):
                self.rows("r", i, rows)
                self.inner(rows, j)

            self.diagonal(columns, j)
            if columns == self._tile:
                self.tiles("i", _plus(j, columns), below)

        self.tiles("j", 0, column)

    def right(self):
        """Column by column: a column is subtracted from all that follow when it is final."""

        def column(columns, j):
            after = _plus(j, columns)

            def final(rows, i):
                self.rows("r", i, rows)
                self.inner(rows, j, 0, 0)

            def subtract(rows, i):
                self.rows("r", i, rows)
                self.loop("t", after, i, columns, lambda t: self.inner(rows, t, j, after, False))
                self.diagonal(rows, i, j, after, False)

            self.diagonal(columns, j, 0, 0)
            if columns == self._tile:
                self.tiles("i", after, final)
                self.tiles("i", after, subtract)

        self.tiles("j", 0, column)


def potrf(variant, n=None, ahead=False):
    """Return the lines of a factorization A = L L' of an interleaved chunk, in place.

    They use a, n, ld, lanes, first, and `inverse` with room for n numbers that are `width` apart;
    with `ahead`, they prefetch the matrices that lie `ahead` entries further in memory. A program
    for one order only is given `n`.
    """
    program = Program(variant.tile, n, unroll=variant.unroll, ahead=ahead, fast=variant.fast)
    program("row = ld * lanes")
    if n is None:
        program(f"whole = n // {variant.tile} * {variant.tile}")
    getattr(program, variant.looking)()
    return program.lines


def substitution_text(backward):
    """Return the lines of b <- L⁻¹b, or b <- L'⁻¹b, in place, for an interleaved chunk.

    They use a, b, n, ld, columns, lanes, first and start.
    """
    text = Program(TILE_ORDER)
    text("row = ld * lanes", "wide = columns * lanes")
    text(
        f"whole = n // {TILE_ORDER} * {TILE_ORDER}",
        f"many = columns // {SUBSTITUTION_COLUMNS} * {SUBSTITUTION_COLUMNS}",
    )

    def entry(row, column):
        """Load an entry of L, or of L'."""
        row, column = (column, row) if backward else (row, column)
        return f"load(a, ({row}) * row + ({column}) * lanes + first)"

    def rows(count, columns, i):
        """Rows i of b <- those of the solution; the rows before, or after, are done."""
        pairs = _pairs(count, columns)
        text(*(f"z{p} = ({_plus(i, p)}) * wide + c * lanes + start" for p in range(count)))
        text(*(f"c{p}_{g} = load(b, z{p} + {g} * lanes)" for p, g in pairs))

        def products(k):
            text(*(f"x{p} = {entry(_plus(i, p), k)}" for p in range(count)))
            text(f"at = {k} * wide + c * lanes + start")
            text(*(f"y{g} = load(b, at + {g} * lanes)" for g in range(columns)))
            text(*(f"c{p}_{g} = minus(c{p}_{g}, x{p}, y{g})" for p, g in pairs))

        done = ("n - 1", f"{i} + {count - 1}", -1) if backward else (0, i, 1)
        text.loop("k", *done, products)
        for q in reversed(range(count)) if backward else range(count):
            text(f"v = {entry(_plus(i, q), _plus(i, q))}", "v = reciprocal(v)")
            text(*(f"c{q}_{g} = times(c{q}_{g}, v)" for g in range(columns)))
            for p in range(q) if backward else range(q + 1, count):
                text(f"v = {entry(_plus(i, p), _plus(i, q))}")
                text(*(f"c{p}_{g} = minus(c{p}_{g}, v, c{q}_{g})" for g in range(columns)))
        text(*(f"store(b, z{p} + {g} * lanes, c{p}_{g})" for p, g in pairs))

    def of_columns(columns):
        tiles = (0, "whole", TILE_ORDER), (f"whole - {TILE_ORDER}", -1, -TILE_ORDER)
        others = ("whole", "n", 1), ("n - 1", "whole - 1", -1)
        steps = [(TILE_ORDER, tiles[backward]), (1, others[backward])]
        for count, bounds in reversed(steps) if backward else steps:
            text.loop("i", *bounds, lambda i, count=count: rows(count, columns, i))

    text.loop("c", 0, "many", SUBSTITUTION_COLUMNS, lambda _: of_columns(SUBSTITUTION_COLUMNS))
    text.loop("c", "many", "columns", 1, lambda _: of_columns(1))
    return text.lines


def packed_text(operation):
    """Return the lines of an operation on packed matrices of order n, a multiple of TILE_ORDER.

    "factor": a <- L; "forward": y <- L⁻¹y by rows of L; "backward": y <- L'⁻¹y by columns of L'.
    `inverse` has the reciprocals of the diagonal; y begins at `start`.
    """
    text, tile, back = Program(TILE_ORDER, packed=True), range(TILE_ORDER), operation == "backward"
    if operation == "factor":
        text.top()
        return text.lines

    def products(k):
        text(f"at = {k} * lanes", "y_k = load(y, start + at)")
        for p in tile:
            x, other = ("y_k", f"c{p}") if back else (f"c{p}", "y_k")
            text(f"{x} = minus({x}, {other}, load(a, r{p} + at))")
        if back:
            text("store(y, start + at, y_k)")

    def rows(i):
        text.rows("r", i, TILE_ORDER)
        text(*(f"c{p} = load(y, start + ({i} + {p}) * lanes)" for p in tile))
        if not back:
            text.loop("k", 0, i, 1, products)
        for q in reversed(tile) if back else tile:
            text(f"c{q} = times(c{q}, load(inverse, ({i} + {q}) * lanes))")
            for p in range(q) if back else range(q + 1, TILE_ORDER):
                row, column = (q, p) if back else (p, q)
                text(f"v = load(a, r{row} + ({i} + {column}) * lanes)")
                text(f"c{p} = minus(c{p}, c{q}, v)")
        text(*(f"store(y, start + ({i} + {p}) * lanes, c{p})" for p in tile))
        if back:
            text.loop("k", 0, i, 1, products)

    bounds = (f"n - {TILE_ORDER}", -1, -TILE_ORDER) if back else (0, "n", TILE_ORDER)
    text.loop("i", *bounds, rows)
    return text.lines


# Programs as modules of numba, kept on disk once compiled.
#
# The text is written to a file in the user's cache directory: numba keeps what it compiles beside
# it, and tracebacks and debuggers show it. Where that directory is not writable, functions are
# compiled anew in each process (seconds).


SUBSTITUTIONS = ("forward", "backward")

MODULE_PREFIX = "geomxp_batched_"
"""Prefix of the names under which generated modules import each other."""

MODULE_HEAD = '''"""Written by geomxp: {title}."""

import numpy as np

from geomxp.linalg import simd
from geomxp.linalg.simd import {load}, minus, reciprocal, root, store, times, touch, width_of
from geomxp.runtime.devices import njit

'''

POTRF_MODULE = """
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
        for m in range(0, lanes, width):
            ahead = simd.two_ahead(m, lanes, width, size)
            registers_ahead(flat, n, n, lanes, c * size + m, inverse, ahead)
        simd.check(flat, c * size, n, lanes, lanes, info, c * lanes)


@njit(nogil=True, cache={cache}, error_model="numpy")
def factor_batch(a, out, info, lanes, past_cache):
    batch, n = a.shape[0], a.shape[1]
    source, target = a.reshape(-1), out.reshape(-1)
    chunk = np.zeros(n * n * lanes, a.dtype)
    width = width_of(chunk)
    inverse = np.empty(max(n, 1) * width, a.dtype)
    for member in range(0, batch, lanes):
        members = min(lanes, batch - member)
        simd.pack_lower(source, n, member, members, chunk, lanes)
        for first in range(0, lanes, width):
            registers(chunk, n, n, lanes, first, inverse)
        if simd.check(chunk, 0, n, lanes, members, info, member):
            simd.spoil(chunk, n, lanes, source, member, info[member : member + members])
        simd.unpack_lower(chunk, n, lanes, target, member, members, source, past_cache)
"""

SUBSTITUTION_MODULE = """
@njit(nogil=True, cache={cache}, error_model="numpy")
def forward_registers(a, b, n, ld, columns, lanes, first, start):
{forward}


@njit(nogil=True, cache={cache}, error_model="numpy")
def backward_registers(a, b, n, ld, columns, lanes, first, start):
{backward}


@njit(nogil=True, cache={cache}, error_model="numpy")
def forward_chunk(lower, b, n):
    check_shapes(lower, b, n)
    a, x, lanes = lower.reshape(-1), b.reshape(-1), lower.shape[2]
    for m in range(0, lanes, width_of(a)):
        forward_registers(a, x, n, lower.shape[1], b.shape[1], lanes, m, m)


@njit(nogil=True, cache={cache}, error_model="numpy")
def backward_chunk(lower, b, n):
    check_shapes(lower, b, n)
    a, x, lanes = lower.reshape(-1), b.reshape(-1), lower.shape[2]
    for m in range(0, lanes, width_of(a)):
        backward_registers(a, x, n, lower.shape[1], b.shape[1], lanes, m, m)


@njit(nogil=True, cache={cache}, error_model="numpy")
def check_shapes(lower, b, n):
    lanes = lower.shape[2]
    if lanes % width_of(lower) or b.shape[2] != lanes or n > min(len(lower), len(b)):
        raise ValueError("lower must be (n, n, lanes), b (n, k, lanes), with whole registers")


@njit(nogil=True, cache={cache}, error_model="numpy")
def substitute_chunks(chunks, b, forward, backward):
    n, lanes, columns = chunks.shape[1], chunks.shape[3], b.shape[2]
    a, x = chunks.reshape(-1), b.reshape(-1)
    for c in range(len(chunks)):
        for m in range(0, lanes, width_of(a)):
            first, start = c * n * n * lanes + m, c * n * columns * lanes + m
            wrong = simd.singular(a, first, n, lanes)
            if wrong >= 0:
                return c * lanes + m + wrong
            if forward:
                forward_registers(a, x, n, n, columns, lanes, first, start)
            if backward:
                backward_registers(a, x, n, n, columns, lanes, first, start)
    return -1


@njit(nogil=True, cache={cache}, error_model="numpy")
def substitute_batch(lower, x, lanes, forward, backward):
    batch, n, columns = x.shape
    a, b = lower.reshape(-1), x.reshape(-1)
    chunk, room = np.zeros((1, n, n, lanes), x.dtype), np.zeros((1, n, columns, lanes), x.dtype)
    flat, some = chunk.reshape(-1), room.reshape(-1)
    for member in range(0, batch, lanes):
        members = min(lanes, batch - member)
        simd.pack_lower(a, n, member, members, flat, lanes)
        simd.pack(b, n * columns, member, members, some, lanes)
        wrong = substitute_chunks(chunk, room, forward, backward)
        if wrong >= 0:
            return member + wrong
        simd.unpack(some, lanes, b, n * columns, member, members, b)
    return -1
"""

SOLUTION_MODULE = """
from {factor} import registers_ahead
from {substitution} import backward_registers, forward_registers


@njit(nogil=True, cache={cache}, error_model="numpy")
def solve_chunks(chunks, b, info):
    n, lanes, columns = chunks.shape[1], chunks.shape[3], b.shape[2]
    a, x = chunks.reshape(-1), b.reshape(-1)
    width, size = width_of(a), n * n * lanes
    inverse = np.empty(max(n, 1) * width, a.dtype)
    for c in range(len(chunks)):
        for m in range(0, lanes, width):
            first, start = c * size + m, c * n * columns * lanes + m
            ahead = simd.two_ahead(m, lanes, width, size)
            registers_ahead(a, n, n, lanes, first, inverse, ahead)
            forward_registers(a, x, n, n, columns, lanes, first, start)
            backward_registers(a, x, n, n, columns, lanes, first, start)
        simd.check(a, c * size, n, lanes, lanes, info, c * lanes)
"""

PACKED_MODULE = """
@njit(nogil=True, cache={cache}, error_model="numpy")
def factor_packed(a, inverse, n):
    lanes = width = simd.VECTOR_LANES
{factor}


@njit(nogil=True, cache={cache}, error_model="numpy")
def forward_packed(a, inverse, y, start, n):
    lanes = simd.VECTOR_LANES
{forward}


@njit(nogil=True, cache={cache}, error_model="numpy")
def backward_packed(a, inverse, y, start, n):
    lanes = simd.VECTOR_LANES
{backward}
"""


def cache_directory():
    """Return the user's cache directory for geomxp: $GEOMXP_CACHE_DIR, or the system's default."""
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
    """Write a file atomically: other processes see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)


def _indented(lines):
    return "\n".join("    " + line for line in lines)


def factorization(variant=UNTUNED, n=None):
    """Return a module with `factor_chunk(a, n)`, `factor_chunks` and `factor_batch`.

    numba compiles them when they are first called. An unrolled variant is for one order n. Raise
    `InvalidInput` for a variant of a GPU.
    """
    if not variant.chunk or variant.fast or variant.panel or variant.block:
        raise InvalidInput(
            "chunk=0, `panel`, `block` and fast=True are for a GPU: leave them out, and on a CPU "
            f"choose a `chunk` of at least 1. Got {variant}."
        )
    return _factorization(replace(variant, chunk=1), n if variant.unroll else None)


@cache
def _factorization(variant, n):
    constants, wrong, title = "", "", f"potrf_{variant.looking}_{variant.tile}"
    if n is not None:
        constants, wrong, title = f"    n = {n}\n", f" or n != {n}", f"{title}_unrolled_{n}"
    body, ahead = (_indented(potrf(variant, n, ahead)) for ahead in (False, True))
    return _module(
        title, POTRF_MODULE, constants=constants, body=body, body_ahead=ahead, wrong=wrong
    )


@cache
def substitution():
    """Return a module with `forward_chunk` and `backward_chunk`, and loops over batches."""
    bodies = {name: _indented(substitution_text(name == "backward")) for name in SUBSTITUTIONS}
    return _module("substitution", SUBSTITUTION_MODULE, **bodies)


@cache
def solution(variant, n):
    """Return a module with `solve_chunks`, which factors and substitutes; see `factorization`."""
    factor = factorization(variant, n)
    title = factor.__name__.removeprefix(MODULE_PREFIX).replace("potrf", "posv", 1)
    names = {"factor": factor.__name__, "substitution": substitution().__name__}
    return _module(title, SOLUTION_MODULE, **names)


@cache
def packed():
    """Return a module with `factor_packed`, `forward_packed` and `backward_packed`."""
    bodies = {name: _indented(packed_text(name)) for name in ("factor", "forward", "backward")}
    return _module("packed", PACKED_MODULE, load="load8 as load", **bodies)


def _module(title, form, load="load", **parts):
    """Return a module made of a text, from the cache directory if that is writable."""
    form = MODULE_HEAD.format(title=title, load=load) + form
    text = form.format(cache=True, **parts)
    own = files(__package__).joinpath("simd.py").read_text(encoding="utf-8")
    name = f"{title}_{hashlib.sha256((text + own).encode()).hexdigest()[:12]}"
    path = cache_directory() / "batched" / f"{name}.py"
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text)
        spec = importlib.util.spec_from_file_location(MODULE_PREFIX + name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except OSError:
        text = form.format(cache=False, **parts)
        module = sys.modules[MODULE_PREFIX + name] = types.ModuleType(MODULE_PREFIX + name)
        linecache.cache[f"<{name}>"] = (len(text), None, text.splitlines(True), f"<{name}>")
        exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module
