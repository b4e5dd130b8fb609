import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.sums import derivative_sums, derivative_times

MODELS = {
    "plane": (gx.Matern(1.3, 0.1, 0.8, 0.1), "euclidean", 1.0),
    "anisotropic": (gx.Matern(1.3, 0.1, 0.8, 0.1, gx.Anisotropy(30.0, 0.5)), "euclidean", 1.0),
    "without table": (gx.Matern(1.3, 0.02, 60.0, 0.1), "euclidean", 1.0),
    "chords": (gx.Matern(1.3, 500.0, 1.4, 0.1), "chordal", 40.0),
    "arcs": (gx.Matern(1.3, 500.0, 0.4, 0.1), "great-circle", 40.0),
}


def case(kind, n=700):
    model, metric, extent = MODELS[kind]
    random = np.random.default_rng(7)
    places = extent * random.random((n, 2))
    weights = random.standard_normal((n, n))
    weights = np.asfortranarray(weights + weights.T)
    alpha, beside = random.standard_normal(n), random.standard_normal((n, 2))
    names = tuple(model.parameters())
    smooth = [name for name in names if name != "nugget"]
    whole = slice(0, n)
    dense = model.pairs(gx.Inputs(places, metric)).derivatives(whole, whole, smooth)
    dense["nugget"] = np.eye(n)
    return (model, gx.Inputs(places, metric), names, weights, alpha, beside), dense


# n beyond a strip of 512, so that strips end inside a column
@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_sums_and_products_are_those_of_the_dense_derivatives(kind):
    arguments, dense = case(kind)
    names, weights, alpha, beside = arguments[2:]
    found = derivative_sums(*arguments)
    w = np.outer(alpha, alpha) - weights + beside @ beside.T
    for k, name in enumerate(names):
        size = np.abs(w * dense[name]).sum()
        assert abs(np.vdot(w, dense[name]) - found.weighted[k]) <= 1e-13 * size, name
        product = dense[name] @ alpha
        allowed = 1e-13 * np.abs(dense[name]) @ np.abs(alpha) + 1e-300
        assert (np.abs(found.products[:, k] - product) <= allowed).all(), name
        assert found.quadratic[k] == pytest.approx(alpha @ product, rel=1e-12, abs=1e-12 * size)


def test_what_stands_above_the_diagonal_is_not_read():
    arguments, _ = case("anisotropic", 300)
    expected = derivative_sums(*arguments)
    arguments[3][np.triu_indices(300, 1)] = np.nan
    found = derivative_sums(*arguments)
    np.testing.assert_array_equal(found.weighted, expected.weighted)


def test_sums_do_not_depend_on_the_products():
    arguments, _ = case("plane", 300)
    lone = derivative_sums(*arguments, products=False)
    np.testing.assert_array_equal(lone.weighted, derivative_sums(*arguments).weighted)
    assert lone.products.shape == (0, 4)


TERMS = {
    **MODELS,
    "space-time": (gx.Gneiting(2.0, 0.4, 2.0, 0.8, 0.6, 0.7, 0.3, 0.1), "euclidean", 1.0),
    "several variables": (
        gx.Independent((1.0, 2.0), (0.2, 0.3), (0.5, 1.0), (0.1, 0.2)),
        "euclidean",
        1.0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", TERMS)
def test_sums_of_panels_of_columns_add_up_to_those_of_the_whole(kind, dtype):
    model, metric, extent = TERMS[kind]
    n, random = 600, np.random.default_rng(8)
    inputs = gx.Inputs(
        extent * random.random((n, 2)),
        metric,
        time=random.random(n) if "time" in kind else None,
        variable=random.integers(0, 2, n) if "variables" in kind else None,
    )
    weights = random.standard_normal((n, n)).astype(dtype)
    weights = np.asfortranarray(weights + weights.T)
    alpha, beside = random.standard_normal(n), random.standard_normal((n, 2))
    names = tuple(model.parameters())
    whole = derivative_sums(model, inputs, names, weights, alpha, beside)
    parts = []
    # one column, fewer than a thread takes, and more
    for first, last in ((0, 1), (1, 130), (130, 600)):
        weights_of_part = np.array(weights[first:, first:last], order="F")
        weights_of_part[np.triu_indices(last - first, 1)] = np.nan
        given = model, inputs, names, weights_of_part, alpha, beside
        parts.append(derivative_sums(*given, columns=slice(first, last)))
    for field in ("weighted", "quadratic", "products"):
        expected = getattr(whole, field)
        size = np.abs(expected).max() + np.abs(whole.weighted).max() * (field == "weighted")
        found = sum(getattr(part, field) for part in parts)
        # sums over n² pairs in another order
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * n * size)


def test_products_with_an_array_are_those_of_dense_derivatives():
    (model, inputs, names, *_), dense = case("anisotropic", 300)
    matrix = np.random.default_rng(1).standard_normal((300, 7))
    matrix[200:] = 0.0
    for last in (None, 200):
        found = derivative_times(model, inputs, names, matrix, last)
        for name in names:
            np.testing.assert_allclose(found[name], dense[name] @ matrix, rtol=0, atol=1e-11)
    single = derivative_times(model, inputs, names, matrix.astype(np.float32))
    assert {part.dtype for part in single.values()} == {np.dtype(np.float32)}
    np.testing.assert_allclose(single["range"], found["range"], rtol=0, atol=1e-3)


@pytest.mark.slow
def test_two_places_closer_than_any_table_count_all_the_same():
    model = gx.Matern(1.0, 1.0, 0.3)
    places = np.array([[0.0, 0.0], [1e-60, 0.0], [1.0, 0.0]])
    zero = np.zeros((3, 3), order="F")
    found = derivative_sums(
        model, gx.Inputs(places), ("variance",), zero, np.ones(3), np.zeros((3, 0))
    )
    assert found.weighted[0] == pytest.approx(model(places, places).sum(), rel=1e-14)
