"""The model of experiments/h200 counts what the code does, and predicts what the papers publish."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "h200"


def _load():
    if "h200_model" not in sys.modules:
        spec = importlib.util.spec_from_file_location("h200_model", FOLDER / "model.py")
        sys.modules["h200_model"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["h200_model"])
    return sys.modules["h200_model"]


model = _load()
H200 = model.Machine("h200")
PRODUCT = model.Operation("gemm", "fp64", 1000, 700, 300, 2 * 8 * 700_000)
OPERATIONS = (
    PRODUCT,
    model.Operation("gemm", "fp16", 512, 4096, 2048, 2 * 4 * 512 * 4096),
    model.Operation("syrk", "fp32", 900, 900, 128, 2 * 4 * 900**2),
    model.Operation("trsm", "fp32", 2000, 300),
    model.Operation("potrf", "fp64", n=1024),
    model.Operation("move", bytes=10**9),
    model.Operation("generate", m=100, n=100, bytes=80_000),
    model.Operation("to device", bytes=10**8),
)


def spd(n):
    return np.random.default_rng(0).random((n, n)) + n * np.eye(n)


# --- the papers ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_rates_that_the_papers_publish_are_predicted_within_a_quarter():
    rows = [row for row in model.published() if row["kind"] == "rate"]
    assert {row["paper"] for row in rows} == {"000", "001"}
    assert len(rows) == 13
    for row in rows:
        assert 0.75 < row["predicted_over_published"] < 1.25, row


def test_every_constant_has_a_source():
    lines = (FOLDER / "constants.csv").read_text(encoding="utf-8").splitlines()
    rows = list(model.csv.DictReader(line for line in lines if not line.startswith("#")))
    kinds = {"datasheet", "measured", "derived", "assumed"}
    assert all(row["source"] and row["kind"] in kinds and float(row["value"]) > 0 for row in rows)


@pytest.mark.parametrize("layers", [("fp64",), ("fp16", "fp32"), ("fp16",) * 5 + ("fp32",)])
def test_the_recursions_of_paper_000_have_the_operations_of_the_textbook(layers):
    n = 4096

    def flops(operations):
        return sum(o.flops for o in operations)

    assert flops(model.nested_potrf(n, layers, 256)) == pytest.approx(n**3 / 3)
    assert flops(model.nested_trsm(n, n, layers, 256)) == pytest.approx(n**3)
    assert flops(model.nested_syrk(n, n, layers, 256)) == pytest.approx(n**3)


@pytest.mark.parametrize("tiles", [5, 20])
def test_the_tiles_of_paper_001_have_the_operations_of_the_textbook(tiles):
    # products on the diagonal are counted whole: half a product too many for each pair of columns
    flops = sum(o.flops for o in model.tile_cholesky(tiles, 64))
    n = 64 * tiles
    assert flops == pytest.approx(n**3 / 3 + 64**3 * tiles * (tiles - 1) / 2)


def test_four_devices_share_the_operations_of_one():
    whole = sum(o.flops for o in model.tile_cholesky(9, 64))
    parts = [
        sum(o.flops for o in model.tile_cholesky(9, 64, rows=range(g, 9, 4))) for g in range(4)
    ]
    assert sum(parts) == pytest.approx(whole)


# --- recordings ---------------------------------------------------------------------------------


def test_a_recording_has_the_operations_of_the_textbook(machine):
    n, large = 512, 16_384
    size = model.Small(n, large)
    operations = model.recorded_potrf(spd(n), ("fp64",), size, leaf=1024, dtype="float64")
    # updates of squares on the diagonal are computed as whole products
    assert 1.0 <= sum(o.flops for o in operations) / (large**3 / 3) < 1.25


def test_a_small_problem_stands_for_a_large_one(machine):
    layers = ("fp16", "fp32")
    small, large = (
        model.predict(model.recorded_potrf(spd(n), layers, model.Small(n, 4096), leaf=512), H200)
        for n in (256, 512)
    )
    assert small.launches == large.launches
    assert small.synchronizations == large.synchronizations
    assert small.flops == pytest.approx(large.flops, rel=1e-6)
    assert small.seconds == pytest.approx(large.seconds, rel=0.05)


def test_a_recording_has_the_launches_and_synchronizations_that_are_counted(machine):
    import cupy

    from geomxp.linalg import nested

    a = cupy.asarray(np.asfortranarray(spd(256)))

    def work():
        nested.potrf(a, ("fp16", "fp32"), leaf=64)

    def again():
        a.set(spd(256))

    operations = model.recorded(work, prepare=again)
    again()
    with machine.counting() as counts:
        work()
    done = model.predict(operations)
    memsets = sum(o.host == "memset" for o in operations)
    copies = sum(o.host == "copy" for o in operations)
    assert done.launches - memsets - copies == counts["launches"]
    assert done.synchronizations == counts["synchronizations"]
    link = {kind: sum(o.bytes for o in operations if o.kind == kind) for kind in ("to device",)}
    assert link["to device"] == counts["bytes to device"]


def test_products_are_recorded_with_their_sizes_and_formats(machine):
    import cupy

    a = cupy.asarray(np.ones((64, 32), order="F"))
    b = cupy.asarray(np.ones((32, 16), order="F"))
    cupy.cublas = __import__("cupy.cublas", fromlist=["gemm"])
    (operation,) = model.recorded(lambda: cupy.cublas.gemm("N", "N", a, b), scale=2.0)
    assert (operation.kind, operation.form) == ("gemm", "fp64")
    assert (operation.m, operation.n, operation.k) == (128, 32, 64)


def test_entries_that_are_not_neighbours_cost_a_sector_each(machine):
    import cupy

    x = cupy.asarray(np.ones((64, 64)))
    along, across = (model.recorded(lambda y=y: y + 1.0)[0].bytes for y in (x, x.T))
    assert (along, across) == (2 * 8 * 64**2, (8 + 32) * 64**2)


# --- laws of predictions ------------------------------------------------------------------------


def test_shares_add_up_to_the_time():
    for layers in (("fp64",), ("fp16", "fp32")):
        waits = model.Operation("read back", host="read back")
        operations = [x for o in model.nested_potrf(8192, layers, 512) for x in (o, waits)]
        done = model.predict(operations, H200)
        assert sum(done.shares.values()) == pytest.approx(done.seconds)
        assert done.limit in done.shares


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.kind)
def test_larger_operations_take_longer_and_streams_do_not_delay(operation):
    def seconds(o, streams=1):
        return sum(o.seconds(replace(H200, streams=streams)).values())

    assert seconds(operation) < seconds(operation.scaled(4))
    assert seconds(operation, 4) <= seconds(operation)


def test_more_operations_and_synchronizations_take_longer():
    some = list(OPERATIONS)
    waits = model.Operation("synchronize", host="synchronization")
    once = model.predict(some, H200).seconds
    assert model.predict(some + some, H200).seconds > once
    drained = model.predict([x for o in some for x in (o, waits)], H200)
    assert drained.seconds > once
    assert drained.synchronizations == len(some)


def test_many_small_operations_are_limited_by_their_launches():
    tiny = model.Operation("move", bytes=1000, host="universal function")
    done = model.predict([tiny] * 1000, H200)
    assert done.limit == "launches"
    assert done.seconds == pytest.approx(1000 * H200.issue["universal function"], rel=0.01)


def test_a_slow_link_limits_copies_beside_products():
    copies = list(model.with_copies([PRODUCT] * 10, 10**10, 0))
    assert model.predict(copies, H200).limit == "host link"
    assert model.predict(copies, model.Machine("gh200")).seconds < 10**10 / H200["to device"]


def test_a_wave_that_is_not_full_takes_as_long_as_a_full_one():
    processors = int(H200["processors"])
    rows, columns = int(H200["tile rows"]), int(H200["tile columns"])
    full = H200.busy("fp16", rows, columns * processors, 1024)
    assert H200.busy("fp16", rows, columns, 1024) == full
    assert H200.busy("fp16", rows, columns * (processors + 1), 1024) == 2 * full
    assert full == pytest.approx(2 * rows * columns * processors * 1024 / H200.rate("fp16"))
