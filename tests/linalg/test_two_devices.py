"""Work on a GPU that is not the current one, and on two of them."""

import gc

import numpy as np
import pytest
import scipy.linalg

import geomxp as gx
from geomxp import testing
from geomxp.linalg import batched, nested, recursive
from geomxp.linalg.formats import FP16, FP32, FP64, named, quantize
from geomxp.linalg.nested import SymmetricTree
from geomxp.runtime.devices import gpu_count
from geomxp.tiles import assemble, refine

pytestmark = pytest.mark.gpu

ONE, BOTH = "gpu:1", ("gpu:0", "gpu:1")
TILES, OUT_OF_CORE = {"tile": 40}, {"tile": 40, "device_memory": "1MB"}
PLACES = {
    "one matrix": {"on": ONE},
    "tiles": {"on": ONE} | TILES,
    "out of core": {"on": ONE} | OUT_OF_CORE,
    "two GPUs": {"on": BOTH} | TILES,
    "two GPUs out of core": {"on": BOTH} | OUT_OF_CORE,
}
TILED = [name for name in PLACES if name != "one matrix"]
RULES = [
    gx.uniform("fp32"),
    gx.by_tile_norm(1e-6),
    gx.layered("fp16", "fp32"),
    gx.by_band(("bf16", 1), "fp8"),
]
LAYERS = [("fp64",), ("fp32",), ("fp16", "fp32"), ("fp8", "bf16", "fp64")]
U = FP64.unit_roundoff


@pytest.fixture(autouse=True)
def two_devices():
    """Skip where there is one GPU; leave the first one the current one."""
    if gpu_count() < 2:
        pytest.skip("needs two GPUs; this machine has one")
    import cupy

    yield
    assert cupy.cuda.Device().id == 0


@pytest.fixture
def gpu_0_unused():
    """Assert that no array has been allocated on the first GPU."""
    import cupy

    pool = cupy.get_default_memory_pool()
    gc.collect()
    pool.free_all_blocks()
    before = pool.total_bytes()
    yield
    assert pool.total_bytes() <= before


@pytest.fixture(scope="module")
def seen():
    places = testing.places(100)
    return gx.Observations(places, gx.simulate(testing.MODEL, places, seed=1)[0])


def on_gpu_1(array, order="F"):
    import cupy

    with cupy.cuda.Device(1):
        return cupy.asarray(array, order=order)


def assert_same(found, expected, tolerance):
    assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def positive_definite(n=300):
    x = np.random.default_rng(3).standard_normal((n, n))
    return x @ x.T / n + np.eye(n)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_likelihood_derivatives_and_predictions_are_those_of_the_cpu(place, seen):
    model, targets = testing.MODEL, testing.places(10, seed=9)
    tolerance = 10 * len(seen) * U * testing.condition_number(model, seen)
    names, found = tuple(model.parameters()), []
    for method in (gx.Exact(**PLACES[place] | {"on": "cpu"}), gx.Exact(**PLACES[place])):
        evaluator = method.prepare(seen)
        derivatives = evaluator.derivatives(model, names, curvature=True)
        fit = gx.fit(seen, model, method, fixed=names, progress=False)
        prediction = gx.predict(fit, targets, progress=False)
        found.append(
            (
                gx.log_likelihood(seen, model, method).log_likelihood,
                *(derivatives.quadratic, derivatives.trace, derivatives.expected),
                *(prediction.mean, prediction.variance),
                gx.simulate(model, seen, 3, method=method, progress=False),
            )
        )
    for expected, got in zip(*found, strict=True):
        assert_same(got, expected, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("place", TILED)
def test_a_divergence_is_that_of_the_stored_factor(place, seen):
    method = gx.Exact(gx.uniform("fp16"), **PLACES[place])
    factor = method.prepare(seen.inputs).factorize(testing.MODEL)
    places = seen.locations[factor.order]
    sigma = testing.MODEL(places, places) + testing.MODEL.nugget * np.eye(len(places))
    root, exact = factor.dense(), np.linalg.cholesky(sigma)
    white = scipy.linalg.solve_triangular(root, exact, lower=True)
    logs = np.log(root.diagonal() / exact.diagonal()).sum()
    expected = 0.5 * (np.sum(white**2) - len(places)) + logs
    found = gx.kl_divergence(testing.MODEL, seen.inputs, method).kl
    assert found == pytest.approx(expected, rel=1e-6)


def test_methods_on_two_gpus_have_one_reference(seen):
    methods = [gx.Exact(gx.uniform("fp16"), 40, on=on) for on in BOTH]
    one, other = gx.compare(testing.MODEL, seen.inputs, methods)
    assert one.kl == other.kl > 0


@pytest.mark.slow
@pytest.mark.parametrize("place", ["one matrix", "tiles", "two GPUs out of core"])
def test_a_fit_is_that_of_the_cpu(place, seen):
    known, fit = (
        gx.fit(seen, testing.MODEL, method, fixed=("smoothness",), progress=False)
        for method in (gx.Exact(), gx.Exact(**PLACES[place]))
    )
    assert fit.log_likelihood == pytest.approx(known.log_likelihood, abs=1e-5)
    for name, error in known.standard_errors.items():
        assert fit.standard_errors[name] == (error and pytest.approx(error, rel=1e-3))


@pytest.mark.slow
@pytest.mark.parametrize("place", TILED)
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_mixed_tiles_are_as_near_to_the_matrix_as_their_formats_promise(rule, place, seen):
    model = testing.MODEL
    factor = gx.Exact(rule, **PLACES[place]).prepare(seen).factorize(model)
    locations = seen.locations[factor.order]
    sigma = model(locations, locations) + model.nugget * np.eye(len(seen))
    lower = factor.dense()
    allowed = 2 * factor.precision_map.error + len(seen) ** 0.5 * FP32.unit_roundoff
    assert_same(lower @ lower.T, sigma, allowed)
    b = np.random.default_rng(4).standard_normal((len(seen), 2))
    assert_same(lower @ factor.half_solve(b), b[factor.order], 10 * len(seen) * U * 100)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_nothing_is_computed_on_a_gpu_that_was_not_asked_for(rule, seen):
    evaluator = gx.Exact(rule, on=ONE, tile=40).prepare(seen, np.ones((len(seen), 1)), True)
    evaluator(testing.MODEL)
    evaluator.gradient(testing.MODEL)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("form", [FP64, FP32], ids=str)
def test_a_careful_tile_is_rounded_where_it_was_generated(form, out, seen):
    here, there = (
        assemble.originals(testing.MODEL, seen.locations, seen.metric, 40, index)
        for index in (None, 1)
    )
    place = on_gpu_1(np.zeros((40, 40), form.dtype)) if out else None
    tile = there.tile(1, 0, form, careful=True, out=place)
    assert tile.device.id == 1
    np.testing.assert_array_equal(tile.get(), here.tile(1, 0, form, careful=True))


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
def test_dense_operations_stay_on_the_gpu_of_their_operands(monkeypatch):
    monkeypatch.setattr(recursive, "GPU_LEAF_ORDER", 64)
    a, b = positive_definite(), np.random.default_rng(5).standard_normal((300, 3))
    lower = np.linalg.cholesky(a)
    back = np.linalg.inv(lower)
    there, ones = on_gpu_1(lower), np.ones(300)
    for found, expected in (
        (recursive.potrf(on_gpu_1(a)), lower),
        (recursive.trsm(there, on_gpu_1(b)), back @ b),
        (recursive.trsm(there, on_gpu_1(b), True), back.T @ b),
        (recursive.trmm(there, on_gpu_1(b)), lower @ b),
        (
            recursive.whitened_diagonal(recursive.inverted(on_gpu_1(lower)), ones),
            back @ back.T,
        ),
        (recursive.congruence(there, on_gpu_1(a)), np.eye(300)),
        (recursive.potri(there), back.T @ back),
    ):
        assert found.device.id == 1
        found = found.get()
        if expected.shape == (300, 300):
            found, expected = np.tril(found), np.tril(expected)
        assert_same(found, expected, 1e-12)


def views_of(numbers, layout):
    """The same numbers as a view of NumPy's and of the second GPU's."""
    step, order = {"columns": (1, "F"), "rows": (1, "C"), "strided": (2, "F")}[layout]
    whole = np.zeros([step * size for size in numbers.shape], order=order)
    whole[::step, ::step] = numbers
    return whole[::step, ::step], on_gpu_1(whole, order)[::step, ::step]


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
@pytest.mark.parametrize("layout", ["columns", "rows", "strided"])
@pytest.mark.parametrize("layers", LAYERS, ids=str)
def test_recursions_stay_on_the_gpu_of_their_operands(layers, layout):
    # of two levels, and a last block that is smaller
    n, columns = 75, 20
    a, b = positive_definite(n), np.random.default_rng(5).standard_normal((n, columns))
    # far from 1, so that coarse formats need a scaled copy
    scale = np.exp2(np.round(np.linspace(-20, 20, n)))
    lower, about = np.linalg.cholesky(a), {"layers": layers, "leaf": 16}
    cases = [
        (nested.potrf, (a,)),
        (nested.potrf, (a * scale[:, None] * scale,)),
        (nested.trsm, (lower, b)),
        (nested.trmm, (lower, b)),
        (nested.syrk, (b,)),
        (nested.syrk, (b, a)),
    ]
    # entries that a sum in another order rounds to the neighbouring number
    tolerance = 4 * max(100 * FP32.unit_roundoff, *(named(name).unit_roundoff for name in layers))
    for function, arrays in cases:
        here, there = zip(*(views_of(x, layout) for x in arrays), strict=True)
        expected, found = function(*here, **about), function(*there, **about)
        assert found.device.id == 1
        unit = scale[:, None] if function is nested.potrf and arrays[0] is not a else 1.0
        expected, found = (x if x.shape == b.shape else np.tril(x) for x in (expected, found.get()))
        assert_same(found / unit, expected / unit, tolerance)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
@pytest.mark.parametrize("layers", LAYERS, ids=str)
def test_a_tree_stays_on_the_gpu_of_its_matrix(layers):
    a, b = positive_definite(100), np.random.default_rng(5).standard_normal(100)
    here, there = (
        SymmetricTree(x, layers, leaf=32).potrf() for x in (np.asfortranarray(a), on_gpu_1(a))
    )
    tolerance = 4 * max(100 * FP32.unit_roundoff, *(named(name).unit_roundoff for name in layers))
    assert_same(there.log_determinant(), here.log_determinant(), tolerance)
    assert_same(there.solve(b).get(), here.solve(b), tolerance)
    assert_same(there.to_dense().get(), here.to_dense(), tolerance)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
def test_casts_stay_on_the_gpu_of_their_operands():
    a = np.random.default_rng(6).standard_normal((90, 70))
    for order in ("F", "C"):
        there = on_gpu_1(a, order)
        panel = recursive.Panel(FP16, a.shape, there)
        panel.put(slice(0, 70), there)
        wide = on_gpu_1(np.zeros((90, 70)), order)
        panel.widen(slice(0, 90), slice(0, 70), wide)
        np.testing.assert_allclose(wide.get(), a, rtol=2 * FP16.unit_roundoff)
        tile = quantize(there, FP16)
        assert tile.values.device.id == 1
        np.testing.assert_allclose(tile.widen().get(), a, rtol=2 * FP16.unit_roundoff)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_batches_stay_on_the_gpu_of_their_operands(dtype):
    x = np.random.default_rng(7).integers(-2, 3, (5, 9, 9))
    a = (x @ x.transpose(0, 2, 1) + 9 * np.eye(9)).astype(dtype)
    b = np.ones((5, 9), dtype)
    for some in (slice(0, 5), slice(0, 0)):
        lower = batched.potrf(on_gpu_1(a, "C")[some])
        found = batched.solve(lower, on_gpu_1(b, "C")[some])
        assert lower.device.id == found.device.id == 1
        expected = batched.solve(batched.potrf(a[some]), b[some])
        np.testing.assert_allclose(found.get(), expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_0_unused")
def test_vecchias_likelihood_stays_on_its_gpu(seen):
    here, there = (gx.Vecchia(20, on=on).prepare(seen) for on in ("cpu", ONE))
    assert there(testing.MODEL).log_likelihood == pytest.approx(
        here(testing.MODEL).log_likelihood, rel=1e-10
    )
    expected, found = here.gradient(testing.MODEL), there.gradient(testing.MODEL)
    assert found == pytest.approx(expected, rel=1e-8)
    b = np.ones(len(seen))
    assert_same(
        there.factorize(testing.MODEL).solve(b), here.factorize(testing.MODEL).solve(b), 1e-10
    )


@pytest.mark.parametrize("name", ["trsm", "trmm"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_triangular_operations_scale_on_the_gpu_of_their_operands(name, alpha):
    lower = np.linalg.cholesky(positive_definite(60))
    b = np.random.default_rng(4).standard_normal((60, 7))
    expected = getattr(nested, name)(lower.copy(), b.copy(), alpha=alpha)
    found = getattr(nested, name)(on_gpu_1(lower), on_gpu_1(b), alpha=alpha)
    assert found.device.id == 1
    assert_same(found.get(), expected, 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["F", "C"])
def test_a_matrix_of_the_second_gpu_is_solved_there(order, gpu_0_unused):
    a, b = positive_definite(), np.ones(300)
    matrix = on_gpu_1(a, order)
    found = refine.solve(matrix, b, tile=64)
    assert found.outcome.good
    assert found.solution.device.id == 1
    np.testing.assert_allclose(found.solution.get(), np.linalg.solve(a, b), rtol=1e-8)


@pytest.mark.slow
def test_a_refined_factor_of_the_second_gpu_solves_there(seen, gpu_0_unused):
    method = gx.Exact(gx.by_tile_norm(1e-4), 40, on=ONE, refine="gmres")
    found = gx.log_likelihood(seen, testing.MODEL, method).quadratic_form
    assert found == pytest.approx(gx.log_likelihood(seen, testing.MODEL).quadratic_form, rel=1e-11)
