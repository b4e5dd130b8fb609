import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.covariance import matern
from geomxp.covariance.bessel import correlation, correlation_by_smoothness, correlation_slope

SMOOTHNESS = [0.05, 0.3, 0.5, 0.8, 1.0, 1.5, 2.3, 2.5, 5.0, 10.0, 30.0, 49.9, 60.0, 400.0]
DISTANCES = np.concatenate(([1e-12, 1e-6], np.geomspace(1e-3, 600.0, 17)))


def exact(r, nu):
    r, nu = mpmath.mpf(float(r)), mpmath.mpf(nu)
    return 2 ** (1 - nu) / mpmath.gamma(nu) * r**nu * mpmath.besselk(nu, r)


@pytest.mark.slow
@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_correlation_agrees_with_mpmath(nu):
    with mpmath.workdps(25):
        expected = np.array([float(exact(r, nu)) for r in DISTANCES])
    # SciPy's K_ν is good to 1e-13
    np.testing.assert_allclose(correlation(DISTANCES, nu), expected, rtol=2e-12, atol=2e-13)


@pytest.mark.slow
@pytest.mark.parametrize("nu", SMOOTHNESS[:-1])
def test_slope_agrees_with_mpmath(nu):
    points = DISTANCES[2::3]
    with mpmath.workdps(20):
        expected = [
            float(mpmath.mpf(r) * mpmath.diff(lambda x: exact_at(x, nu), mpmath.mpf(r)))
            for r in points
        ]
    np.testing.assert_allclose(correlation_slope(points, nu), expected, rtol=1e-9, atol=1e-12)


def exact_at(x, nu):
    nu = mpmath.mpf(nu)
    return 2 ** (1 - nu) / mpmath.gamma(nu) * x**nu * mpmath.besselk(nu, x)


@pytest.mark.slow
@pytest.mark.parametrize("nu", [0.05, 0.3, 0.5, 0.8, 1.0, 2.3, 5.0, 10.0])
def test_derivative_by_smoothness_agrees_with_mpmath(nu):
    points = DISTANCES[2:]
    with mpmath.workdps(40):
        expected = [
            float(mpmath.diff(lambda v, r=r: exact_at(mpmath.mpf(r), v), mpmath.mpf(nu)))
            for r in points
        ]
    # SciPy's 1e-13 over the step min(0.005, ν/8), and the truncation
    atol = 1e-10
    np.testing.assert_allclose(correlation_by_smoothness(points, nu), expected, rtol=0, atol=atol)


@given(st.floats(0.01, 100.0), st.lists(st.floats(0.0, 1e300), min_size=1, max_size=8))
def test_correlation_is_a_number_between_zero_and_one_and_falls(nu, distances):
    rho = gx.Matern(1.0, 1.0, nu).correlation(np.sort(distances))
    assert np.isfinite(rho).all()
    assert (rho >= 0).all()
    assert (rho <= 1 + 1e-12).all()
    assert (np.diff(rho) <= 1e-12).all()


def test_large_smoothness_comes_near_the_gaussian():
    h = np.linspace(0.0, 3.0, 7)
    nu = 1e6
    # with a = ℓ/√(2ν): ρ → exp(-h²/(2ℓ²)), at distance O(1/ν)
    rho = correlation(h * np.sqrt(2 * nu), nu)
    np.testing.assert_allclose(rho, np.exp(-(h**2) / 2), atol=5 / nu)


def test_covariance_leaves_the_nugget_out_also_where_places_coincide():
    model = gx.Matern(2.0, 0.3, 0.7, nugget=5.0)
    places = np.zeros((2, 2))
    np.testing.assert_array_equal(model(places, places), np.full((2, 2), 2.0))


def test_anisotropy_divides_the_range_across_its_angle():
    model = gx.Matern(1.0, 2.0, 0.5, anisotropy=(30.0, 0.25))
    along = np.array([[np.cos(np.pi / 6), np.sin(np.pi / 6)]])
    across = np.array([[-np.sin(np.pi / 6), np.cos(np.pi / 6)]])
    origin = np.zeros((1, 2))
    assert model(origin, along)[0, 0] == pytest.approx(np.exp(-1 / 2), rel=1e-15)
    assert model(origin, across)[0, 0] == pytest.approx(np.exp(-1 / 0.5), rel=1e-15)


@pytest.mark.parametrize(
    "name", ["variance", "range", "smoothness", "anisotropy_angle", "anisotropy_ratio"]
)
def test_derivatives_are_slopes_of_the_covariance(name):
    model = gx.Matern(1.7, 0.4, 0.8, 0.1, (20.0, 0.6))
    a, b = np.random.default_rng(0).random((2, 12, 2))
    step = 1e-4 * model.parameters()[name]
    values = model.parameters()
    high, low = (
        gx.Matern.from_parameters(values | {name: values[name] + s * step})(a, b) for s in (1, -1)
    )
    slope = (high - low) / (2 * step)
    np.testing.assert_allclose(model.derivatives(a, b)[name], slope, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("smoothness", [0.02, 0.5, 1.3, 8.0])
def test_effective_range_is_where_the_correlation_is_five_percent(smoothness):
    model = gx.Matern(3.0, 7.0, smoothness)
    assert model.correlation(model.effective_range()) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize("package", matern.PACKAGES)
def test_conventions_go_there_and_back(package):
    model = gx.Matern(1.3, 0.7, 2.5, 0.2)
    back = gx.Matern.from_convention(package, **model.to_convention(package))
    for name, value in model.parameters().items():
        assert getattr(back, name) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_scikit_learns_formulas_are_reproduced(nu):
    """The closed forms in scikit-learn's documentation of `gaussian_process.kernels.Matern`."""
    d, length = np.linspace(0.0, 4.0, 9), 1.4
    s = np.sqrt(2 * nu) * d / length
    theirs = {0.5: 1.0, 1.5: 1 + s, 2.5: 1 + s + s**2 / 3}[nu] * np.exp(-s)
    model = gx.Matern.from_convention("scikit-learn", variance=1.0, length_scale=length, nu=nu)
    np.testing.assert_allclose(model.correlation(d), theirs, rtol=1e-14)


LIMITED = {
    # verified with GSTools 1.7.0, GPyTorch 1.15.2, scikit-learn 1.9.1 and the source of spmodel
    "gstools": ([0.2, 0.7, 20.0], [0.19, 20.5, 30.0, 31.0]),
    "gpytorch": ([0.5, 1.5, 2.5], [0.6, 3.5]),
    "scikit-learn": ([0.1, 19.0], [20.0, 45.0]),
    "spmodel": ([0.2, 5.0], [0.1, 5.5]),
    "gpgp": ([0.1, 40.0], []),
}


@pytest.mark.parametrize("package", LIMITED)
def test_a_warning_says_where_another_package_does_not_evaluate_the_model(package):
    good, bad = LIMITED[package]
    for nu in good:
        gx.Matern(1.3, 0.7, nu).to_convention(package)
    for nu in bad:
        with pytest.warns(
            gx.GeomxpWarning, match=rf"{package}.* only. Got .* = {nu:g}: "
        ) as caught:
            theirs = gx.Matern(1.3, 0.7, nu).to_convention(package)
        assert caught[0].filename == __file__
        with pytest.warns(gx.GeomxpWarning, match=f"{package} evaluates this model for") as caught:
            again = gx.Matern.from_convention(package, **theirs)
        assert caught[0].filename == __file__
        assert again.smoothness == nu


def test_a_rational_quadratic_of_gstools_has_a_limited_shape():
    model = gx.RationalQuadratic(1.0, 2.0, 50.0)
    model.to_convention("gstools")
    with pytest.warns(gx.GeomxpWarning, match="alpha from 0.5 to 50 only. Got alpha = 60"):
        model.replace(shape=60.0).to_convention("gstools")


@pytest.mark.parametrize(("package", "name"), [("GpGp", "nugget"), ("openturns", "nugget_factor")])
def test_some_packages_count_their_nugget_in_variances(package, name):
    """Of OpenTURNS 1.27: C(0) of a model with amplitude 2 and nuggetFactor 0.1 is 4.4."""
    assert gx.Matern(2.0, 1.0, 0.5, 0.3).to_convention(package)[name] == 0.15


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variance": 0.0}, "`variance` must be greater than 0. Got variance=0.0"),
        ({"range": -1.0}, "`range` must be greater than 0"),
        ({"smoothness": float("nan")}, "`smoothness` must be a finite number"),
        ({"nugget": -1e-9}, "`nugget` must be at least 0"),
        ({"variance": "big"}, "`variance` must be a number. Got 'big'"),
        ({"anisotropy": (0.0, 1.5)}, "must be greater than 0 and at most 1"),
        ({"anisotropy": 3}, "must be a pair"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(gx.InvalidInput, match=message.replace("(", r"\(")):
        gx.Matern(**({"variance": 1.0, "range": 1.0, "smoothness": 0.5} | parameters))


def test_great_circle_needs_a_rough_field():
    places = np.array([[0.0, 50.0], [1.0, 51.0]])
    with pytest.raises(gx.InvalidInput, match=r"at most 0\.5"):
        gx.Matern(1.0, 100.0, 0.6)(places, places, "great-circle")


def test_unknown_convention_lists_the_known_ones():
    with pytest.raises(gx.InvalidInput, match="scikit-learn"):
        gx.Matern.from_convention("nosuch", range=1.0)
    with pytest.raises(gx.InvalidInput, match="length_scale"):
        gx.Matern.from_convention("scikit-learn", range=1.0)


def test_a_smoothness_whose_powers_overflow_is_the_limit():
    assert gx.Matern(1.0, 1.0, 1e300).correlation([0.0, 1.0, 1e3]).tolist() == [1.0, 1.0, 1.0]
    nearly = gx.Matern(1.0, 1.0 / np.sqrt(4e10), 1e10).correlation([0.5, 1.0])
    np.testing.assert_allclose(nearly, np.exp([-0.25, -1.0]), rtol=1e-9)


@pytest.mark.parametrize("nu", [0.7, 7.3, 49.9])
def test_the_correlation_of_one_tiny_distance_is_that_in_an_array(nu):
    # K_ν overflows there
    h = 1e-12
    assert gx.Matern(1.0, 1.0, nu).correlation(h) == gx.Matern(1.0, 1.0, nu).correlation([h])[0]
