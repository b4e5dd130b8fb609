"""Transformations: inverses, Jacobians, derivatives and moments."""

from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import geomxp as gx
from geomxp.covariance.transformation import TRANSFORMS, Transformation, started, transformation

MODELS = [
    *(gx.Log(), gx.Sqrt(), gx.Logit(), gx.BoxCox(0.3, 2.0), gx.BoxCox(0.0), gx.BoxCox(-1.2)),
    *(
        gx.TukeyGH(0.4, 0.1, 0.5, 2.0),
        gx.TukeyGH(0.0, 0.2),
        gx.TukeyGH(-0.7, 0.0),
        gx.TukeyGH(1e-9, 0),
    ),
]
Z = np.linspace(-0.8, 0.8, 33)


def values_of(model):
    """Values that can be measured: those of Gaussian ones near 0, moved where that is 0."""
    return model.inverse(Z + 1.0 if model.name == "sqrt" else Z)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_inverse_and_transformation_cancel(model):
    y = values_of(model)
    model.check(y)
    assert (np.diff(y) > 0).all()
    np.testing.assert_allclose(model.inverse(model.transform(y)), y, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_the_jacobian_is_the_slope_of_the_transformation(model):
    y, step = values_of(model), 1e-5
    ends = [model.transform(y + move) for move in (step, -step)]
    slopes = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(np.exp(model.log_jacobian(y)), slopes, rtol=1e-7)


@pytest.mark.parametrize("model", [m for m in MODELS if m.declared], ids=repr)
def test_slopes_by_the_parameters_are_differences(model):
    y = values_of(model)
    expected = Transformation.slopes(model, y)
    for one, other in zip(model.slopes(y), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)
    of_z, of_jacobian = model.bends(y)
    np.testing.assert_allclose(of_z, of_z.swapaxes(0, 1), rtol=0, atol=0)
    step = 1e-4
    for k, parameter in enumerate(model.declared):
        value = getattr(model, parameter.name)
        ends = [model._beyond(parameter.name, value + move).slopes(y) for move in (step, -step)]
        slopes = (np.array(ends[0]) - np.array(ends[1])) / (2 * step)
        np.testing.assert_allclose(of_z[k], slopes[0], rtol=0, atol=1e-6)
        np.testing.assert_allclose(of_jacobian[k], slopes[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("centre", [np.nan, np.inf, "a"])
def test_a_centre_is_a_finite_number(centre):
    with pytest.raises(gx.InvalidInput, match="`centre` must be a"):
        gx.TukeyGH(0.1, 0.1, centre)


def test_moments_of_a_logarithm_that_overflow_are_infinite_without_a_warning():
    first, second = gx.Log().moments(np.array([800.0, 800.0]), np.array([1.0, 0.0]))
    assert np.isinf(first).all()
    assert second.tolist() == [np.inf, 0.0]


def test_a_class_that_needs_arguments_is_to_be_given_as_an_instance():
    @dataclass(frozen=True)
    class Shifted(Transformation):
        name = "shifted"
        shift: float

    with pytest.raises(gx.InvalidInput, match=r"transform=Shifted\(...\)"):
        gx.Matern(1.0, 1.0, 0.5, transform=Shifted)
    assert gx.Matern(1.0, 1.0, 0.5, transform=Shifted(2.0)).transform.shift == 2.0


def test_moments_of_squares_far_above_zero_do_not_cancel():
    mean, variance = np.array([10.0, 1e5, 1e9, 3.0]), np.array([1e-6, 1e-6, 0.0, 0.0])
    first, second = gx.Sqrt().moments(mean, variance)
    np.testing.assert_allclose(first, mean**2 + variance, rtol=1e-15)
    np.testing.assert_allclose(second, 4 * mean**2 * variance + 2 * variance**2, rtol=1e-14)


@pytest.mark.parametrize("x", [-0.9698, -1 + 1e-5, 0.5, 40.0])
def test_second_derivatives_near_the_end_of_a_distribution_are_exact(x):
    # without tails z = log(1 + gx)/g, and log t' = -log(1 + gx)
    with mpmath.workdps(40):
        expected = mpmath.diff(lambda g: mpmath.log(1 + g * x) / g, 1, 2)
        of_log = mpmath.diff(lambda g: -mpmath.log(1 + g * x), 1, 2)
    of_z, of_jacobian = gx.TukeyGH(1.0, 0.0).bends(np.array([x]))
    # x is rounded once more on the way
    assert of_z[0, 0, 0] == pytest.approx(float(expected), rel=1e-9)
    assert of_jacobian[0, 0, 0] == pytest.approx(float(of_log), rel=1e-9)
    assert np.isfinite([of_z, of_jacobian]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("g", "h"), [(0.6, 0.2), (-1.5, 0.05), (1e-9, 0.3), (0.0, 0.1)])
def test_all_second_derivatives_of_tukeys_transformation(g, h):
    y = np.array([-0.6, 0.1, 0.55])
    model = gx.TukeyGH(g, h)

    def inverse(value):
        """Return z and log t' as functions of (g, h), in 40 digits."""
        start = float(model.transform(np.array([value]))[0])

        def tau(z, g, h):
            return (mpmath.expm1(g * z) / g if g else z) * mpmath.exp(h * z * z / 2)

        def z_of(g, h):
            return mpmath.findroot(lambda z: tau(z, g, h) - mpmath.mpf(value), start)

        def log_of(g, h):
            return -mpmath.log(mpmath.diff(lambda z: tau(z, g, h), z_of(g, h)))

        return z_of, log_of

    found = model.bends(y)
    with mpmath.workdps(60):
        for k, value in enumerate(y.tolist()):
            for function, bends in zip(inverse(value), found, strict=True):
                for i, j in ((0, 0), (0, 1), (1, 1)):
                    order = (int(i == 0) + int(j == 0), int(i == 1) + int(j == 1))
                    expected = mpmath.diff(function, (mpmath.mpf(g), mpmath.mpf(h)), order, h=1e-12)
                    assert bends[i, j, k] == pytest.approx(float(expected), rel=1e-7, abs=1e-9)
                    assert bends[i, j, k] == bends[j, i, k]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_moments_are_those_of_the_back_transformed_distribution(model):
    mean, spread = 0.3, 0.4
    found = model.moments(np.array([mean]), np.array([spread**2]))

    def moment(function):
        def weighted(x):
            y = model.inverse(np.array([mean + spread * x]))[0]
            return function(y) * stats.norm.pdf(x)

        return integrate.quad(weighted, -8.3, 8.3, limit=500, epsabs=1e-12)[0]

    if model.name == "boxcox" and model.boxcox_power < 0:
        # t⁻¹ is infinite beyond 1.3 standard deviations, and the variance anywhere
        assert np.isinf(found).all()
        near = model.moments(np.array([mean]), np.array([0.01]))
        assert near[0][0] == pytest.approx(model.inverse(np.array([mean]))[0], rel=0.1)
        assert np.isinf(near[1][0])
        return
    first = moment(lambda y: y)
    assert found[0][0] == pytest.approx(first, rel=1e-6)
    assert found[1][0] == pytest.approx(moment(lambda y: (y - first) ** 2), rel=1e-5)


def test_box_cox_includes_the_logarithm_and_the_square_root():
    y = np.array([0.2, 1.0, 3.0])
    np.testing.assert_allclose(gx.BoxCox(0.0).transform(y), np.log(y), rtol=1e-15)
    np.testing.assert_allclose(gx.BoxCox(1e-12).transform(y), np.log(y), rtol=1e-11)
    np.testing.assert_allclose(gx.BoxCox(0.5).transform(y), 2 * (np.sqrt(y) - 1), rtol=1e-15)
    np.testing.assert_allclose(gx.BoxCox(1.0, 2.0).transform(y), y / 2 - 1, atol=1e-15)


def test_tukey_g_and_h_is_the_published_formula():
    z, g, h = np.linspace(-3, 3, 7), 0.5, 0.2
    y = 1.0 + 2.0 * (np.exp(g * z) - 1) / g * np.exp(h * z**2 / 2)
    np.testing.assert_allclose(gx.TukeyGH(g, h, 1.0, 2.0).inverse(z), y, rtol=1e-14)


@settings(max_examples=100, deadline=None)
@given(
    g=st.floats(-2, 2), h=st.floats(0, 0.9), z=st.lists(st.floats(-5, 5), min_size=1, max_size=9)
)
def test_tukey_g_and_h_is_inverted_to_rounding(g, h, z):
    model, z = gx.TukeyGH(g, h), np.array(z)
    y = model.inverse(z)
    back = model.inverse(model.transform(y))
    np.testing.assert_allclose(back, y, rtol=1e-12, atol=1e-12)


def test_values_outside_the_support_of_a_law_without_tails_are_not_finite():
    # with g = 1 and h = 0 values are above -1
    assert not np.isfinite(gx.TukeyGH(1.0, 0.0).transform(np.array([-2.0]))).all()


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("log", [1.0, 0.0], "'log' needs values greater than 0. Got 0 in row 2 .1 such rows."),
        ("sqrt", [-1.0, 0.0], "Got -1 in row 1 .2 such rows.: use tukey-gh, or add a constant"),
        ("boxcox", [1.0, -3.0], "'boxcox' needs values greater than 0"),
        (
            "logit",
            [0.5, 45.0],
            "greater than 0 and less than 1. Got 45 in row 2.*divide them by 100",
        ),
    ],
)
def test_values_that_cannot_be_measured_are_refused(name, values, words):
    with pytest.raises(gx.InvalidInput, match=words):
        transformation(name).check(np.array(values))


def test_unknown_transformations_are_refused():
    with pytest.raises(gx.InvalidInput, match="must be one of log, sqrt, boxcox, logit, tukey-gh"):
        transformation("logs")
    with pytest.raises(gx.InvalidInput, match="`boxcox_power` must be"):
        gx.BoxCox(7.0)
    with pytest.raises(gx.InvalidInput, match="`scale` must be greater than 0"):
        gx.TukeyGH(scale=0.0)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_starts_are_most_likely_for_independent_values(name):
    model, random = transformation(name), np.random.default_rng(0)
    z = 0.4 * random.standard_normal(500)
    y = gx.TukeyGH(0.5, 0.1).inverse(z) if name == "tukey-gh" else 1 / (1 + np.exp(-z))
    adapted = model.adapted(y)
    best = started(adapted, y, np.ones((500, 1)))

    def value(model):
        rest = model.transform(y)
        return -250 * np.log(np.var(rest)) + model.log_jacobian(y).sum()

    for p in best.table:
        for move in (-0.02, 0.02):
            moved = min(max(p.value + move, p.lower), p.upper)
            assert value(best) > value(best._beyond(p.name, moved)) - 1e-2


def test_a_models_transformation_is_part_of_it():
    model = gx.Matern(1.0, 2.0, 0.5, transform="boxcox")
    assert list(model.parameters())[-1] == "boxcox_power"
    moved = model.replace(boxcox_power=0.1, variance=3.0)
    assert moved.transform == gx.BoxCox(0.1)
    assert moved != moved.replace(boxcox_power=0.2)
    assert hash(moved) == hash(moved.replace(boxcox_power=0.1))
    assert "transform=BoxCox(boxcox_power=0.1, scale=1.0)" in repr(moved)
    assert "transform" not in repr(gx.Matern(1.0, 2.0, 0.5))
    assert (
        gx.Matern(1.0, 2.0, 0.5, 0.1, (30.0, 0.5), transform="log").scaled(4.0).transform
        == gx.Log()
    )


@pytest.mark.parametrize(
    ("g", "h", "variance"), [(0.5, 0.1, 4.0), (0.5, 0.2, 2.0), (0.0, 0.2, 1.5)]
)
def test_moments_of_heavy_tails_are_integrals(g, h, variance):
    model, spread = gx.TukeyGH(g, h, 1.0, 2.0), np.sqrt(variance)

    def mean_of(power):
        def integrand(z):
            return float(model.inverse(z)) ** power * stats.norm.pdf(z, 0.5, spread)

        return integrate.quad(integrand, -40, 55, limit=500, points=[0.0, 10.0, 25.0])[0]

    first, second = model.moments(np.array([0.5]), np.array([variance]))
    assert first[0] == pytest.approx(mean_of(1), rel=1e-6)
    assert second[0] == pytest.approx(mean_of(2) - mean_of(1) ** 2, rel=1e-6)


@pytest.mark.parametrize("power", [-3.0, -2.2, -2.0, -1.3, -1.0, -0.7, -1e-3])
def test_moments_of_a_negative_power_exist_by_the_power_alone(power):
    # far from the singularity, near it, at six standard deviations, and without variance
    mean = np.array([0.0, -1.0, 0.1, 0.0, 0.2])
    variance = np.array([1e-8, 1e-3, 1e-3, (1 / (6 * power)) ** 2, 0.0])
    first, second = gx.BoxCox(power, 2.0).moments(mean, variance)
    assert np.isfinite(first).all() == (power < -1) == (not np.isinf(first).all())
    assert np.isfinite(second).all() == (power < -2) == (not np.isinf(second).all())


@pytest.mark.parametrize(
    ("power", "mean", "spread"),
    [(-2.6, 0.1, 0.05), (-2.1, 0.0, 0.09), (3.0, -0.3, 0.4), (3.0, -0.5, 0.1), (0.6, -2.0, 1.5)],
)
def test_moments_of_a_power_are_those_of_a_truncated_normal(power, mean, spread):
    # w = 1 + λz = tZ with E max(Z, 0)^a = Γ(a + 1) e^(-x²/4) D_(-a-1)(-x)/√2π
    def moment(a):
        value = mpmath.gamma(a + 1) / mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(-x * x / 4)
        return t**a * value * mpmath.pcfd(-a - 1, -x)

    with mpmath.workdps(40):
        t = abs(mpmath.mpf(power)) * spread
        x = (1 + mpmath.mpf(power) * mean) / t
        known = mpmath.ncdf(x) if power < 0 else 1
        one, two = (2**k * moment(k / mpmath.mpf(power)) / known for k in (1, 2))
        variance = float(two - one**2)
    first, second = gx.BoxCox(power, 2.0).moments(np.array([mean]), np.array([spread**2]))
    assert first[0] == pytest.approx(float(one), rel=1e-12)
    assert second[0] == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_parameters_that_are_not_given_are_those_of_a_search(name):
    model = TRANSFORMS[name]()
    assert {p.name: p.value for p in model.declared} == model.parameters()


def test_a_model_of_ones_own_says_which_moments_exist():
    @dataclass(frozen=True)
    class Reciprocal(Transformation):
        """y = 1/z: E|y| is infinite."""

        name = "reciprocal"
        moment_rule = "no moment of 1/z exists"

        def inverse(self, z):
            return 1 / z

        def moment_order(self, variance):
            return np.ones(np.shape(variance))

    assert np.isinf(Reciprocal().moments(np.array([9.0]), np.array([0.1]))).all()


def test_moments_that_do_not_exist_are_infinite():
    mean, variance = np.zeros(3), np.array([1.0, 3.0, 6.0])
    first, second = gx.TukeyGH(0.5, 0.2).moments(mean, variance)
    np.testing.assert_array_equal(np.isinf(first), [False, False, True])
    np.testing.assert_array_equal(np.isinf(second), [False, True, True])


@pytest.mark.parametrize("model", [gx.Sqrt(), gx.BoxCox(0.5), gx.BoxCox(-0.5), gx.Log()], ids=repr)
def test_the_probability_above_a_value_includes_the_one_of_0(model):
    normal = gx.Prediction(np.zeros((1, 1)), np.array([-1.0]), np.array([1.0]), 0.0)
    prediction = gx.Prediction.back_transformed(normal, model)
    draws = model.inverse(np.random.default_rng(1).normal(-1.0, 1.0, 100_000))
    for threshold in (-1.0, 0.0, 0.5):
        share = np.mean(draws > threshold)
        assert prediction.probability_above(threshold)[0] == pytest.approx(share, abs=0.006)


def test_a_parameter_with_the_name_of_a_covariance_parameter_is_refused():
    class Ranged(Transformation):
        name = "ranged"
        declared = (gx.Parameter("range", 1.0),)
        range = 1.0

    with pytest.raises(gx.InvalidInput, match="'ranged' has the name of a parameter"):
        gx.Matern(1.0, 0.2, 0.5, transform=Ranged())
