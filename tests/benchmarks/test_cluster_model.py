"""The cluster's plan played on described clusters."""

from dataclasses import replace
from itertools import groupby, pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import geomxp as gx
from geomxp.benchmarks.cluster_model import Cluster, scheduling, simulate_cluster
from geomxp.runtime.trace import COPY_KINDS, Traffic
from geomxp.tiles.dask_store import DEPTHS_BY_THREAD_SHARE, DaskStore, pieces
from geomxp.tiles.layout import Layout
from geomxp.tiles.simulate import MACHINES, simulate

LAYOUT = Layout(330, 32)
RATES = dict.fromkeys(("fp64", "fp32", "tf32", "bf16", "fp16", "fp8"), 1e9)
CLUSTER = Cluster(2, 1, RATES, 1e9, 1e9, 1e8, 1e9, 1e-5, 2e-6, 1e-6, 1e-6, 1e-6)
COSTS = ("latency", "scheduler", "overhead", "scheduler_read", "overhead_read")
FREE = replace(CLUSTER, **dict.fromkeys(COSTS, 0.0))
RULES = {
    "fp64": gx.uniform("fp64"),
    "fp32": gx.uniform("fp32"),
    "layered": gx.layered("fp8", "fp16", "fp32", "fp64"),
    "by band": gx.by_band(("fp64", 2), ("fp32", 2), "fp8"),
}
SHAPES = [(1, 1), (2, 1), (3, 2), (4, 4), (13, 2), (64, 1)]
DEPTHS = [(), (1,), (3,), (4, 2)]


def formats_of(rule, layout=LAYOUT):
    return RULES[rule](np.ones((layout.tiles, layout.tiles)))


class Workers:
    """So many workers, of whom nobody asks anything: there are no 64 here."""

    def __init__(self, count, room=np.inf):
        self.count, self.threads, self.room = count, 16 * count, room

    def __len__(self):
        return self.count

    def check_memory(self, share, beside):
        assert len(share) == self.count
        assert self.has_room(share, beside)

    def has_room(self, share, beside):
        return max(share) + 16 * beside <= self.room


def store_of(workers, layout, formats):
    return DaskStore(SimpleNamespace(layout=layout, backend=workers), formats)


def traffic(nodes, layout, formats):
    """Return the bytes that the cluster's store says will travel."""
    return store_of(Workers(nodes), layout, formats).traffic()


def tasks_of(found):
    return [event for event in found.events if event.kind not in COPY_KINDS]


def events_of(found, depths):
    """Return the event of each piece, in the order of the plan."""
    mine = {}
    for event in tasks_of(found):
        if event.kind in ("update", "solve", "factor"):
            mine.setdefault(event.tile, []).append(event)
    plan = {piece: mine[piece.i, piece.k].pop(0) for piece in pieces(LAYOUT.tiles, depths)}
    assert not any(mine.values())
    return plan


# bytes


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tile", [10, 32, 64, 330])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 11, 12, 13, 64])
def test_the_bytes_are_those_of_a_run(nodes, tile, rule):
    layout = Layout(330, tile)
    formats = formats_of(rule, layout)
    expected = traffic(nodes, layout, formats)
    for depths in DEPTHS:
        moved = simulate_cluster(replace(CLUSTER, nodes=nodes), layout, formats, depths).moved
        assert moved.bytes_in == moved.bytes_out == expected


def test_on_one_node_nothing_moves():
    found = simulate_cluster(replace(CLUSTER, nodes=1), LAYOUT, formats_of("layered"))
    assert found.moved == Traffic()


@pytest.mark.parametrize("rule", RULES)
def test_more_nodes_never_move_fewer_bytes(rule):
    formats = formats_of(rule)
    counts = range(1, 2 * LAYOUT.tiles)
    moved = [
        simulate_cluster(replace(CLUSTER, nodes=p), LAYOUT, formats).moved.bytes_in for p in counts
    ]
    assert moved == sorted(moved)
    assert moved[0] < moved[1] < moved[2]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3, 40])
@pytest.mark.parametrize("depths", DEPTHS)
def test_each_tile_comes_once_to_each_node_that_has_a_row_below_it(nodes, depths):
    layout = Layout(330, 10)
    cluster = replace(CLUSTER, nodes=nodes)
    found, came = simulate_cluster(cluster, layout, formats_of("fp64", layout), depths), {}
    for e in found.events:
        if e.kind == "in":
            came[e.tile[0], e.device] = came.get((e.tile[0], e.device), 0) + e.bytes
    assert came == {
        (k, i % nodes): 8 * 10 * 10 * (k + 1)
        for k in range(33)
        for i in range(k + 1, 33)
        if i % nodes != k % nodes
    }


# seconds


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("depths", DEPTHS)
def test_one_thread_and_nothing_beside_take_what_one_memory_takes(rule, depths):
    alone = replace(FREE, nodes=1)
    found = simulate_cluster(alone, LAYOUT, formats_of(rule), depths)
    machine = replace(
        MACHINES["GH200"], rates=RATES, solve=1e9, factor=1e9, generation=1e8, overhead=0, streams=1
    )
    kernels = simulate(machine, LAYOUT, formats_of(rule), "in core").seconds
    heights = [LAYOUT.height(i) for i in range(LAYOUT.tiles)]
    entries = sum(h * sum(heights[: i + 1]) for i, h in enumerate(heights))
    # to the precision of a sum: some thousand kernels
    assert found.seconds == pytest.approx(kernels + entries / alone.generation, rel=1e-12)
    assert found.flops == LAYOUT.n**3 / 3


def test_a_product_of_two_fp32_tiles_takes_fp32_time_and_a_square_of_one_fp64():
    layout = Layout(128, 32)
    formats = gx.by_band(("fp64", 1), "fp32")(np.ones((4, 4)))
    cluster = replace(FREE, rates={"fp64": 1e9, "fp32": 1e8})
    found = simulate_cluster(cluster, layout, formats, ())
    seconds = {e.tile: e.end - e.begin for e in found.events if e.kind in ("solve", "factor")}
    cube, original = 32**3, 32**2 / 1e8
    # L_30 L_20' of two FP32 tiles, L_31 L_21' of one, the solve
    assert seconds[3, 2] == pytest.approx(2 * cube / 1e8 + 3 * cube / 1e9 + original, rel=1e-12)
    # the squares of L_30, L_31 and L_32 by halves, the factor
    assert seconds[3, 3] == pytest.approx((3 + 1 / 3) * cube / 1e9 + original, rel=1e-12)


def longest_path(found, depths):
    """Return the seconds of the longest chain of pieces that read each other."""
    path, begun = {}, {}
    for (i, k, _, end, last), event in events_of(found, depths).items():
        reads = [path[tile, j] for tile in (i, k) for j in range(end)]
        reads += [path[k, k]] if last and i > k else []
        seconds = event.end - event.begin + max([*reads, begun.get((i, k), 0.0)], default=0.0)
        (path if last else begun)[i, k] = seconds
    return max(path.values())


@pytest.mark.parametrize(("nodes", "threads"), SHAPES)
@pytest.mark.parametrize("rule", ["fp64", "layered"])
@pytest.mark.parametrize("depths", DEPTHS)
def test_no_run_is_shorter_than_its_work_its_longest_path_or_its_scheduling(
    nodes, threads, rule, depths
):
    cluster = replace(CLUSTER, nodes=nodes, threads=threads)
    found = simulate_cluster(cluster, LAYOUT, formats_of(rule), depths)
    work = sum(event.end - event.begin for event in tasks_of(found))
    for least in (
        work / (nodes * threads),
        longest_path(found, depths),
        scheduling(cluster, LAYOUT, depths),
    ):
        # as far as sums of floats go
        assert found.seconds >= least * (1 - 1e-12)
    assert found.seconds == max(event.end for event in found.events)


@pytest.mark.parametrize("rule", ["fp64", "layered"])
@pytest.mark.parametrize("depths", DEPTHS)
def test_a_node_for_each_row_and_a_thread_for_each_task_take_the_longest_path(rule, depths):
    cluster = replace(FREE, nodes=LAYOUT.tiles, threads=5 * LAYOUT.tiles, link=1e30)
    found = simulate_cluster(cluster, LAYOUT, formats_of(rule), depths)
    norms = max(e.end - e.begin for e in found.events if e.kind == "original")
    assert found.seconds == pytest.approx(norms + longest_path(found, depths), rel=1e-12)


def rate_of_many(tiles, depths):
    """Return how many threads are of use, of as many as there are tiles."""
    layout = Layout(4 * tiles, 4)
    cluster = replace(FREE, nodes=tiles, threads=tiles, link=1e30, generation=1e30)
    found = simulate_cluster(cluster, layout, formats_of("fp64", layout), depths)
    return found.rate / RATES["fp64"]


def test_no_more_threads_are_of_use_than_two_ninths_of_the_block_rows_without_pieces():
    # column after column k products and k squares of t³: 3/2 tn² operations of n³/3
    assert rate_of_many(80, ()) == pytest.approx(80 / 4.5, rel=2 / 80)


@pytest.mark.parametrize("depth", [1, 3])
def test_pieces_let_more_threads_be_of_use(depth):
    # L_ik waits for 2k operations of t³, of which depth + 1 columns are at work at one time; beside
    # it stand the last pieces of a row and of its diagonal: 3 depth + 1 + 1/3 in each column
    tiles = 80
    most = tiles**3 / 3 / (tiles**2 / (depth + 1))
    least = tiles**3 / 3 / (tiles**2 / (depth + 1) + (3 * depth + 4 / 3) * tiles)
    # the first products are no piece's of that length: 2(k - depth)
    assert least <= rate_of_many(tiles, (depth,)) <= most * (1 + 2 * depth / tiles)


def test_the_plan_of_a_run_keeps_more_threads_at_work_where_there_are_more():
    layout = Layout(330, 10)
    formats = formats_of("fp64", layout)
    for nodes in (1, 2, 3, 8, 33):
        cluster = replace(FREE, nodes=nodes, threads=4)
        planned = simulate_cluster(cluster, layout, formats).seconds
        assert planned < simulate_cluster(cluster, layout, formats, ()).seconds


@pytest.mark.parametrize(("nodes", "threads"), SHAPES)
@pytest.mark.parametrize("depths", DEPTHS)
def test_a_piece_begins_when_all_that_it_reads_is_there(nodes, threads, depths):
    cluster = replace(CLUSTER, nodes=nodes, threads=threads)
    found = simulate_cluster(cluster, LAYOUT, formats_of("layered"), depths)
    plan = events_of(found, depths)
    final = {(piece.i, piece.k): event for piece, event in plan.items() if piece.last}
    assert len(final) == LAYOUT.tiles * (LAYOUT.tiles + 1) // 2
    begun = {}
    for (i, k, _, end, last), event in plan.items():
        assert event.device == i % nodes
        own = [final[i, j].end for j in range(end)] + [begun.get((i, k), -1.0)]
        assert max(own) + cluster.latency <= event.begin
        begun[i, k] = event.end
        if i > k:
            above = max([final[k, j].end for j in range(end)] + [final[k, k].end] * last)
            # what hands it out, and a copy if it is elsewhere
            hops = 2 if i % nodes == k % nodes else 3
            assert above + hops * cluster.latency <= event.begin * (1 + 1e-12)


@pytest.mark.parametrize(("nodes", "threads"), SHAPES)
@pytest.mark.parametrize("depths", DEPTHS)
def test_a_thread_does_one_task_at_a_time_in_the_order_of_the_plan(nodes, threads, depths):
    cluster = replace(CLUSTER, nodes=nodes, threads=threads)
    found = simulate_cluster(cluster, LAYOUT, formats_of("fp64"), depths)
    events = tasks_of(found)
    assert {event.stream for event in events} == set(range(threads))

    def place(event):
        return event.device, event.stream

    for _, mine in groupby(sorted(events, key=lambda e: (place(e), e.begin)), key=place):
        for before, after in pairwise(mine):
            assert after.begin >= before.end
    latest = {}
    for event in events_of(found, depths).values():
        assert event.begin >= latest.get(place(event), 0.0)
        latest[place(event)] = event.end


@pytest.mark.parametrize("what", ["link", *COSTS])
@pytest.mark.parametrize(("nodes", "threads"), SHAPES)
def test_what_is_slower_makes_nothing_faster(nodes, threads, what):
    seconds = []
    for factor in (0, 1, 2, 4, 64):
        about = getattr(CLUSTER, what) * factor
        if what == "link":
            about = CLUSTER.link / factor if factor else 1e30
        cluster = replace(CLUSTER, nodes=nodes, threads=threads, **{what: about})
        seconds.append(simulate_cluster(cluster, LAYOUT, formats_of("layered")).seconds)
    assert seconds == sorted(seconds)
    assert seconds[-1] > seconds[0] or (what == "link" and nodes == 1)


def test_a_slow_scheduler_is_what_the_run_takes():
    cluster = replace(CLUSTER, nodes=4, scheduler=1.0)
    # norms, tiles, rows handed out; with pieces the tiles of columns 2 to 10 and those rows twice
    for depths, tasks in (((), 11 + 66 + 10), ((1,), 11 + 66 + 45 + 10 + 8)):
        found = simulate_cluster(cluster, LAYOUT, formats_of("fp64"), depths).seconds
        least = scheduling(cluster, LAYOUT, depths)
        assert least == pytest.approx(tasks, rel=1e-3)
        assert least < found < 1.01 * least


def test_a_slow_link_costs_each_row_once_for_each_node_that_it_is_sent_to():
    cluster = replace(FREE, nodes=3, link=1.0)
    found = simulate_cluster(cluster, LAYOUT, formats_of("fp64"), ())
    # 3 nodes: a row's node sends it to the two others abreast, and the next row waits for it
    assert found.seconds == pytest.approx(found.moved.bytes_out, rel=0.01)


def test_whoever_has_a_row_sends_it_on():
    layout = Layout(40, 1)
    found = simulate_cluster(replace(FREE, nodes=40), layout, formats_of("fp64", layout))
    first = [e for e in found.events if e.kind == "out" and e.tile == (0, 0)]
    senders = [e.device for e in sorted(first, key=lambda e: (e.begin, e.device))]
    assert senders[:10] == [0] * 10
    # 29 left, and 11 that have it
    assert sorted(senders[10:]) == sorted([holder for holder in range(10) for _ in range(3)][:29])


def test_the_client_waits_before_it_gives_the_scheduler_more(monkeypatch):
    cluster, formats = replace(CLUSTER, nodes=11), formats_of("fp64")
    before = simulate_cluster(cluster, LAYOUT, formats, ()).seconds
    # then three tasks at most are known at one time
    monkeypatch.setattr("geomxp.benchmarks.cluster_model.MOST_UNFINISHED_TILE_TASKS", 2)
    assert simulate_cluster(cluster, LAYOUT, formats, ()).seconds > 1.2 * before


def test_a_run_is_always_the_same():
    runs = [simulate_cluster(CLUSTER, LAYOUT, formats_of("layered")) for _ in range(2)]
    assert runs[0] == runs[1]


# memory


def test_a_crew_with_less_memory_has_fewer_tiles_in_work():
    layout = Layout(3200, 32)
    formats, block = formats_of("fp64", layout), 8 * 32 * 32
    row = 100 * block
    # a node's own rows, one of another node, and what its 16 threads need while they compute
    least = max(sum(range(s + 1, 101, 12)) for s in range(12)) * block + row + 64 * block
    found = []
    for rows in (0, 1, 2.2, 4.6, 19, 100):
        workers = Workers(12, room=least + rows * row)
        found.append(store_of(workers, layout, formats).depths)
    deepest, *_ = known = [depths for _, depths in DEPTHS_BY_THREAD_SHARE]
    assert found[0] == ()
    assert found[-1] == deepest
    assert [depths for depths, _ in groupby(found)] == [(), *reversed(known)]


# bad input


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"nodes": 0}, r"`nodes` must be a whole number of at least 1\. Got 0\."),
        ({"threads": 1.5}, r"`threads` must be a whole number of at least 1\. Got 1\.5\."),
        ({"link": 0.0}, r"`link` must be a rate per second, greater than 0\. Got 0\.0\."),
        (
            {"rates": {"fp64": -1.0}},
            r"`rates\['fp64'\]` must be a rate per second, greater than 0\. Got -1\.0\.",
        ),
        ({"latency": -1e-3}, r"`latency` must be a number of seconds, 0 or more\. Got -0\.001\."),
        (
            {"scheduler": float("nan")},
            r"`scheduler` must be a number of seconds, 0 or more\. Got nan\.",
        ),
    ],
)
def test_what_no_cluster_has_is_refused(about, words):
    with pytest.raises(gx.InvalidInput, match=words):
        replace(CLUSTER, **about)


def test_an_arithmetic_without_a_rate_is_named():
    cluster = replace(CLUSTER, rates={"fp64": 1e9, "fp16": 1e9, "fp32": 1e9})
    with pytest.raises(gx.InvalidInput, match=r"`rates` has no fp8, .*simulate\.measured"):
        simulate_cluster(cluster, LAYOUT, formats_of("layered"))
    assert simulate_cluster(cluster, LAYOUT, formats_of("fp32")).seconds > 0
