import hashlib
import threading
from functools import partial

import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.linalg import blas
from geomxp.tiles import assemble, cholesky
from geomxp.tiles.cholesky import factorize, left_looking
from geomxp.tiles.stores import InCore

ROUGH = gx.Matern(1.0, 0.0788, 0.5, 1e-2)
CASES = [
    pytest.param(ROUGH, gx.uniform("fp64"), id="fp64"),
    pytest.param(ROUGH, gx.uniform("fp32"), id="fp32"),
    pytest.param(ROUGH, gx.uniform("fp8"), id="fp8"),
    pytest.param(ROUGH, gx.by_tile_norm(1e-5), id="by norm"),
    pytest.param(ROUGH, gx.by_tile_norm(1e-8), id="by norm, fine"),
    pytest.param(ROUGH, gx.layered("fp8", "bf16", "fp16", "fp32"), id="layered"),
    pytest.param(ROUGH, gx.by_band(("fp64", 2), ("fp32", 2), "fp8"), id="by band"),
]
SMOOTH, LESS_SMOOTH = gx.Matern(1.0, 0.2, 2.5, 1e-4), gx.Matern(1.0, 0.2, 1.5, 1e-4)
PROMOTED = [
    pytest.param(SMOOTH, gx.by_tile_norm(1e-3), id="by norm"),
    pytest.param(SMOOTH, gx.uniform("fp16"), id="fp16"),
    pytest.param(LESS_SMOOTH, gx.uniform("fp8"), id="fp8"),
    pytest.param(SMOOTH, gx.layered("fp16", "fp32", "fp64"), id="layered"),
    pytest.param(LESS_SMOOTH, gx.layered("fp8", "fp16", "fp32", "fp64"), id="deeply layered"),
    pytest.param(LESS_SMOOTH, gx.by_band(("fp32", 2), ("fp16", 3), "fp8"), id="by band"),
]


def store_of(model, rule, n=257, tile=32, kind=InCore):
    places = np.random.default_rng(1).random((n, 2))
    originals = assemble.originals(model, places[hilbert(places)], "euclidean", tile)
    return kind(originals, rule(originals.norms()))


def row_order(tiles):
    return [(i, k) for i in range(tiles) for k in range(i + 1)]


def random_order(tiles, seed):
    """Any order in which each tile comes after those that it needs."""
    rng, done, order, waiting = np.random.default_rng(seed), set(), [], row_order(tiles)
    while waiting:
        ready = [
            (i, k)
            for i, k in waiting
            if (i == k or (k, k) in done)
            and all((i, j) in done and (k, j) in done for j in range(k))
        ]
        pair = ready[rng.integers(len(ready))]
        waiting.remove(pair)
        done.add(pair)
        order.append(pair)
    return order


def fingerprint(store):
    """A hash of every bit of the factor."""
    found = hashlib.sha256()
    for pair in row_order(store.layout.tiles):
        tile = store.final(*pair)
        found.update(f"{pair} {tile.form.name} {tile.exponent} {tile.shape}".encode())
        found.update(tile.values.tobytes(order="F"))
    return found.hexdigest()


def factored(store, order, threads):
    """The fingerprint of the factor and how many tiles were promoted."""
    promoted = factorize(store, order, partial(cholesky.run, threads=threads))
    return fingerprint(store), promoted


def in_time(work, seconds=300):
    """Run something that might hang; return what it returned or raised."""
    result = []

    def catch():
        try:
            result.append(work())
        except BaseException as error:
            result.append(error)

    worker = threading.Thread(target=catch, daemon=True)
    worker.start()
    worker.join(seconds)
    assert not worker.is_alive(), "a thread hangs"
    return result[0]


def tile_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("tiles-")]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rule"), CASES)
def test_any_number_of_threads_gives_the_same_bits(way, model, rule):
    first = factored(store_of(model, rule), list(left_looking(9)), 1)
    for threads in (1, 2, 4, 100):
        # an in-core store's own order
        assert factored(store_of(model, rule), None, threads) == first


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rule"), CASES)
def test_any_order_of_the_tiles_gives_the_same_bits(way, model, rule):
    first = factored(store_of(model, rule), list(left_looking(9)), 1)
    orders = [row_order(9), *(random_order(9, seed) for seed in range(4))]
    for order in orders:
        for threads in (1, 3):
            assert factored(store_of(model, rule), order, threads) == first


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rule"), PROMOTED)
def test_any_number_of_threads_gives_the_same_bits_where_tiles_are_promoted(way, model, rule):
    first = factored(store_of(model, rule), list(left_looking(9)), 1)
    assert first[1] > 0
    for threads in (1, 2, 4):
        assert factored(store_of(model, rule), None, threads) == first


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rule"), PROMOTED)
def test_any_order_of_the_tiles_gives_the_same_bits_where_tiles_are_promoted(way, model, rule):
    first = factored(store_of(model, rule), list(left_looking(9)), 1)
    assert first[1] > 0
    for order in (row_order(9), *(random_order(9, seed) for seed in range(4))):
        assert factored(store_of(model, rule), order, 1) == first


class Watched(InCore):
    """A store that notes how many threads MKL may use where a tile is written."""

    def write(self, i, k, array):
        self.seen = {*getattr(self, "seen", ()), blas.mkl().MKL_Get_Max_Threads()}
        super().write(i, k, array)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_tile_is_finished_by_one_core_also_where_it_is_promoted(threads):
    if blas.mkl() is None:
        pytest.skip('MKL is not installed: pip install "geomxp[mkl]"')
    before = blas.mkl().MKL_Set_Num_Threads_Local(2)
    try:
        store = store_of(SMOOTH, gx.uniform("fp16"), kind=Watched)
        _, promoted = factored(store, list(left_looking(9)), threads)
    finally:
        blas.mkl().MKL_Set_Num_Threads_Local(before)
    assert promoted > 0
    assert store.seen == {1}


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("rule", [gx.by_tile_norm(1e-5), gx.uniform("fp8")], ids=repr)
def test_bytes_in_the_end_are_those_of_the_map(threads, rule):
    store = store_of(ROUGH, rule)
    factored(store, list(left_looking(9)), threads)
    held = sum(store.final(*pair).nbytes for pair in row_order(9))
    assert store.bytes == held == store.formats.bytes(store.layout)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_nothing_to_do_is_done(threads):
    store = store_of(ROUGH, gx.uniform("fp64"))
    assert in_time(lambda: cholesky.run(store, [], threads=threads)) is None
    assert not store.has(0, 0)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_tiles_that_are_there_already_are_read(threads):
    """The rest of the work, after half of it."""
    order = list(left_looking(9))
    store, whole = (store_of(ROUGH, gx.by_tile_norm(1e-5)) for _ in range(2))
    factored(whole, order, 1)
    cholesky.run(store, order[:20], threads=1)
    cholesky.run(store, order[20:], threads=threads)
    assert fingerprint(store) == fingerprint(whole)


class Broken(InCore):
    """A store that cannot make one of its tiles, or cannot keep it."""

    where, fails = (4, 2), "original"

    def original(self, i, k):
        if (i, k) == self.where and self.fails == "original":
            raise OSError(f"tile {i}, {k} is not there")
        return super().original(i, k)

    def write(self, i, k, array):
        if (i, k) == self.where and self.fails == "write":
            raise OSError(f"tile {i}, {k} is not there")
        super().write(i, k, array)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
@pytest.mark.parametrize("fails", ["original", "write"])
@pytest.mark.parametrize("where", [(0, 0), (4, 2), (8, 0), (8, 8)])
def test_an_error_in_a_thread_comes_out_and_no_thread_hangs(monkeypatch, threads, fails, where):
    monkeypatch.setattr(Broken, "where", where)
    monkeypatch.setattr(Broken, "fails", fails)
    store = store_of(ROUGH, gx.by_tile_norm(1e-5), kind=Broken)
    order = list(left_looking(9))
    error = in_time(lambda: factored(store, order, threads))
    assert isinstance(error, OSError)
    assert str(error) == f"tile {where[0]}, {where[1]} is not there"
    assert not store.has(*where)
    assert not tile_threads()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_after_an_error_the_rest_can_still_be_done(monkeypatch, threads):
    store = store_of(ROUGH, gx.by_tile_norm(1e-5), kind=Broken)
    order = list(left_looking(9))
    assert isinstance(in_time(lambda: factored(store, order, threads)), OSError)
    monkeypatch.setattr(Broken, "where", None)
    whole = store_of(ROUGH, gx.by_tile_norm(1e-5))
    assert factored(store, order, threads) == factored(whole, order, 1)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_matrix_without_a_factor_is_the_same_error_for_any_number_of_threads(threads):
    model = gx.Matern(1.0, 50.0, 2.5)
    errors = [
        in_time(lambda t=t: factored(store_of(model, gx.by_tile_norm(1e-8)), left_looking(9), t))
        for t in (1, threads)
    ]
    assert all(isinstance(error, gx.NotPositiveDefinite) for error in errors)
    assert errors[0].order == errors[1].order
    assert not tile_threads()
