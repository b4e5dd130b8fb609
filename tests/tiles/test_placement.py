import gc
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.factors import tile_factor
from geomxp.prediction.simulate import lay_out
from geomxp.runtime.devices import Device, bytes_of
from geomxp.tiles.memories import Disk
from geomxp.tiles.placement import InMemory, Placement
from geomxp.tiles.stores import InCore

U = 2.0**-53
MODEL = gx.Matern(1.0, 0.2, 0.5, 0.01)
RULES = [gx.uniform("fp64"), gx.by_tile_norm(1e-6), gx.layered("fp16", "fp32")]
CPU = Device("cpu")


# what the caller's words mean


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4GB", 4 * 10**9),
        ("512MB", 512 * 10**6),
        ("1.5 gb", 1_500_000_000),
        (" 2GiB ", 2**31),
        ("10kB", 10_000),
        ("1e3MB", 10**9),
        ("7", 7),
        (4096, 4096),
        (4096.0, 4096),
        (np.int64(4096), 4096),
    ],
)
def test_sizes_are_read_as_people_write_them(text, count):
    assert bytes_of("memory", text) == count


WRONG = ["x", "-1GB", "0", "1e400GB", float("nan"), float("inf"), "", "GB", "4XB", "1.2.3GB", 0, -5]


@pytest.mark.parametrize("name", ["memory", "device_memory"])
@pytest.mark.parametrize("text", [*WRONG, True, [4], b"4GB"], ids=repr)
def test_what_is_no_size_is_refused_with_an_example(name, text):
    with pytest.raises(gx.InvalidInput, match=rf'^`{name}` must be a size such as "4GB"') as caught:
        Placement.of("cpu", **{name: text})
    assert str(caught.value).endswith(f"Got {text!r}.")


def test_without_bounds_all_is_in_one_memory():
    assert Placement.of("cpu") == InMemory((CPU,))
    assert Placement.of("cpu").in_core
    assert Placement.of("cpu", memory=None, device_memory=None, scratch=None).in_core


@pytest.mark.parametrize("on", [["cpu", "cpu"], ("cpu", "cpu"), "cpu,cpu", "cpu, cpu"])
def test_a_device_may_be_named_twice(on):
    placement = Placement.of(on)
    assert placement.devices == (CPU, CPU)
    assert not placement.in_core


@pytest.mark.parametrize("on", ["cpu,tpu", ["cpu", "x"], "cpu,", ",", "cpu:0", ["cpu", None]])
def test_what_is_no_device_is_refused(on):
    with pytest.raises(gx.InvalidInput, match=r'`on` must be "cpu", "gpu" or "gpu:N"\. Got'):
        Placement.of(on)


@pytest.mark.parametrize("on", [None, 5, 1.5])
def test_what_is_no_list_of_devices_is_refused(on):
    with pytest.raises(gx.InvalidInput, match=r"`on` must be .* Got"):
        gx.Exact(on=on).prepare(testing.observations(20))


def test_no_device_at_all_is_refused():
    with pytest.raises(
        gx.InvalidInput, match=r"`on` must be the name of a device, or a list of names\. Got \[\]"
    ):
        Placement.of([])


def test_cpus_and_gpus_are_not_mixed(monkeypatch):
    monkeypatch.setattr("geomxp.runtime.devices.gpu_count", lambda: 2)
    with pytest.raises(gx.InvalidInput, match=r"CPUs or GPUs, not both\. Got 'cpu,gpu'"):
        Placement.of("cpu,gpu")
    assert [device.index for device in Placement.of("gpu:0,gpu:1").devices] == [0, 1]


def test_memory_is_not_a_bound_of_a_gpu_nor_of_several_devices(monkeypatch):
    monkeypatch.setattr("geomxp.runtime.devices.gpu_count", lambda: 1)
    for on in ("gpu", "cpu,cpu"):
        with pytest.raises(gx.InvalidInput, match=r"`memory` bounds the RAM of on=.cpu.*Got on="):
            Placement.of(on, memory="1GB")


def test_two_bounds_are_refused():
    with pytest.raises(gx.InvalidInput, match="`memory` and `device_memory` cannot both be given"):
        Placement.of("cpu", memory="1GB", device_memory="1GB")


def test_scratch_without_memory_is_refused(tmp_path):
    for options in ({}, {"device_memory": "1GB"}):
        with pytest.raises(gx.InvalidInput, match="`scratch` is for the tiles that `memory`"):
            Placement.of("cpu", scratch=tmp_path, **options)


def test_plain_fp64_is_tiled_only_where_tiles_are_asked_for():
    assert not gx.Exact().tiled
    assert not gx.Exact(on=["cpu"]).tiled
    for options in ({"memory": "1GB"}, {"device_memory": "1GB"}, {"on": "cpu,cpu"}, {"tile": 8}):
        assert gx.Exact(**options).tiled


# budgets


def least(tile, rule=RULES[0], n=300):
    """The least memory for tiles of this size, from the message."""
    seen = testing.observations(n)
    with pytest.raises(gx.NotEnoughMemory, match="need at least") as caught:
        gx.log_likelihood(seen, MODEL, gx.Exact(rule, tile, memory=1))
    words = str(caught.value).partition("at least ")[2].partition(". Got")[0]
    # one digit after the point is shown
    return int(1.1 * bytes_of("memory", words))


def test_the_smaller_tiles_of_the_message_fit():
    seen = testing.observations(300)
    bound = least(64) // 2
    with pytest.raises(gx.NotEnoughMemory) as caught:
        gx.log_likelihood(seen, MODEL, gx.Exact(tile=64, memory=bound))
    tile = re.search(r"smaller tiles \(--tile (\d+), tile=\1\)", str(caught.value))[1]
    method = gx.Exact(tile=int(tile), memory=bound)
    expected = gx.log_likelihood(seen, MODEL).log_likelihood
    assert gx.log_likelihood(seen, MODEL, method).log_likelihood == pytest.approx(expected)


@pytest.mark.slow
def test_too_little_memory_is_an_error_before_anything_is_written(tmp_path):
    seen = testing.observations(300)
    message = r"^tiles of 32 rows, \d+ in work at one time, need at least .* Got 10 bytes: allow"
    for options in ({"memory": 10, "scratch": tmp_path}, {"device_memory": 10}):
        with pytest.raises(gx.NotEnoughMemory, match=message):
            gx.log_likelihood(seen, MODEL, gx.Exact(tile=32, **options))
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bound", ["memory", "device_memory"])
def test_a_bound_above_what_the_machine_has_is_no_reason_to_fail_for_a_small_matrix(bound):
    seen = testing.observations(100)
    expected = gx.log_likelihood(seen, MODEL, gx.Exact(tile=32))
    found = gx.log_likelihood(seen, MODEL, gx.Exact(tile=32, **{bound: "1000TB"}))
    assert found.log_likelihood == expected.log_likelihood


def test_tiles_lie_where_the_placement_says(tmp_path):
    places = testing.places(100)
    layout = InMemory().layout(100, 32)
    formats = RULES[0](np.ones((4, 4)))
    about = InMemory().originals(MODEL, places, "euclidean", layout), formats
    assert isinstance(Placement.of("cpu").store(*about), InCore)
    store = Placement.of("cpu", memory="1MB", scratch=tmp_path).store(*about)
    assert isinstance(store.slow, Disk)
    assert store.devices[0].budget == 10**6
    store.close()
    store = Placement.of("cpu,cpu", device_memory="2MB").store(*about)
    assert not isinstance(store.slow, Disk)
    assert [part.budget for part in store.devices] == [2 * 10**6] * 2


# the same bits


WAYS = [
    {"memory": "least"},
    {"memory": "1MB"},
    {"device_memory": "1MB"},
    {"on": "cpu,cpu"},
    {"on": ("cpu", "cpu", "cpu"), "device_memory": "1MB"},
]


def way(options, tile, rule=RULES[0], n=170):
    bound = options.get("memory")
    options = options | {"memory": least(tile, rule, n)} if bound == "least" else options
    return gx.Exact(rule, tile, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_the_likelihood_is_that_of_one_memory_bit_for_bit(rule, options):
    seen = testing.observations(170)
    for trend in ("zero", "constant"):
        expected = gx.log_likelihood(seen, MODEL, gx.Exact(rule, 32), trend=trend)
        found = gx.log_likelihood(seen, MODEL, way(options, 32, rule), trend=trend)
        for name in ("log_likelihood", "log_determinant", "quadratic_form", "promotions"):
            assert getattr(found, name) == getattr(expected, name), name
        assert found.precision_map == expected.precision_map


# finer formats need more than the least of the first
@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS[1:], ids=str)
def test_promotions_are_those_of_one_memory(options):
    seen, model = testing.observations(200), gx.Matern(1.0, 0.3, 1.5, 1e-5)
    for rule in (gx.uniform("fp8"), gx.layered("fp16", "fp32")):
        with warnings.catch_warnings():
            # promotions are warned of
            warnings.simplefilter("ignore", gx.GeomxpWarning)
            expected = gx.log_likelihood(seen, model, gx.Exact(rule, 32))
            found = gx.log_likelihood(seen, model, way(options, 32, rule, 200))
        assert expected.promotions > 0
        assert found.log_likelihood == expected.log_likelihood
        assert found.promotions == expected.promotions
        assert found.precision_map == expected.precision_map


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_simulations_are_those_of_one_memory_bit_for_bit(options):
    places = testing.places(150)
    expected = gx.simulate(MODEL, places, draws=2, seed=1, method=gx.Exact(tile=32))
    found = gx.simulate(MODEL, places, draws=2, seed=1, method=way(options, 32, n=150))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_predictions_are_those_of_one_memory_bit_for_bit(options):
    seen, there = testing.observations(150), testing.places(20, seed=9)
    fixed = tuple(MODEL.parameters())
    one, other = (
        gx.predict(gx.fit(seen, MODEL, method, fixed=fixed, trend="constant"), there)
        for method in (gx.Exact(tile=32), way(options, 32, n=150))
    )
    np.testing.assert_array_equal(other.mean, one.mean)
    np.testing.assert_array_equal(other.variance, one.variance)


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_divergences_are_those_of_one_memory_bit_for_bit(options):
    places, rule = testing.places(150), gx.by_tile_norm(1e-4)
    one, other = (
        gx.kl_divergence(MODEL, places, method)
        for method in (gx.Exact(rule, 32), way(options, 32, rule, 150))
    )
    assert (other.kl, other.log_determinant_error) == (one.kl, one.log_determinant_error)
    assert (other.bytes, other.formats) == (one.bytes, one.formats)


@pytest.mark.slow
def test_a_divergence_is_computed_in_a_scratch_directory_as_well(tmp_path):
    """The same factor several times, one after the other."""
    method = gx.Exact(gx.by_tile_norm(1e-4), 32)
    expected = gx.kl_divergence(MODEL, testing.places(150), method)
    bounded = replace(method, memory="1MB", scratch=tmp_path)
    found = gx.kl_divergence(MODEL, testing.places(150), bounded)
    assert found.kl == expected.kl
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_two_factors_of_one_problem_live_beside_each_other(tmp_path):
    seen = testing.observations(100)
    placement = Placement.of("cpu", memory="1MB", scratch=tmp_path)
    one, other = (tile_factor(MODEL, seen, RULES[0], 32, placement) for _ in range(2))
    assert one.log_determinant() == other.log_determinant()


# gradients and estimates


@pytest.mark.slow
def test_where_the_inverse_does_not_fit_the_gradient_comes_from_differences():
    seen = testing.observations(300)
    expected = gx.Exact(tile=32).prepare(seen).gradient(MODEL)
    evaluator = way({"memory": "least"}, 32).prepare(seen)
    assert not evaluator.scoring
    found = evaluator.gradient(MODEL)
    assert found.keys() == expected.keys()
    size = sum(abs(slope * MODEL.parameters()[name]) for name, slope in expected.items())
    for name, slope in expected.items():
        # central differences of relative step h err by h² of the third derivative
        step = 1e-3 * (MODEL.parameters()[name] or 1e-3)
        assert abs(found[name] - slope) * MODEL.parameters()[name] <= 1e3 * step**2 * 300 + (
            1e-5 * size
        )


@pytest.fixture(scope="module")
def field():
    places = lay_out(100, "jittered", 3)
    truth = gx.Matern(2.0, 0.15, 0.5, 0.2)
    return gx.Observations(places, gx.simulate(truth, places, seed=4)[0])


HELD = {"smoothness": 0.5}


@pytest.fixture(scope="module")
def estimate(field):
    return gx.fit(field, method=gx.Exact(tile=32), fixed=HELD, trend="zero")


@pytest.mark.slow
@pytest.mark.parametrize(("options", "tile"), [(WAYS[0], 32), (WAYS[1], 16), (WAYS[3], 32)])
def test_estimates_are_those_of_one_memory(field, estimate, options, tile):
    method = way(options, tile, n=100)
    if options == WAYS[0]:
        assert not method.prepare(field).scoring
    found = gx.fit(field, method=method, fixed=HELD, trend="zero")
    assert found.outcome.ending == estimate.outcome.ending == "CONVERGED"
    # a loss of δ in ℓ is a distance of √(2δ) standard errors: 1e-2 of one
    assert abs(found.log_likelihood - estimate.log_likelihood) <= 5e-5
    for name in ("variance", "range", "nugget"):
        apart = found.model.parameters()[name] - estimate.model.parameters()[name]
        assert abs(apart) <= 2e-2 * estimate.standard_errors[name]
        assert found.standard_errors[name] == pytest.approx(estimate.standard_errors[name], rel=0.1)


@pytest.mark.slow
def test_a_fit_leaves_nothing_in_its_scratch_directory(field, tmp_path):
    method = gx.Exact(tile=64, memory="1MB", scratch=tmp_path)
    fixed = {"smoothness": 0.5, "range": 0.1}
    found = gx.fit(field, method=method, fixed=fixed, trend="zero")
    assert found.outcome.ending == "CONVERGED"
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_fit_says_where_it_was_made(field, tmp_path):
    how = gx.Exact(tile=64, memory="1MB")
    fit = gx.fit(field, MODEL, how, fixed=tuple(MODEL.parameters()), trend="zero")
    method = fit.to_dict()["method"]
    assert (method["memory"], method["device_memory"], method["tile"]) == ("1MB", None, 64)
    assert method["on"] == "cpu"


def test_a_bound_that_is_large_enough_is_never_refused():
    seen = testing.observations(300)
    for tile in (300, 150):
        for rule in (gx.uniform("fp64"), gx.uniform("fp16")):
            method = gx.Exact(rule, tile, memory="2GB")
            here = gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5, 0.1), gx.Exact(rule, tile))
            there = gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5, 0.1), method)
            assert there.log_likelihood == here.log_likelihood


def test_fits_on_several_devices_are_saved_and_loaded(tmp_path):
    seen, method = testing.observations(60), gx.Exact(tile=16, on=("cpu", "cpu"))
    fixed = ("variance", "range", "smoothness", "nugget")
    fit = gx.fit(seen, gx.Matern(1.0, 0.1, 0.5, 0.1), method, fixed=fixed)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", on=("cpu", "cpu"))
    assert again.method.placement == method.placement
    there = [[0.5, 0.5]]
    assert gx.predict(again, there).mean[0] == gx.predict(fit, there).mean[0]


@pytest.mark.parametrize("ratio", [1.0, 0.9995])
def test_differences_stay_inside_the_parameters(ratio):
    model = gx.Matern(1.0, 0.2, 0.5, 0.1, anisotropy=gx.Anisotropy(30.0, ratio))
    seen = testing.observations(60)
    exact = gx.Exact().prepare(seen).gradient(model)
    bounded = gx.Exact(tile=16, memory="60kB").prepare(seen).gradient(model)
    for name, value in exact.items():
        assert bounded[name] == pytest.approx(value, rel=1e-2, abs=1e-2), name
