import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance import generate, pairs_numba, pairs_numpy


def places_of(metric, d, n):
    places = np.random.default_rng(d).random((n, d))
    return places if metric == "euclidean" else (places - 0.5) * [300.0, 170.0]


@pytest.mark.parametrize("what", ["correlation", "smoothness", "range"])
@pytest.mark.parametrize(
    ("metric", "d"),
    [("euclidean", 1), ("euclidean", 2), ("euclidean", 3), ("chordal", 2), ("great-circle", 2)],
)
@pytest.mark.parametrize("smoothness", [0.07, 0.5])
def test_numpy_and_numba_write_the_same_to_rounding(what, metric, d, smoothness, monkeypatch):
    model = gx.Matern(1.7, 0.1 if metric == "euclidean" else 900.0, smoothness)
    pairs = model.pairs(gx.Inputs(places_of(metric, d, 300), metric))
    for dtype in (np.float64, np.float32) if what == "correlation" else (np.float64,):
        found = []
        for loops in (pairs_numba, pairs_numpy):
            monkeypatch.setattr(generate, "loops", lambda loops=loops: loops)
            out = np.full((300, 300), np.nan, dtype, order="F")
            pairs.write(what, slice(20, 290), slice(10, 270), out[20:290, 10:270], triangle=True)
            whole = np.empty((270, 260), dtype, order="F")
            pairs.write(what, slice(20, 290), slice(10, 270), whole)
            found.append((out, whole))
        (out, whole), (other, block) = found
        # the same entries are written, and no others
        np.testing.assert_array_equal(np.isnan(out), np.isnan(other))
        tolerance = 8 * np.finfo(dtype).eps * np.abs(whole).max()
        np.testing.assert_allclose(other, out, rtol=0, atol=tolerance)
        np.testing.assert_allclose(block, whole, rtol=0, atol=tolerance)


def test_numpy_extends_a_table_that_does_not_reach(monkeypatch):
    places = np.concatenate(([0.0], np.geomspace(1e-9, 1.0, 50)))[:, None]
    model = gx.Matern(1.0, 0.3, 0.02)
    expected = model(places, places)
    monkeypatch.setattr(generate, "loops", lambda: pairs_numpy)
    np.testing.assert_allclose(model(places, places), expected, rtol=0, atol=1e-15)


def test_sums_without_numba_are_those_of_the_strips(monkeypatch):
    from geomxp.covariance import sums

    random = np.random.default_rng(5)
    places, alpha, beside = random.random((400, 2)), *random.random((2, 400))
    weights = np.asfortranarray(random.random((400, 400)))
    model = gx.Matern(1.3, 0.2, 0.9, 0.1, (30.0, 0.6))
    given = model, gx.Inputs(places), tuple(model.parameters()), weights, alpha, beside[:, None]
    expected = sums.derivative_sums(*given)
    monkeypatch.setattr(sums, "by_table", sums.by_blocks)
    found = sums.derivative_sums(*given)
    np.testing.assert_allclose(found.weighted, expected.weighted, rtol=1e-10)
    np.testing.assert_allclose(found.products, expected.products, rtol=1e-9, atol=1e-9)
