import errno
import gc
import os
import threading
import weakref

import numpy as np
import pytest
from opened import open_files

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.linalg.precision import count_finer
from geomxp.runtime.devices import human_bytes
from geomxp.runtime.trace import Trace
from geomxp.tiles import assemble, cholesky
from geomxp.tiles.cholesky import deal, factorize, left_looking
from geomxp.tiles.memories import Disk, Host, Ram
from geomxp.tiles.out_of_core import OutOfCoreDevice, OutOfCoreStore
from geomxp.tiles.plan import POLICIES, Plan, Sizes
from geomxp.tiles.stores import InCore

MODEL = gx.Matern(1.0, 0.1, 0.5, 1e-2)
SMOOTH, LESS_SMOOTH = gx.Matern(1.0, 0.2, 2.5, 1e-4), gx.Matern(1.0, 0.2, 1.5, 1e-4)
RULES = [
    gx.uniform("fp64"),
    gx.uniform("fp8"),
    gx.uniform("fp32-fp16"),
    gx.by_tile_norm(1e-5),
    gx.layered("fp8", "bf16", "fp16", "fp32"),
]
PROMOTED = [
    pytest.param(SMOOTH, gx.by_tile_norm(1e-3), id="by norm"),
    pytest.param(SMOOTH, gx.layered("fp16", "fp32", "fp64"), id="layered"),
    pytest.param(SMOOTH, gx.by_band(("fp32", 2), ("fp16", 3), "fp8"), id="by band"),
]
TILES = 6
ORDER = list(left_looking(TILES))
every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))


def originals_of(model=MODEL, n=161, tile=32):
    places = np.random.default_rng(1).random((n, 2))
    return assemble.originals(model, places[hilbert(places)], "euclidean", tile)


def store_of(matrix, formats, policy="v3", *, extra=0, devices=1, streams=2, slow=None, trace=None):
    """A store with `extra` bytes above the least budget."""
    slow = slow or Host()
    parts = [OutOfCoreDevice(matrix, Ram(slow), 0, streams) for _ in range(devices)]
    store = OutOfCoreStore(formats, parts, policy, trace=trace)
    for part in parts:
        part.budget = store.sizes.least + extra
    return store


def bits(store):
    """The formats of a factor, and every bit of it."""
    tiles = [store.final(*pair) for pair in ORDER]
    return [(t.form.name, t.exponent, t.shape, t.values.tobytes(order="F")) for t in tiles]


def in_core(matrix, rule):
    store = InCore(matrix, rule(matrix.norms()))
    factorize(store, store.order(), cholesky.run)
    return store


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


def factored(store):
    """Factor with a watchdog; return how many were promoted."""
    result = in_time(lambda: factorize(store, store.order(), cholesky.run))
    if isinstance(result, BaseException):
        raise result
    return result


def workers():
    names = ("tiles-", "loader-", "writer-")
    return [t.name for t in threading.enumerate() if t.name.startswith(names)]


@pytest.fixture(scope="module")
def known():
    """In-core factors by their rules."""
    matrix = originals_of()
    stores = {rule: in_core(matrix, rule) for rule in RULES}
    return {rule: (matrix, store.formats, bits(store)) for rule, store in stores.items()}


# the same bits


@pytest.mark.slow
@every_policy
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_every_policy_and_budget_gives_the_bits_of_one_memory(known, rule, policy):
    matrix, formats, expected = known[rule]
    tile = 8 * matrix.layout.tile**2
    for extra in (0, tile - 1, 7 * tile, 100 * tile):
        store = store_of(matrix, formats, policy, extra=extra)
        assert factored(store) == 0
        assert bits(store) == expected
        assert store.bytes == formats.bytes(matrix.layout)
    assert not workers()


@pytest.mark.slow
@every_policy
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_any_number_of_devices_gives_the_bits_of_one_memory(known, policy, devices):
    rule = RULES[2]
    matrix, formats, expected = known[rule]
    for streams in (1, 3):
        for extra in (0, 10**5):
            options = {"extra": extra, "devices": devices, "streams": streams}
            store = store_of(matrix, formats, policy, **options)
            factored(store)
            assert bits(store) == expected
    assert not workers()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sync", "v1", "v3"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_tiles_on_a_disk_have_the_bits_of_one_memory(known, tmp_path, rule, policy):
    matrix, formats, expected = known[rule]
    for devices in (1, 2):
        slow = Disk(matrix.layout, formats.bytes(matrix.layout), tmp_path)
        store = store_of(matrix, formats, policy, devices=devices, slow=slow)
        factored(store)
        assert bits(store) == expected
        store.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tile", [1, 5, 32, 256, 257])
def test_tiles_of_any_size_have_the_bits_of_one_memory(tile):
    n = 257 if tile > 5 else 7 * tile + 1
    matrix = originals_of(n=n, tile=min(tile, n))
    order = list(left_looking(matrix.layout.tiles))
    for rule in (gx.uniform("fp64"), gx.by_tile_norm(1e-3)):
        whole = in_core(matrix, rule)
        store = store_of(matrix, whole.formats, extra=5000)
        factored(store)
        for pair in order:
            np.testing.assert_array_equal(store.final(*pair).values, whole.final(*pair).values)


@pytest.mark.parametrize("width", [1, 2, 5, 9, 100])
def test_panels_of_any_width_give_the_same_bits(known, width):
    matrix, formats, expected = known[RULES[2]]
    store = store_of(matrix, formats)
    store.width = width
    factored(store)
    assert bits(store) == expected


class Late(Host):
    """A memory that keeps what is written to it waiting, until the lanes can do no more."""

    def __init__(self, patience=0.05):
        super().__init__()
        self.patience, self.go_on = patience, threading.Event()

    def write(self, key, data):
        self.go_on.wait(self.patience)
        super().write(key, data)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(("model", "rule"), PROMOTED)
def test_block_rows_are_promoted_as_in_one_memory(model, rule, devices):
    matrix = originals_of(model)
    first = rule(matrix.norms())
    whole = in_core(matrix, rule)
    assert count_finer(first, whole.formats) > 0
    for extra in (0, 10**5):
        store = store_of(matrix, first, extra=extra, devices=devices)
        promoted = factored(store)
        assert store.formats.rows == whole.formats.rows
        assert promoted >= count_finer(first, whole.formats)
        assert bits(store) == bits(whole)


@pytest.mark.parametrize(("model", "rule"), PROMOTED)
def test_the_row_that_failed_is_promoted_also_where_writing_is_slow(model, rule):
    """Tiles that are final on the device, but not yet in the slow memory, are no failures."""
    matrix = originals_of(model)
    first, whole = rule(matrix.norms()), in_core(matrix, rule)
    store = store_of(matrix, first, extra=10**7, slow=Late(0.005))
    factored(store)
    assert store.formats.rows == whole.formats.rows
    assert bits(store) == bits(whole)


def test_a_matrix_without_a_factor_is_the_same_error_where_writing_is_slow():
    matrix = originals_of(gx.Matern(1.0, 50.0, 2.5))
    formats = gx.uniform("fp64")(matrix.norms())
    with pytest.raises(gx.NotPositiveDefinite) as expected:
        in_core(matrix, gx.uniform("fp64"))
    store = store_of(matrix, formats, extra=10**7, slow=Late(0.005))
    with pytest.raises(gx.NotPositiveDefinite) as caught:
        factored(store)
    assert caught.value.order == expected.value.order


def test_what_is_left_of_a_factorization_is_done_on_other_devices(known):
    matrix, formats, expected = known[RULES[2]]
    slow = Host()
    store = store_of(matrix, formats, slow=slow)
    cholesky.run(store, list(store.order())[:10])
    other = store_of(matrix, formats, "v1", devices=3, slow=slow)
    other.headers.update(store.headers)
    other.devices[0].originals = matrix
    factorize(other, other.order(), cholesky.run)
    assert bits(other) == expected


# budgets


@pytest.mark.parametrize("rule", [RULES[0], RULES[2]], ids=repr)
@pytest.mark.parametrize("streams", [1, 2, 4])
def test_one_byte_below_the_least_is_too_little(known, rule, streams):
    matrix, formats, _ = known[rule]
    store = store_of(matrix, formats, extra=-1, streams=streams)
    least = human_bytes(store.sizes.least)
    message = f"tiles of 32 rows, {streams} in work at one time, need at least {least}. Got .*: all"
    with pytest.raises(gx.NotEnoughMemory, match=message):
        factored(store)
    assert not workers()
    assert not store.headers


def test_a_second_device_with_too_little_stops_the_first(known):
    matrix, formats, _ = known[RULES[0]]
    store = store_of(matrix, formats, devices=2)
    store.devices[1].budget -= 1
    with pytest.raises(gx.NotEnoughMemory, match="at least"):
        factored(store)
    assert not workers()


class Measured(Ram):
    """Notes the arena that it is asked for."""

    def open(self, count):
        self.opened = count
        super().open(count)


@every_policy
def test_the_arena_and_what_stands_beside_it_are_the_budget(known, policy):
    matrix, formats, _ = known[RULES[2]]
    slow = Host()
    part = OutOfCoreDevice(matrix, Measured(slow), 10**6, 2)
    store = OutOfCoreStore(formats, [part], policy)
    factored(store)
    assert part.memory.opened + Sizes(matrix.layout, formats, 2).beside <= 10**6


class Watched(Ram):
    """Notes the arenas of earlier runs that are still there when the next one is reserved."""

    def __init__(self, slow):
        super().__init__(slow)
        self.arenas, self.left = [], []

    def open(self, count):
        self.left += [arena for arena in self.arenas if arena() is not None]
        super().open(count)
        self.arenas.append(weakref.ref(self._arena))


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 2])
def test_a_run_that_failed_leaves_no_arena_behind(streams):
    matrix = originals_of(SMOOTH)
    part = OutOfCoreDevice(matrix, Watched(Host()), 10**6, streams)
    store = OutOfCoreStore(gx.by_tile_norm(1e-3)(matrix.norms()), [part])
    # promoted tiles are computed while the failure is handled: two arenas may be too much
    gc.collect()
    gc.disable()
    try:
        assert factored(store)
    finally:
        gc.enable()
    assert len(part.memory.arenas) > 2
    assert part.memory.left == []


def planned(store):
    """Bytes and copies in and out, as the plans say."""
    sizes, order = store.sizes, list(store.order())
    moved = {"in": [0, 0], "out": [0, 0]}

    def copy(way, count):
        moved[way][0] += count
        moved[way][1] += 1

    for part, mine in zip(store.devices, deal(order, len(store.devices)), strict=True):
        arena = sizes.arena(part.budget)
        for step in Plan(order, mine, sizes, arena, store.policy):
            for read in step.reads:
                if read.load:
                    copy("in", sizes.tile(*read.tile))
            if step.travels:
                copy("in", sizes.accumulator(*step.tile))
                copy("out", sizes.accumulator(*step.tile))
            if step.kind == "write":
                copy("out", sizes.tile(*step.tile))
    return moved


@pytest.mark.slow
@every_policy
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("rule", [RULES[0], RULES[3]], ids=repr)
def test_what_moves_is_what_the_plan_says_and_what_the_trace_saw(known, rule, policy, devices):
    matrix, formats, _ = known[rule]
    for extra in (0, 60_000):
        trace = Trace()
        store = store_of(matrix, formats, policy, extra=extra, devices=devices, trace=trace)
        factored(store)
        expected, moved = planned(store), store.moved
        assert [moved.bytes_in, moved.copies_in] == expected["in"]
        assert [moved.bytes_out, moved.copies_out] == expected["out"]
        for way, (count, copies) in expected.items():
            kinds = {"in": ("in", "return"), "out": ("out", "leave")}[way]
            events = [event for event in trace.events() if event.kind in kinds]
            assert (sum(event.bytes for event in events), len(events)) == (count, copies)


# failures


@every_policy
@pytest.mark.parametrize("streams", [1, 2])
def test_a_matrix_without_a_factor_is_an_error_and_ends_all_threads(tmp_path, policy, streams):
    matrix = originals_of(gx.Matern(1.0, 50.0, 2.5))
    formats = gx.uniform("fp64")(matrix.norms())
    slow = Disk(matrix.layout, 0, tmp_path)
    store = store_of(matrix, formats, policy, streams=streams, slow=slow)
    with pytest.raises(gx.NotPositiveDefinite, match="the leading minor of order"):
        factored(store)
    assert not workers()


def fails_at(where, error, method):
    """Return a method (i, k, ...) or ((i, k), ...) that raises at one tile."""

    def wrapped(*arguments, **options):
        first = arguments[0]
        if (first if isinstance(first, tuple) else arguments[:2]) == where:
            raise error
        return method(*arguments, **options)

    return wrapped


WHERE = [(0, 0), (4, 2), (5, 5)]


@pytest.mark.slow
@every_policy
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("where", WHERE)
def test_an_error_where_a_tile_is_generated_comes_out_alone(
    monkeypatch, known, policy, where, streams
):
    matrix, formats, _ = known[RULES[2]]
    error = OSError(f"no tile {where}")
    monkeypatch.setattr(matrix, "tile", fails_at(where, error, matrix.tile))
    store = store_of(matrix, formats, policy, streams=streams, devices=2)
    with pytest.raises(OSError, match="no tile") as caught:
        factored(store)
    assert caught.value is error
    assert not store.has(*where)
    assert not workers()


@pytest.mark.slow
@every_policy
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("where", WHERE)
def test_a_full_disk_is_one_clear_error_wherever_it_happens(
    monkeypatch, known, tmp_path, policy, where, streams
):
    matrix, formats, _ = known[RULES[2]]
    slow = Disk(matrix.layout, formats.bytes(matrix.layout), tmp_path)
    offset, pwrite = slow.offset_of(where), os.pwrite

    def full(descriptor, data, at):
        if at == offset:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    store = store_of(matrix, formats, policy, streams=streams, slow=slow)
    with pytest.raises(gx.NotEnoughMemory, match=r"the disk of .* is full: name another scratch"):
        factored(store)
    assert not workers()
    store.close()
    assert not list(tmp_path.iterdir())


@every_policy
@pytest.mark.parametrize("devices", [1, 2])
def test_an_error_where_a_tile_is_read_comes_out_alone(monkeypatch, known, policy, devices):
    matrix, formats, _ = known[RULES[0]]
    slow = Host()
    error = OSError(errno.EIO, "the disk is broken")
    monkeypatch.setattr(slow, "read", fails_at((3, 1), error, slow.read))
    store = store_of(matrix, formats, policy, devices=devices, slow=slow)
    with pytest.raises(OSError, match="the disk is broken") as caught:
        factored(store)
    assert caught.value is error
    assert not workers()


@every_policy
@pytest.mark.parametrize("streams", [1, 2])
def test_an_interruption_in_a_lane_ends_all_threads(monkeypatch, known, policy, streams):
    matrix, formats, _ = known[RULES[2]]
    stop = fails_at((4, 2), KeyboardInterrupt(), matrix.tile)
    monkeypatch.setattr(matrix, "tile", stop)
    store = store_of(matrix, formats, policy, streams=streams)
    with pytest.raises(KeyboardInterrupt):
        factored(store)
    assert not workers()


def test_after_an_error_the_rest_can_still_be_done(monkeypatch, known):
    matrix, formats, expected = known[RULES[2]]
    store = store_of(matrix, formats)
    with monkeypatch.context() as broken:
        broken.setattr(matrix, "tile", fails_at((4, 2), OSError("broken"), matrix.tile))
        with pytest.raises(OSError, match="broken"):
            factored(store)
    assert 0 < len(store.headers) < len(ORDER)
    factored(store)
    assert bits(store) == expected


def test_nothing_to_do_is_done(known):
    matrix, formats, _ = known[RULES[0]]
    store = store_of(matrix, formats)
    assert in_time(lambda: cholesky.run(store, [])) is None
    assert not workers()


@pytest.mark.slow
def test_nothing_is_left_open_after_many_runs(known, tmp_path):
    """No file, no thread and no name of a file."""
    matrix, formats, _ = known[RULES[0]]

    def once():
        slow = Disk(matrix.layout, formats.bytes(matrix.layout), tmp_path)
        store = store_of(matrix, formats, slow=slow)
        factored(store)
        return bits(store)

    for _ in range(3):
        once()
    assert not open_files(tmp_path)
    assert not workers()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("streams", [1, 2])
def test_ctrl_c_finds_the_main_thread_without_the_lock_of_the_others(monkeypatch, streams):
    # Ctrl-C during its acquisition would leave it locked, and loader and writer would hang
    users, wait_for = set(), OutOfCoreStore.wait_for

    def watched(self, condition):
        users.add(threading.current_thread())
        return wait_for(self, condition)

    monkeypatch.setattr(OutOfCoreStore, "wait_for", watched)
    matrix = originals_of()
    formats = gx.uniform("fp64")(matrix.norms())
    cholesky.run(store_of(matrix, formats, streams=streams), ORDER)
    assert len(users) >= 2
    assert threading.main_thread() not in users
