import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geomxp as gx
from geomxp.covariance import bessel, pairs_numba
from geomxp.covariance.bessel import log_gamma_and_digamma, matern_of_squares
from geomxp.covariance.table import FOLDED_OCTAVES, LOWEST_OCTAVE, SERIES_PER_OCTAVE, Table, unfold

SMOOTHNESS = [0.05, 0.3, 0.5, 0.8, 1.0, 1.5, 2.3, 2.5, 5.0, 10.0, 20.0, 50.0]
DISTANCES = np.concatenate((np.geomspace(1e-12, 700.0, 130), np.linspace(0.02, 40.0, 70)))[::4]


def values(table, rows, r):
    """The table at scaled distances r."""
    out = np.empty(len(r))
    x = np.ascontiguousarray(r[None, :])
    missed = pairs_numba.fill(
        *(x, 0, len(r), np.zeros((1, 1)), 0, 1, 1.0, False),
        *(rows, table.base, 1.0, -1, out, 0, 0),
    )
    assert missed == 0
    return out


def exact(r, nu):
    nu = mpmath.mpf(nu)
    return 2 ** (1 - nu) / mpmath.gamma(nu) * r**nu * mpmath.besselk(nu, r)


@pytest.mark.slow
@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_table_is_good_to_the_last_bits(nu):
    table = Table(gx.Matern(1.0, 1.0, nu), -82, 20)
    with mpmath.workdps(30):
        expected = [exact(mpmath.mpf(r), nu) for r in DISTANCES]
        found = values(table, table.rows("correlation"), DISTANCES)
        errors = [abs(float(f - e)) for f, e in zip(found, expected, strict=True)]
        assert max(errors) <= 4e-16
        for value, reference in zip(found, expected, strict=True):
            if reference > 1e-13:
                assert abs(float(value / reference - 1)) <= 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_derivative_tables_are_good_to_1e_12(nu):
    table, some = Table(gx.Matern(1.0, 1.0, nu), -82, 20), DISTANCES[::2]
    slope = values(table, table.rows("slope"), some)
    by_smoothness = values(table, table.rows("smoothness"), some)
    with mpmath.workdps(40):
        order, step = mpmath.mpf(nu), mpmath.mpf("1e-12")
        c = 2 ** (1 - order) / mpmath.gamma(order)
        for k, r in enumerate(mpmath.mpf(r) for r in some):
            expected = -c * r ** (order + 1) * mpmath.besselk(order - 1, r)
            assert abs(float(slope[k] - expected)) <= 1e-12
            difference = (exact(r, order + step) - exact(r, order - step)) / (2 * step)
            assert abs(float(by_smoothness[k] - difference)) <= 1e-12


@pytest.mark.slow
@given(st.floats(0.01, 30.0))
def test_no_smoothness_gives_nan(nu):
    table = Table(gx.Matern(1.0, 1.0, nu), -60, 20)
    for rows in (
        table.rows("correlation"),
        table.rows("smoothness"),
        table.rows("slope"),
        table.rows("correlation", True),
    ):
        assert np.isfinite(rows).all()
    rho = values(table, table.rows("correlation"), np.geomspace(1e-8, 1e3, 50))
    assert (rho >= -1e-30).all()
    assert (rho <= 1 + 1e-15).all()
    assert (np.diff(rho) <= 4e-16).all()


@pytest.mark.slow
@given(nu=st.floats(0.02, 50.0), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_any_smoothness_is_good_to_the_last_bits_anywhere(nu, seed):
    random = np.random.default_rng(seed)
    r = np.concatenate(
        (np.exp(random.uniform(np.log(1e-12), np.log(700.0), 12)), random.uniform(0.01, 40.0, 12))
    )
    table = Table(gx.Matern(1.0, 1.0, nu), -82, 20)
    found = values(table, table.rows("correlation"), r)
    with mpmath.workdps(40):
        # the table sees the rounded square
        expected = [exact(mpmath.sqrt(mpmath.mpf(float(s))), nu) for s in r * r]
        for value, reference in zip(found, expected, strict=True):
            assert abs(mpmath.mpf(float(value)) - reference) <= 1.6e-16
            if reference > 1e-13:
                assert abs(mpmath.mpf(float(value)) / reference - 1) <= 4e-11


@pytest.mark.parametrize(
    ("model", "high"),
    [(gx.Matern(1.0, 1.0, 0.8), 12), (gx.Wendland(1.0, 1.0, 0.8, 3.1), FOLDED_OCTAVES)],
)
def test_a_row_does_not_depend_on_the_octaves_of_its_table(model, high):
    whole = Table(model, -50, high)
    for low, end in ((-50, -49), (-13, 3), (-2, high)):
        part = Table(model, low, end)
        place = slice(1 + part.base - whole.base, part.base - whole.base + 32 * (end - low) + 1)
        for what in ("correlation", "slope", *(p.name for p in model.shapes)):
            np.testing.assert_array_equal(
                part.rows(what)[1:-1], whole.rows(what)[place], strict=True
            )


def test_four_evaluations_an_octave_serve_all_polynomials(monkeypatch):
    evaluated = []

    def counted(s, nu):
        evaluated.append(len(s))
        return matern_of_squares(s, nu)

    monkeypatch.setattr(bessel, "matern_of_squares", counted)
    table = Table(gx.Matern(1.0, 1.0, 0.8), -20, 4)
    for what in ("correlation", "smoothness", "slope"):
        assert np.isfinite(table.rows(what)).all()
    assert np.isfinite(table.rows("correlation", True)).all()
    assert SERIES_PER_OCTAVE == 4
    assert evaluated == [24 * SERIES_PER_OCTAVE]


def test_four_evaluations_an_octave_serve_all_polynomials_of_wendland(monkeypatch):
    evaluated, at_squares = [], gx.Wendland.at_squares

    def counted(model, s, rest):
        evaluated.append(s.size)
        return at_squares(model, s, rest)

    monkeypatch.setattr(gx.Wendland, "at_squares", counted)
    table = Table(gx.Wendland(1.0, 1.0, 0.8, 3.1), -20, FOLDED_OCTAVES)
    for what in WENDLAND:
        assert np.isfinite(table.rows(what)).all()
    assert evaluated == [(20 + FOLDED_OCTAVES) * SERIES_PER_OCTAVE]


WENDLAND = ("correlation", "slope", "smoothness", "shape")


def check_wendland(kappa, mu):
    """Compare a table with the formulas, in extended precision, at places of each octave."""
    model, low, t = gx.Wendland(1.0, 1.0, kappa, mu), -24, np.array([-1.0, -0.4, 0.9])
    table, interval = Table(model, low, FOLDED_OCTAVES), np.array([0, 7, 13, 31])
    # without octave -1, where 1 - s would be below 2^-53
    octave = np.r_[low:-1, 0 : FOLDED_OCTAVES - 1]
    row = 1 + 32 * (octave[:, None] - low) + interval
    part = (interval[:, None] + (1 + t) / 2) / 32
    v = np.multiply.outer(np.exp2(octave.astype(np.longdouble)), 1 + part)
    at, half = model.at_squares(*unfold(v)), np.longdouble(0.5)
    for what in WENDLAND:
        rows = table.rows(what)
        values = np.polynomial.polynomial.polyval(t, rows[row].transpose(2, 0, 1))
        # the last octave begins where s = ½
        end = np.polynomial.polynomial.polyval(-1.0, rows[-33])
        with np.errstate(under="ignore"):
            exact = np.append(at(what), model.at_squares(half, half)(what))
        error = np.abs(np.append(values, end) - exact)
        # half a unit in the last place of the constant term, and rounding of the other terms
        assert (error <= 2e-16 * max(1.0, np.abs(exact).max()) + 4e-16 * np.abs(exact)).all(), what
        if what == "correlation":
            assert (error <= 2e-9 * exact + 1e-20)[exact > 1e-13].all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kappa", "mu"),
    [
        *((0.0, 1.0), (0.0, 3.5), (0.0, 30.0), (0.0, 150.0), (0.0, 1000.0), (1e-8, 1.5)),
        *((1e-3, 2.0), (0.5, 2.0), (0.5, 3.5), (0.7, 40.0), (1.0, 2.5), (1.5, 3.0), (2.3, 8.0)),
        *((3.0, 300.0), (8.0, 20.0), (10.0, 11.5), (10.0, 140.0), (30.0, 31.5), (30.0, 1000.0)),
        *((30.1, 40.0), (50.5, 80.0), (100.0, 101.5), (100.0, 300.0), (100.0, 1000.0)),
    ],
)
def test_wendland_tables_are_good_to_the_last_bits(kappa, mu):
    check_wendland(kappa, mu)


@pytest.mark.slow
@given(kappa=st.floats(0.0, 100.0), more=st.floats(1.0, 200.0))
@settings(max_examples=10)
def test_tables_of_any_wendland_are_good_to_the_last_bits(kappa, more):
    check_wendland(kappa, kappa + more)


def test_the_lowest_octaves_of_wendland_hold_no_nan():
    for kappa in (0.0, 0.3, 0.5, 20.0, 100.0):
        table = Table(gx.Wendland(1.0, 1.0, kappa, kappa + 2), LOWEST_OCTAVE, LOWEST_OCTAVE + 8)
        for what in WENDLAND:
            assert np.isfinite(table.rows(what)).all()
        assert table.rows("correlation")[1:-1, 0] == pytest.approx(1.0, abs=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kappa", "mu"), [(0, 2), (0.001, 2), (0.5, 3.5), (2, 5), (2.3, 8), (10, 80), (30, 120)]
)
def test_wendland_and_its_slopes_at_the_centres_are_those_of_mpmath(kappa, mu):
    r = np.array([0.001, 0.03, 0.3, 0.7, 0.72, 0.9])
    with mpmath.workdps(60):
        step = mpmath.mpf("1e-15")

        def rho(r, by_kappa=0, by_mu=0):
            k, m, z = kappa + by_kappa * step, mu + by_mu * step, 1 - r**2
            scale = 2 ** (-2 * k - m) * mpmath.sqrt(mpmath.pi) * mpmath.gamma(2 * k + m + 1)
            scale /= mpmath.gamma(k + mpmath.mpf(0.5)) * mpmath.gamma(k + m + 1)
            return scale * z ** (k + m) * mpmath.hyp2f1(m / 2, (m + 1) / 2, k + m + 1, z)

        def difference(f, *where):
            return (f(*where, 1) - f(*where, -1)) / (2 * step)

        def slope(f, r):
            return r * difference(lambda r, side: f(r + side * step), r)

        functions = {
            "correlation": rho,
            "smoothness": lambda r: difference(lambda r, side: rho(r, by_kappa=side), r),
            "shape": lambda r: difference(lambda r, side: rho(r, by_mu=side), r),
        }
        places = [mpmath.mpf(x) for x in r]
        expected = {
            (what, along): [float(slope(f, x) if along else f(x)) for x in places]
            for what, f in functions.items()
            for along in (False, True)
        }
    r = r.astype(np.longdouble)
    at = gx.Wendland(1.0, 1.0, kappa, mu).at_squares(r**2, (1 - r) * (1 + r))
    for (what, along), values in expected.items():
        found = at(what, slope=along).astype(float)
        np.testing.assert_allclose(found, values, rtol=2e-15, atol=1e-18, err_msg=what)


@pytest.mark.parametrize("nu", [0.02, 0.8, 50.0])
def test_the_lowest_octaves_hold_no_nan(nu):
    table = Table(gx.Matern(1.0, 1.0, nu), LOWEST_OCTAVE, LOWEST_OCTAVE + 8)
    for what in ("correlation", "smoothness", "slope"):
        assert np.isfinite(table.rows(what)).all()
    # 1 - ρ ~ r^(2ν)
    assert table.rows("correlation")[1:-1, 0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("nu", [0.02, 0.8, 1.0, 4.0, 11.5, 50.0])
def test_values_and_slopes_at_the_centres_are_good_to_5e_17(nu):
    s = np.array([1e-14, 1e-6, 0.16, 3.6, 4.4, 49.0, 1600.0, 3.6e5], dtype=np.longdouble)
    (f, f_nu), (slope, slope_nu) = matern_of_squares(s, nu)
    log_gamma, digamma = log_gamma_and_digamma(nu)
    with mpmath.workdps(45):

        def number(x):
            return mpmath.mpf(float(x)) + mpmath.mpf(float(x - np.longdouble(float(x))))

        def rho_and_slope(x, order):
            c = 2 ** (1 - order) / mpmath.gamma(order) * x**order
            return c * mpmath.besselk(order, x), -c * mpmath.besselk(order - 1, x) / (2 * x)

        order, step = mpmath.mpf(nu), mpmath.mpf("1e-14")
        for k in range(len(s)):
            x = mpmath.sqrt(number(s[k]))
            here, up, down = (rho_and_slope(x, order + t) for t in (0, step, -step))
            for found, by_nu, j in ((f[k], f_nu[k], 0), (slope[k], slope_nu[k], 1)):
                assert abs(number(found) / here[j] - 1) < 5e-17
                difference = (up[j] - down[j]) / (2 * step)
                assert abs(number(by_nu) - difference) < 5e-17 * abs(here[j]) + 1e-16 * abs(
                    difference
                )
    assert float(log_gamma) == pytest.approx(float(mpmath.loggamma(nu)), rel=1e-15, abs=1e-16)
    assert float(digamma) == pytest.approx(float(mpmath.digamma(nu)), rel=1e-15)


def test_single_precision_is_good_to_single_precision():
    places = np.random.default_rng(0).random((300, 2))
    pairs = gx.Matern(2.0, 0.1, 0.8).pairs(gx.Inputs(places))
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


@pytest.mark.slow
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
