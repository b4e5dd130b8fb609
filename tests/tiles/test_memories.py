"""Slots of tiles in host memory, and when that memory is pinned."""

import gc

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.factors import tile_factor
from geomxp.tiles.layout import Layout
from geomxp.tiles.memories import ALIGNMENT_BYTES, LEAST_REGION_BYTES, Host
from geomxp.tiles.placement import Placement

MODEL = testing.MODEL
SMOOTH = gx.Matern(1.0, 0.2, 2.5, 1e-4)
"""Too smooth for FP16 at the accuracy asked for: tiles are promoted."""


def addresses(slots):
    return [slot.ctypes.data for slot in slots]


def test_slots_are_aligned_apart_and_in_one_region():
    sizes = [1000, 512, 1, 77_777]
    needed = sum(sizes) + ALIGNMENT_BYTES * len(sizes)
    host = Host(needed)
    slots = [host.buffer((k, 0), size) for k, size in enumerate(sizes)]
    assert [len(slot) for slot in slots] == sizes
    assert all(address % ALIGNMENT_BYTES == 0 for address in addresses(slots))
    for k, slot in enumerate(slots):
        slot[:] = k
    assert all((slot == k).all() for k, slot in enumerate(slots))
    assert needed <= host.bytes < needed + 4096
    assert addresses(host.buffer((k, 0), size) for k, size in enumerate(sizes)) == addresses(slots)


def test_a_tile_that_outgrows_its_slot_gets_another_one():
    host = Host(1000)
    first = host.buffer((0, 0), 1000)
    first[:] = 1
    other = host.buffer((0, 0), 3 * LEAST_REGION_BYTES)
    assert len(other) == 3 * LEAST_REGION_BYTES
    assert not np.shares_memory(first, other)
    # the rest of the tiles have what is left, or a region for many of them
    third, fourth = host.buffer((1, 0), 5000), host.buffer((2, 0), 5000)
    assert fourth.ctypes.data - third.ctypes.data == 5120
    assert host.bytes <= 4 * LEAST_REGION_BYTES + 8192


def test_memory_is_reused_for_the_tiles_of_another_matrix():
    host = Host(100_000)
    slots = [host.buffer((k, 0), 10_000) for k in range(5)]
    taken = host.bytes
    host.reserve(100_000)
    again = [host.buffer((k, 1), 10_000) for k in range(5)]
    assert addresses(again) == addresses(slots)
    assert host.bytes == taken
    host.reserve(300_000)
    for k in range(29):
        host.buffer((k, 2), 10_000)
    assert host.bytes <= 300_000 + 2 * 4096
    host.close()
    assert host.bytes == 0
    assert len(host.buffer((0, 0), 10)) == 10


HOWS = [{"device_memory": "2MB"}, {"on": ("cpu", "cpu")}]


@pytest.mark.parametrize("options", HOWS, ids=str)
def test_a_factor_keeps_its_tiles_while_others_are_computed(options):
    assert_a_factor_is_kept(gx.Exact(tile=64, **options))


def assert_a_factor_is_kept(method):
    seen = testing.observations(150)
    evaluator = method.prepare(seen)
    evaluator(MODEL)
    factor = evaluator.factorize(MODEL)
    before = factor.half_solve(seen.values)
    evaluator.gradient(MODEL)
    # last another model, whose factor would show
    for variance in (0.5, 3.0):
        evaluator(gx.Matern(variance, 0.3, 1.5, 0.2))
    np.testing.assert_array_equal(factor.half_solve(seen.values), before)


# from here on with a GPU ----------------------------------------------------------------------


@pytest.fixture
def registered(monkeypatch):
    """Ranges of host memory that are registered now, and how many ever were."""
    from cupy.cuda import runtime

    class Ranges(dict):
        ever = 0

    ranges, register, unregister = Ranges(), runtime.hostRegister, runtime.hostUnregister

    def noted(pointer, size, flags):
        register(pointer, size, flags)
        assert flags == 1
        ranges[pointer] = size
        ranges.ever += 1

    def forgotten(pointer):
        unregister(pointer)
        del ranges[pointer]

    monkeypatch.setattr(runtime, "hostRegister", noted)
    monkeypatch.setattr(runtime, "hostUnregister", forgotten)
    gc.collect()
    return ranges


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("on", ["gpu", ("gpu", "gpu")])
def test_tiles_behind_a_gpu_are_pinned_in_one_piece_of_their_size(registered, on):
    seen, layout = testing.observations(200), Layout(200, 64)
    method = gx.Exact(gx.uniform("fp64"), tile=64, on=on, device_memory="2MB")
    evaluator = method.prepare(seen)
    for variance in (1.0, 2.0, 3.0):
        assert evaluator(gx.Matern(variance, 0.2, 0.8, 0.1)).outcome.good
    # once for all evaluations; CuPy's own pool would round each tile to a power of two
    assert registered.ever == 1
    assert sum(registered.values()) <= layout.lower_bytes + ALIGNMENT_BYTES * 25 + 4096
    del evaluator
    gc.collect()
    assert not registered


@pytest.mark.slow
@pytest.mark.gpu
def test_promoted_tiles_have_room_beside_the_others(registered):
    seen, rule = testing.observations(161), gx.by_tile_norm(1e-3)
    factors = [
        tile_factor(SMOOTH, seen, rule, 32, Placement.of("gpu", device_memory=bound))
        for bound in (None, "1MB")
    ]
    assert factors[1].promotions == factors[0].promotions > 0
    np.testing.assert_array_equal(factors[1].dense(), factors[0].dense())
    assert sum(registered.values()) <= LEAST_REGION_BYTES + 2 * 8 * 161**2
    del factors
    gc.collect()
    assert not registered


@pytest.mark.gpu
def test_memory_that_cannot_be_pinned_is_said_so(monkeypatch):
    from cupy.cuda import runtime

    def refused(*_):
        raise runtime.CUDARuntimeError(2)

    monkeypatch.setattr(runtime, "hostRegister", refused)
    method = gx.Exact(tile=64, on="gpu", device_memory="2MB")
    with pytest.raises(gx.NotEnoughMemory, match=r"of RAM cannot be pinned for a GPU"):
        gx.log_likelihood(testing.observations(200), MODEL, method)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"tile": 64}, {"tile": 64} | HOWS[0]], ids=str)
def test_a_factor_on_a_gpu_is_kept_while_others_are_computed(options):
    assert_a_factor_is_kept(gx.Exact(on="gpu", **options))
