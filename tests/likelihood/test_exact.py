from collections import OrderedDict

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance import sums, table
from geomxp.likelihood import cost, exact, factors
from geomxp.likelihood.base import Derivatives
from geomxp.linalg import device, recursive
from geomxp.runtime import devices
from geomxp.tiles import assemble


@pytest.mark.parametrize("law", testing.LAWS, ids=lambda law: law.__name__)
def test_exact_likelihood_obeys(law):
    testing.check_likelihood(gx.Exact(), laws=[law])


@pytest.mark.gpu
@pytest.mark.parametrize("law", testing.LAWS, ids=lambda law: law.__name__)
def test_exact_likelihood_on_a_gpu_obeys(law):
    testing.check_likelihood(gx.Exact(on="gpu"), laws=[law])


@pytest.mark.gpu
def test_gpu_and_cpu_agree_to_rounding():
    seen = testing.observations(500)
    here = gx.log_likelihood(seen, testing.MODEL)
    there = gx.log_likelihood(seen, testing.MODEL, gx.Exact(on="gpu"))
    tolerance = 10 * len(seen) * 2.0**-53 * testing.condition_number(testing.MODEL, seen)
    assert abs(here.log_likelihood - there.log_likelihood) <= tolerance * abs(here.log_likelihood)


@pytest.mark.gpu
def test_tiles_of_a_gpu_without_room_for_the_inverse_take_differences(monkeypatch):
    seen = testing.observations(300)
    method = gx.Exact(tile=100, on="gpu")
    evaluator = method.prepare(seen)
    assert evaluator.scoring
    given = evaluator.gradient(testing.MODEL)
    monkeypatch.setattr(exact, "free_memory", lambda: 8 * len(seen) ** 2)
    assert evaluator.scoring
    monkeypatch.setattr(devices.Device, "free_memory", lambda device: 2**24 + 10**6)
    assert not evaluator.scoring
    found = method.prepare(seen).gradient(testing.MODEL)
    assert found == pytest.approx(given, rel=1e-3, abs=1e-3 * max(map(abs, given.values())))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("matrices", [1, 2, 12])
def test_a_fit_on_a_gpu_ends_with_standard_errors_whatever_room_it_has(monkeypatch, matrices):
    places = testing.places(300)
    seen = gx.Observations(places, gx.simulate(testing.MODEL, places, seed=1)[0])
    about = {"fixed": ("smoothness",), "progress": False}
    known = gx.fit(seen, testing.MODEL, **about)
    room = cost.bytes_for(len(seen), matrices, devices.Device("gpu:0", 0)) + 1
    monkeypatch.setattr(devices.Device, "free_memory", lambda device: room)
    evaluator = gx.Exact(on="gpu").prepare(seen)
    assert evaluator.scoring
    assert evaluator.has_curvature(("range",)) == (matrices > 2)
    fit = gx.fit(seen, testing.MODEL, gx.Exact(on="gpu"), **about)
    assert fit.log_likelihood == pytest.approx(known.log_likelihood, abs=1e-5)
    for name, error in known.standard_errors.items():
        assert fit.standard_errors[name] == (error and pytest.approx(error, rel=1e-3))


@pytest.fixture
def matrices_made(monkeypatch):
    """The orders of the matrices that were allocated on a GPU."""
    made = []

    def noted(n, index, dtype="float64"):
        made.append(n)
        return device.empty_matrix(n, index, dtype)

    for module in (exact, assemble, recursive):
        monkeypatch.setattr(module, "empty_matrix", noted)
    return made


@pytest.mark.gpu
def test_evaluations_on_a_gpu_share_one_matrix_and_a_factor_has_its_own(matrices_made):
    seen = testing.observations(200)
    evaluator = gx.Exact(on="gpu").prepare(seen)
    for variance in (0.5, 1.0, 2.0):
        model = gx.Matern(variance, 0.2, 0.8, 0.1)
        evaluator(model)
        evaluator.gradient(model)
    assert matrices_made == [200]
    factor = evaluator.factorize(testing.MODEL)
    before = factor.half_solve(seen.values)
    evaluator(model)
    np.testing.assert_array_equal(factor.half_solve(seen.values), before)
    assert matrices_made == [200, 200]
    # the information needs one beside L at a time
    evaluator.expected_information(model)
    assert matrices_made == [200] * 5


@pytest.mark.slow
@pytest.mark.gpu
def test_small_arrays_that_stay_on_a_gpu_cost_no_room_for_a_matrix(monkeypatch):
    import cupy

    # tables that other tests have widened would take the room
    monkeypatch.setattr(table, "tables_kept", OrderedDict())
    seen, targets = testing.observations(600), testing.places(20, seed=9)
    monkeypatch.setattr(recursive, "GPU_LEAF_ORDER", 64)
    monkeypatch.setattr(sums, "BLOCK_ORDER", 64)
    method, pool = gx.Exact(on="gpu"), cupy.get_default_memory_pool()
    pool.free_all_blocks()
    # CuPy's pool cannot reuse a freed matrix when a small array has a part of its memory
    matrix = 8 * len(seen) ** 2
    pool.set_limit(size=pool.total_bytes() + int(1.7 * matrix))
    kept = []
    try:
        evaluator = method.prepare(seen)
        for variance in (0.5, 1.0, 2.0):
            model = gx.Matern(variance, 0.2, 0.8, 0.1)
            evaluator(model)
            kept.append(cupy.zeros(matrix // 20, np.uint8))
            evaluator.information(model, ("range",))
        del evaluator
        kept.append(cupy.zeros(matrix // 4, np.uint8))
        fit = gx.fit(seen, model, method, fixed=tuple(model.parameters()), progress=False)
        kept.append(cupy.zeros(matrix // 20, np.uint8))
        assert np.isfinite(gx.predict(fit, targets, progress=False).mean).all()
    finally:
        pool.set_limit(size=0)


@pytest.mark.gpu
def test_what_the_workspace_has_counts_as_free(monkeypatch):
    seen, device = testing.observations(300), devices.Device("gpu:0", 0)
    evaluator = gx.Exact(on="gpu").prepare(seen)
    evaluator(testing.MODEL)
    # room for one matrix and a half: two are needed
    room = cost.bytes_for(len(seen), 2, device) - 4 * len(seen) ** 2
    monkeypatch.setattr(devices.Device, "free_memory", lambda device: int(room / 0.9))
    assert evaluator.has_curvature(("range",))
    assert not gx.Exact(on="gpu").prepare(seen).has_curvature(("range",))
    evaluator.observed_information(testing.MODEL)


@pytest.mark.slow
@pytest.mark.parametrize("matrices", [3, 6, 20])
@pytest.mark.parametrize("tile", [None, 100])
def test_a_fit_ends_with_standard_errors_whatever_memory_is_left(monkeypatch, tile, matrices):
    places = testing.places(300)
    seen = gx.Observations(places, gx.simulate(testing.MODEL, places, seed=1)[0])
    method = gx.Exact(tile=tile)
    known = gx.fit(seen, testing.MODEL, method, fixed=("smoothness",), progress=False)
    left = cost.bytes_for(len(seen), matrices) + 1
    monkeypatch.setattr(exact, "free_memory", lambda: left)
    fit = gx.fit(seen, testing.MODEL, method, fixed=("smoothness",), progress=False)
    assert fit.log_likelihood == pytest.approx(known.log_likelihood, abs=1e-3)
    for name, error in known.standard_errors.items():
        assert fit.standard_errors[name] == (error and pytest.approx(error, rel=0.02))


@pytest.mark.parametrize("n", [3, 511, 512, 513, 1100])
def test_blocks_cover_the_lower_triangle_once(n):
    count = np.zeros((n, n), dtype=int)
    for rows, columns in assemble.blocks(n):
        count[rows, columns] += 1
    assert (count[np.tril_indices(n)] == 1).all()


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    places, matrices, derivatives = testing.places(1200), [], []
    for cores in (1, 2, 4):
        monkeypatch.setattr("geomxp.runtime.devices.usable_cores", lambda cores=cores: cores)
        matrices.append(np.tril(assemble.covariance_matrix(testing.MODEL, places, "euclidean")))
        change = assemble.derivative_matrix(testing.MODEL, places, "euclidean", "range")
        derivatives.append(np.tril(change))
    for other in (1, 2):
        np.testing.assert_array_equal(matrices[other], matrices[0])
        np.testing.assert_array_equal(derivatives[other], derivatives[0])


@pytest.mark.slow
def test_a_fit_finds_its_start_with_tiles_larger_than_the_subsample():
    places = testing.places(700)
    seen = gx.Observations(places, gx.simulate(testing.MODEL, places, seed=1)[0])
    fits = [
        gx.fit(seen, None, gx.Exact(tile=tile), fixed={"smoothness": 0.5}, progress=False)
        for tile in (None, 350, 700)
    ]
    for fit in fits[1:]:
        assert fit.outcome.good
        assert abs(fit.log_likelihood - fits[0].log_likelihood) < 1e-5


def test_duplicate_places_without_nugget_are_named():
    seen = gx.Observations([[0, 0], [1, 0], [2, 5], [1, 0]], [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(gx.NotPositiveDefinite, match="rows 2 and 4 are at the same location"):
        gx.log_likelihood(seen, gx.Matern(1.0, 1.0, 0.5))
    assert np.isfinite(gx.log_likelihood(seen, gx.Matern(1.0, 1.0, 0.5, 0.1)).log_likelihood)


def test_same_meridian_written_twice_is_one_place():
    seen = gx.Observations(
        [[180.0, 10.0], [-180.0, 10.0], [0.0, 90.0], [40.0, 90.0]],
        [1.0, 2.0, 3.0, 4.0],
        metric="chordal",
    )
    assert seen.duplicate() == (0, 1)
    found = gx.Matern(1.0, 10.0, 0.5)(seen.locations, seen.locations, "chordal")
    assert found[0, 1] == found[2, 3] == 1.0
    assert seen.subset([2, 0, 3]).duplicate() == (0, 2)


def test_field_too_smooth_for_fp64_names_the_closest_places():
    seen = gx.Observations(np.random.default_rng(0).random((200, 2)), np.zeros(200))
    with pytest.raises(
        gx.NotPositiveDefinite, match=r"closest locations are rows \d+ and \d+: give"
    ):
        gx.log_likelihood(seen, gx.Matern(1.0, 10.0, 5.0))


def test_a_search_sees_minus_infinity_where_an_answer_raises():
    seen = gx.Observations(np.random.default_rng(0).random((200, 2)), np.zeros(200))
    evaluation = gx.Exact().prepare(seen)(gx.Matern(1.0, 10.0, 5.0))
    assert evaluation.log_likelihood == -np.inf
    assert evaluation.outcome.ending == "NOT_POSITIVE_DEFINITE"


def test_memory_is_compared_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(factors, "free_memory", lambda: 3_100_000_000)
    seen = gx.Observations(np.arange(31_000.0), np.ones(31_000))
    with pytest.raises(gx.NotEnoughMemory, match=r"needs 7\.\d GB of memory, 3\.1 GB free"):
        gx.log_likelihood(seen, gx.Matern(1.0, 1.0, 0.5))


def test_values_at_the_ends_of_fp64_have_a_likelihood():
    seen = testing.observations(40)
    plain = gx.log_likelihood(seen, gx.Matern(1.0, 0.2, 0.7, 0.1)).log_likelihood
    for c in (2.0**500, 2.0**-500):
        model = gx.Matern(c**2, 0.2, 0.7, 0.1 * c**2)
        scaled = gx.Observations(seen.locations, seen.values * c)
        found = gx.log_likelihood(scaled, model).log_likelihood
        assert found == pytest.approx(plain - 40 * np.log(c), rel=1e-12)


@pytest.mark.parametrize(
    ("on", "message"),
    [("tpu", '`on` must be "cpu"'), ("gpu:x", '`on` must be "cpu"'), ("gpu-1", "`on` must be")],
)
def test_unknown_devices_are_refused(on, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Exact(on=on).prepare(testing.observations())


def test_a_missing_gpu_is_said_aloud(monkeypatch):
    monkeypatch.setattr(devices, "gpu_count", lambda: 0)
    with pytest.raises(gx.MissingDevice, match="this machine has 0"):
        gx.Exact(on="gpu").prepare(testing.observations())


def test_formats_that_do_not_exist_are_refused():
    with pytest.raises(gx.InvalidInput, match="must be one of: fp64"):
        gx.uniform("fp13")


def test_evaluation_prints_and_converts():
    evaluation = gx.log_likelihood(testing.observations(), testing.MODEL)
    assert f"{evaluation.log_likelihood:.12g}" in str(evaluation)
    document = evaluation.to_dict()
    assert document["formats"] == {"fp64": 1}
    assert document["outcome"] == "COMPUTED"


def test_plans_of_what_is_no_number_of_locations_or_too_many_tiles_are_refused():
    for wrong in (True, 0, 10**400, "3"):
        with pytest.raises(gx.InvalidInput, match="`locations` must be"):
            gx.Exact().plan(wrong)
    with pytest.raises(gx.InvalidInput, match=r"give Exact\(tile=20\) or more"):
        gx.Exact(tile=1).plan(100_000)
    with pytest.raises(gx.InvalidInput, match="`model` must be a covariance model"):
        gx.Exact().plan(10, 3)


def test_trends_and_values_of_the_wrong_kind_are_refused():
    seen = gx.Observations(testing.places(9), np.ones(9))
    with pytest.raises(gx.InvalidInput, match="`trend` must be one of"):
        gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5), trend=np.ones(3))
    with pytest.raises(gx.InvalidInput, match="`values` must be an array of numbers"):
        gx.Observations(testing.places(3), [1, 2, 10**400])


def test_an_evaluation_that_overflows_says_how_long_it_took():
    seen = gx.Observations(testing.places(5), [1e200, -1e200, 1.0, 2.0, 3.0])
    with np.errstate(over="ignore"):
        found = gx.Exact().prepare(seen)(testing.MODEL)
    assert found.log_likelihood == -np.inf
    assert 0 < found.seconds < 60


def test_cross_terms_that_are_too_large_for_an_information_are_left_out():
    information, other = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[3.0, 0.1], [0.1, 2.0]])
    one = Derivatives(("a", "b"), np.array([1.0, 2.0]), information)
    names, order, score = ("c", "a", "d", "b"), [2, 0, 3, 1], np.array([3.0, 4.0])
    for size in (0.1, 10.0):
        cross = size * np.array([[1.0, 2.0], [3.0, 4.0]])
        found = one.joined(names, order, score, cross, other)
        kept = cross if size < 1 else 0 * cross
        expected = np.block([[information, kept], [kept.T, other]])[np.ix_(order, order)]
        np.testing.assert_array_equal(found.information, expected)
        assert found.score.tolist() == [3.0, 1.0, 4.0, 2.0]
        assert found.names == names
