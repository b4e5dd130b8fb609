"""Vecchia's blocks in CUDA: compiled without a GPU, run on the host, compared on a GPU."""

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cases import by_pairs
from compilers import compiled, library
from cuda_emulator.session import size as sized

import geomxp as gx
from geomxp import cuda, testing
from geomxp.covariance.distance import embed
from geomxp.covariance.generate import box_of
from geomxp.covariance.table import table_of
from geomxp.runtime.devices import Device
from geomxp.vecchia import gpu as device
from geomxp.vecchia.blocks import Blocks, wanted_for
from geomxp.vecchia.factor import Graph

U = 2.0**-53
KERNELS = {"likelihood", "likelihood_and_derivatives", "weights", "fold"}
HOSTS = (*((team, 1, 1) for team in (1, 8, 16, 64)), (1, 0, 1), (1, 2, 1), (1, 1, 2), (8, 1, 2))
"""Lanes of the teams that the host runs: one, parts of a warp, and two warps; and the numbers of
shape parameters and of diagonals of the noise."""


@pytest.fixture(scope="module")
def on_gpus():
    """What NVRTC says of all variants."""
    variants = [(team, 80 if team == 32 else 90) for team in device.TEAM_THREADS.values()]
    text = cuda.source("vecchia.cu")
    compiled("", 90)
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda v: compiled(text, v[1], f"-DTEAM={v[0]}"), variants)
        return dict(zip(variants, found, strict=True))


def test_kernels_for_all_teams_compile_without_warnings(on_gpus):
    for variant, (code, log, ptx) in on_gpus.items():
        assert (code, log) == (0, ""), variant
        assert set(re.findall(r"\.entry (\w+)\(", ptx)) == KERNELS


def test_no_team_waits_for_another(on_gpus):
    warps, several = (on_gpus[team, 90][2] for team in (16, 64))
    # the whole block waits for the staged tables only
    assert warps.count("bar.sync \t0;") == several.count("bar.sync \t0;") == 3
    # a team within a warp has the warp's barrier; one of two warps has a barrier of its own
    assert "bar.warp.sync" in warps
    assert warps.count("bar.sync") == 3
    assert len(re.findall(r"bar\.sync %r\d+, 64;", several)) == several.count("bar.sync") - 3 > 0
    # of the sixteen, the block has the first
    assert device.MOST_BLOCK_THREADS // max(device.TEAM_THREADS.values()) < 16


def test_python_shares_the_work_as_the_kernels_do():
    text = cuda.source("vecchia.cu")
    macros = {
        "THREADS": device.MOST_BLOCK_THREADS,
        "FOLD": device.FOLDED_ROWS,
        "SHARE": device.ROWS_PER_THREAD,
    }
    for name, number in macros.items():
        assert re.search(rf"#define {name} {number}\b", text)
    noise = testing.MODEL.noise(gx.Inputs(np.zeros((1, 2))))
    assert len(wanted_for(testing.MODEL, (), noise)) == 6
    assert "#define SHAPES 1 " in text
    assert "#define BASES (SHAPES + DIAGONALS + 4)\n" in text
    for order, team in device.TEAM_THREADS.items():
        assert order <= device.ROWS_PER_THREAD * team
        assert device.MOST_BLOCK_THREADS % max(team, device.WARP) == 0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """The device functions for the host, by the number of lanes."""
    folder = tmp_path_factory.mktemp("vecchia")
    (folder / "vecchia.cuh").write_text(cuda.source("vecchia.cuh"))
    text = Path(__file__).with_name("vecchia_on_host.cpp").read_text()

    def build(variant):
        team, shapes, diagonals = variant
        share = max(device.TEAM_THREADS) + 8 if team == 1 else device.ROWS_PER_THREAD
        options = ["-O1", f"-DTEAM={team}", f"-DSHARE={share}", f"-DSHAPES={shapes}"]
        options.append(f"-DDIAGONALS={diagonals}")
        return library(folder / f"host{team}_{shapes}_{diagonals}.cpp", text, *options)

    build(HOSTS[0])
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(HOSTS, pool.map(build, HOSTS), strict=True))


class Given(ctypes.Structure):
    """As in vecchia_on_host.cpp."""

    pointers = ("x", "columns", "diagonals", "neighbours", "model", "tables", "room")
    counts = (
        *("n", "d", "m", "count", "mapping", "turned", "kinds", "intervals", "base"),
        *("first", "staged", "rows", "downwards"),
    )
    _fields_ = (
        *((name, ctypes.c_void_p) for name in pointers),
        *((name, ctypes.c_longlong) for name in counts),
    )


def aligned(count, value):
    """An array that begins where a GPU's begin."""
    whole = np.full(count + 8, value)
    skip = -whole.ctypes.data // 8 % 8
    return whole[skip : skip + count]


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


class Case:
    """One model's blocks of one data set, for numba's kernels and for the device functions."""

    def __init__(self, model, metric, locations, m, columns=2, seed=0, errors=None):
        self.model, self.metric = model, metric
        graph = Graph.of(embed(locations, metric), "maximin", m)
        places = locations[graph.tree.order]
        self.neighbours = graph.neighbours
        self.columns = np.random.default_rng(seed).standard_normal((columns, len(places)))
        self.points = np.ascontiguousarray(embed(places, metric))
        self.box = box_of(self.points)
        known = None if errors is None else errors[graph.tree.order]
        self.blocks = Blocks(model, gx.Inputs(places, metric, error_variance=known))
        self.noise = self.blocks.noise

    @property
    def variant(self):
        return len(self.model.shapes), len(self.noise)

    def wanted(self, names):
        return wanted_for(self.model, names, self.noise)

    def on_cpu(self, names=()):
        return self.blocks.reduce(self.neighbours, self.columns, self.wanted(names))

    def weights_on_cpu(self):
        return self.blocks.weights(self.neighbours)

    def on_host(self, host, names=(), size=3, most=768, downwards=0):
        """The sums and the first failure, as `GpuPasses.reduce` has them of the same functions."""
        (n, count), wanted = (len(self.points), len(self.columns)), self.wanted(names)
        bases = len(wanted)
        below = bases * (1 + bases + count**2)
        length = 1 + count**2 + (below if names else 0)
        mask, parts = device.mask_of(wanted), -(-n // size)
        layout = self._layout(count, bases if names else 0)

        def work(tables, base, pairs):
            sums = np.zeros((parts, length + 1))
            entries = [*map(ctypes.c_longlong, (mask, parts, size)), pointer(sums)]
            entries.append(ctypes.c_longlong(length + 1))
            given = pairs, tables, base, layout, count, most, downwards
            return [(sums, self._call(host.reduced, entries, *given))]

        ((sums, _),) = self._with_table(device.tables_for(self.model, wanted), work)
        out, last = np.zeros(1 + count**2 + below), sums[:, -1].max()
        out[:length] = sums[:, :-1].sum(axis=0)
        return out, n - int(last) if last else None

    def weights_on_host(self, host, most=768, downwards=0):
        n, m = self.neighbours.shape
        weights, variances = np.empty((n, m)), np.empty(n)
        layout = self._layout(0, 0)

        def work(tables, base, pairs):
            given = pairs, tables, base, layout, 0, most, downwards
            return [(self._call(host.weighed, [pointer(weights), pointer(variances)], *given),)]

        self._with_table(["correlation"], work)
        return weights, variances

    def _layout(self, count, bases):
        m, d = self.neighbours.shape[1], self.points.shape[1]
        return device.SharedLayout.of(m, d, count, bases, len(self.noise))

    def _with_table(self, names, work):
        about = self.box, *self.neighbours.shape, self.noise.coefficients
        pairs = device.Pairs(self.model, self.metric, *about)
        return device.with_table(self.model, pairs, names, lambda t, base: work(t, base, pairs))

    def _call(self, function, entries, pairs, tables, base, layout, count, most, downwards):
        (n, m), d = self.neighbours.shape, self.points.shape[1]
        polynomials = aligned(sum(table.size for table in tables), 0.0)
        polynomials[:] = np.concatenate(tables).reshape(-1)
        intervals = len(tables[0])
        # what is not written may be anything, and what is beyond belongs to others
        room, beyond = aligned(layout.stride + 64, np.nan), slice(layout.stride, None)
        room[beyond] = 7.0
        arrays = self.points, self.columns, self.noise.diagonals, self.neighbours
        arrays = *arrays, pairs.numbers, polynomials, room
        counts = (
            *(n, d, m, count, pairs.mapping, pairs.turned, len(tables)),
            *(intervals, base, *pairs.window(intervals, base, most), layout.rows, downwards),
        )
        given = Given(*(array.ctypes.data for array in arrays), *counts)
        missed = function(ctypes.byref(given), *entries)
        assert missed >= 0, "a lane left the others"
        assert (room[beyond] == 7.0).all()
        return missed


def degrees(n, seed):
    """Longitudes and latitudes across the date line."""
    return np.array((170.0, -30.0)) + 20 * testing.places(n, seed=seed)


CASES = {
    "line": ("euclidean", 1, gx.Matern(1.3, 0.3, 0.5, 0.05)),
    "plane": ("euclidean", 2, testing.MODEL),
    "anisotropic": ("euclidean", 2, gx.Matern(1.7, 0.2, 1.5, 0.1, (30.0, 0.6))),
    "space": ("euclidean", 3, gx.Matern(0.7, 0.4, 2.2, 0.2)),
    "chordal": ("chordal", 2, gx.Matern(2.0, 900.0, 1.0, 0.1)),
    "great-circle": ("great-circle", 2, gx.Matern(2.0, 900.0, 0.4, 0.1)),
    "no nugget": ("euclidean", 2, gx.Matern(4.0, 0.2, 0.5)),
    "compact support": ("euclidean", 2, gx.Spherical(1.3, 0.9, 0.05)),
    "folded table": ("euclidean", 2, gx.Wendland(1.3, 0.9, 1.0, 3.0, 0.05)),
    "two shapes": ("euclidean", 2, gx.Cauchy(1.3, 0.2, 1.2, 0.8, 0.05, (30.0, 0.6))),
    "known errors": ("euclidean", 2, gx.Matern(1.7, 0.2, 0.8, 0.1, (30.0, 0.6))),
}
SETS = ((), ("variance", "nugget"), "shapes", ("range",), "all")
NEIGHBOURS = (0, 1, 2, 7, 8, 30, 31, 60)


def blocks_of(case, n, m, columns=2):
    metric, d, model = CASES[case]
    places = testing.places(n, d, seed=m) if metric == "euclidean" else degrees(n, m)
    return Case(model, metric, places, m, columns, errors=errors_of(case, n))


def errors_of(case, n):
    """Error variances, of which every third is 0; None except for one case."""
    if case != "known errors":
        return None
    return np.random.default_rng(n).random(n) * (np.arange(n) % 3 > 0)


def names_of(chosen, model):
    if chosen == "shapes":
        return tuple(shape.name for shape in model.shapes)
    return tuple(model.parameters()) if chosen == "all" else chosen


def assert_close(found, expected, blocks, m):
    """To c·m·u of what the conditioning of a block makes of it, part by part of the sums."""
    sigma = blocks.blocks.pairs.covariance()
    values = np.linalg.eigvalsh(sigma + np.diag(blocks.noise.variances))
    tolerance = 4 * (m + 4) * U * values[-1] / values[0]
    c, bases = len(blocks.columns) ** 2, len(blocks.wanted(()))
    cuts = np.cumsum((1, c, bases, bases**2))
    for one, other in zip(np.split(found, cuts), np.split(expected, cuts), strict=True):
        scale = max(np.abs(other).max(initial=0.0), len(sigma) * (len(other) == 1))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)
    return tolerance


@pytest.mark.slow
@pytest.mark.parametrize(("case", "m", "chosen"), by_pairs([*CASES], NEIGHBOURS, SETS))
def test_sums_and_weights_are_those_of_the_cpu(hosts, case, m, chosen):
    blocks = blocks_of(case, m + 24, m, columns=1 + m % 4)
    host = hosts[1, *blocks.variant]
    names = names_of(chosen, blocks.model)
    expected, failed = blocks.on_cpu(names)
    found, where = blocks.on_host(host, names)
    assert failed is where is None
    tolerance = assert_close(found, expected, blocks, m)
    for one, other in zip(blocks.weights_on_host(host), blocks.weights_on_cpu(), strict=True):
        assert np.abs(one - other).max(initial=0.0) <= tolerance * max(1, blocks.model.variance)


@pytest.mark.slow
@pytest.mark.parametrize("downwards", [0, 1])
@pytest.mark.parametrize(("team", "m"), [(8, 0), (8, 7), (8, 15), (16, 17), (16, 30), (64, 65)])
def test_teams_have_the_bits_of_one_lane_in_whatever_order_lanes_go(hosts, team, m, downwards):
    check_teams(hosts, blocks_of("anisotropic", m + 5, m), team, downwards)


@pytest.mark.slow
@pytest.mark.parametrize("downwards", [0, 1])
def test_teams_have_the_bits_of_one_lane_with_known_errors(hosts, downwards):
    check_teams(hosts, blocks_of("known errors", 20, 15), 8, downwards)


def check_teams(hosts, blocks, team, downwards):
    names = names_of("all", blocks.model)
    for chosen in ((), names):
        alone, _ = blocks.on_host(hosts[1, *blocks.variant], chosen)
        shared, _ = blocks.on_host(hosts[team, *blocks.variant], chosen, downwards=downwards)
        np.testing.assert_array_equal(shared, alone)
    both = [hosts[k, *blocks.variant] for k in (1, team)]
    both = [blocks.weights_on_host(host, downwards=downwards) for host in both]
    for shared, alone in zip(*both, strict=True):
        np.testing.assert_array_equal(shared, alone)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["plane", "great-circle"])
def test_bits_do_not_depend_on_which_rows_of_a_table_stand_in_shared_memory(hosts, case):
    blocks = blocks_of(case, 40, 12)
    names = names_of("all", blocks.model)
    first, *others = (
        blocks.on_host(hosts[1, 1, 1], names, most=most)[0] for most in (0, 40, 10_000)
    )
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_window_holds_the_rows_that_most_pairs_need(d):
    n, m, model = 20_000, 30, gx.Matern(1.0, 0.1, 0.5)
    places = testing.places(n, d, seed=2)
    graph = Graph.of(places, "maximin", m)
    points = places[graph.tree.order]
    own = np.random.default_rng(0).permutation(np.flatnonzero(graph.neighbours[:, -1] >= 0))[:500]
    blocks = points[np.column_stack((graph.neighbours[own], own))]
    apart = ((blocks[:, :, None] - blocks[:, None]) ** 2).sum(axis=-1)
    s = apart[:, *np.triu_indices(m + 1, 1)] / model.range**2
    pairs = device.Pairs(model, "euclidean", box_of(points), n, m, (0.0,))
    table = table_of(model, *pairs.octaves)
    # intervals part an octave evenly, not its logarithm: a difference of three rows at most
    row = np.floor((np.log2(s) - table.low) * 32) + 1
    for most, share in ((768, 0.95), (256, 0.7 if d == 1 else 0.85)):
        first, staged = pairs.window(len(table.rows("correlation")), table.base, most)
        assert ((row >= first) & (row < first + staged)).mean() > share


@pytest.mark.slow
def test_parts_of_any_size_have_the_same_sums_but_for_rounding(hosts):
    blocks = blocks_of("plane", 50, 9)
    names = names_of("all", blocks.model)
    expected, _ = blocks.on_cpu(names)
    for size in (1, 7, 50, 64):
        assert_close(blocks.on_host(hosts[1, 1, 1], names, size)[0], expected, blocks, 9)


@pytest.mark.slow
@pytest.mark.parametrize("names", [(), ("variance", "range")])
def test_the_first_place_without_a_factor_is_that_of_the_cpu(hosts, names):
    places = testing.places(60, seed=3)
    places[[20, 40, 41]] = places[[5, 6, 40]]
    blocks = Case(gx.Matern(4.0, 0.2, 0.5), "euclidean", places, 6)
    _, expected = blocks.on_cpu(names)
    assert expected is not None
    for size in (1, 4, 60):
        assert blocks.on_host(hosts[1, 1, 1], names, size)[1] == expected
    assert blocks.on_host(hosts[8, 1, 1], names)[1] == expected
    variances = blocks.weights_on_host(hosts[1, 1, 1])[1]
    np.testing.assert_array_equal(variances > 0, blocks.weights_on_cpu()[1] > 0)


@pytest.mark.slow
def test_a_pair_nearer_than_the_table_reaches_is_missed_and_the_table_grows(hosts):
    far, close = testing.places(30, seed=1), 0.5 + 1e-13 * testing.places(8, seed=2)
    blocks = Case(gx.Matern(1.0, 0.1, 0.4, 0.1), "euclidean", np.vstack((far, close)), 5)
    names = ("smoothness", "range")
    assert_close(blocks.on_host(hosts[1, 1, 1], names)[0], blocks.on_cpu(names)[0], blocks, 5)
    given = device.Pairs(blocks.model, "euclidean", blocks.box, 38, 5, (0.1,))
    before = given.octaves
    work = []

    def look(tables, base):
        work.append(base)
        layout = device.SharedLayout.of(5, 2, 0, 0)
        out = np.empty((38, 5)), np.empty(38)
        entries = [pointer(array) for array in out]
        missed = blocks._call(hosts[1, 1, 1].weighed, entries, given, tables, base, layout, 0, 0, 0)
        return [(missed,)]

    # no other test has a table of this smoothness, which might reach further
    device.with_table(gx.Matern(1.0, 0.1, 0.41, 0.1), given, ["correlation"], look)
    assert len(work) > 1
    assert given.octaves[0] < before[0]


@pytest.mark.slow
@pytest.mark.parametrize("c", [2.0**500, 2.0**-500])
def test_values_at_the_ends_of_fp64_have_the_sums_of_others(hosts, c):
    plain = blocks_of("plane", 40, 9)
    model = gx.Matern(1.7 * c**2, 0.2, 0.8, 0.1 * c**2)
    blocks = Case(model, "euclidean", testing.places(40, 2, seed=9), 9)
    blocks.columns *= c
    (found, _), (expected, _) = (one.on_host(hosts[1, 1, 1]) for one in (blocks, plain))
    expected[0] += 2 * 40 * np.log(c)
    assert_close(found, expected, plain, 9)


def test_places_at_the_ends_of_fp64_have_finite_numbers():
    box = np.array(((-8e307, -8e307), (8e307, 8e307)))
    for size in (1.0, 1e-300, 0.0):
        pairs = device.Pairs(gx.Matern(1.0, 1e-200, 0.5), "euclidean", box * size, 100, 9, (0.0,))
        assert np.isfinite(pairs.numbers).all()
        assert np.isfinite(pairs.common)


def test_a_million_places_fill_an_h200():
    parts, size = device.parts_of(1_000_000, 6)
    layout = device.SharedLayout.of(30, 2, 2, 0)
    # of 227 KiB of shared memory, on 132 multiprocessors
    teams = (227 * 1024 - device.WINDOW_BYTES) // layout.bytes
    assert teams * layout.team <= device.MOST_BLOCK_THREADS
    assert teams >= 24
    assert parts > 4 * 132 * teams
    assert parts * size >= 1_000_000


def test_more_neighbours_than_a_multiprocessor_holds_are_refused():
    places = testing.places(200)
    with pytest.raises(gx.InvalidInput, match=r"at most 128 on a GPU\. Got 199: use fewer, or on="):
        device.GpuPasses(gx.Inputs(places), "maximin", 500, device=Device("gpu:0", 0))


def test_more_columns_than_a_team_has_rows_are_refused():
    assert device.SharedLayout.of(30, 2, 16, 6).team == 16
    assert device.SharedLayout.of(30, 2, 17, 6).team == 32
    with pytest.raises(gx.InvalidInput, match=r"at most 59 columns with 128 neighbours\. Got 60"):
        device.SharedLayout.of(128, 2, 61, 6)


def test_a_gpu_that_is_not_there_is_missing():
    with pytest.raises(gx.MissingDevice, match='on="gpu'):
        gx.Vecchia(10, on="gpu:99")


# from here on with a GPU ----------------------------------------------------------------------


def evaluators(case, n, m, reml=False):
    """The same data on the CPU and on the GPU."""
    metric, d, model = CASES[case]
    places = testing.places(n, d, seed=m) if metric == "euclidean" else degrees(n, m)
    values = np.random.default_rng(m).standard_normal(n)
    seen = gx.Observations(places, values, metric=metric, error_variance=errors_of(case, n))
    design = np.column_stack((np.ones(n), places))
    both = (gx.Vecchia(m, on=on).prepare(seen, design, reml) for on in ("cpu", "gpu"))
    return model, *both


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("m", "case", "reml"),
    # the trend's part of REML is the same for all families
    [
        *((m, case, m == 7) for m, case in product([1, 7, 30], CASES)),
        # what the emulator needs long for: each dimension, and each number of shapes and diagonals
        *((60, case, True) for case in ("line", "plane", "two shapes", "known errors")),
        *((128, case, False) for case in ("plane", "space", "compact support", "known errors")),
    ],
)
def test_a_gpu_evaluates_as_the_cpu(case, m, reml):
    n = sized(3000, {60: 90, 128: 140}.get(m, 200))
    model, cpu, gpu = evaluators(case, n, m, reml)
    expected, found = cpu(model), gpu(model)
    for name in ("log_likelihood", "log_determinant", "quadratic_form"):
        value = getattr(expected, name)
        assert abs(getattr(found, name) - value) <= 1e4 * (m + 4) * U * max(n, abs(value)), name
    information = cpu.expected_information(model)
    scale = np.sqrt(np.diag(information))
    slopes = cpu.gradient(model)
    for (name, slope), sd in zip(gpu.gradient(model).items(), scale, strict=True):
        assert abs(slope - slopes[name]) <= 1e5 * (m + 4) * U * n**0.5 * sd, name
    allowed = 1e5 * (m + 4) * U + (1e-7 if reml else 0.0)
    relative = (gpu.expected_information(model) - information) / np.outer(scale, scale)
    assert np.abs(relative).max() <= allowed
    weights = [one.factorize(model).weights for one in (cpu, gpu)]
    assert np.abs(weights[0] - weights[1]).max(initial=0.0) <= 1e6 * (m + 4) * U


@pytest.mark.slow
@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits_again():
    model, _, gpu = evaluators("plane", sized(50_000, 500), 30)
    other = evaluators("plane", sized(50_000, 500), 30)[2]
    assert gpu(model).log_likelihood == other(model).log_likelihood
    assert gpu.gradient(model) == other.gradient(model)
    np.testing.assert_array_equal(
        gpu.information(model, ("range",)), other.information(model, ("range",))
    )


@pytest.mark.gpu
def test_a_gpus_bits_do_not_depend_on_what_stands_in_shared_memory(monkeypatch):
    model, _, gpu = evaluators("plane", sized(5000, 300), 30)
    value = gpu(model).log_likelihood
    monkeypatch.setattr(device, "WINDOW_BYTES", 64 * 50)
    again = evaluators("plane", sized(5000, 300), 30)[2]
    assert again(model).log_likelihood == value


@pytest.mark.slow
@pytest.mark.gpu
def test_a_gpu_fits_as_the_cpu():
    model = gx.Matern(1.0, 0.1, 0.5, 0.5)
    locations = testing.places(sized(2000, 400))
    # in noise the range would have no meaning, so that fits would differ by rounding
    seen = gx.Observations(locations, gx.simulate(model, locations, seed=1)[0])
    fits = [
        gx.fit(
            seen,
            model,
            gx.Vecchia(15, on=on),
            progress=False,
            fixed=("smoothness",),
            raise_on_failure=False,
        )
        for on in ("cpu", "gpu")
    ]
    assert [fit.outcome.ending for fit in fits] == ["CONVERGED"] * 2
    assert fits[1].log_likelihood == pytest.approx(fits[0].log_likelihood, rel=1e-9)


@pytest.mark.gpu
def test_a_gpu_names_the_rows_that_have_no_factor():
    seen = gx.Observations(testing.places(200), np.zeros(200))
    words = r"row \d+ and its 30 neighbours is not positive .* rows \d+ and \d+: give the model a"
    with pytest.raises(gx.NotPositiveDefinite, match=words):
        gx.log_likelihood(seen, gx.Matern(1.0, 10.0, 5.0), gx.Vecchia(30, on="gpu"))


@pytest.mark.gpu
def test_a_gpus_table_grows_where_places_are_closer_than_it_reaches():
    random = np.random.default_rng(1)
    places = np.vstack((random.random((40, 2)), 0.5 + 1e-12 * random.random((10, 2))))
    seen = gx.Observations(places, random.standard_normal(50))
    found = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(49, on="gpu")).log_likelihood
    assert found == pytest.approx(gx.log_likelihood(seen, testing.MODEL).log_likelihood, rel=1e-11)
