import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import geomxp as gx
from geomxp.estimation.result import Fit
from geomxp.likelihood import exact
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg import precision
from geomxp.linalg.low_rank import LowRankTile
from geomxp.linalg.precision import describe, described
from geomxp.plots.comparisons import precision_map
from geomxp.prediction.simulate import lay_out
from geomxp.tiles import cholesky, on_disk
from geomxp.tiles.layout import Layout
from geomxp.tiles.stores import InCore

MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)
METHOD = gx.Exact(gx.for_divergence(1e-3, low_rank=True), tile=128)
N = 1000
DENSE = 4 * N * (N + 128)
"""Bytes of the dense tiles."""


def clustered(n):
    random = np.random.default_rng(5)
    centres = random.random((20, 2))
    return centres[random.integers(0, 20, n)] + 0.03 * random.standard_normal((n, 2))


PLACES = {"jittered grid": lay_out(N, "uniform", 0), "clusters": clustered(N)}


@pytest.fixture(scope="module")
def seen():
    places = PLACES["jittered grid"]
    return gx.Observations(places, gx.simulate(MODEL, places, seed=1, progress=False)[0])


# the divergence


@pytest.mark.slow
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("length", [0.03, 0.3])
def test_the_measured_divergence_is_below_the_target(places, smoothness, length):
    model = gx.Matern(1.0, length, smoothness, 0.01)
    found = gx.kl_divergence(model, PLACES[places], METHOD)
    assert -1e-9 < found.kl < 1e-3
    assert sum(found.formats.counts().values()) == 36


@pytest.mark.slow
@pytest.mark.parametrize("target", [1e-1, 1e-3, 1e-6])
def test_smaller_targets_have_larger_ranks_and_smaller_divergences(target):
    places = PLACES["jittered grid"]
    rules = [gx.for_divergence(kl, low_rank=True) for kl in (target, target / 100)]
    found = [gx.kl_divergence(MODEL, places, gx.Exact(rule, tile=128)) for rule in rules]
    assert abs(found[1].kl) < found[0].kl < target
    seen = gx.Observations(places, np.zeros(len(places)))
    sizes = [tile_factor(MODEL, seen, rule, 128).store.bytes for rule in rules]
    assert sizes[0] < sizes[1] < DENSE


@pytest.mark.slow
@pytest.mark.parametrize("smoothness", [0.5, 1.5])
@pytest.mark.parametrize("rule", [gx.for_divergence(1e-2, low_rank=True), gx.by_tile_norm(1e-5)])
def test_random_vectors_estimate_the_divergence(rule, smoothness):
    model, method = MODEL.replace(smoothness=smoothness), gx.Exact(rule, tile=128)
    places = PLACES["jittered grid"]
    exact = gx.kl_divergence(model, places, method)
    found = gx.estimate_divergence(model, places, method, probes=64)
    assert abs(found.kl - exact.kl) < 4 * found.standard_error + 1e-3 * exact.kl
    assert 0 < found.standard_error < 0.3 * found.kl
    assert (found.n, found.probes) == (N, 64)
    assert found.bytes == exact.bytes
    assert f"± {found.standard_error:.1g} nats" in str(found)


def test_replicates_have_the_divergence_of_their_means(seen):
    twice = gx.Observations(np.tile(seen.locations, (2, 1)), np.tile(seen.values, 2))
    model = MODEL.replace(nugget=0.02)
    a = gx.estimate_divergence(model, twice, METHOD, probes=8)
    b = gx.estimate_divergence(MODEL, seen, METHOD, probes=8)
    assert a.kl == pytest.approx(b.kl, rel=1e-9)
    assert a.n == N


class TooCoarse(type(METHOD.precision)):
    def __call__(self, *about, **more):
        return gx.for_divergence(1e3 * self.kl, low_rank=True)(*about, **more)


@pytest.mark.parametrize("memory", [None, "20MB"])
def test_a_missed_target_is_said(seen, memory, monkeypatch):
    """Also where a factor in FP64 would be too large, and of tiles on a disk."""
    monkeypatch.setattr(exact, "EXACT_DIVERGENCE_LOCATIONS", 100)
    held = tuple(MODEL.parameters())
    fit = gx.fit(seen, MODEL, METHOD, fixed=held, trend="zero")
    assert (fit.divergence.met, fit.divergence.probes) == (True, 16)
    coarse = gx.Exact(TooCoarse(1e-3, low_rank=True), tile=128, memory=memory)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = gx.fit(seen, MODEL, coarse, fixed=held, trend="zero")
    assert "gx.for_divergence(1e-05, low_rank=True)" in str(said[-1].message)
    assert not fit.divergence.met


def test_a_divergence_below_the_rounding_of_fp32_keeps_fp64(seen):
    for target, name in ((1e-2, "fp32"), (1e-12, "fp64")):
        rule = gx.for_divergence(target, low_rank=True)
        found = gx.log_likelihood(seen, MODEL, gx.Exact(rule, tile=128))
        formats = found.precision_map
        assert sum(formats[i, k].name == name for i in range(8) for k in range(i)) > 24


@pytest.mark.slow
@pytest.mark.gpu
def test_random_vectors_estimate_the_divergence_of_tiles_on_a_gpu():
    places = PLACES["jittered grid"][:300]
    method = gx.Exact(gx.by_tile_norm(1e-5), tile=64, on="gpu")
    exact = gx.kl_divergence(MODEL, places, method)
    found = gx.estimate_divergence(MODEL, places, method, probes=64)
    assert abs(found.kl - exact.kl) < 4 * found.standard_error + 0.1 * exact.kl


def test_tiles_that_stay_dense_are_counted_as_dense():
    # in three dimensions more tiles are next to each other
    places = np.random.default_rng(0).random((600, 3))
    seen, model = gx.Observations(places, np.zeros(600)), gx.Matern(1.0, 0.2, 0.5, 1e-4)
    factor = tile_factor(model, seen, gx.for_divergence(1e-6, low_rank=True), 60)
    tiles = factor.store._tiles
    low = sum(isinstance(tile, LowRankTile) for tile in tiles.values())
    counts = factor.precision_map.counts()
    assert 0 < low < 45
    assert sum(count for name, count in counts.items() if "low rank" in name) == low
    assert sum(counts.values()) == len(tiles) == 55
    assert factor.precision_map.bytes(factor.store.layout) == factor.nbytes


# the same numbers as FP64, to the tolerance


def test_solutions_and_determinant_are_those_of_fp64(seen):
    tight = tile_factor(MODEL, seen, gx.for_divergence(1e-12, low_rank=True), 128)
    exact = gx.Exact().prepare(seen).factorize(MODEL)
    assert tight.log_determinant() == pytest.approx(exact.log_determinant(), rel=1e-8)
    b = np.asfortranarray(np.random.default_rng(0).standard_normal((N, 3)))
    assert np.allclose(tight.solve(b), exact.solve(b), rtol=0, atol=1e-5 * np.abs(b).max())
    half = tight.half_solve(b)
    assert np.allclose(half.T @ half, b.T @ exact.solve(b), rtol=1e-6)
    assert any(isinstance(tile, LowRankTile) for tile in tight.store._tiles.values())


def test_any_number_of_threads_gives_the_same_bits(seen, monkeypatch):
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(cholesky, "usable_cores", lambda count=threads: count)
        results.append(gx.log_likelihood(seen, MODEL, METHOD).log_likelihood)
    assert results[0] == results[1]


@pytest.mark.slow
def test_a_fit_predictions_and_scores_are_those_of_fp64(seen):
    seen = seen.subset(np.arange(500))
    exact = gx.fit(seen, fixed={"smoothness": 0.5}, progress=False)
    low = gx.fit(seen, method=METHOD, fixed={"smoothness": 0.5}, progress=False)
    assert low.outcome.ending is exact.outcome.ending
    assert low.log_likelihood == pytest.approx(exact.log_likelihood, abs=0.1)
    for name, error in exact.standard_errors.items():
        if error:
            difference = low.model.parameters()[name] - exact.model.parameters()[name]
            assert abs(difference) < 0.1 * error
            assert low.standard_errors[name] == pytest.approx(error, rel=0.1)
    targets = np.random.default_rng(2).random((50, 2))
    a, b = (gx.predict(each, targets, progress=False) for each in (low, exact))
    assert np.abs(a.mean - b.mean).max() < 0.1 * np.sqrt(b.variance).min()
    assert np.allclose(a.variance, b.variance, rtol=0.02)
    a, b = (gx.leave_one_out(each) for each in (low, exact))
    assert np.abs(a.mean - b.mean).max() < 0.05


# other stores, and refinement


@pytest.fixture(scope="module")
def large():
    places = lay_out(4000, "uniform", 0)
    return gx.Observations(places, np.random.default_rng(0).standard_normal(4000))


@pytest.fixture(scope="module")
def in_memory(large):
    """A factor of low rank with small ranks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "ASSUMED_RANK", 4)
        return gx.Exact(METHOD.precision, tile=96).prepare(large).factorize(MODEL)


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "bound"), [(1, 2_500_000), (2, 4_000_000)])
def test_a_disk_gives_the_bits_of_one_memory_within_its_bound(
    large, in_memory, tmp_path, monkeypatch, threads, bound
):
    for module in (cholesky, on_disk):
        monkeypatch.setattr(module, "usable_cores", lambda: threads)
    # tiles of so few rows have small ranks
    monkeypatch.setattr(precision, "ASSUMED_RANK", 4)
    method = gx.Exact(METHOD.precision, tile=96, memory=bound, scratch=tmp_path)
    there = method.prepare(large).factorize(MODEL)
    here = in_memory
    store, everything = there.store, there.nbytes
    # it does not fit: tiles are read again, and panels keep these reads few
    assert store.most_held < bound < everything
    assert everything < store.moved.bytes_out < 2 * everything
    assert 0 < store.moved.bytes_in < 6 * everything
    assert there.precision_map == here.precision_map
    assert there.log_determinant() == here.log_determinant()
    b = np.random.default_rng(2).standard_normal((4000, 2))
    for ask in ("half_solve", "solve", "multiply"):
        np.testing.assert_array_equal(getattr(there, ask)(b), getattr(here, ask)(b))
    # the file has no name: nothing is left of an interrupted run
    assert not [*tmp_path.iterdir()]


def test_promoted_tiles_on_a_disk_are_written_anew():
    model = gx.Matern(1.0, 0.3, 1.5, 0.0)
    seen = gx.Observations(lay_out(800, "uniform", 0), np.zeros(800))
    rule = gx.for_divergence(1e6, low_rank=True)
    ways = [gx.Exact(rule, tile=100, memory=memory) for memory in (None, "10MB")]
    here, there = (method.prepare(seen).factorize(model) for method in ways)
    assert there.promotions == here.promotions > 0
    assert there.log_determinant() == here.log_determinant()
    assert there.nbytes == here.nbytes


def test_too_little_memory_for_the_work_is_said(large):
    with pytest.raises(gx.NotEnoughMemory, match=r"a thread with low-rank tiles.*--memory"):
        gx.log_likelihood(large, MODEL, gx.Exact(METHOD.precision, tile=256, memory="1MB"))


@pytest.mark.slow
def test_as_many_threads_work_as_have_room(large, monkeypatch):
    monkeypatch.setattr(on_disk, "usable_cores", lambda: 64)
    method = gx.Exact(METHOD.precision, tile=96, memory=20_000_000)
    store = method.prepare(large).factorize(MODEL).store
    assert 1 < store.threads < 10
    assert store._room(store.threads) < store.memory


def test_fallback_ends_in_fp64():
    seen = gx.Observations(lay_out(300, "uniform", 0), np.ones(300))
    rule = gx.for_divergence(1e3, low_rank=True)
    method = gx.Exact(rule, tile=50, refine="ir", fallback=True)
    found = method.prepare(seen).factorize(MODEL)
    # no factor of low rank is good enough for one step
    found._refine = partial(found._refine, limit=1)
    found.solve(np.ones((300, 1)))
    assert found.precision_map.all_fp64


@pytest.mark.slow
@pytest.mark.parametrize("refine", ["ir", "cg", "gmres"])
def test_refined_solutions_are_those_of_fp64(seen, refine):
    rough = gx.Exact(gx.for_divergence(1.0, low_rank=True), tile=128)
    refined = replace(rough, refine=refine).prepare(seen).factorize(MODEL)
    exact = gx.Exact().prepare(seen).factorize(MODEL)
    b = np.random.default_rng(2).standard_normal((N, 2))
    right = exact.solve(b)
    errors = [np.abs(way.solve(b) - right).max() for way in (refined, refined.factor)]
    assert errors[0] < 1e-10 * np.abs(right).max() < errors[1]
    assert refined.last.outcome.good


def test_a_nearly_singular_matrix_is_factored_with_smaller_tolerances():
    # a coarse target, and no noise
    model = gx.Matern(1.0, 0.3, 1.5, 0.0)
    seen = gx.Observations(lay_out(800, "uniform", 0), np.zeros(800))
    factor = tile_factor(model, seen, gx.for_divergence(1e6, low_rank=True), 100)
    exact = gx.Exact().prepare(seen).factorize(model)
    assert factor.promotions > 0
    assert factor.log_determinant() == pytest.approx(exact.log_determinant(), rel=0.01)


@pytest.mark.parametrize("target", [1e-3, 1e300])
def test_a_singular_matrix_is_refused_as_in_fp64(target):
    places = np.random.default_rng(0).random((400, 2))
    seen = gx.Observations(places, np.random.default_rng(1).standard_normal(400))
    method = gx.Exact(gx.for_divergence(target, low_rank=True), tile=64)
    with pytest.raises(gx.NotPositiveDefinite, match="closest locations are rows"):
        gx.log_likelihood(seen, gx.Gaussian(1.0, 0.3, 0.0), method)


@pytest.mark.parametrize("n", [3, 155, 256, 257])
def test_the_default_tile_suits_few_locations(n):
    places = np.random.default_rng(0).random((n, 2))
    seen = gx.Observations(places, np.random.default_rng(1).standard_normal(n))
    method = gx.Exact(gx.for_divergence(1e-6, low_rank=True))
    found = gx.log_likelihood(seen, MODEL, method).log_likelihood
    assert found == pytest.approx(gx.log_likelihood(seen, MODEL).log_likelihood, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        gx.Matern(1.0, 0.2, 0.5, 0.05, gx.Anisotropy(30.0, 0.4)),
        gx.MaternSpaceTime(1.0, 0.2, 2.0, 0.5, 0.05),
    ],
    ids=["anisotropic", "space and time"],
)
def test_fits_whose_metric_changes_converge(model):
    random = np.random.default_rng(0)
    places, times = random.random((250, 2)), random.integers(0, 8, 250).astype(float)
    in_time = isinstance(model, gx.MaternSpaceTime)
    about = {"time": times} if in_time else {}
    values = gx.simulate(model, places, seed=1, progress=False, **about)[0]
    seen = gx.Observations(places, values, **about)
    method = gx.Exact(gx.for_divergence(1e-3, low_rank=True), tile=48)
    held = {"fixed": {"smoothness": 0.5, "nugget": 0.05}, "anisotropy": not in_time}
    held["progress"] = False
    found = gx.fit(seen, family=model.family, method=method, **held)
    exact = gx.fit(seen, family=model.family, method=gx.Exact(), **held)
    assert found.outcome.ending is exact.outcome.ending
    for name, error in exact.standard_errors.items():
        if error:
            change = found.model.parameters()[name] - exact.model.parameters()[name]
            assert abs(change) < 0.2 * error
            assert found.standard_errors[name] == pytest.approx(error, rel=0.15)


# descriptions


@pytest.mark.slow
def test_the_rule_survives_json_and_a_saved_fit(seen, tmp_path):
    rule = gx.for_divergence(1e-3, low_rank=True)
    assert described(describe(rule)) == rule
    assert described(describe(gx.for_divergence(1e-3))) == gx.for_divergence(1e-3)
    some = seen.subset(np.arange(300))
    fit = gx.fit(some, method=METHOD, fixed={"smoothness": 0.5}, progress=False)
    fit.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    assert again.method.precision == rule
    assert again.method.low_rank


def test_tiles_of_low_rank_are_counted_and_drawn(seen):
    rule = gx.for_divergence(1e-2, low_rank=True)
    found = gx.log_likelihood(seen, MODEL, gx.Exact(rule, tile=128))
    formats = found.precision_map
    assert formats.counts() == {"fp64": 8, "fp32 low rank": 28}
    assert str(formats).splitlines()[:3] == ["D", "sD", "ssD"]
    assert "8 fp64, 28 fp32 low rank" in str(found)
    assert not formats.all_fp64
    assert formats.bytes(Layout.of(N, 128)) < DENSE
    legend = precision_map(formats).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["FP64, 8", "FP32 low rank, 28"]


# bad input


@pytest.mark.parametrize(
    "options",
    [
        {"device_memory": "1GB"},
        {"store": InCore},
        {"trace": True},
        {"on": "gpu"},
        {"on": ("cpu", "cpu")},
        {"tile": "whole"},
    ],
    ids=str,
)
def test_what_does_not_go_with_low_rank_is_refused(options):
    with pytest.raises(gx.InvalidInput, match=r"low.rank|layered"):
        gx.Exact(gx.for_divergence(1e-3, low_rank=True), **options)


def test_there_is_no_plan_of_unknown_ranks(seen):
    with pytest.raises(gx.InvalidInput, match="cannot be planned"):
        METHOD.plan(seen, MODEL)


@pytest.mark.parametrize("probes", [1, 0, 2.5, True, "many"])
def test_probes_are_a_number(probes):
    with pytest.raises(gx.InvalidInput, match="probes"):
        gx.estimate_divergence(MODEL, PLACES["clusters"], METHOD, probes=probes)


@pytest.mark.parametrize(
    "method", [gx.Exact(), gx.Vecchia(10), gx.Exact(METHOD.precision, refine="cg")]
)
def test_probes_are_for_tiles(method):
    with pytest.raises(gx.InvalidInput, match="must have tiles"):
        gx.estimate_divergence(MODEL, PLACES["clusters"], method, probes=8)


def test_low_rank_is_a_flag():
    with pytest.raises(gx.InvalidInput, match="low_rank"):
        gx.for_divergence(1e-3, low_rank="yes")
