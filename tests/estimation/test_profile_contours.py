from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp.estimation.profile import profile_contours, wald_ellipse

# of ℓ, from where curves lie between their rays
BETWEEN = 0.06
# of ℓ, on the rays, from the curve through a few points of each
ALONG = 0.03


@pytest.fixture(scope="module")
def field():
    places = np.random.default_rng(1).random((90, 2))
    model = gx.Matern(1.0, 0.15, 0.8, 0.1)
    return gx.Observations(places, gx.simulate(model, places, seed=5)[0])


@pytest.fixture(scope="module")
def fit(field):
    return gx.fit(field, fixed={"smoothness": 0.8, "nugget": 0.1})


def fall(fit, names, values):
    """How far ℓ_p lies below the maximum, by a fit with the two parameters held."""
    kept = fit.free + fit.boundary
    held = {name: v for name, v in fit.model.parameters().items() if name not in kept}
    again = gx.fit(
        fit.observations,
        fit.model,
        fit.method,
        fixed=held | dict(zip(names, values, strict=True)),
        trend=fit.trend.text,
        reml=fit.reml,
        raise_on_failure=False,
    )
    return fit.log_likelihood - again.log_likelihood


def test_contours_lie_where_the_likelihood_has_fallen_by_their_level(fit):
    names = ("range", "variance")
    found = profile_contours(fit, *names, levels=(0.5, 0.95), rays=16)
    assert found.open == (False, False)
    for level, curve in zip(found.levels, found.curves, strict=True):
        np.testing.assert_allclose(curve[0], curve[-1], rtol=1e-12)
        # of points, ten from one ray to the next
        for k, tolerance in ((0, ALONG), (30, ALONG), (25, BETWEEN), (77, BETWEEN)):
            assert fall(fit, names, curve[k]) == pytest.approx(-np.log(1 - level), abs=tolerance)


def test_contours_follow_the_other_parameters_to_their_best(field):
    fit = gx.fit(field, fixed={"smoothness": 0.8}, reml=True, trend="linear")
    names = ("nugget", "variance")
    found = profile_contours(fit, *names, levels=(0.5,), rays=8)
    for k in (0, 20, 50):
        assert fall(fit, names, found.curves[0][k]) == pytest.approx(np.log(2), abs=ALONG)


def test_contours_of_an_approximate_likelihood_are_its_own(field):
    fit = gx.fit(field, method=gx.Vecchia(10), fixed={"smoothness": 0.8, "nugget": 0.1})
    names = ("variance", "range")
    curve = profile_contours(fit, *names, levels=(0.9,), rays=8).curves[0]
    for k in (0, 30):
        assert fall(fit, names, curve[k]) == pytest.approx(-np.log(0.1), abs=ALONG)


def test_contours_know_no_units(fit, field):
    other = gx.Observations(1024.0 * field.locations, 8.0 * field.values)
    again = gx.fit(other, fixed={"smoothness": 0.8, "nugget": 6.4})
    one, two = (
        profile_contours(f, "range", "variance", levels=(0.9,), rays=6) for f in (fit, again)
    )
    # the two searches end at their tolerance
    np.testing.assert_allclose(two.curves, one.curves * (1024.0, 64.0), rtol=1e-3)


@pytest.mark.slow
def test_contours_that_reach_a_nugget_of_zero_are_open_and_follow_it():
    fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    found = profile_contours(fit, "nugget", "variance", rays=16)
    assert found.open == (False, True, True)
    assert found.curves[0][:, 0].min() > 0
    assert found.curves[2][:, 0].min() == 0
    # inside the region, on its border
    edge = found.curves[2][found.curves[2][:, 0] == 0]
    assert fall(fit, ("nugget", "variance"), edge[len(edge) // 2]) < -np.log(0.05)


def test_contours_stay_within_the_bounds_of_the_fit(field):
    bounds = {"range": (0.05, 0.3)}
    fit = gx.fit(field, fixed={"smoothness": 0.8, "nugget": 0.1}, bounds=bounds)
    found = profile_contours(fit, "range", "variance", rays=12)
    assert found.open[-1]
    assert found.curves[..., 0].min() >= 0.05 * (1 - 1e-12)
    assert found.curves[..., 0].max() <= 0.3 * (1 + 1e-12)


def test_ellipse_is_the_quadratic_form_of_the_information(fit):
    curve = wald_ellipse(fit, "range", "variance", 0.9)
    order = [fit.free.index(name) for name in ("range", "variance")]
    information = gx.information(fit)[np.ix_(order, order)]
    away = np.log(curve / (fit.model.range, fit.model.variance))
    # both were estimated, and nothing else
    form = np.einsum("ij,jk,ik->i", away, information, away)
    np.testing.assert_allclose(form, -2 * np.log(0.1), rtol=1e-10)


def test_contours_of_a_direction_come_round_within_a_right_angle():
    places = np.random.default_rng(4).random((80, 2))
    truth = gx.Matern(1.0, 0.2, 0.5, 0.0, (30.0, 0.4))
    seen = gx.Observations(places, gx.simulate(truth, places, seed=2)[0])
    fit = gx.fit(seen, truth, fixed=("smoothness", "nugget", "range"), trend="zero")
    names = ("anisotropy_angle", "anisotropy_ratio")
    found = profile_contours(fit, *names, rays=8)
    away = np.abs(found.curves[..., 0] - fit.model.parameters()["anisotropy_angle"])
    assert away.max() <= 90.0 * (1 + 1e-12)
    assert found.curves[..., 1].max() <= 1.0
    assert fall(fit, names, found.curves[0][0]) == pytest.approx(np.log(2), abs=ALONG)


def test_contours_refuse_what_they_cannot_follow(fit):
    for arguments, words in (
        (("range", "nugget"), "two estimated parameters: variance, range. Got 'nugget'"),
        (("range", "range"), "two different parameters. Got 'range' twice"),
    ):
        with pytest.raises(gx.InvalidInput, match=words):
            profile_contours(fit, *arguments)
    for level in (95, 0.0, "much"):
        with pytest.raises(gx.InvalidInput, match="`levels` must lie between 0 and 1"):
            profile_contours(fit, "range", "variance", levels=[level])
    with pytest.raises(gx.InvalidInput, match="`rays` must be a whole number of at least 3"):
        profile_contours(fit, "range", "variance", rays=2)


def test_contours_about_a_point_below_the_maximum_say_so(fit):
    worse = fit.model.parameters() | {"range": 1.5 * fit.model.range}
    wrong = replace(fit, model=gx.Matern.from_parameters(worse))
    with pytest.warns(gx.GeomxpWarning, match="higher by .* Fit again from Matern"):
        profile_contours(wrong, "range", "variance", levels=(0.9,), rays=6)
