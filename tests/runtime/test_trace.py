import json
from itertools import pairwise

import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.runtime.trace import (
    COPY_KINDS,
    Event,
    Meter,
    Trace,
    Traffic,
    from_zero,
    row_of,
    write_chrome,
)
from geomxp.tiles import assemble, cholesky
from geomxp.tiles.cholesky import factorize
from geomxp.tiles.memories import Host, Ram
from geomxp.tiles.out_of_core import OutOfCoreDevice, OutOfCoreStore
from geomxp.tiles.plan import POLICIES

TILES = 7


@pytest.fixture(
    scope="module", params=[(policy, p) for policy in POLICIES for p in (1, 2)], ids=str
)
def traced(request):
    """A store after its factorization, and the trace of it."""
    policy, devices = request.param
    places = np.random.default_rng(1).random((200, 2))
    matrix = assemble.originals(
        gx.Matern(1.0, 0.1, 0.5, 0.01), places[hilbert(places)], "euclidean", 32
    )
    slow, trace = Host(), Trace()
    formats = gx.by_tile_norm(1e-5)(matrix.norms())
    parts = [OutOfCoreDevice(matrix, Ram(slow), 0, 2) for _ in range(devices)]
    store = OutOfCoreStore(formats, parts, policy, trace=trace)
    for part in parts:
        part.budget = store.sizes.least + 20_000
    factorize(store, store.order(), cholesky.run)
    return store, trace


def rows(events):
    found = {}
    for event in events:
        found.setdefault((event.device, row_of(event)), []).append(event)
    return found


@pytest.mark.slow
def test_nothing_overlaps_within_a_row_of_the_timeline(traced):
    _, trace = traced
    for row, events in rows(trace.events()).items():
        for one, other in pairwise(events):
            assert one.begin <= one.end <= other.begin, (row, one, other)


@pytest.mark.slow
def test_every_kernel_of_every_tile_is_there_once(traced):
    store, trace = traced
    kernels = [event for event in trace.events() if event.kind not in COPY_KINDS]
    found = {}
    for event in kernels:
        found.setdefault(event.tile, []).append(event.kind)
        assert event.device == event.tile[0] % len(store.devices)
        assert event.form == store.formats[event.tile].name
        assert event.bytes == 0

    def steps(i, k):
        before = ["original", *["update"] * k]
        # a diagonal tile is factored with what comes before
        return [*before[:-1], "factor", "write"] if i == k else [*before, "solve", "write"]

    assert found == {(i, k): steps(i, k) for i in range(TILES) for k in range(i + 1)}


def test_copies_sum_to_the_traffic(traced):
    store, trace = traced
    events = trace.events()
    meter = Meter()
    for event in events:
        if event.kind in COPY_KINDS:
            meter.copied(event.kind, event.bytes)
    assert meter.read() == store.moved


def test_traffic_is_written_with_units():
    traffic = Traffic(3_000_000, 1_000_000, copies_in=12, copies_out=4)
    assert str(traffic) == "3.0 MB in 12 copies in, 1.0 MB in 4 copies out"


def test_events_begin_at_zero_and_come_in_order(traced):
    _, trace = traced
    begins = [event.begin for event in trace.events()]
    assert begins[0] == 0
    assert begins == sorted(begins)


def test_a_tile_is_written_before_it_is_read_from_the_slow_memory(traced):
    store, trace = traced
    events = trace.events()
    # what travels is not final
    if not store.policy.accumulator_stays:
        return
    written = {event.tile: event.end for event in events if event.kind == "out"}
    for event in events:
        if event.kind == "in":
            assert written[event.tile] <= event.end


def test_what_is_written_is_valid_chrome_json(traced, tmp_path):
    _, trace = traced
    trace.write(tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    drawn = [event for event in document["traceEvents"] if event["ph"] == "X"]
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in document["traceEvents"]
        if event["ph"] == "M"
    }
    events = trace.events()
    assert len(drawn) == len(events)
    assert len(drawn) + len(names) == len(document["traceEvents"])
    for event, box in zip(events, drawn, strict=True):
        assert names[box["pid"], box["tid"]] == row_of(event)
        assert box["pid"] == event.device
        assert box["args"]["bytes"] == event.bytes
        assert tuple(box["args"]["tile"]) == event.tile
        assert box["dur"] >= 0
        assert box["ts"] == pytest.approx(1e6 * event.begin)
        assert box["cat"] == ("copy" if event.kind in COPY_KINDS else "kernel")


def test_a_trace_of_nothing_is_empty(tmp_path):
    trace = Trace()
    assert trace.events() == []
    trace.write(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []


def test_events_of_a_simulation_are_written_as_those_of_a_run(tmp_path):
    """Numbers may be NumPy's."""
    tile = np.int64(1), np.int64(0)
    events = from_zero([Event("in", tile, "fp64", 0, 0, 3.0, 4.0, 8), Event("update", tile, "fp64",
                       0, 1, 2.0, 2.5)])  # fmt: skip
    assert [event.begin for event in events] == [0.0, 1.0]
    write_chrome(tmp_path / "trace.json", events)
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == 4
