"""The schedule played on described machines."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import geomxp as gx
from geomxp.tiles.assemble import Originals
from geomxp.tiles.cholesky import factorize, run
from geomxp.tiles.layout import Layout
from geomxp.tiles.memories import Host, Ram
from geomxp.tiles.out_of_core import OutOfCoreDevice, OutOfCoreStore
from geomxp.tiles.plan import POLICIES
from geomxp.tiles.simulate import MACHINES, measured, simulate

LAYOUT = Layout(234, 32)
RATES = dict.fromkeys(("fp64", "fp32", "tf32", "bf16", "fp16", "fp8"), 1e9)
SIMPLE = replace(
    MACHINES["GH200"],
    rates=RATES,
    solve=1e9,
    factor=1e9,
    generation=1e8,
    overhead=0,
    memory=10**7,  # a plan keeps a number for each slot
)
RULES = {"fp64": gx.uniform("fp64"), "mixed": gx.layered("fp8", "fp16", "fp32", "fp64")}


def formats_of(rule):
    tiles = LAYOUT.tiles
    return RULES[rule](np.ones((tiles, tiles)))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("devices", [1, 3])
def test_the_volumes_are_those_of_a_run_to_the_byte(policy, devices, rule):
    places = np.random.default_rng(0).random((LAYOUT.n, 2))
    originals = Originals(gx.Matern(1.0, 0.1, 0.5, 0.1), places, "euclidean", LAYOUT)
    formats, slow = formats_of(rule), Host()
    parts = [OutOfCoreDevice(originals, Ram(slow), 0, 2) for _ in range(devices)]
    store = OutOfCoreStore(formats, parts, policy)
    for part in parts:
        part.budget = store.sizes.least + 30_000
    factorize(store, store.order(), run)
    machine = replace(SIMPLE, streams=2)
    played = simulate(
        *(machine, LAYOUT, store.formats, policy),
        **{
            "memory": store.sizes.arena(parts[0].budget),
            "devices": devices,
            "width": store.panel_width(),
        },
    )
    assert played.moved == store.moved


def test_one_stream_takes_as_long_as_its_kernels():
    machine = replace(SIMPLE, streams=1)
    found = simulate(machine, LAYOUT, formats_of("fp64"), "in core")
    kernels = sum(event.end - event.begin for event in found.events)
    assert found.seconds == pytest.approx(kernels, rel=1e-12)
    # n³/3 operations, and their generation
    n = LAYOUT.n
    least = n**3 / 3 / 1e9 + n * n / 2 / 1e8
    assert least < found.seconds < 1.3 * least
    assert found.moved.bytes_in == found.moved.bytes_out == 0


def test_a_product_of_two_fp32_tiles_takes_fp32_time_and_a_square_of_one_fp64():
    layout, cube = Layout(128, 32), 32**3
    formats = gx.by_band(("fp64", 1), "fp32")(np.ones((4, 4)))
    machine = replace(SIMPLE, rates={"fp64": 1e9, "fp32": 1e8}, streams=1)
    found = simulate(machine, layout, formats, "in core")
    seconds = {}
    for event in found.events:
        if event.kind == "update":
            seconds.setdefault(event.tile, []).append(event.end - event.begin)
    # L_30 L_20' of two FP32 tiles, L_31 L_21' of one, into an FP64 tile
    assert seconds[3, 2] == pytest.approx([2 * cube / 1e8, 2 * cube / 1e9], rel=1e-9)
    # the squares of L_20 and L_21 by halves
    assert seconds[2, 2] == pytest.approx([cube / 1e9, cube / 1e9], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_faster_links_are_never_slower(policy):
    seconds = []
    for speed in (1e6, 1e7, 1e8, 1e12):
        machine = replace(SIMPLE, into=speed, out_of=speed, latency=0.0, streams=2)
        seconds.append(
            simulate(machine, LAYOUT, formats_of("fp64"), policy, memory=60 * 8192).seconds
        )
    assert seconds == sorted(seconds, reverse=True)
    alone = simulate(replace(SIMPLE, streams=2), LAYOUT, formats_of("fp64"), "in core").seconds
    assert seconds[-1] == pytest.approx(alone, rel=0.05)


@pytest.mark.slow
def test_more_devices_take_less_time_and_no_less_than_their_share():
    alone, *others = (
        simulate(SIMPLE, LAYOUT, formats_of("fp64"), "v3", devices=p).seconds for p in (1, 2, 4)
    )
    assert alone > others[0] > others[1]
    assert others[0] >= alone / 2
    assert others[1] >= alone / 4


def test_a_slow_remote_memory_costs_time_but_no_bytes_and_its_placement_matters():
    def played(remote, placed, devices=3):
        machine = replace(SIMPLE, into=1e7, out_of=1e7, remote=remote, streams=2)
        options = {"memory": 30 * 8192, "devices": devices, "placed": placed}
        return simulate(machine, LAYOUT, formats_of("fp64"), "v1", **options)

    near = played(None, "cyclic")
    assert played(1e7, "one").seconds == played(1e7, "cyclic").seconds == near.seconds
    spread, one = played(2e6, "cyclic"), played(2e6, "one")
    assert near.seconds < spread.seconds < one.seconds
    assert near.moved == spread.moved == one.moved
    # devices write their own block rows, and read those of others
    remote = {e.device for e in spread.events if e.kind == "out" and e.end - e.begin > 8192 / 5e6}
    assert remote == set()
    assert {e.device for e in one.events if e.kind == "out" and e.end - e.begin > 0.003} == {1, 2}
    # one device has no other memory
    assert played(2e6, "one", 1).seconds == played(2e6, "cyclic", 1).seconds
    assert played(2e6, "one", 1).seconds == played(None, "cyclic", 1).seconds


def test_an_unknown_placement_is_refused():
    with pytest.raises(gx.InvalidInput, match=r"`placed` must be one of: cyclic, one\. Got 'two'"):
        simulate(SIMPLE, LAYOUT, formats_of("fp64"), placed="two")


def test_nothing_happens_twice_at_one_time_on_one_link_or_unit():
    found = simulate(replace(SIMPLE, streams=3), LAYOUT, formats_of("mixed"), "v2", memory=200_000)
    kernels = [event for event in found.events if event.kind not in ("in", "out")]
    for row in (kernels, *([e for e in found.events if e.kind == way] for way in ("in", "out"))):
        for before, after in pairwise(row):
            assert after.begin >= before.end - 1e-12


def test_too_little_memory_is_an_error():
    with pytest.raises(gx.NotEnoughMemory, match="in work at one time need"):
        simulate(SIMPLE, LAYOUT, formats_of("fp64"), memory=3 * 8192)


@pytest.mark.slow
def test_this_machine_can_be_measured(tmp_path):
    machine = measured(32, 10_000_000, tmp_path, forms=("fp64", "fp32", "fp16"))
    assert machine.units == machine.streams >= 1
    numbers = (machine.into, machine.out_of, machine.solve, machine.factor, machine.generation)
    assert min(*numbers, *machine.rates.values()) > 0
    assert not list(tmp_path.iterdir())
    assert simulate(machine, LAYOUT, formats_of("fp64"), memory=machine.memory).seconds > 0
