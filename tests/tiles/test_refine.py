"""FP64 answers from low-precision factors."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geomxp as gx
from geomxp.benchmarks.spectra import SPECTRA, spd_matrix
from geomxp.errors import Ending, InvalidInput, NotPositiveDefinite, NotRefined
from geomxp.linalg.formats import FP32, FP64, quantize
from geomxp.tiles import assemble, refine
from geomxp.tiles.cholesky import factorize
from geomxp.tiles.layout import Layout
from geomxp.tiles.refine import Dense, Preconditioner, Regenerated
from geomxp.tiles.stores import InCore

METHODS = ("ir", "cg", "gmres")


def backward_error(a, x, b):
    """‖b - Ax‖∞ / (n ‖A‖∞), the paper's."""
    return np.abs(b - a @ x).max() / (len(a) * np.abs(a).sum(axis=1).max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("precision", ["fp8", "bf16", "fp16", "fp32-fp16", "fp32", "fp64"])
def test_any_factor_solves_to_fp64(method, precision):
    a, b = spd_matrix("arithmetic", 200, 50.0), np.random.default_rng(0).random(200)
    found = refine.solve(a, b, gx.uniform(precision), method=method, tile=48)
    assert found.outcome.ending is Ending.CONVERGED
    assert backward_error(a, found.solution, b) <= 1e-14
    assert found.iterations >= 1
    assert found.history[-1][1] == found.residual


def factored(a, precision, shift=0.0, tile=64):
    """Return the store of the factor of D⁻¹AD⁻¹ + c·u·I, and that matrix."""
    source = Dense(a, Layout(len(a), tile))
    source.shift = shift * 2.0**-11
    store = InCore(source, gx.uniform(precision)(np.ones((source.layout.tiles,) * 2)))
    factorize(store)
    scaled = a / source.scale / source.scale[:, None]
    return store, scaled + source.shift * np.eye(len(a))


def dense(store):
    """Return L of a store, (n, n)."""
    layout = store.layout
    lower = np.zeros((layout.n, layout.n))
    for i in range(layout.tiles):
        for k in range(i + 1):
            lower[layout.rows(i), layout.rows(k)] = store.final(i, k).widen()
    return np.tril(lower)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_a_factor_in_fp32_of_fp16_products_is_the_fp16_factor_before_it_is_rounded(spectrum):
    a = spd_matrix(spectrum, 250, 1e2)
    rounded, _ = factored(a, "fp16")
    kept, _ = factored(a, "fp32-fp16")
    assert kept.formats.counts() == {"fp32": 4, "fp32-fp16": 6}
    for i in range(4):
        for k in range(i + 1):
            tile = kept.final(i, k)
            assert tile.values.dtype == np.float32
            # casts are kept while a column of the factorization reads them
            assert not tile.casts
            expected = quantize(tile.values, "fp16").widen() if i > k else tile.widen()
            np.testing.assert_array_equal(rounded.final(i, k).widen(), expected)
    assert any(
        (tile.widen() != quantize(tile.values, "fp16").widen()).any()
        for tile in [kept.final(i, k) for i in range(4) for k in range(i)]
    )
    assert kept.bytes == kept.formats.bytes(kept.layout)


@pytest.mark.parametrize("condition", [10.0, 1e2, 1e4])
def test_of_well_conditioned_matrices_its_error_lies_between_those_of_fp32_and_fp16(condition):
    a, errors = spd_matrix("arithmetic", 250, condition), {}
    for precision in ("fp32", "fp32-fp16", "fp16"):
        store, matrix = factored(a, precision)
        lower = dense(store)
        errors[precision] = np.linalg.norm(matrix - lower @ lower.T)
    assert 10 * errors["fp32"] < errors["fp32-fp16"] < errors["fp16"]


@pytest.mark.parametrize("spectrum", ["clustered", "logarithmic", "geometric"])
def test_without_a_shift_both_factors_of_fp16_products_fail_at_the_same_tile(spectrum):
    a, orders = spd_matrix(spectrum, 512, 1e8), set()
    for precision in ("fp16", "fp32-fp16"):
        source = Dense(a, Layout(512, 64))
        store = InCore(source, gx.uniform(precision)(np.ones((8, 8))))
        # without promotion
        with pytest.raises(NotPositiveDefinite) as failure:
            store.run(store.order())
        final = [store.has(k, k) for k in range(8)]
        orders.add((failure.value.order, tuple(final)))
    [(_, final)] = orders
    assert final[0]
    assert not final[-1]


def test_the_shift_is_a_multiple_of_the_roundoff_of_products():
    a, b = spd_matrix("custom-clustered", 256, 1e4), np.random.default_rng(1).random(256)
    for precision, u in (("fp16", 2.0**-11), ("fp32-fp16", 2.0**-11), ("fp32", 2.0**-24)):
        found = refine.solve(a, b, gx.uniform(precision), shift=10.0, scaling=True)
        assert found.shift == 10.0 * u
        assert found.outcome.good


@pytest.mark.slow
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_every_method_and_factor_has_the_same_solution(spectrum):
    a, b = spd_matrix(spectrum, 200, 1e3), np.random.default_rng(0).standard_normal((200, 2))
    exact = np.linalg.solve(a, b)
    for method in METHODS:
        for precision in ("fp16", "fp32-fp16", "fp32"):
            found = refine.solve(a, b, gx.uniform(precision), method=method, tile=64)
            assert found.outcome.good
            assert backward_error(a, found.solution, b) <= 1e-14 * np.abs(b).max()
            # κ₂ times the accepted residual, n ‖A‖∞ 1e-14
            error = np.abs(found.solution - exact).max()
            assert error <= 1e3 * 200 * np.abs(a).sum(axis=1).max() * 1e-14 * np.abs(b).max()


@pytest.mark.slow
def test_rounding_of_a_scaled_clustered_matrix_grows_with_its_order_and_of_the_plain_one_not():
    """The first block column rounded to FP16: ‖E‖₂ of the Schur complement, in units of u."""
    ratios = {}
    for n in (256, 1024):
        a, t = spd_matrix("clustered", n, 1e8), 64
        d = np.sqrt(a.diagonal())
        for name, matrix in (("scaled", a / d / d[:, None]), ("plain", a)):
            shifted = matrix[:t, :t] + 2.0**-11 * np.eye(t)
            lower = np.linalg.solve(np.linalg.cholesky(shifted), matrix[:t, t:]).T
            rounded = quantize(np.asfortranarray(lower), "fp16").widen()
            error = np.linalg.norm(lower @ lower.T - rounded @ rounded.T, 2)
            ratios[name, n] = error / 2.0**-11
    assert ratios["scaled", 1024] > 3 * ratios["scaled", 256] > 50
    assert ratios["plain", 1024] < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spectrum", "condition", "options", "most"),
    [
        ("arithmetic", 1e2, {}, 5),
        ("arithmetic", 1e4, {}, 8),
        ("clustered", 1e2, {}, 4),
        ("clustered", 1e8, {"scaling": False, "shift": 0.4}, 8),
        ("logarithmic", 1.7e5, {"shift": 0.4}, 38),
        ("geometric", 1.7e5, {"shift": 0.4}, 38),
        ("custom-clustered", 1e4, {"shift": 10.0}, 20),
    ],
)
def test_the_papers_spectra_converge_in_about_the_papers_iterations(
    spectrum, condition, options, most
):
    a, b = spd_matrix(spectrum, 1024, condition), np.random.default_rng(1).random(1024)
    found = refine.solve(a, b, method="gmres", **options)
    assert found.outcome.ending is Ending.CONVERGED, found.outcome
    assert found.iterations <= most
    direct = backward_error(a, np.linalg.solve(a, b), b)
    assert backward_error(a, found.solution, b) <= max(1e-14, 4 * direct)


def test_classic_refinement_fails_aloud_where_the_paper_says_so():
    a, b = spd_matrix("clustered", 512, 1e8), np.random.default_rng(1).random(512)
    found = refine.solve(a, b, method="ir", scaling=False, shift=0.4)
    assert not found.outcome.good
    assert "use a finer factor" in found.outcome.message


def test_without_a_shift_a_hard_spectrum_has_no_fp16_factor():
    a, b = spd_matrix("geometric", 512, 1.7e5), np.ones(512)
    with pytest.raises(
        NotPositiveDefinite, match="a finer precision, a larger shift, or fallback="
    ):
        refine.solve(a, b, method="gmres", shift=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spectrum", "condition", "scaled", "c"),
    [
        ("arithmetic", 1e4, True, 0.0),
        ("clustered", 1e8, True, 0.4),
        ("logarithmic", 1.7e5, True, 0.4),
        ("geometric", 1.7e5, True, 0.4),
        ("custom-clustered", 1e4, True, 0.4),
    ],
)
def test_scaling_and_shift_are_chosen_for_each_spectrum(spectrum, condition, scaled, c):
    a, b = spd_matrix(spectrum, 512, condition), np.random.default_rng(1).random(512)
    found = refine.solve(a, b)
    assert found.outcome.ending is Ending.CONVERGED, found.outcome
    assert (found.scaled, found.shift) == (scaled, c * 2.0**-11)
    given = refine.solve(a, b, scaling=scaled, shift=c)
    np.testing.assert_array_equal(found.solution, given.solution)


def test_a_setting_that_is_given_is_kept():
    a, b = spd_matrix("clustered", 256, 1e8), np.random.default_rng(1).random(256)
    assert refine.solve(a, b, scaling=False).scaled is False
    assert refine.solve(a, b, shift=0.4).shift == 0.4 * 2.0**-11
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(NotPositiveDefinite, match=r"use a finer precision, or fallback=True$"):
        refine.solve(indefinite, np.ones(2))
    with pytest.raises(NotPositiveDefinite, match=r"not positive in FP64$"):
        refine.solve(indefinite, np.ones(2), fallback=True)
    assert refine.solve(np.eye(3), np.ones(3), scaling=False).shift == 0.0
    with pytest.raises(gx.InvalidInput, match="`shift` must be at least 0"):
        refine.solve(np.eye(3), np.ones(3), shift="")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_fallback_ends_in_fp64(method):
    a, b = spd_matrix("geometric", 200, 1e9), np.random.default_rng(0).random(200)
    found = refine.solve(a, b, method=method, fallback=True, tile=64)
    assert found.outcome.good
    assert set(found.formats) == {"fp64"}


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(0, 4), st.integers(1, 40), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_shapes_of_all_kinds(n, columns, tile, seed):
    rng = np.random.default_rng(seed)
    a = spd_matrix("arithmetic", n, 20.0, seed)
    b = rng.standard_normal((n, columns) if columns else n) * 10.0 ** rng.integers(-200, 200)
    found = refine.solve(a, b, tile=min(tile, n))
    assert found.solution.shape == b.shape
    expected = np.linalg.solve(a, b)
    np.testing.assert_allclose(
        found.solution, expected, rtol=0, atol=1e-11 * np.abs(expected).max()
    )


def test_the_scale_of_the_matrix_does_not_matter():
    a, b = spd_matrix("arithmetic", 100, 50.0), np.random.default_rng(0).random(100)
    d = 4.0 ** np.random.default_rng(1).integers(-100, 100, 100)
    plain = refine.solve(a, b, tile=32)
    badly = refine.solve(a * d[:, None] * d, d * b, tile=32)
    # powers of four have exact roots: the same bits
    np.testing.assert_array_equal(badly.solution * d, plain.solution)
    large = refine.solve(2.0**200 * a, 2.0**-300 * b, tile=32, scaling=False)
    small = refine.solve(a, b, tile=32, scaling=False)
    np.testing.assert_array_equal(large.solution * 2.0**500, small.solution)


def test_without_tile_scales_the_range_scaling_is_what_keeps_fp16_digits():
    a, b = spd_matrix("geometric", 200, 1e3), np.ones(200)
    rule = _unscaled_fp16
    alone = refine.solve(a * 1e-3, b, rule, scaling=False, shift=0.4, tile=50)
    scaled = refine.solve(a * 1e-3, b, rule, scaling=False, shift=0.4, tile=50, range_scaling=0.1)
    assert scaled.outcome.good
    assert scaled.iterations <= alone.iterations


def _unscaled_fp16(norms):
    return replace(gx.uniform("fp16")(norms), scale=False)


def test_only_the_lower_triangle_is_looked_at():
    a, b = spd_matrix("arithmetic", 50, 10.0), np.ones(50)
    damaged = np.tril(a) + np.triu(np.full((50, 50), np.nan), 1)
    np.testing.assert_array_equal(
        refine.solve(damaged, b, tile=16).solution, refine.solve(a, b, tile=16).solution
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": np.ones((2, 3))}, "`a` must be square"),
        ({"b": np.ones(7)}, "`b` must have 4 rows"),
        ({"b": np.array([1.0, np.nan, 0.0, 0.0])}, "`b` contains a NaN"),
        ({"shift": -1.0}, "`shift` must be at least 0"),
        ({"method": "qmr"}, "`method` must be one of: ir, cg, gmres"),
    ],
)
def test_wrong_input_is_named(change, words):
    given_ = {"a": np.eye(4), "b": np.ones(4)} | change
    a, b = given_.pop("a"), given_.pop("b")
    with pytest.raises(InvalidInput, match=words):
        refine.solve(a, b, **given_)


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan, np.inf])
def test_a_bad_diagonal_is_named(bad):
    a = np.eye(5)
    a[3, 3] = bad
    with pytest.raises(NotPositiveDefinite, match="diagonal entry 4"):
        refine.solve(a, np.ones(5))


MODEL = gx.Matern(1.0, 0.1, 0.5, 1e-4)


def field(n=400, seed=0):
    places = np.random.default_rng(seed).random((n, 2))
    return gx.Observations(places, gx.simulate(MODEL, places, seed=1)[0])


def test_regenerated_products_are_those_of_the_matrix():
    from geomxp.tiles.assemble import originals

    seen = field(150)
    product = Regenerated(originals(MODEL, seen.locations, "euclidean", 40))
    sigma = MODEL(seen.locations, seen.locations) + MODEL.nugget * np.eye(150)
    sigma /= 4.0**product.originals.exponent
    x = np.random.default_rng(0).standard_normal((150, 3))
    np.testing.assert_allclose(product.multiply(x), sigma @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(product.norm, np.abs(sigma).sum(axis=1).max(), rtol=1e-13)


def test_a_dense_source_gives_the_scaled_and_shifted_matrix():
    a = spd_matrix("arithmetic", 30, 10.0) * np.linspace(1, 9, 30) * np.linspace(1, 9, 30)[:, None]
    source = Dense(np.asfortranarray(a), Layout(30, 7))
    source.shift, source.multiple = 0.25, 4.0
    d = np.sqrt(a.diagonal())
    expected = 4.0 * (a / d / d[:, None] + 0.25 * np.eye(30))
    layout = source.layout
    for i in range(layout.tiles):
        for k in range(i + 1):
            np.testing.assert_allclose(
                source.tile(i, k), expected[layout.rows(i), layout.rows(k)], rtol=1e-14, atol=1e-15
            )


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("trend", ["zero", "linear"])
@pytest.mark.parametrize("reml", [False, True])
def test_quadratic_forms_and_trends_are_fp64s(method, trend, reml):
    seen, rule = field(), gx.by_tile_norm(1e-4)
    exact = gx.log_likelihood(seen, MODEL, trend=trend, reml=reml)
    mixed = gx.log_likelihood(seen, MODEL, gx.Exact(rule, 64), trend=trend, reml=reml)
    fine = gx.log_likelihood(seen, MODEL, gx.Exact(rule, 64, refine=method), trend=trend, reml=reml)
    assert abs(fine.quadratic_form / exact.quadratic_form - 1) < 1e-11
    assert abs(fine.quadratic_form - exact.quadratic_form) < 1e-3 * abs(
        mixed.quadratic_form - exact.quadratic_form
    )
    np.testing.assert_allclose(fine.coefficients, exact.coefficients, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(fine.coefficient_covariance, exact.coefficient_covariance, rtol=1e-9)
    # what is not refined is said
    assert fine.log_determinant == mixed.log_determinant
    assert fine.refinement.method == method
    assert fine.to_dict()["refinement"]["not_refined"] == ["log_determinant"]
    assert "all but the log-determinant" in str(fine)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("spectrum", ["arithmetic", "clustered", "logarithmic"])
def test_a_cupy_array_is_solved_as_a_numpy_array(spectrum, method):
    import cupy

    a, b = spd_matrix(spectrum, 120, 1e2), np.random.default_rng(0).random((120, 2))
    there = cupy.asfortranarray(cupy.asarray(np.tril(a) + np.triu(np.full_like(a, np.nan), 1)))
    expected = refine.solve(a, b, method=method, tile=32)
    found = refine.solve(there, cupy.asarray(b), method=method, tile=32)
    assert found.outcome.ending is Ending.CONVERGED
    assert (found.scaled, found.shift) == (expected.scaled, expected.shift)
    assert abs(found.iterations - expected.iterations) <= 1
    assert isinstance(found.solution, cupy.ndarray)
    assert backward_error(a, found.solution.get(), b) <= 1e-14
    assert np.isnan(there.get()).sum() == 120 * 119 // 2


@pytest.mark.gpu
@pytest.mark.parametrize("scaling", [True, False])
def test_tiles_of_a_cupy_array_are_those_of_a_numpy_array(scaling):
    import cupy

    a = spd_matrix("geometric", 70, 1e4) * np.linspace(1, 9, 70) * np.linspace(1, 9, 70)[:, None]
    layout = Layout(70, 32)
    one = Dense(np.asfortranarray(a), layout, scaling)
    two = refine.DenseOnGpu(cupy.asfortranarray(cupy.asarray(a)), layout, scaling)
    for source in (one, two):
        source.shift, source.multiple = 0.25, 4.0
    for i, k in layout.lower:
        for form in (FP32, FP64):
            found, expected = two.tile(i, k, form), one.tile(i, k, form)
            assert found.dtype == form.dtype
            np.testing.assert_allclose(found.get(), expected, rtol=4 * form.unit_roundoff)
    np.testing.assert_allclose(two.norms(), one.norms(), rtol=1e-14)
    assert two.norm == pytest.approx(one.norm, rel=1e-14)
    x = np.random.default_rng(0).standard_normal((70, 2))
    np.testing.assert_allclose(two.multiply(x), one.multiply(x), rtol=1e-12, atol=1e-12)
    for view, other in zip(two.original(x), one.original(x), strict=True):
        np.testing.assert_allclose(view(x), other(x), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("form", ["C order", "FP32", "integers", "a view", "one row"])
def test_arrays_of_a_gpu_may_have_any_form(form):
    import cupy

    n = 1 if form == "one row" else 50
    a = np.round(64 * spd_matrix("arithmetic", n, 10.0)) + 8 * np.eye(n)
    whole = np.zeros((2 * n, 2 * n))
    whole[::2, ::2] = a
    forms = {
        "C order": lambda: cupy.asarray(a, order="C"),
        "FP32": lambda: cupy.asarray(a, dtype=np.float32),
        "integers": lambda: cupy.asarray(a.astype(np.int32)),
        "a view": lambda: cupy.asarray(whole)[::2, ::2],
        "one row": lambda: cupy.asarray(a),
    }
    b = np.random.default_rng(0).random(n)
    for method in METHODS:
        found = refine.solve(forms[form](), b, tile=min(16, n), method=method)
        assert found.outcome.good
        assert backward_error(a, found.solution.get(), b) <= 1e-14


@pytest.mark.gpu
def test_a_gpu_falls_back_to_finer_formats():
    import cupy

    a, b = spd_matrix("clustered", 120, 1e8), np.ones(120)
    about = {"scaling": True, "shift": 0.0, "tile": 32}
    with pytest.raises(NotPositiveDefinite, match="fallback=True"):
        refine.solve(cupy.asarray(a), b, gx.uniform("fp8"), **about)
    found = refine.solve(cupy.asarray(a), b, gx.uniform("fp8"), fallback=True, **about)
    assert found.outcome.good
    assert set(found.formats) == {"fp64"}


@pytest.mark.gpu
def test_a_finer_factor_replaces_one_whose_iteration_fails_on_a_gpu(monkeypatch):
    monkeypatch.setattr(
        refine.RefinedFactor.__init__, "__defaults__", (refine.ROUNDING_TOLERANCE, 1, ())
    )
    method = gx.Exact(gx.by_tile_norm(1e-3), 32, on="gpu", refine="ir", fallback=True)
    found = gx.log_likelihood(field(100), MODEL, method)
    exact = gx.log_likelihood(field(100), MODEL)
    assert found.quadratic_form == pytest.approx(exact.quadratic_form, rel=1e-10)


@pytest.mark.gpu
def test_wrong_cupy_arrays_are_refused():
    import cupy

    good, b = cupy.asarray(np.eye(40)), np.ones(40)
    with pytest.raises(InvalidInput, match="must be real"):
        refine.solve(cupy.asarray(np.eye(40) * 1j), b)
    with pytest.raises(InvalidInput, match="`b` contains a NaN"):
        refine.solve(good, cupy.asarray(np.full(40, np.nan)))
    with pytest.raises(InvalidInput, match="must be square"):
        refine.solve(good[:, :3], b)
    wrong = np.eye(40)
    wrong[5, 5] = -1.0
    with pytest.raises(NotPositiveDefinite, match="diagonal entry 6 is -1"):
        refine.solve(cupy.asarray(wrong), b)
    for value in (np.nan, np.inf, 1e300):
        wrong = np.eye(40)
        wrong[20, 3] = value
        with pytest.raises(InvalidInput, match="NaN or an infinity, or its products overflow"):
            refine.solve(cupy.asarray(wrong), b)

    class Foreign:
        __cuda_array_interface__ = good.__cuda_array_interface__

    with pytest.raises(InvalidInput, match=r"use cupy.asarray\(b\)"):
        refine.solve(good, Foreign())
    with pytest.raises(InvalidInput, match="`range_scaling` is for matrices on the CPU"):
        refine.solve(good, b, range_scaling=0.1)


RULES_ON_GPU = {
    "fp64": gx.uniform("fp64"),
    "fp32": gx.uniform("fp32"),
    "fp16": gx.uniform("fp16"),
    "fp16 products": gx.uniform("fp32-fp16"),
    "by norm": gx.by_tile_norm(1e-4),
    "by norm, in planes": gx.by_tile_norm(1e-6),
}


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", RULES_ON_GPU)
def test_a_gpu_refines_to_fp64(rule, method):
    seen, how = field(50), gx.Exact(RULES_ON_GPU[rule], 24, on="gpu")
    exact = gx.log_likelihood(seen, MODEL, trend="linear")
    mixed = gx.log_likelihood(seen, MODEL, how, trend="linear")
    fine = gx.log_likelihood(seen, MODEL, replace(how, refine=method), trend="linear")
    assert fine.quadratic_form == pytest.approx(exact.quadratic_form, rel=1e-11)
    np.testing.assert_allclose(fine.coefficients, exact.coefficients, rtol=1e-9, atol=1e-11)
    assert fine.log_determinant == mixed.log_determinant
    assert fine.refinement.method == method
    if rule != "fp64":
        assert abs(mixed.quadratic_form / exact.quadratic_form - 1) > 1e-9


@pytest.mark.gpu
def test_a_gpu_generates_products_with_the_covariances_of_the_cpu():
    (on_cpu, on_gpu) = (
        gx.Exact(gx.uniform("fp32"), 32, on=on).prepare(field(150)).factorize(MODEL)
        for on in ("cpu", "gpu")
    )
    x = np.random.default_rng(0).standard_normal((150, 3))
    one, two = (Regenerated(factor.store.originals) for factor in (on_cpu, on_gpu))
    np.testing.assert_allclose(two.multiply(x), one.multiply(x), rtol=1e-13, atol=1e-13)
    assert two.norm == pytest.approx(one.norm, rel=1e-14)
    assert type(two.multiply(x)) is np.ndarray


@pytest.mark.gpu
def test_a_product_on_a_gpu_extends_a_table_that_does_not_reach_all_pairs():
    # of a smoothness of its own: other tests may have extended the table of theirs
    model, seen = replace(MODEL, smoothness=0.7317), field(80)
    places = seen.locations.copy()
    places[1] = places[0] + 1e-9
    originals = assemble.originals(model, places, "euclidean", 32, 0)
    missed = originals.missed_pairs(1)
    originals.tile(0, 0, missed=missed[0])
    assert missed.any()
    expected = model(places, places) + model.nugget * np.eye(80)
    unit = 4.0**originals.exponent
    x = np.random.default_rng(0).standard_normal((80, 1))
    found = Regenerated(originals).multiply(x)
    np.testing.assert_allclose(found * unit, expected @ x, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("options", [{"device_memory": "64KB"}, {"on": ("gpu:0", "gpu:1")}])
def test_tiles_of_several_memories_are_refined_too(options):
    import cupy

    if len(options.get("on", ())) > cupy.cuda.runtime.getDeviceCount():
        pytest.skip("needs two GPUs; this machine has one")
    seen = field(80)
    how = gx.Exact(**{"precision": gx.by_tile_norm(1e-4), "tile": 16, "on": "gpu", **options})
    exact = gx.log_likelihood(seen, MODEL)
    fine = gx.log_likelihood(seen, MODEL, replace(how, refine="cg"))
    assert fine.quadratic_form == pytest.approx(exact.quadratic_form, rel=1e-11)


@pytest.mark.slow
@pytest.mark.gpu
def test_kriging_on_a_gpu_is_fp64s():
    model, there = gx.Matern(1.0, 0.08, 1.5, 1e-4), np.random.default_rng(2).random((5, 2))
    seen, fixed = field(36), ("variance", "range", "smoothness", "nugget")
    method = gx.Exact(gx.by_tile_norm(1e-4), 16, on="gpu", refine="gmres")
    fit = gx.fit(seen, model, fixed=fixed)
    exact, found = gx.predict(fit, there), gx.predict(replace(fit, method=method), there)
    np.testing.assert_allclose(found.mean, exact.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, exact.variance, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("replicated", [False, True])
def test_everything_that_a_factor_does_is_refined_on_a_gpu(replicated):
    seen, model = field(60), gx.Matern(1.0, 0.08, 0.5, 1e-2)
    if replicated:
        rows = np.repeat(np.arange(30), 2)
        seen = gx.Observations(seen.locations[rows], seen.values)
    rule = gx.by_tile_norm(1e-4)
    on_cpu, on_gpu = (gx.Exact(rule, 24, on=on, refine="cg") for on in ("cpu", "gpu"))
    # steps of a search use the derivatives, and need not end at the maximum
    about = {"fixed": ("smoothness",), "evaluations": 3, "trend": "constant"}
    start = replace(model, variance=0.9)
    one, two = (gx.fit(seen, start, how, **about) for how in (on_cpu, on_gpu))
    for name, value in one.model.parameters().items():
        assert two.model.parameters()[name] == pytest.approx(value, rel=1e-3), name
    assert one.model.range != start.range
    design = np.ones((len(seen), 1))
    there = np.random.default_rng(2).random((5, 2))
    operations = {
        "variance": lambda fit: gx.predict(fit, there).variance,
        "covariance": lambda fit: gx.prediction_covariance(fit, there),
        "leave one out": lambda fit: gx.leave_one_out(fit).mean,
        "folds": lambda fit: gx.cross_validate(fit, 3).variance,
        "draws": lambda fit: gx.simulate(fit, there, 2, seed=1),
        "divergence": lambda fit: gx.kl_divergence(model, seen, fit.method).kl,
        # second derivatives of Σ are differences, which lose half the digits of the products
        "information": lambda fit: fit.method.prepare(seen, design).observed_information(model),
    }
    for name, of in operations.items():
        found, expected = (of(replace(fit, model=model)) for fit in (two, one))
        tolerance = 1e-4 if name == "information" else 1e-6
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-8, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("smoothness", [0.5, 1.5])
def test_kriging_is_fp64s(smoothness):
    model = gx.Matern(1.0, 0.08, smoothness, 1e-4)
    places = np.random.default_rng(0).random((200, 2))
    seen = gx.Observations(places, gx.simulate(model, places, seed=1)[0])
    fixed = ("variance", "range", "smoothness", "nugget")
    there = np.random.default_rng(2).random((20, 2))
    method = gx.Exact(gx.by_tile_norm(1e-4), 64, refine="gmres")
    fit = gx.fit(seen, model, fixed=fixed)
    exact, found = gx.predict(fit, there), gx.predict(replace(fit, method=method), there)
    np.testing.assert_allclose(found.mean, exact.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, exact.variance, rtol=1e-9)


def test_a_factor_that_refinement_cannot_use_is_an_error_that_says_so():
    factor = gx.Exact(gx.by_tile_norm(1e-4), 64).prepare(field(200)).factorize(MODEL)
    hopeless = refine.RefinedFactor(factor, "ir", tolerance=1e-30, limit=1)
    with pytest.raises(NotPositiveDefinite, match="refinement by ir"):
        hopeless.solve(np.ones(200))


def test_the_preconditioner_is_the_inverse_of_its_factor():
    factor = gx.Exact(gx.uniform("fp64"), 32).prepare(field(100)).factorize(MODEL)
    found = Preconditioner(factor.store)(np.eye(100))
    expected = np.linalg.inv(
        (MODEL(*(field(100).locations,) * 2) + 1e-4 * np.eye(100))[np.ix_(*(factor.order,) * 2)]
    )
    unit = 4.0**factor.store.originals.exponent
    np.testing.assert_allclose(found / unit, expected, rtol=1e-9, atol=1e-9)


def test_a_coast_far_from_the_origin_has_the_coefficients_of_fp64():
    places = np.random.default_rng(0).random((150, 2)) + 1e7
    seen = gx.Observations(places, gx.simulate(MODEL, places, seed=1)[0])
    exact = gx.log_likelihood(seen, MODEL, trend="linear")
    method = gx.Exact(gx.by_tile_norm(1e-4), 32, refine="gmres")
    found = gx.log_likelihood(seen, MODEL, method, trend="linear")
    assert found.quadratic_form == pytest.approx(exact.quadratic_form, rel=1e-8)
    np.testing.assert_allclose(found.coefficients[1:], exact.coefficients[1:], rtol=1e-5)


def test_the_divergence_of_a_refined_factor_is_that_of_the_factor():
    seen = field(150)
    plain = gx.kl_divergence(MODEL, seen, gx.Exact(gx.by_tile_norm(1e-4), 32))
    refined = gx.kl_divergence(MODEL, seen, gx.Exact(gx.by_tile_norm(1e-4), 32, refine="cg"))
    assert refined.kl == plain.kl
    assert abs(refined.quadratic_form_error) < 1e-3 * abs(plain.quadratic_form_error)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_residuals_at_the_level_of_rounding_are_accepted(method):
    # a nearly diagonal Σ: most residuals of these stall at one or two units of rounding
    model = gx.Matern(1.0, 0.01, 0.5, 0.1)
    for seed in range(20):
        random = np.random.default_rng(seed)
        seen = gx.Observations(random.random((16, 2)), random.standard_normal(16))
        exact = gx.log_likelihood(seen, model, trend="constant")
        fine = gx.log_likelihood(seen, model, gx.Exact(tile=8, refine=method), trend="constant")
        assert fine.log_likelihood == pytest.approx(exact.log_likelihood, rel=1e-14)


def test_a_likelihood_whose_refinement_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(
        refine.RefinedFactor.__init__, "__defaults__", (refine.ROUNDING_TOLERANCE, 1, ())
    )
    with pytest.raises(NotRefined, match="refinement by ir"):
        gx.log_likelihood(field(300), MODEL, gx.Exact(gx.by_tile_norm(1e-3), 64, refine="ir"))


def test_an_iteration_that_does_not_come_there_is_told_from_a_matrix_without_a_factor(monkeypatch):
    monkeypatch.setattr(
        refine.RefinedFactor.__init__, "__defaults__", (refine.ROUNDING_TOLERANCE, 1, ())
    )
    evaluator = gx.Exact(gx.by_tile_norm(1e-3), 64, refine="ir").prepare(field(300))
    evaluation = evaluator(MODEL)
    assert evaluation.outcome.ending is Ending.STALLED
    assert evaluation.log_likelihood == -np.inf
    assert "refinement by ir" in evaluation.outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_refined_fits_are_saved_and_loaded(method, tmp_path):
    seen, how = field(40), gx.Exact(gx.by_tile_norm(1e-5), 16, refine=method, memory="1MB")
    fit = gx.fit(seen, MODEL, fixed=("variance", "range", "smoothness", "nugget"))
    fit = replace(fit, method=how)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json", memory="1MB")
    assert again.method == how
    there = np.random.default_rng(2).random((5, 2))
    np.testing.assert_array_equal(
        gx.predict(again, there).variance, gx.predict(fit, there).variance
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "fp16"}, "`precision` must be a rule"),
        ({"iterations": 0}, "`iterations` must be an integer"),
        ({"tolerance": -1.0}, "`tolerance` must be at least 0"),
        ({"range_scaling": -1.0}, "`range_scaling` must be positive"),
        ({"shift": "1"}, "`shift` must be at least 0"),
    ],
)
def test_wrong_options_are_named_before_anything_is_factored(options, words):
    with pytest.raises(InvalidInput, match=words):
        refine.solve(np.eye(3), np.ones(3), **options)


@pytest.mark.gpu
def test_the_solution_is_on_the_device_of_the_matrix():
    import cupy

    found = refine.solve(2 * np.eye(3), cupy.ones(3)).solution
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, 0.5, rtol=1e-15)
    found = refine.solve(2 * cupy.eye(3), np.ones(3)).solution
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(found.get(), 0.5, rtol=1e-15)


def test_what_is_no_number_in_the_matrix_is_named():
    a = np.eye(5)
    a[3, 1] = np.nan
    with pytest.raises(InvalidInput, match="`a` contains a NaN or an infinity in column 2"):
        refine.solve(a, np.ones(5))
    with pytest.raises(InvalidInput, match="must be real"):
        refine.solve(np.eye(3) * 1j, np.ones(3))


def test_a_likelihood_whose_refinement_fails_falls_back_to_finer_factors(monkeypatch):
    # one iteration is too few for a coarse factor, and enough for FP64's
    monkeypatch.setattr(
        refine.RefinedFactor.__init__, "__defaults__", (refine.ROUNDING_TOLERANCE, 1, ())
    )
    seen, rule = field(300), gx.by_tile_norm(1e-3)
    coarse = gx.Exact(rule, 64).prepare(seen)(MODEL)
    assert coarse.precision_map.counts() != {"fp64": 15}
    found = gx.log_likelihood(seen, MODEL, gx.Exact(rule, 64, refine="ir", fallback=True))
    exact = gx.log_likelihood(seen, MODEL)
    # the factor that refined, not the one that failed, gives log-determinant and formats
    assert found.precision_map.counts() == {"fp64": 15}
    assert found.log_likelihood == pytest.approx(exact.log_likelihood, rel=1e-12)
    assert found.quadratic_form == pytest.approx(exact.quadratic_form, rel=1e-12)


def test_refinement_at_the_ends_of_fp64_is_that_of_ordinary_numbers():
    places, z = np.random.default_rng(0).random((24, 1)), np.sin(np.arange(24.0))
    method = gx.Exact(gx.uniform("fp32"), tile=8, refine="gmres")
    value = gx.log_likelihood(gx.Observations(places, z), gx.Matern(1.0, 1.0, 0.5), method)
    for variance in (1e300, 1e-300):
        model, scale = gx.Matern(variance, 1.0, 0.5), np.sqrt(variance)
        other = gx.log_likelihood(gx.Observations(places, z * scale), model, method)
        assert other.quadratic_form == pytest.approx(value.quadratic_form, rel=1e-9)


@pytest.mark.parametrize("columns", [1, 3])
def test_solves_on_several_cores_have_the_same_bits_in_every_run(columns, monkeypatch):
    a = spd_matrix("arithmetic", 130, 50.0)
    store, scaled = factored(a, "fp32", tile=16)
    b = np.random.default_rng(0).standard_normal((130, columns))
    exact = np.linalg.solve(scaled, b)
    solve, found = Preconditioner(store), []
    monkeypatch.setattr(refine, "LEAST_SHARED_MULTIPLICATIONS", 0)
    for cores in (1, *[5] * 20):
        monkeypatch.setattr(refine, "usable_cores", lambda cores=cores: cores)
        found.append(solve(b))
        np.testing.assert_allclose(found[-1], exact, rtol=0, atol=1e-4 * abs(exact).max())
    assert len({each.tobytes() for each in found[1:]}) == 1
