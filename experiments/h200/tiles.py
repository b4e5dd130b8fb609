"""Stages f and g: the tile Cholesky by norms, and matrices larger than the device's memory."""

import time
from functools import partial
from itertools import product

from harness import FAILED, RANGES, Prediction, asked, load, reason, tried, write_json

import geomxp as gx
from geomxp.likelihood.divergence import compare
from geomxp.likelihood.factors import exact_norms
from geomxp.runtime.devices import free_memory, human_bytes
from geomxp.tiles.cholesky import factorize
from geomxp.tiles.layout import WHOLE, Layout
from geomxp.tiles.placement import Placement

ACCURACIES = (1e-5, 1e-6, 1e-7, 1e-8)
POLICIES = ("v3", "v2", "v1", "async", "sync")
TILES = {
    16_384: (WHOLE, 1024, 2048),
    32_768: (WHOLE, 1024, 2048, 4096),
    65_536: (WHOLE, 2048, 4096),
}
"""By n: small tiles leave a choice of formats, large ones keep the units busy; WHOLE: the matrix is
halved."""


def by_norm(machine, budget):
    """Stage f: rate, formats, bytes and divergence by accuracy, correlation and tile size."""
    places = load("static_schedule_mxp").places
    prediction = Prediction()
    for n in machine.sizes(16_384, 32_768, 65_536, tiny=(160,)):
        x, tiles = places(n), (WHOLE, 32) if machine.tiny else TILES[n]
        cases = list(product(tiles, RANGES, ACCURACIES[::3] if machine.tiny else ACCURACIES))
        for tile, name, accuracy in [(tile, "", None) for tile in tiles] + cases:
            if machine.tiny and name not in ("", "weak"):
                continue
            row = {"n": n, "correlation": name, "accuracy": accuracy or "fp64", "tile": tile}
            if reason := budget.refuses(prediction.of(n)):
                yield row | {"note": reason}
                continue
            start = time.perf_counter()
            yield tried(row, partial(_case, machine, x, name, accuracy, tile))
            machine.give_back()
            prediction.learn(n, time.perf_counter() - start)
        for name in RANGES:
            if machine.tiny and name != "weak":
                continue
            row = {"n": n, "correlation": name, "tile": tiles[-1], "what": "divergence"}
            yield _divergences(machine, budget, row, x)
            machine.give_back()


def _case(machine, x, name, accuracy, tile):
    """Return what one rule makes of one matrix; FP64 throughout where no accuracy is given."""
    n, model = len(x), gx.Matern(1.0, RANGES[name or "weak"], 0.5)
    rule = gx.by_tile_norm(accuracy) if accuracy else gx.uniform("fp64")
    for _ in range(2):
        # the second time kernels are compiled, and memory is kept
        found = parts(machine, model, x, rule, tile)
    return found | {"n_over_tile": "" if tile == WHOLE else -(-n // tile)}


def _divergences(machine, budget, row, x):
    """Return rows of the divergences of `by_tile_norm` at each accuracy from one FP64 reference."""
    model = gx.Matern(1.0, RANGES[row["correlation"]], 0.5)
    rows = [row | {"accuracy": accuracy} for accuracy in ACCURACIES]
    rows = [one for one in rows if asked(one)]
    methods = [
        gx.Exact(gx.by_tile_norm(one["accuracy"]), row["tile"], on=machine.on) for one in rows
    ]
    # measured: 35 s for four at n = 65,536
    needed = 9.0 * len(rows) * (len(x) / 65_536) ** 3 if machine.gpu else 0.0
    if not rows or (why := budget.refuses(needed)):
        return [one | {"note": why} for one in rows]
    start = time.perf_counter()
    try:
        found = compare(model, x, methods, progress=False)
    except Exception as error:
        return [one | {"note": FAILED + reason(error)} for one in rows]
    seconds = time.perf_counter() - start
    return [
        one
        | {
            "kl": divergence.kl,
            "kl_log_determinant": divergence.kl_log_determinant,
            "seconds_whole": divergence.seconds,
            "seconds_fp64_dense": divergence.reference_seconds,
            "seconds_of_all_divergences": seconds,
        }
        for one, divergence in zip(rows, found, strict=True)
    ]


def parts(machine, model, x, rule, tile):
    """Return what a tile factorization takes: norms, then tiles generated and factored."""
    placement = Placement.of(machine.on)
    layout = placement.layout(len(x), tile)
    originals = placement.originals(model, x, "euclidean", layout)
    machine.finish()
    start = time.perf_counter()
    norms = exact_norms(rule, originals)()
    machine.finish()
    middle = time.perf_counter()
    if tile == WHOLE:
        formats = rule.joined(norms, layout.heights, layout.joined)
        store, promoted = placement.store(originals, formats), 0
        store.factorize()
    else:
        store = placement.store(originals, rule(norms))
        promoted = factorize(store)
    machine.finish()
    end = time.perf_counter()
    lower = layout.lower_bytes
    return {
        "seconds_norms": middle - start,
        "seconds": end - middle,
        "tflops": len(x) ** 3 / 3 / (end - middle) / 1e12,
        "formats": " ".join(f"{k}:{v}" for k, v in store.formats.counts().items()),
        "bytes_over_fp64": store.bytes / lower,
        "peak_bytes": store.bytes if tile == WHOLE else store.peak_bytes,
        "promotions": promoted,
    }


def out_of_core(machine, budget):
    """Stage g: FP64 past a budget of the device's memory, by policy, beside all in core."""
    prediction, in_core, hosts = Prediction(), {}, {}
    for n, tile, bound, policy, trace in _cases(machine):
        row = {"n": n, "tile": tile, "budget": bound or "in core", "policy": policy}
        if n not in hosts:
            hosts.clear()
        unknown = bound and n not in hosts
        if reason := budget.refuses(prediction.of(n)) or (unknown and _too_large(n, tile)):
            yield row | {"note": reason}
            continue
        start = time.perf_counter()
        if unknown:
            # RAM that is pinned for the first policy, and kept for the others
            hosts[n] = Placement.of(machine.on, device_memory=bound).host()
        host = hosts.get(n) if bound else None
        found = tried(row, partial(_factored, machine, n, tile, bound, policy, trace, host))
        if "seconds" in found:
            if not bound:
                in_core[n] = found
            elif n in in_core:
                found["of_in_core_rate"] = in_core[n]["seconds"] / found["seconds"]
                same = found["log_determinant"] == in_core[n]["log_determinant"]
                found["same_bits_as_in_core"] = same
        yield found
        machine.give_back()
        prediction.learn(n, time.perf_counter() - start)


def _cases(machine):
    """Yield (n, tile, budget or None, policy, trace), smallest first."""
    if machine.tiny:
        yield 320, 32, None, "", False
        for policy in ("v1", "v3"):
            yield 320, 32, 400_000, policy, policy == "v3"
        return
    for n, bounds in ((32_768, (2, 20)), (65_536, (8, 20)), (131_072, (20, 60)), (160_000, (20,))):
        yield n, 4096, None, "", False
        for bound in bounds:
            policies = POLICIES if (n, bound) in ((32_768, 2), (65_536, 8)) else ("v3",)
            for policy in policies:
                yield n, 4096, bound * 10**9, policy, n == 32_768


def _too_large(n, tile):
    """Return why the host cannot hold the triangle, with room for what else is there."""
    needed, free = 1.1 * Layout.of(n, tile).lower_bytes, free_memory()
    if needed < free:
        return None
    return f"needs {human_bytes(needed)} of RAM, {human_bytes(free)} free"


def _factored(machine, n, tile, bound, policy, trace, host):
    """Factor one matrix twice, as experiments/out_of_core does; return what the second took."""
    case = {"n": n, "tile": tile, "device_memory": bound, "on": machine.on}
    case |= {"policy": policy or "v3", "trace": trace, "twice": True}
    found = load("out_of_core").work(case, host)
    if events := found.pop("events", None):
        write_json(machine.output / f"g_timeline_{n}_{policy}.json", events)
    return {
        "seconds_first": found["seconds_first"],
        "seconds": found["seconds"],
        "tflops": n**3 / 3 / found["seconds"] / 1e12,
        "triangle": found["factor_bytes"],
        "bytes_in": found["bytes_in"],
        "bytes_out": found["bytes_out"],
        "columns_of_a_panel": found["width"],
        "log_determinant": found["log_determinant"],
    }
