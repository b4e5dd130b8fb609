"""Sums and products of derivatives by blocks, against the strips of `covariance.sums`."""

import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance import sums
from geomxp.covariance.sums import derivative_sums

MODELS = {
    "plane": (gx.Matern(1.7, 0.2, 0.8, 0.1), "euclidean"),
    "anisotropic": (gx.Matern(1.7, 0.2, 0.8, 0.1, gx.Anisotropy(30.0, 0.6)), "euclidean"),
    "arcs": (gx.Matern(1.7, 900.0, 0.4, 0.1), "great-circle"),
    "smoother than any table": (gx.Matern(1.7, 0.01, 60.0, 0.1), "euclidean"),
}
ON = [None, pytest.param(0, marks=pytest.mark.gpu)]
SIZES = (1, 32, 33, 100)
"""Of blocks of 32: part of one, one, one and a place, several."""


def problem(kind, n):
    model, metric = MODELS[kind]
    random = np.random.default_rng(n)
    places = random.random((n, 2)) * (30.0 if metric == "great-circle" else 1.0)
    weights = random.standard_normal((n, n))
    weights = np.asfortranarray(weights + weights.T)
    weights[np.triu_indices(n, 1)] = np.nan  # never read
    return model, gx.Inputs(places, metric), weights, random.standard_normal((n, 3))


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("index", ON)
def test_blocks_give_the_sums_and_products_of_strips(monkeypatch, index, kind, n):
    if index is not None and "any table" in kind:
        pytest.skip("a GPU has no formula for a smoothness above the tables'")
    monkeypatch.setattr(sums, "BLOCK_ORDER", 32)
    model, inputs, weights, vectors = problem(kind, n)
    alpha, beside, names = vectors[:, 0], vectors[:, 1:], tuple(model.parameters())
    known = derivative_sums(model, inputs, names, weights, alpha, beside)
    there = weights
    if index is not None:
        import cupy

        with cupy.cuda.Device(index):
            there = cupy.asarray(weights, order="F")
    products = sums.derivative_products(model, inputs, names, alpha, index)
    weighted = sums.weighted_sums(model, inputs, names, there, vectors)
    # each derivative is below 100: sums of n and of n² such terms
    size, u = 100 * abs(alpha).max(), 2.0**-53
    assert abs(products - known.products).max() <= 20 * n * n * u * size
    size *= abs(vectors).max() * 6
    assert abs(weighted - known.weighted).max() <= 20 * n**3 * u * size


def test_blocks_of_any_width_cover_the_lower_triangle_once():
    for n, width in ((1, 1), (10, 3), (12, 4), (5, 9)):
        count = np.zeros((n, n), dtype=int)
        for rows, columns in sums.blocks(n, width):
            count[rows, columns] += 1
        assert (count[np.tril_indices(n)] == 1).all()


def test_the_bits_of_a_sum_do_not_depend_on_the_run(monkeypatch):
    monkeypatch.setattr(sums, "BLOCK_ORDER", 32)
    model, inputs, weights, vectors = problem("plane", 100)
    about = (model, inputs, ("range", "smoothness"), weights, vectors)
    first = sums.weighted_sums(*about)
    np.testing.assert_array_equal(sums.weighted_sums(*about), first)
