import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

import geomxp as gx
from geomxp.estimation.bootstrap import simulated
from geomxp.estimation.likelihood_ratio import statistic_of
from geomxp.estimation.small_sample import trend_inference
from geomxp.prediction.simulate import lay_out

TRUTH = gx.Matern(2.0, 0.1, 0.5, 0.2)
HALF, EVEN = {"smoothness": 0.5}, {"axis_ratio_2": 1.0}


@pytest.fixture(scope="module")
def field():
    places = lay_out(144, "jittered", 3)
    values = gx.simulate(TRUTH, places, seed=4)[0]
    return gx.Observations(places, values, covariates=np.sin(9 * places[:, :1]))


@pytest.fixture(scope="module")
def plain(field):
    return gx.fit(field, fixed=HALF)


@pytest.fixture(scope="module")
def bare(field):
    return gx.fit(field, fixed=HALF | {"nugget": 0.0})


def test_a_fit_against_itself_has_nothing_to_test(plain):
    test = gx.likelihood_ratio_test(plain, plain)
    assert (test.statistic, test.degrees_of_freedom, test.p_value) == (0.0, 0, 1.0)
    assert "same parameters" in str(test)


def test_statistic_is_twice_the_difference_and_interior_parameters_have_chi_square(field, plain):
    held = gx.fit(field, fixed=HALF | {"range": 0.3})
    test = gx.likelihood_ratio_test(held, plain)
    statistic = 2 * (plain.log_likelihood - held.log_likelihood)
    assert test.statistic == pytest.approx(statistic, rel=1e-12)
    assert test.degrees_of_freedom == 1
    assert test.p_value == pytest.approx(chi2.sf(statistic, 1), rel=1e-12)
    assert "tested: range; compared with chi-square" in test.message


def test_the_end_of_a_profile_interval_is_where_the_test_begins_to_refuse(field, plain):
    ends = plain.confidence_intervals(0.9, "profile", ["range"])["range"]
    for end in ends:
        held = gx.fit(field, fixed=HALF | {"range": end})
        # an end is met to 1e-4 in ℓ
        assert gx.likelihood_ratio_test(held, plain).p_value == pytest.approx(0.1, abs=1e-4)


def test_isotropy_is_no_edge_of_ellipses_ellipsoids_and_axes(field, plain):
    held = {name: plain.model.parameters()[name] for name in ("range", "nugget")} | HALF
    free = {"fixed": held, "trend": "zero"}
    small, cases = gx.fit(field, **free), [({"anisotropy": True}, 2), ({"axis_ranges": True}, 1)]
    for options, degrees in cases:
        test = gx.likelihood_ratio_test(small, gx.fit(field, **options, **free))
        assert test.degrees_of_freedom == degrees
        assert test.message.endswith("compared with chi-square") or "fewer than" in test.message
        assert "½" not in test.message
    random = np.random.default_rng(0)
    places = random.random((60, 3))
    solid = gx.Observations(places, gx.simulate(TRUTH, places, seed=1)[0])
    small = gx.fit(solid, **free)
    test = gx.likelihood_ratio_test(small, gx.fit(solid, anisotropy=True, **free))
    assert test.degrees_of_freedom == 5
    assert "½" not in test.message


def test_one_range_for_each_axis_is_within_ellipses_and_ellipsoids(field):
    options = {"fixed": HALF | {"nugget": 0.2}, "trend": "zero", "progress": False}
    axes = gx.fit(field, axis_ranges=True, **options)
    turned = gx.fit(field, anisotropy=True, **options)
    test = gx.likelihood_ratio_test(axes, turned)
    assert test.degrees_of_freedom == 1
    assert test.p_value == pytest.approx(chi2.sf(test.statistic, 1), rel=1e-12)
    assert test.message.startswith("tested: anisotropy angle; compared with chi-square")
    # isotropy along the axes is inside: a symmetric matrix that is a multiple of 1
    even = gx.fit(field, axis_ranges=True, **options | {"fixed": options["fixed"] | EVEN})
    test = gx.likelihood_ratio_test(even, turned)
    assert test.degrees_of_freedom == 2
    assert "½" not in test.message
    with pytest.raises(gx.InvalidInput, match="not nested"):
        gx.likelihood_ratio_test(turned, axes)
    held = options["fixed"] | {"anisotropy_angle": 30.0}
    with pytest.raises(gx.InvalidInput, match="`restricted` estimates axis_ratio_2"):
        gx.likelihood_ratio_test(axes, gx.fit(field, anisotropy=True, **options | {"fixed": held}))
    places = np.random.default_rng(0).random((150, 3))
    layers = gx.Matern(2.0, 0.5, 0.5, 0.02, anisotropy=gx.AxisRatios3D(0.6, 0.3))
    solid = gx.Observations(places, gx.simulate(layers, places, seed=1)[0])
    options["fixed"] = HALF | {"variance": 2.0, "nugget": 0.02}
    axes = gx.fit(solid, axis_ranges=True, **options)
    test = gx.likelihood_ratio_test(axes, gx.fit(solid, anisotropy=True, **options))
    assert test.degrees_of_freedom == 3
    assert "anisotropy angle, anisotropy dip, anisotropy roll" in test.message


def test_a_nugget_of_zero_is_at_the_end_of_what_it_can_be(plain, bare):
    test = gx.likelihood_ratio_test(bare, plain)
    assert test.statistic > 0
    assert test.p_value == pytest.approx(0.5 * chi2.sf(test.statistic, 1), rel=1e-12)
    assert "nugget held at its limit: compared with ½χ²(0) + ½χ²(1)" in test.message


def test_a_nugget_held_above_zero_is_inside(field, plain):
    test = gx.likelihood_ratio_test(gx.fit(field, fixed=HALF | {"nugget": 0.1}), plain)
    assert test.p_value == pytest.approx(chi2.sf(test.statistic, 1), rel=1e-12)


@pytest.mark.slow
def test_an_estimate_of_zero_says_nothing_against_zero():
    places = lay_out(144, "jittered", 3)
    seen = gx.Observations(places, gx.simulate(gx.Matern(2.0, 0.1, 0.5), places, seed=8)[0])
    full, bare = gx.fit(seen), gx.fit(seen, fixed={"nugget": 0.0})
    assert full.boundary == ("nugget",)
    test = gx.likelihood_ratio_test(bare, full)
    assert test.degrees_of_freedom == 1
    # two searches of one maximum
    assert test.statistic < 1e-5
    assert test.p_value > 0.49


def test_trends_are_tested_by_their_columns(field, plain):
    linear = gx.fit(field, fixed=HALF, trend="linear")
    test = gx.likelihood_ratio_test(plain, linear)
    assert test.degrees_of_freedom == 2
    # divided by its mean to order 1/n, which exceeds 1
    mean = trend_inference(linear, restricted=False).bartlett(np.eye(3)[1:])
    assert 1 < mean < 2
    assert test.p_value == pytest.approx(chi2.sf(test.statistic / mean, 2), rel=1e-9)
    assert "2 coefficients of the trend; compared with chi-square after division" in test.message
    none = gx.fit(field, fixed=HALF, trend="zero")
    assert gx.likelihood_ratio_test(none, linear).degrees_of_freedom == 3
    covariates = gx.fit(field, fixed=HALF, trend="covariates")
    with pytest.raises(gx.InvalidInput, match=r"not nested.*\(covariates\).*\(linear\)"):
        gx.likelihood_ratio_test(covariates, linear)


def test_several_parameters_mix_chi_squares_of_neighbouring_degrees(field, bare):
    full = gx.fit(field, fixed=HALF, trend="linear")
    test = gx.likelihood_ratio_test(bare, full)
    assert test.degrees_of_freedom == 3
    expected = 0.5 * (chi2.sf(test.statistic, 2) + chi2.sf(test.statistic, 3))
    assert test.p_value == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_isotropy_is_a_point_inside_and_a_ratio_alone_ends_at_one(field, plain):
    free = gx.fit(field, fixed=HALF, anisotropy=True)
    test = gx.likelihood_ratio_test(plain, free)
    assert test.degrees_of_freedom == 2
    assert test.p_value == pytest.approx(chi2.sf(test.statistic, 2), rel=1e-12)
    assert "this p is too small: use the bootstrap" in test.message
    angle = free.model.anisotropy.angle
    one = gx.fit(field, fixed=HALF | {"anisotropy_angle": angle}, anisotropy=True)
    test = gx.likelihood_ratio_test(plain, one)
    assert test.degrees_of_freedom == 1
    assert test.p_value == pytest.approx(0.5 * chi2.sf(test.statistic, 1), rel=1e-12)
    with pytest.raises(gx.InvalidInput, match="not nested: `restricted` estimates anisotropy"):
        gx.likelihood_ratio_test(free, plain)


@pytest.mark.slow
def test_the_p_value_is_uniform_where_the_smaller_model_is_true():
    places, p_values = lay_out(100, "jittered", 3), []
    for values in gx.simulate(gx.Matern(1.0, 0.15, 0.5), places, draws=80, seed=31):
        seen = gx.Observations(places, values)
        held = {"smoothness": 0.5, "nugget": 0.0}
        full = gx.fit(seen, fixed=held, trend="zero")
        restricted = gx.fit(seen, fixed=held | {"range": 0.15}, trend="zero")
        p_values.append(gx.likelihood_ratio_test(restricted, full).p_value)
    # three standard deviations of a mean of uniform numbers, and of a share below 0.2
    assert abs(np.mean(p_values) - 0.5) < 3 * np.sqrt(1 / 12 / 80)
    assert abs(np.mean(np.array(p_values) < 0.2) - 0.2) < 3 * np.sqrt(0.16 / 80)


def test_fits_that_are_not_nested_are_refused_with_what_differs(field, plain, bare):
    with pytest.raises(gx.InvalidInput, match="not nested: `restricted` estimates nugget"):
        gx.likelihood_ratio_test(plain, bare)
    other = gx.fit(field, fixed={"smoothness": 1.5, "nugget": 0.0})
    with pytest.raises(gx.InvalidInput, match=r"smoothness is held at 1.5 in .* at 0.5 in `full`"):
        gx.likelihood_ratio_test(other, plain)


@pytest.mark.slow
def test_fits_of_different_likelihoods_are_refused(field, plain):
    moved = gx.Observations(field.locations, field.values + 1.0, field.covariates)
    reml = gx.fit(field, fixed=HALF, reml=True)
    cases = {
        "different observations": gx.fit(moved, fixed=HALF),
        "one fit uses REML and the other ML": reml,
        "approximate the likelihood in different ways": gx.fit(
            field, method=gx.Vecchia(10), fixed=HALF
        ),
    }
    for words, other in cases.items():
        with pytest.raises(gx.InvalidInput, match=words):
            gx.likelihood_ratio_test(other, plain)
    linear = gx.fit(field, fixed=HALF, trend="linear", reml=True)
    with pytest.raises(gx.InvalidInput, match="compare trends by ML"):
        gx.likelihood_ratio_test(reml, linear)
    with pytest.raises(gx.InvalidInput, match=r"must be a Fit, as gx.fit returns it. Got Matern"):
        gx.likelihood_ratio_test(plain.model, plain)


def test_another_place_to_compute_is_no_other_likelihood(field, plain):
    tiled = gx.fit(field, method=gx.Exact(tile=48), fixed=HALF)
    test = gx.likelihood_ratio_test(tiled, plain)
    assert test.degrees_of_freedom == 0
    assert test.statistic < 1e-5


def test_a_full_fit_below_the_restricted_one_is_no_maximum(field, plain, bare):
    low = replace(plain, log_likelihood=bare.log_likelihood - 1.0)
    with pytest.raises(gx.InvalidInput, match=r"is 1 below that of the restricted fit.*fit again"):
        gx.likelihood_ratio_test(bare, low)


def test_searches_that_were_stopped_are_not_compared(field, plain):
    stopped = gx.fit(field, fixed=HALF, evaluations=2)
    with pytest.raises(gx.InvalidInput, match="no estimate"):
        gx.likelihood_ratio_test(stopped, plain)


# The parametric bootstrap


@pytest.fixture(scope="module")
def few():
    places = np.random.default_rng(0).random((40, 2))
    return gx.Observations(places, gx.simulate(gx.Matern(1.0, 0.1, 0.5, 0.2), places, seed=3)[0])


@pytest.fixture(scope="module")
def pair(few):
    return gx.fit(few, fixed=HALF), gx.fit(few, fixed=HALF, trend="x")


@pytest.mark.slow
def test_draws_do_not_depend_on_their_number_and_give_the_p_value(pair):
    short = gx.likelihood_ratio_test(*pair, bootstrap=1, seed=2)
    test = gx.likelihood_ratio_test(*pair, bootstrap=3, seed=2)
    assert test.draws[:1] == short.draws
    assert len(test.draws) == 3
    assert all(draw >= 0 for draw in test.draws)
    larger = sum(draw >= test.statistic for draw in test.draws)
    assert test.p_value == (1 + larger) / 4
    assert "compared with 3 bootstrap draws" in test.message
    other = gx.likelihood_ratio_test(*pair, bootstrap=1, seed=3)
    assert other.draws != short.draws


@pytest.mark.slow
def test_a_draw_is_the_statistic_of_two_fits_to_data_from_the_restricted_one(few, pair):
    draw = gx.likelihood_ratio_test(*pair, bootstrap=1, seed=5).draws[0]
    restricted, _ = pair
    white = np.random.default_rng([5, 3, 0]).standard_normal((40, 1))
    sigma = restricted.model(few.locations, few.locations) + restricted.model.nugget * np.eye(40)
    values = restricted.coefficients[0] + (np.linalg.cholesky(sigma) @ white)[:, 0]
    seen = replace(few, values=values, source={})
    fits = [gx.fit(seen, fixed=HALF, trend=trend, starts=6) for trend in ("constant", "x")]
    statistic = 2 * (fits[1].log_likelihood - fits[0].log_likelihood)
    assert draw == pytest.approx(statistic, abs=1e-4)


@pytest.mark.slow
def test_a_bootstrap_resumes_from_its_checkpoint(pair, tmp_path, monkeypatch):
    path = tmp_path / "draws.json"
    whole = gx.likelihood_ratio_test(*pair, bootstrap=4)
    calls = []

    def counted(fits, values):
        calls.append(values)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return statistic_of(fits, values)

    monkeypatch.setattr("geomxp.estimation.likelihood_ratio.statistic_of", counted)
    with pytest.raises(KeyboardInterrupt):
        gx.likelihood_ratio_test(*pair, bootstrap=4, checkpoint=path)
    assert len(json.loads(path.read_text())["statistics"]) == 2
    resumed = gx.likelihood_ratio_test(*pair, bootstrap=4, checkpoint=path)
    assert resumed == whole
    # two before the interruption, the interrupted one, two after it
    assert len(calls) == 5
    assert gx.likelihood_ratio_test(*pair, bootstrap=3, checkpoint=path).draws == whole.draws[:3]
    with pytest.raises(gx.InvalidInput, match="a checkpoint of another test"):
        gx.likelihood_ratio_test(*pair, bootstrap=4, seed=1, checkpoint=path)
    path.write_text('{"problem": "x", "statistics": [-1.0]}')
    with pytest.raises(gx.InvalidInput, match="not a checkpoint of a bootstrap"):
        gx.likelihood_ratio_test(*pair, bootstrap=4, checkpoint=path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "large"),
    [
        ({"fixed": HALF | {"nugget": 0.0}}, {"fixed": HALF}),
        ({"fixed": HALF}, {"fixed": HALF, "anisotropy": True}),
        ({"fixed": HALF, "reml": True}, {"reml": True}),
    ],
)
def test_every_kind_of_test_has_a_bootstrap(few, small, large):
    restricted, full = (
        gx.fit(few, trend="constant", raise_on_failure=False, **options)
        for options in (small, large)
    )
    (values,) = simulated(restricted, 1, 0)
    assert 0 <= statistic_of((restricted, full), values) < 50


@pytest.mark.slow
def test_a_fit_at_a_limit_has_a_supremum(few):
    noise = replace(few, values=np.random.default_rng(4).standard_normal(40), source={})
    fits = [
        gx.fit(noise, fixed=HALF, trend=trend, raise_on_failure=False)
        for trend in ("constant", "x")
    ]
    assert {str(fit.outcome.ending) for fit in fits} == {"AT_LIMIT"}
    test = gx.likelihood_ratio_test(*fits, bootstrap=3)
    assert len(test.draws) == 3


def test_invalid_options_of_the_bootstrap_are_refused(pair):
    with pytest.raises(gx.InvalidInput, match=r"`bootstrap` must be a whole number.*Got -1"):
        gx.likelihood_ratio_test(*pair, bootstrap=-1)
    with pytest.raises(gx.InvalidInput, match="`seed` must be a whole number"):
        gx.likelihood_ratio_test(*pair, bootstrap=2, seed=0.5)
    with pytest.raises(gx.InvalidInput, match="`on` must be"):
        gx.likelihood_ratio_test(*pair, bootstrap=2, on="gpu")
