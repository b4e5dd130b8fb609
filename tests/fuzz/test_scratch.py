"""Tiles on disk that a stopped run left, with wrong bytes."""

import gc
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from fuzzing import attempt, target
from hypothesis import strategies as st

import geomxp as gx
from geomxp.tiles import assemble

N, TILE = 257, 32


def log_determinant(folder):
    """Return log|Σ| of a model whose tiles exceed the memory."""
    random = np.random.default_rng(0)
    seen = gx.Observations(random.random((N, 2)), np.zeros(N))
    method = gx.Exact(tile=TILE, memory="1MB", scratch=folder)
    found = gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5, 1e-2), method).log_determinant
    # the store is closed when it is collected
    gc.collect()
    return found


@cache
def left():
    """Return the files of a stopped run by their names, and log|Σ|."""
    tile = assemble.Originals.tile

    def stopped(originals, i, k, *rest, **options):
        if (i, k) == (6, 6):
            raise KeyboardInterrupt
        return tile(originals, i, k, *rest, **options)

    with tempfile.TemporaryDirectory() as folder:
        expected = log_determinant(folder)
        with (
            mock.patch.object(assemble.Originals, "tile", stopped),
            mock.patch.object(assemble.Originals, "norms", return_value=np.ones((9, 9))),
        ):
            try:
                log_determinant(folder)
            except KeyboardInterrupt:
                gc.collect()
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    assert len(files) > 1
    return files, expected


@pytest.mark.slow
@target(
    0.03,
    number=st.integers(0, 1),
    places=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    kind=st.sampled_from(("bit", "bytes", "drop", "cut", "repeat", "zeros")),
    bits=st.integers(0, 7),
)
def test_tiles_of_a_stopped_run(number, places, kind, bits):
    files, expected = left()
    name = sorted(files)[number]
    content = bytearray(files[name])
    for place in places:
        at = int(place * max(len(content) - 1, 0))
        if kind == "bit" and content:
            content[at] ^= 1 << bits
        elif kind == "bytes":
            content[at : at + 3] = b"9\n["
        elif kind == "drop":
            del content[at : at + 5]
        elif kind == "cut":
            del content[at:]
        elif kind == "repeat":
            content[at:at] = content[at : at + 8192]
        else:
            content[at : at + 8192] = bytes(len(content[at : at + 8192]))
    with tempfile.TemporaryDirectory() as folder:
        for other, sound in files.items():
            Path(folder, other).write_bytes(content if other == name else sound)
            Path(folder, other).chmod(0o600)
        found = attempt(log_determinant, folder)
    assert found is None or found == expected, f"log|Σ| is {found}, not {expected}"
