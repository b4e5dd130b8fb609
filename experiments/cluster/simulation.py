"""The tile Cholesky on clusters that are not here: calibrated, compared with runs, played.

Rates are those of this machine's cores, all at work; the scheduler's and the workers' costs are CPU
seconds of factorizations whose tiles are tiny; link and latency are those between two worker
processes here. Maps of large n come from norms at few places: as many tiles, of 32 places each.
"""

import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from common import TINY, write_rows
from distributed import wait
from scipy.optimize import nnls

import geomxp as gx
from geomxp.benchmarks.cluster_model import Cluster, scheduling, simulate_cluster
from geomxp.covariance.ordering import hilbert
from geomxp.linalg.formats import FP64, quantize
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.trace import COPY_KINDS
from geomxp.tiles.assemble import Originals
from geomxp.tiles.dask_store import depths_for, pieces, share
from geomxp.tiles.layout import Layout
from geomxp.tiles.placement import Placement
from geomxp.tiles.simulate import measured

FORMS = ("fp64", "fp32", "fp16", "fp8")
RULES = {"fp64": gx.uniform("fp64"), "norm 1e-6": gx.by_tile_norm(1e-6)}
GBIT = 1e9 / 8
FEW = 32
"""Places of a tile from which the norms of larger ones are taken."""

TINY_TILE, COPIED = 8, 8
HOPS, REPEATS = (10, 2) if TINY else (100, 5)
"""Of the calibration: rows of a tiny tile; links of a chain of tasks; tiles of a copy."""


@dataclass(frozen=True)
class Study:
    """What is run here, and what is played.

    Parameters
    ----------
    n, tile : int
        Of the runs here.
    tiny : tuple of int
        Tiles per dimension of the factorizations that calibrate.
    large, tiles, nodes, threads : tuple of int
        Of what is played, all with all.
    links : tuple of int
        Gbit/s; beside the one that is measured.
    most : int
        Tiles per dimension of what is played.
    """

    n: int = 12_000
    tile: int = 1_024
    tiny: tuple = (20, 40, 60)
    large: tuple = (50_000, 100_000, 200_000)
    tiles: tuple = (512, 1_024, 2_048)
    nodes: tuple = (4, 8, 16, 32, 64)
    threads: tuple = (16,)
    links: tuple = (10, 25, 100)
    most: int = 200


QUICK = Study(300, 50, (4, 8), (1_500,), (100, 200), (4, 8), (2,), (10,))
"""For --tiny."""


def rows(study, workers, factor, model, output):
    """Yield rows of simulation.csv; write calibration.csv into `output`.

    Parameters
    ----------
    study : Study
    workers, factor : callable
        Of run.py.
    model : Matern
    output : Path
    """
    # a cluster of one for each tile, its costs not known yet
    bases = {tile: _base(measured(tile, forms=FORMS)) for tile in {study.tile, *study.tiles}}
    with workers(1) as client:
        costs = task_costs(client, factor, study.tiny, bases[study.tile])
        runs = [(1, *run) for run in _runs(client, factor, study)]
    with workers(2) as client:
        costs |= link_costs(client, study.tile, costs)
        runs += [(2, *run) for run in _runs(client, factor, study)]
    bases = {tile: replace(base, **costs) for tile, base in bases.items()}
    write_rows(output / "calibration.csv", list(_calibration(bases)))
    layout, here = Layout(study.n, study.tile), bases[study.tile]
    for count, name, formats, traffic, seconds in runs:
        found = row(replace(here, nodes=count), layout, formats, seconds)
        alike = _alike(formats, map_at(RULES[name], model, layout))
        about = {"bytes_formula": traffic, "map_alike": round(alike, 3)}
        yield {"study": "validation", "rule": name, "link": "measured"} | found | about
    yield from predictions(study, bases, model)


def _base(machine):
    return Cluster(
        *(1, 1, machine.rates, machine.solve, machine.factor, machine.generation),
        **{"link": 1.0, "latency": 0.0, "scheduler": 0.0, "overhead": 0.0},
    )


def _runs(client, factor, study):
    """Yield the rule, the map, the bytes and the seconds of runs here."""
    for name, rule in RULES.items():
        there, seconds = factor(study.n, study.tile, rule, Placement.of(client))
        yield name, there.precision_map, there.store.traffic(), seconds


def predictions(study, bases, model):
    """Yield the rows of clusters that are not here."""
    measured_link = next(iter(bases.values())).link
    links = {f"{gbit} Gbit/s": gbit * GBIT for gbit in study.links} | {"measured": measured_link}
    for n, tile, (name, rule) in product(study.large, study.tiles, RULES.items()):
        layout = Layout(n, tile)
        if layout.tiles > study.most:
            continue
        formats = map_at(rule, model, layout)
        for threads, nodes, (link, speed) in product(study.threads, study.nodes, links.items()):
            cluster = replace(bases[tile], nodes=nodes, threads=threads, link=speed)
            about = {"study": "prediction", "rule": name, "link": link}
            yield about | row(cluster, layout, formats) | {"bytes_formula": "", "map_alike": ""}


# calibration


def task_costs(client, factor, sizes, base):
    """Return what a task and each of its reads cost the scheduler and a worker, CPU seconds.

    Here the scheduler and the client share a thread, so that the client's part is in it; the
    worker's is that of its process, with its communication and the tiny tiles' arithmetic.
    """
    counts, spent = [], []
    for tiles in sizes:
        layout, before = Layout(TINY_TILE * tiles, TINY_TILE), _cpu_seconds(client)
        factor(layout.n, layout.tile, gx.uniform("fp64"), Placement.of(client))
        spent.append(np.subtract(_cpu_seconds(client), before))
        ones = ({"scheduler": 1.0}, {"scheduler_read": 1.0})
        counts.append([scheduling(replace(base, **one), layout) for one in ones])
    costs = {}
    for name, seconds in zip(("scheduler", "overhead"), np.transpose(spent), strict=True):
        task, read = nnls(np.array(counts), seconds)[0]
        costs |= {name: float(task), f"{name}_read": float(read)}
    return costs


def _cpu_seconds(client):
    """Return the CPU seconds of the scheduler's thread, and of the worker's process."""
    mine = client.run(time.process_time).values()
    return client.run_on_scheduler(time.thread_time), sum(mine)


def link_costs(client, tile, costs):
    """Return the bytes a second of rows of tiles between two workers, and the latency.

    The latency is half of what a task adds to a chain that goes to and fro between two workers,
    beside what it costs the scheduler and the worker: a message and a copy.
    """
    one, other = sorted(client.scheduler_info(n_workers=-1)["workers"])
    rates, hops = [], []
    with client.as_current():
        for _ in range(REPEATS):
            there = client.submit(_tiles, tile, workers=[one], pure=False)
            wait([client.submit(len, there, workers=[other], pure=False)])
            log = client.run(_last_copy, workers=[other])[other]
            rates.append(log["total"] / log["duration"])
            begin, last = time.perf_counter(), client.submit(_next, 0, workers=[one], pure=False)
            for hop in range(HOPS):
                at = [other if hop % 2 == 0 else one]
                last = client.submit(_next, last, workers=at, pure=False)
            wait([last])
            hops.append((time.perf_counter() - begin) / (HOPS + 1))
    # whatever else goes on here makes it slower, never faster
    return {"link": max(rates), "latency": max(0.0, min(hops) - sum(costs.values())) / 2}


def _tiles(tile):
    rng = np.random.default_rng(0)
    return [quantize(rng.standard_normal((tile, tile)), FP64) for _ in range(COPIED)]


def _next(number):
    return number + 1


def _last_copy(dask_worker):
    return dict(dask_worker.transfer_incoming_log[-1], keys=None)


def _calibration(bases):
    """Yield rows of calibration.csv."""
    for tile, base in sorted(bases.items()):
        about = {f"rate {form}": (rate, "operations/s") for form, rate in base.rates.items()}
        about |= {name: (getattr(base, name), "operations/s") for name in ("solve", "factor")}
        about["generation"] = base.generation, "entries/s"
        for name, (value, unit) in about.items():
            yield {"tile": tile, "quantity": name, "value": f"{value:.4g}", "unit": unit}
    units = {"link": "bytes/s", "latency": "s", "scheduler": "s/task", "scheduler_read": "s/read"}
    units |= {"overhead": "s/task", "overhead_read": "s/read"}
    for name, unit in units.items():
        value = getattr(base, name)
        yield {"tile": "", "quantity": name, "value": f"{value:.4g}", "unit": unit}


# maps


def map_at(rule, model, layout):
    """Return the map that a rule gives at large n, from norms at FEW places a tile.

    As many tiles over the same square cover the same parts of it: the root mean square of a tile
    below the diagonal stays what it is, up to the places' chance; of a tile on the diagonal only
    that of its entries off the diagonal.
    """
    few = Layout(-(-layout.n * FEW // layout.tile), FEW)
    places = lay_out(few.n, "uniform", 0)
    originals = Originals(model, places[hilbert(places)], "euclidean", few)
    old, new = (np.array([part.height(i) for i in range(part.tiles)]) for part in (few, layout))
    squares = originals.norms() ** 2
    sill = (originals.model.variance + originals.model.nugget) ** 2
    off = (np.diag(squares) - old * sill) / np.maximum(1, old * (old - 1))
    scaled = squares * np.outer(new / old, new / old)
    np.fill_diagonal(scaled, new * sill + new * (new - 1) * off)
    return rule(np.sqrt(scaled))


def _alike(one, other):
    """Return the share of tiles that have one format in two maps."""
    pairs = [
        a is b for x, y in zip(one.rows, other.rows, strict=True) for a, b in zip(x, y, strict=True)
    ]
    return sum(pairs) / len(pairs)


# rows


def row(cluster, layout, formats, seconds=None):
    """Return what is played on a cluster, beside the seconds of a run if there was one.

    Efficiency is the share of all threads' time that they work in tasks. No run is shorter than
    its scheduling, than its busiest link works, or than its longest path of pieces that read each
    other; their shares of the seconds stand beside it, and what is largest is the bound.
    """
    depths = depths_for(cluster.nodes * cluster.threads, layout.tiles)
    played = simulate_cluster(cluster, layout, formats, depths)
    tasks = [event for event in played.events if event.kind not in COPY_KINDS]
    work = sum(event.end - event.begin for event in tasks)
    sent = Counter()
    for event in played.events:
        sent[event.kind, event.device] += event.bytes
    least = {
        "efficiency": work / cluster.nodes / cluster.threads,
        "scheduler": scheduling(cluster, layout, depths),
        "link": max(sent.values()) / cluster.link,
        "path": longest_path(tasks, layout.tiles, depths),
    }
    shares = {name: round(value / played.seconds, 4) for name, value in least.items()}
    counts = formats.counts()
    return {
        "n": layout.n,
        "tile": layout.tile,
        "nodes": cluster.nodes,
        "threads": cluster.threads,
        "depths": " ".join(map(str, depths)),
        "fp64_tiles": round(counts.get("fp64", 0) / sum(counts.values()), 4),
        "seconds": float(f"{played.seconds:.4g}"),
        "measured_seconds": "" if seconds is None else round(seconds, 3),
        "simulated_over_measured": "" if seconds is None else round(played.seconds / seconds, 3),
        "gflops": float(f"{played.rate / 1e9:.4g}"),
        "efficiency": shares["efficiency"],
        **{f"{name}_share": shares[name] for name in ("scheduler", "link", "path")},
        "bound": max(shares, key=shares.get).replace("efficiency", "computing"),
        "bytes_moved": played.moved.bytes_out,
        "gb_a_node": round(_largest(layout, formats, cluster.nodes, depths) / 1e9, 2),
    }


def longest_path(tasks, tiles, depths):
    """Return the seconds of the longest chain of pieces of tiles that read each other.

    A piece waits for the one before it, for the newest tile of its row and for that of row k, which
    waited for all else that it reads.
    """
    seconds = defaultdict(deque)
    for event in tasks:
        if event.kind in ("update", "solve", "factor"):
            seconds[event.tile].append(event.end - event.begin)
    row, begun = np.zeros(tiles), {}
    for i, k, _, _, last in pieces(tiles, depths):
        mine = max(row[i], row[k], begun.pop((i, k), 0.0)) + seconds[i, k].popleft()
        if last:
            row[i] = mine
        else:
            begun[i, k] = mine
    return float(row[-1])


def _largest(layout, formats, nodes, depths):
    """Return the bytes on the node that has most: its tiles, those that came, those begun."""
    heights = [layout.height(i) for i in range(layout.tiles)]
    held = [
        heights[i] * sum(form.bytes * h for form, h in zip(line, heights, strict=False))
        for i, line in enumerate(formats.rows)
    ]
    return max(share(held, nodes, depths, FP64.bytes * layout.tile**2))
