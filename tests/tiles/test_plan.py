"""Plans carried out on paper: by one reader who follows the rules, and by many who hurry."""

from collections import Counter, defaultdict, deque
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geomxp as gx
from geomxp.linalg.formats import FORMATS, FP64
from geomxp.linalg.precision import PrecisionMap
from geomxp.tiles.cholesky import deal, left_looking
from geomxp.tiles.layout import Layout
from geomxp.tiles.plan import POLICIES, Plan, Sizes, least_blocks, policy_named

TILE = 64  # of one page in FP8, of eight in FP64


def random_map(tiles, names, seed):
    rng, forms = np.random.default_rng(seed), [FORMATS[name] for name in names]
    rows = tuple(tuple(rng.choice(forms) for _ in range(i + 1)) for i in range(tiles))
    # what is factored is FP32 at least
    fine = [(*row[:-1], row[-1] if row[-1].name in ("fp64", "fp32") else FP64) for row in rows]
    return PrecisionMap(tuple(fine))


@st.composite
def cases(draw, least_extra=0):
    """Plans of all devices, and what they are made of."""
    tiles, last = draw(st.integers(1, 8)), draw(st.integers(1, TILE))
    layout = Layout((tiles - 1) * TILE + last, TILE if tiles > 1 else last)
    names = draw(st.lists(st.sampled_from(sorted(FORMATS)), min_size=1, max_size=4))
    formats = random_map(tiles, names, draw(st.integers(0, 99)))
    streams, devices = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    policy = policy_named(draw(st.sampled_from(sorted(POLICIES))))
    width, height = draw(st.integers(1, 8)), draw(st.none() | st.integers(1, 8))
    order = list(left_looking(tiles, width, height))
    # some tiles are there from a run before
    there = draw(st.sampled_from([0, 0, 1, len(order) // 2]))
    extra = draw(st.sampled_from([0, 1, 2, 3, 7, 40])) + least_extra
    block = Sizes(layout, formats).block
    arena = (least_blocks(streams) + extra) * block + draw(st.integers(0, block - 1))
    found, order = set(order[:there]), order[there:]
    plans = [
        Plan(order, mine, Sizes(layout, formats, streams), arena, policy)
        for mine in deal(order, devices)
    ]
    return plans, found, layout, arena


def reads_of(tile):
    """The steps of a tile, each with what it reads."""
    i, k = tile
    yield "original", []
    for j in range(k):
        yield "update", [(i, j)] if i == k else [(i, j), (k, j)]
    yield ("factor", []) if i == k else ("solve", [(k, k)])
    yield "write", []


class Reader:
    """Follows the plan of one device, and looks at every byte that it touches."""

    def __init__(self, plan, found, layout, arena):
        self.plan, self.sizes = plan, Sizes(layout, plan.formats)
        self.layout, self.arena = layout, arena
        self.mine, self.found = set(plan.mine), found
        # what is in a page, and who has touched it since: (step, stream, whether the writer too)
        self.content, self.touched = {}, defaultdict(list)
        self.accumulators, self.written, self.left = {}, [], {}
        self.streams = {}

    def pages(self, slot, count):
        assert slot % 4096 == 0
        assert slot >= 0
        assert slot + count <= self.arena
        return range(slot // 4096, -(-(slot + count) // 4096))

    def fill(self, step, slot, width, what, after):
        assert all(earlier < step.number for earlier in after)
        # the last tiles of a column are smaller than their slots
        for page in self.pages(slot, self.sizes.units(width) * self.sizes.unit):
            for number, stream, writer in self.touched[page]:
                if number == step.number:
                    raise AssertionError("a step writes over what it uses itself")
                assert any(
                    earlier == number if writer else earlier >= number
                    for earlier in after
                    if writer or self.streams[earlier] == stream
                ), f"{step} does not wait for step {number} of stream {stream}"
            self.content[page] = what
            self.touched[page] = [(step.number, step.stream, False)]

    def use(self, step, slot, count, what, writer=False):
        for page in self.pages(slot, count):
            assert self.content[page] == what, f"{step} finds {self.content[page]}, not {what}"
            self.touched[page].append((step.number, step.stream, writer))

    def follow(self):
        for number, step in enumerate(self.plan):
            assert step.number == number
            self.streams[number] = step.stream
            self.one(step)
        assert sorted(self.written) == sorted(self.mine)
        assert not any(self.left.values())

    def one(self, step):
        tile, formats = step.tile, self.plan.formats
        if step.kind == "original":
            assert tile in self.mine
            assert not self.left.get(step.stream), "a stream has one tile at a time"
            self.left[step.stream] = [(tile, *rest) for rest in reads_of(tile)]
        expected = self.left[step.stream].pop(0)
        assert expected == (tile, step.kind, [read.tile for read in step.reads])
        accumulator = self.sizes.accumulator(*tile)
        if step.kind == "original":
            self.accumulators[tile] = step.slot
            work = 8 if self.plan.formats[tile] is FP64 else 4
            self.fill(step, step.slot, work, ("accumulator", tile), step.after)
        for read in step.reads:
            assert read.tile in self.found | set(self.written) or read.tile not in self.mine
            count = self.sizes.tile(*read.tile)
            if read.load:
                self.fill(step, read.slot, formats[read.tile].bytes, read.tile, read.after)
            self.use(step, read.slot, count, read.tile)
        self.use(step, self.accumulators[tile], accumulator, ("accumulator", tile))
        for read in step.reads:
            # the second has not taken the place of the first
            self.use(step, read.slot, self.sizes.tile(*read.tile), read.tile)
        if step.kind == "write":
            self.write(step, tile)
        stays = self.plan.policy.accumulator_stays
        worked_on = step.kind in ("update", "solve", "factor")
        first = step.reads[0].tile[1] == 0 if step.kind == "update" else tile[1] == 0
        assert step.travels == (not stays and worked_on and not first)

    def write(self, step, tile):
        count, place = self.sizes.tile(*tile), self.accumulators.pop(tile)
        if self.plan.formats[tile] is FP64:
            assert step.slot == place
            assert not step.after
            for page in self.pages(place, count):
                self.content[page] = tile
        else:
            self.fill(step, step.slot, self.plan.formats[tile].bytes, tile, step.after)
            # it is made from the accumulator
            self.use(step, place, self.sizes.accumulator(*tile), ("accumulator", tile))
        self.use(step, step.slot, count, tile, writer=True)
        self.written.append(tile)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(case=cases())
def test_every_tile_is_where_it_is_read_and_nothing_in_use_is_written_over(case):
    plans, found, layout, arena = case
    for plan in plans:
        Reader(plan, found, layout, arena).follow()


class Hurry:
    """One device with a loader, lanes and a writer, each of which goes on when it may."""

    def __init__(self, plan, final, queued):
        self.steps, self.policy, self.queued = deque(plan), plan.policy, queued
        self.lanes = [deque() for _ in range(plan.streams)]
        self.final, self.done, self.ready, self.out = final, set(), set(), deque()
        self.held = [None] * plan.streams

    def moves(self):
        """Return what can be done next."""
        found = []
        if self.steps and self.may_load(self.steps[0]):
            found.append(self.load)
        for stream, lane in enumerate(self.lanes):
            held = self.held[stream]
            if held is not None:
                if held in self.done:
                    found.append(partial(self.release, stream))
            elif lane and all(read.tile in self.ready for read in lane[0].reads):
                found.append(partial(self.compute, stream))
        if self.out:
            found.append(self.write)
        return found

    def may_load(self, step):
        lane = self.lanes[step.stream]
        if self.policy.overlapped:
            room = len(lane) < self.queued
        else:
            room = not lane and self.held[step.stream] is None
        loads = [read for read in step.reads if read.load]
        return (
            room
            and set(step.after) <= self.done
            and all(read.tile in self.final and set(read.after) <= self.done for read in loads)
        )

    def load(self):
        step = self.steps.popleft()
        self.ready |= {read.tile for read in step.reads if read.load}
        self.lanes[step.stream].append(step)

    def compute(self, stream):
        step = self.lanes[stream].popleft()
        if step.kind == "write":
            self.ready.add(step.tile)
            self.out.append(step)
            if not self.policy.overlapped:
                self.held[stream] = step.number
        else:
            self.done.add(step.number)

    def release(self, stream):
        self.held[stream] = None

    def write(self):
        step = self.out.popleft()
        self.final.add(step.tile)
        self.done.add(step.number)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(case=cases(), seed=st.integers(0, 2**32), queued=st.sampled_from([1, 2, 64]))
def test_whoever_is_first_all_is_done_in_the_end(case, seed, queued):
    plans, found, layout, _ = case
    final, rng = set(found), np.random.default_rng(seed)
    devices = [Hurry(plan, final, queued) for plan in plans]
    # some are much slower than others
    patience = rng.permutation(len(devices))
    lazy = rng.random() < 0.5
    while moves := [(number, move) for number, d in enumerate(devices) for move in d.moves()]:
        if lazy:
            first = min(patience[number] for number, _ in moves)
            moves = [(number, move) for number, move in moves if patience[number] == first]
        moves[rng.integers(len(moves))][1]()
    assert final == set(left_looking(layout.tiles)), "all wait for each other"
    assert not any(device.steps or any(device.lanes) for device in devices)


def fp64_map(tiles):
    return gx.uniform("fp64")(np.ones((tiles, tiles)))


def traffic(policy, layout, formats, arena, streams=2, width=None, devices=1):
    """Bytes in and out, as the plans say."""
    sizes, moved = Sizes(layout, formats, streams), np.zeros(2, dtype=int)
    order = list(left_looking(layout.tiles, width or 1, streams * devices))
    for mine in deal(order, devices):
        for step in Plan(order, mine, sizes, arena, policy_named(policy)):
            moved[0] += sum(sizes.tile(*read.tile) for read in step.reads if read.load)
            moved += step.travels * sizes.accumulator(*step.tile)
            moved[1] += (step.kind == "write") * sizes.tile(*step.tile)
    return tuple(int(count) for count in moved)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("share", [0.0, 0.15, 0.3, 0.45, 0.7])
@pytest.mark.parametrize("tiles", [8, 13])
def test_each_policy_reads_less_than_the_one_before_it(tiles, share, streams, devices):
    layout, formats = Layout(tiles * TILE - 20, TILE), fp64_map(tiles)
    block = Sizes(layout, formats).block
    blocks = max(least_blocks(streams), int(share * tiles * (tiles + 1) / 2))
    reads = [
        traffic(policy, layout, formats, blocks * block, streams, 1, devices)[0]
        for policy in ("v3", "v2", "v1", "async")
    ]
    # what other devices compute must be read once
    plenty = (tiles**2 + least_blocks(streams)) * block
    least = traffic("v3", layout, formats, plenty, streams, 1, devices)[0]
    assert all(a < b for a, b in pairwise(reads) if b > least), reads
    assert least <= reads[0]


@pytest.mark.parametrize("names", [["fp64"], ["fp8", "fp64"], ["fp8", "fp16", "fp32", "fp64"]])
@pytest.mark.parametrize("policy", ["v1", "v2", "v3-lru", "v3"])
def test_what_is_written_is_the_lower_triangle_in_its_formats(policy, names):
    layout, formats = Layout(8 * TILE - 20, TILE), random_map(8, names, 1)
    block = Sizes(layout, formats).block
    for extra in (0, 5, 50):
        arena = (least_blocks(2) + extra) * block
        assert traffic(policy, layout, formats, arena)[1] == formats.bytes(layout)


@pytest.mark.parametrize("policy", ["v2", "v3-lru", "v3"])
@pytest.mark.parametrize("names", [["fp64"], ["fp8", "fp16", "fp32", "fp64"]])
def test_where_all_fits_nothing_is_read(policy, names):
    layout, formats = Layout(8 * TILE - 20, TILE), random_map(8, names, 2)
    arena = (36 + 4 + least_blocks(2)) * Sizes(layout, formats).block
    assert traffic(policy, layout, formats, arena)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("tiles", [8, 16])
def test_v3_as_published_reads_a_diagonal_tile_once_and_no_more_than_v2(tiles, streams):
    layout, formats = Layout(tiles * TILE, TILE), fp64_map(tiles)
    sizes, order = Sizes(layout, formats, streams), list(left_looking(tiles))
    read_again = 0
    for extra in range(0, 2 * tiles, 3):
        arena = (least_blocks(streams) + extra) * sizes.block
        loads = {
            name: Counter(
                read.tile
                for step in Plan(order, order, sizes, arena, policy_named(name))
                for read in step.reads
                if read.load
            )
            for name in ("v2", "v3-lru")
        }
        diagonal = {name: [found[k, k] for k in range(tiles)] for name, found in loads.items()}
        assert max(diagonal["v3-lru"]) <= 1
        read_again += sum(diagonal["v2"])
        if extra:
            assert sum(loads["v3-lru"].values()) <= sum(loads["v2"].values()) + tiles
    assert read_again > 0


def test_async_and_sync_move_the_same():
    layout, formats = Layout(8 * TILE - 20, TILE), random_map(8, ["fp16", "fp64"], 3)
    arena = 12 * Sizes(layout, formats).block
    assert traffic("sync", layout, formats, arena) == traffic("async", layout, formats, arena)


def test_a_plan_is_the_same_each_time_it_is_made():
    layout, formats = Layout(7 * TILE, TILE), random_map(7, ["fp8", "fp64"], 4)
    order, sizes = list(left_looking(7)), Sizes(layout, formats, 2)
    one, other = (
        list(Plan(order, order, sizes, 9 * sizes.block, policy_named("v3"))) for _ in range(2)
    )
    assert one == other


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_an_arena_without_room_for_one_step_of_each_stream_is_refused(streams):
    sizes = Sizes(Layout(8 * TILE, TILE), fp64_map(8), streams)
    order, least = list(left_looking(8)), least_blocks(streams) * sizes.block
    policy = policy_named("v3")
    assert len(list(Plan(order, order, sizes, least, policy))) > 0
    with pytest.raises(gx.NotEnoughMemory, match=f"{streams} tiles of 64 rows in work"):
        Plan(order, order, sizes, least - 1, policy)


@pytest.mark.parametrize("name", ["V3", "", "lru", None])
def test_a_policy_that_is_not_known_is_refused_with_those_that_are(name):
    with pytest.raises(
        gx.InvalidInput, match=r"must be one of: sync, async, v1, v2, v3-lru, v3\. Got"
    ):
        policy_named(name)


@settings(deadline=None)
@given(rows=st.integers(1, 100), names=st.sets(st.sampled_from(sorted(FORMATS)), min_size=1))
def test_units_are_powers_of_two_that_hold_a_tile(rows, names):
    layout = Layout(3 * rows, rows)
    sizes = Sizes(layout, random_map(3, sorted(names), 0))
    assert sizes.unit % 4096 == 0
    for i, k in left_looking(3):
        for count, width in (
            (sizes.tile(i, k), sizes.formats[i, k].bytes),
            (sizes.accumulator(i, k), 8 if sizes.formats[i, k] is FP64 else 4),
        ):
            units = sizes.units(width)
            assert units & (units - 1) == 0
            assert count <= units * sizes.unit <= sizes.block
