"""What a run will need and move, told before it."""

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.runtime.trace import Traffic
from geomxp.tiles import placement
from geomxp.tiles.layout import Layout
from geomxp.tiles.plan import POLICIES, Sizes
from geomxp.tiles.simulate import MACHINES, simulate, volumes

MODEL = gx.Matern(1.0, 0.05, 0.5, 0.05)
RULES = {
    "uniform": gx.uniform("fp64"),
    "layered": gx.layered("fp16", "fp32"),
    "by_tile_norm": gx.by_tile_norm(1e-4),
    "for_divergence": gx.for_divergence(1e-3),
}
BOUNDS = {
    "memory": {"memory": "200kB"},
    "device_memory": {"device_memory": "200kB"},
    "two devices": {"on": ("cpu", "cpu"), "device_memory": "200kB"},
}
SEEN = testing.observations(330)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    """Bounds must hold a step of each core, however many there are."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bound", BOUNDS)
def test_what_moves_is_what_was_planned_to_the_byte(rule, bound):
    method = gx.Exact(RULES[rule], tile=32, **BOUNDS[bound])
    plan = method.plan(SEEN, MODEL)
    found = gx.log_likelihood(SEEN, MODEL, method)
    assert found.promotions == 0
    assert plan.formats.counts() == found.precision_map.counts()
    assert plan.traffic("v3") == {"v3": found.traffic}
    assert found.traffic.bytes_out == plan.bytes
    assert plan.on_disk == (plan.bytes if bound == "memory" else 0)
    assert str(found.traffic) in str(plan)
    assert str(found.traffic) in str(found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("devices", [1, 2])
def test_counting_copies_gives_what_playing_them_gives(policy, devices):
    layout = Layout(330, 32)
    formats = RULES["layered"](np.ones((layout.tiles, layout.tiles)))
    machine = MACHINES["GH200"]
    about = {"memory": 30 * Sizes(layout, formats).block, "devices": devices, "width": 3}
    played = simulate(machine, layout, formats, policy, **about)
    assert volumes(layout, formats, policy, streams=machine.streams, **about) == played.moved


def test_each_policy_reads_no_more_than_the_one_before_it():
    plan = gx.Exact(tile=32, memory="200kB").plan(640)
    found = plan.traffic()
    assert list(found) == list(POLICIES)
    assert found["sync"] == found["async"]
    reads = [moved.bytes_in for moved in found.values()]
    assert reads == sorted(reads, reverse=True)
    # what is final goes out once
    assert {found[name].bytes_out for name in ("v1", "v2", "v3")} == {plan.bytes}


def test_a_memory_twice_as_large_never_reads_more():
    reads = [
        gx.Exact(tile=32, memory=size).plan(640).traffic("v3")["v3"].bytes_in
        for size in ("200kB", "400kB", "800kB", "100MB")
    ]
    assert reads == sorted(reads, reverse=True)
    assert reads[-1] == 0


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_tiles_in_memory_are_within_the_bound(bound):
    method = gx.Exact(RULES["layered"], tile=32, **BOUNDS[bound])
    plan = method.plan(640)
    block = Sizes(plan.layout, plan.formats).block
    assert 0 < plan.tiles_in_memory * block <= sum(plan.arenas) < sum(plan.budgets)
    assert sum(plan.budgets) <= 200_000 * len(plan.devices)
    assert plan.tiles_in_memory < plan.tiles == 20 * 21 // 2


@pytest.mark.parametrize("options", [{}, {"tile": 32}])
def test_in_one_memory_nothing_moves(options):
    method = gx.Exact(**options)
    plan = method.plan(len(SEEN))
    assert set(plan.traffic().values()) == {Traffic()}
    assert (plan.on_disk, plan.tiles_in_memory) == (0, plan.tiles)
    found = gx.log_likelihood(SEEN, MODEL, method)
    assert (found.traffic, found.events) == (None, ())
    assert found.to_dict()["traffic"] is None
    assert plan.free > plan.bytes
    assert "in the memory of cpu" in str(plan)


def test_an_untiled_matrix_is_one_square():
    plan = gx.Exact().plan(1000)
    assert (plan.bytes, plan.tiles) == (8_000_000, 1)
    assert "one matrix       8.0 MB in FP64" in str(plan)


@pytest.mark.slow
def test_a_traced_run_keeps_what_happened_when():
    method = gx.Exact(tile=32, memory="200kB", trace=True)
    found = gx.log_likelihood(SEEN, MODEL, method)
    copied = sum(event.bytes for event in found.events if event.kind == "in")
    assert copied == found.traffic.bytes_in > 0
    assert {event.tile for event in found.events if event.kind == "write"} == {
        (i, k) for i in range(11) for k in range(i + 1)
    }
    ax = gx.plots.timeline(found.events)
    assert ax.get_xlabel() == "seconds"
    # each evaluation has its own
    again = method.prepare(SEEN)
    assert len(again(MODEL).events) == len(found.events) == len(again(gx.Matern(2, 0.1, 1)).events)
    untraced = gx.log_likelihood(SEEN, MODEL, gx.Exact(tile=32, memory="200kB"))
    assert untraced.events == ()
    assert untraced.log_likelihood == found.log_likelihood


def test_the_plan_of_a_refined_run_is_that_of_its_factor():
    method = gx.Exact(RULES["layered"], tile=32, memory="200kB", refine="cg")
    found = gx.log_likelihood(SEEN, MODEL, method)
    assert method.plan(330).traffic("v3")["v3"] == found.traffic


# machines


@pytest.mark.slow
def test_a_described_machine_lends_its_memory_where_the_plan_has_no_bound():
    plan = gx.Exact(tile=8000).plan(240_000)
    reads = [plan.play(name).moved.bytes_in for name in ("A100-PCIe", "H200-PCIe")]
    # a left-looking factorization needs half of the triangle at a time
    assert MACHINES["A100-PCIe"].memory < plan.bytes / 2 < MACHINES["H200-PCIe"].memory
    assert reads[0] > 0 == reads[1]


def test_a_bound_counts_on_any_machine():
    plan = gx.Exact(tile=32, device_memory="200kB").plan(640)
    small = plan.play("GH200")
    assert small.moved.bytes_in > 0
    assert gx.Exact(tile=32).plan(640).play("GH200").moved.bytes_in == 0
    assert repr(small).startswith("<Simulation of ")
    assert len(repr(small)) < 200


@pytest.mark.parametrize("options", [{}, {"tile": 32}, {"tile": 32, "memory": "200kB"}])
def test_this_machine_is_measured_where_none_is_named(options, monkeypatch):
    asked = []

    def measured(tile, forms):
        asked.append((tile, forms))
        return MACHINES["GH200"]

    # the machine itself has tests of its own
    monkeypatch.setattr(placement, "measured_machine", measured)
    plan = gx.Exact(**options).plan(330)
    found = plan.play()
    assert asked == [(plan.layout.tile, ("fp32", "fp64"))]
    assert found.moved == plan.traffic("v3")["v3"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [gx.uniform("fp64"), gx.layered("fp8", "fp16", "fp32")])
def test_a_measured_machine_knows_the_formats_of_the_plan(rule):
    found = gx.Exact(rule, tile=32, memory="600kB").plan(330).play()
    assert found.seconds > 0
    # operations a second of any core and any format
    rates = placement.measured_machine(32, ("fp64", "fp32")).rates
    assert set(rates) == {"fp64", "fp32"}
    assert all(1e5 < rate < 1e15 for rate in rates.values())


# what cannot be planned


def test_formats_that_depend_on_the_matrix_need_it():
    for rule in (gx.by_tile_norm(1e-6), gx.for_divergence(1e-3), lambda norms: None):
        with pytest.raises(gx.InvalidInput, match=r"method\.plan\(observations, model\)"):
            gx.Exact(rule, tile=32).plan(330)
    with pytest.raises(gx.InvalidInput, match=r"method\.plan\(observations, model\)"):
        gx.Exact(gx.by_tile_norm(1e-6), tile=32).plan(SEEN)


def test_too_little_memory_is_said_in_the_words_of_the_run():
    method = gx.Exact(tile=32, memory=10)
    with pytest.raises(gx.NotEnoughMemory) as run:
        gx.log_likelihood(SEEN, MODEL, method)
    with pytest.raises(gx.NotEnoughMemory) as planned:
        method.plan(330)
    assert str(run.value) == str(planned.value)
    with pytest.raises(gx.NotEnoughMemory, match="tiles of 60000 rows, 4 in work at one time"):
        gx.Exact(tile=60_000).plan(240_000).play("A100-PCIe")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.traffic("v4"), r"`policy` must be one of: sync.*Got 'v4'"),
        (lambda p: p.play("A100-PCIe", "v4"), r"`policy` must be one of: sync.*Got 'v4'"),
        (lambda p: p.play("A100"), r"`machine` must be one of: A100-PCIe.*Did you mean 'A100-PCIe"),
        (
            lambda p: p.play(),
            "only RAM, alone or over a disk, can be measured on this machine: give",
        ),
        (lambda p: gx.Exact().plan(0), r"`locations` must be Observations, or the number.*Got 0"),
        (
            lambda p: gx.Exact().plan(np.ones((4, 2))),
            "`locations` must be Observations.*Got ndarray",
        ),
        (lambda p: gx.Exact(tile=32).plan(10), "`tile` must be an integer between 1 and"),
    ],
)
def test_what_cannot_be_planned_is_said(call, message):
    with pytest.raises(gx.InvalidInput, match=message):
        call(gx.Exact(tile=32, device_memory="200kB").plan(640))


def test_many_tiles_are_not_counted_unasked(monkeypatch):
    monkeypatch.setattr(placement, "MOST_COUNTED_TILES", 19)
    text = str(gx.Exact(tile=32, memory="200kB").plan(640))
    assert "traffic() counts them" in text
    assert "210 of 32 rows: 210 fp64" in text


def test_a_plan_as_a_document_can_be_json():
    import json

    plan = gx.Exact(tile=32, memory="200kB").plan(640)
    found = json.loads(json.dumps(plan.to_dict()))
    assert (found["n"], found["tile"], found["tiles"]) == (640, 32, 210)
    assert found["bytes_on_disk"] == found["bytes"] == plan.bytes
    assert found["behind"] == "disk"
