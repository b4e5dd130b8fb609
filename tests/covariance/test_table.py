import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.covariance import generate, kernel
from geomxp.covariance.bessel import log_gamma_and_digamma, scaled_bessel_k
from geomxp.covariance.table import CorrelationTable

SMOOTHNESS = [0.05, 0.3, 0.5, 0.8, 1.0, 1.5, 2.3, 2.5, 5.0, 10.0]
DISTANCES = np.concatenate((np.geomspace(1e-12, 700.0, 130), np.linspace(0.02, 40.0, 70)))


def values(table, rows, r):
    """The table at scaled distances r."""
    out = np.empty(len(r))
    x = np.ascontiguousarray(r[None, :])
    missed = kernel.fill(
        *(x, 0, len(r), np.zeros((1, 1)), 0, 1, 1.0, False),
        *(rows, table.base, 1.0, -1, out, 0, 0),
    )
    assert missed == 0
    return out


def exact(r, nu):
    nu = mpmath.mpf(nu)
    return 2 ** (1 - nu) / mpmath.gamma(nu) * r**nu * mpmath.besselk(nu, r)


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_table_is_good_to_the_last_bits(nu):
    table = CorrelationTable(nu, -82, 20)
    with mpmath.workdps(40):
        expected = [exact(mpmath.mpf(r), nu) for r in DISTANCES]
        found = values(table, table.correlation, DISTANCES)
        errors = [abs(float(f - e)) for f, e in zip(found, expected, strict=True)]
        assert max(errors) <= 4e-16
        for value, reference in zip(found, expected, strict=True):
            if reference > 1e-13:
                assert abs(float(value / reference - 1)) <= 1e-11


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_derivative_tables_are_good_to_1e_12(nu):
    table, some = CorrelationTable(nu, -82, 20), DISTANCES[::6]
    slope = values(table, table.slope, some)
    by_smoothness = values(table, table.by_smoothness, some)
    with mpmath.workdps(40):
        order, step = mpmath.mpf(nu), mpmath.mpf("1e-12")
        c = 2 ** (1 - order) / mpmath.gamma(order)
        for k, r in enumerate(mpmath.mpf(r) for r in some):
            expected = -c * r ** (order + 1) * mpmath.besselk(order - 1, r)
            assert abs(float(slope[k] - expected)) <= 1e-12
            difference = (exact(r, order + step) - exact(r, order - step)) / (2 * step)
            assert abs(float(by_smoothness[k] - difference)) <= 1e-12


@given(st.floats(0.01, 30.0))
def test_no_smoothness_gives_nan(nu):
    table = CorrelationTable(nu, -60, 20)
    for rows in (table.correlation, table.by_smoothness, table.slope, table.correlation_fp32):
        assert np.isfinite(rows).all()
    rho = values(table, table.correlation, np.geomspace(1e-8, 1e3, 50))
    assert (rho >= -1e-30).all()
    assert (rho <= 1 + 1e-15).all()
    assert (np.diff(rho) <= 4e-16).all()


@pytest.mark.parametrize("nu", [0.01, 0.8, 4.0, 11.5, 30.0])
def test_bessel_functions_have_seventeen_digits(nu):
    r = np.array([1e-7, 1e-3, 0.4, 1.9, 2.1, 7.0, 40.0, 600.0], dtype=np.longdouble)
    found = scaled_bessel_k(r, nu)
    with mpmath.workdps(40):
        for k, x in enumerate(mpmath.mpf(float(v)) for v in r):
            x = mpmath.mpf(float(r[k])) + mpmath.mpf(float(r[k] - np.longdouble(float(r[k]))))
            grown = mpmath.exp(x)
            for row, order in ((0, mpmath.mpf(nu)), (1, mpmath.mpf(nu) - 1)):
                value = mpmath.besselk(order, x) * grown
                head = float(found[row, k])
                rest = mpmath.mpf(head) + mpmath.mpf(float(found[row, k] - np.longdouble(head)))
                assert abs(float(rest / value - 1)) < 1e-17
        log_gamma, digamma = log_gamma_and_digamma(nu)
        assert float(log_gamma) == pytest.approx(float(mpmath.loggamma(nu)), rel=1e-15, abs=1e-16)
        assert float(digamma) == pytest.approx(float(mpmath.digamma(nu)), rel=1e-15)


def test_single_precision_is_good_to_single_precision():
    places = np.random.default_rng(0).random((300, 2))
    pairs = generate.Generator(gx.Matern(2.0, 0.1, 0.8), "euclidean", places)
    double, single = np.empty((300, 300), order="F"), np.empty((300, 300), np.float32, order="F")
    whole = slice(0, 300)
    pairs.write("correlation", whole, whole, double)
    pairs.write("correlation", whole, whole, single)
    assert np.abs(double - single).max() <= 4 * 2.0 * 2.0**-24


@pytest.mark.parametrize("metric", ["euclidean", "chordal", "great-circle"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_metric_and_dimension_agrees_with_the_formula(metric, d):
    if metric != "euclidean" and d != 2:
        return
    random = np.random.default_rng(d)
    scale = [1.0] * d if metric == "euclidean" else [180.0, 90.0]
    a, b = random.uniform(-1, 1, (40, d)) * scale, random.uniform(-1, 1, (30, d)) * scale
    model = gx.Matern(1.7, 0.4 if metric == "euclidean" else 3000.0, 0.4)
    from geomxp.covariance.distance import between, embed

    h = between(embed(a, metric), embed(b, metric), metric)
    # near antipodes an arc has half the digits of its chord
    atol = 1e-8 if metric == "great-circle" else 1e-13
    np.testing.assert_allclose(model(a, b, metric), model.covariance(h), rtol=0, atol=atol)


def test_pairs_nearer_than_the_table_extend_it():
    places = np.concatenate((np.linspace(0.0, 1.0, 20), [0.5 + 1e-9, 0.5 + 1e-14]))[:, None]
    model = gx.Matern(1.0, 0.3, 0.2)
    found = model(places, places)
    np.testing.assert_allclose(found, model.covariance(np.abs(places - places.T)), atol=1e-13)


def test_places_that_all_but_coincide_end_at_the_lowest_octave():
    places = np.array([[-1.0], [0.0], [1e-160], [1.0]])
    found = gx.Matern(1.0, 0.3, 0.8)(places, places)
    assert found[1, 2] == 1.0


def test_places_far_beyond_the_range_are_independent():
    places = np.array([[0.0, 0.0], [1e6, 0.0], [1e100, 0.0]])
    found = gx.Matern(1.0, 1e-3, 0.8)(places, places)
    np.testing.assert_array_equal(found, np.eye(3))


def test_offset_of_the_coordinates_does_not_matter():
    places = np.random.default_rng(4).random((50, 2))
    moved = places + 2.0**20
    model = gx.Matern(1.0, 0.2, 0.7)
    # moved places are rounded to 2^-33; the differences of the rounded ones are exact
    back = moved - 2.0**20
    np.testing.assert_allclose(model(moved, moved), model(back, back), rtol=0, atol=3e-16)


@pytest.mark.parametrize("smoothness", [0.8, 60.0])
def test_smoothness_beyond_the_tables_goes_by_the_formula(smoothness):
    a, b = np.random.default_rng(1).random((2, 9, 2))
    model = gx.Matern(1.3, 0.1, smoothness, anisotropy=(20.0, 0.5))
    h = np.linalg.norm(
        (a @ model.anisotropy.matrix().T)[:, None] - (b @ model.anisotropy.matrix().T)[None], axis=2
    )
    np.testing.assert_allclose(model(a, b), model.covariance(h), rtol=1e-11)
    assert set(model.derivatives(a, b)) == set(model.parameters()) - {"nugget"}
