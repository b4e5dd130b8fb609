"""Fits of responses that are not Gaussian."""

import json
from pathlib import Path

import numpy as np
import pytest

import geomxp as gx
from geomxp import responses
from geomxp.errors import Ending

pytestmark = pytest.mark.filterwarnings("ignore:AT_LIMIT", "ignore:Laplace's approximation for")

KNOWN = json.loads(
    (Path(__file__).parents[1] / "references" / "laplace.json").read_text(encoding="utf-8")
)
HELD = {"smoothness": 0.5, "nugget": 0.0}
N = 150


def table(column, **more):
    fields = {name: np.array(values) for name, values in KNOWN["fields"].items()}
    return gx.Observations(
        np.column_stack((fields["e"], fields["n"])),
        fields[column],
        covariates=fields["x"][:, None],
        covariate_names=("w",),
        **{name: fields[key] for name, key in more.items()},
    )


@pytest.fixture(scope="module")
def field():
    places = np.random.default_rng(1).random((N + 50, 2))
    return places, gx.simulate(gx.Matern(0.8, 0.2, 0.5), places, seed=4)[0]


def seen(field, draw, rows=slice(0, N), **more):
    places, f = field
    values = draw(np.random.default_rng(7), f)
    more = {name: column[rows] for name, column in more.items()}
    return gx.Observations(places[rows], values[rows], **more)


def poisson(random, f):
    return random.poisson(np.exp(1.0 + f)).astype(float)


def binary(random, f):
    return (random.random(len(f)) < 1 / (1 + np.exp(-f))).astype(float)


NAMES = {
    "Poisson": "poisson",
    "Bernoulli": "bernoulli",
    "Binomial": "binomial",
    "Gamma": "gamma",
    "Beta": "beta",
    "ZeroInflatedPoisson": "zero-inflated-poisson",
    "Tweedie": "tweedie",
}


@pytest.mark.parametrize("case", KNOWN["maxima"], ids=lambda case: case["response"])
def test_maxima_are_those_of_glmmtmb(case):
    trials = {"trials": "trials"} if case["trials"] else {}
    observations = table(case["column"], **trials)
    fit = gx.fit(observations, response=NAMES[case["response"]], trend="w", fixed=HELD)
    assert fit.log_likelihood == pytest.approx(case["value"], abs=1e-4)
    assert fit.outcome.good
    kinds = np.array(case["names"])
    estimates, errors = (np.array(case[key]) for key in ("estimates", "standard_errors"))
    np.testing.assert_allclose(fit.coefficients, estimates[kinds == "beta"], atol=1e-4)
    np.testing.assert_allclose(fit.coefficient_errors, errors[kinds == "beta"], rtol=0.01)
    if case["inside"]:
        # θ are the logarithms of the standard deviation and of the range
        of_theta = errors[kinds == "theta"]
        shown = [fit.standard_errors[name] / fit.model.parameters()[name] for name in ("range",)]
        np.testing.assert_allclose(shown, of_theta[1:], rtol=0.01)
        size = fit.standard_errors["variance"] / fit.model.variance / 2
        assert size == pytest.approx(of_theta[0], rel=0.01)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("poisson", poisson),
        ("negative-binomial", lambda r, f: r.poisson(np.exp(1 + f) * r.gamma(2, 0.5, len(f)))),
        ("bernoulli", binary),
        ("gamma", lambda r, f: r.gamma(2.0, np.exp(f) / 2)),
        ("log-normal", lambda r, f: np.exp(f + 0.4 * r.standard_normal(len(f)))),
        ("student-t", lambda r, f: f + 0.2 * r.standard_t(4, len(f))),
    ],
)
def test_a_saved_fit_predicts_the_same(field, tmp_path, name, draw):
    observations = seen(field, lambda r, f: np.asarray(draw(r, f), dtype=float))
    fit = gx.fit(observations, response=name, fixed={"smoothness": 0.5})
    assert fit.outcome.good
    fit.save(tmp_path / "fit.json", embed=True)
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.model == fit.model
    assert again.log_likelihood == fit.log_likelihood
    new = field[0][N:]
    mine, theirs = gx.predict(fit, new), gx.predict(again, new)
    np.testing.assert_allclose(mine.mean, theirs.mean, rtol=1e-9)
    np.testing.assert_allclose(
        mine.interval(of="observation"), theirs.interval(of="observation"), rtol=1e-6
    )


def test_vecchia_with_all_neighbours_is_dense(field):
    observations, model = seen(field, poisson), gx.Matern(0.8, 0.2, 0.5, 0.1)
    dense = gx.log_likelihood(observations, model, response="poisson", trend="constant")
    sparse = gx.log_likelihood(
        observations, model, gx.Vecchia(N - 1), response="poisson", trend="constant"
    )
    assert sparse.log_likelihood == pytest.approx(dense.log_likelihood, rel=1e-10)
    assert sparse.log_determinant == pytest.approx(dense.log_determinant, rel=1e-8)
    assert sparse.error == 0.0


def test_censored_values_without_a_limit_are_gaussian(field):
    places, f = field
    values = f[:N] + 0.2 * np.random.default_rng(2).standard_normal(N)
    plain = gx.Observations(places[:N], values)
    open_ = gx.Observations(places[:N], values, lower=values, upper=values)
    gaussian = gx.fit(plain, fixed={"smoothness": 0.5})
    fit = gx.fit(open_, response="censored", fixed={"smoothness": 0.5})
    assert fit.log_likelihood == pytest.approx(gaussian.log_likelihood, abs=1e-6)
    assert fit.model.response.error_variance == pytest.approx(gaussian.model.nugget, rel=1e-3)
    mine, theirs = gx.predict(fit, places[N:]), gx.predict(gaussian, places[N:])
    np.testing.assert_allclose(mine.mean, theirs.mean, atol=1e-3)
    np.testing.assert_allclose(mine.variance, theirs.variance, rtol=1e-2)


def test_units_of_censored_values_do_not_matter(field):
    places, f = field
    values = f[:N] + 0.2 * np.random.default_rng(2).standard_normal(N)
    limit = np.quantile(values, 0.3)
    lower, upper = np.where(values < limit, -np.inf, values), np.maximum(values, limit)
    fits = [
        gx.fit(
            gx.Observations(places[:N], scale * upper, lower=scale * lower, upper=scale * upper),
            response="censored",
            fixed={"smoothness": 0.5},
        )
        for scale in (1.0, 1e-6)
    ]
    exact = N - int((values < limit).sum())
    assert fits[1].log_likelihood - exact * np.log(1e6) == pytest.approx(
        fits[0].log_likelihood, abs=1e-4
    )
    assert fits[1].model.variance * 1e12 == pytest.approx(fits[0].model.variance, rel=1e-2)


def test_an_exposure_is_an_offset_on_the_scale_of_the_link(field):
    exposure = np.random.default_rng(3).uniform(0.5, 4.0, N + 50)
    observations = seen(
        field, lambda r, f: r.poisson(exposure * np.exp(f)).astype(float), exposure=exposure
    )
    other = gx.Observations(
        observations.locations, observations.values, offset=np.log(exposure[:N])
    )
    fits = [gx.fit(each, response="poisson", fixed=HELD) for each in (observations, other)]
    assert fits[0].log_likelihood == pytest.approx(fits[1].log_likelihood, abs=1e-8)
    rate = gx.predict(fits[0], field[0][N:]).mean
    doubled = gx.predict(fits[0], field[0][N:], exposure=2.0).mean
    np.testing.assert_allclose(doubled, 2 * rate, rtol=1e-12)


def test_counts_at_one_place_may_vanish_into_the_field(field):
    places, f = field
    twice = np.vstack((places[:N], places[:N]))
    values = np.random.default_rng(8).poisson(np.exp(1 + np.tile(f[:N], 2))).astype(float)
    fit = gx.fit(gx.Observations(twice, values), response="poisson", fixed={"smoothness": 0.5})
    held = gx.fit(gx.Observations(twice, values), response="poisson", fixed=HELD)
    assert fit.outcome.ending is Ending.CONVERGED
    assert fit.log_likelihood >= held.log_likelihood - 1e-4


@pytest.mark.parametrize(
    ("name", "estimated"),
    [("poisson", True), ("bernoulli", False), ("negative-binomial", False), ("gamma", False)],
)
def test_the_nugget_of_the_field_has_a_default(field, name, estimated):
    draw = {"bernoulli": binary, "gamma": lambda r, f: r.gamma(2.0, np.exp(f) / 2)}
    observations = seen(field, draw.get(name, poisson))
    fit = gx.fit(observations, response=name, fixed={"smoothness": 0.5})
    assert ("nugget" in fit.free + fit.boundary) == estimated
    asked = gx.fit(observations, response=name, fixed={"smoothness": 0.5}, start={"nugget": 0.1})
    assert "nugget" in asked.free + asked.boundary


# Outcomes


def outcome_of(observations, **options):
    fit = gx.fit(observations, fixed={"smoothness": 0.5}, raise_on_failure=False, **options)
    return fit.outcome


@pytest.mark.parametrize(
    ("response", "values", "said"),
    [
        ("poisson", np.zeros(N), "All 150 values are 0: the likelihood increases as the mean"),
        ("negative-binomial", np.zeros(N), "mean goes to 0"),
        ("bernoulli", np.ones(N), "All 150 values are 1: the likelihood increases as the prob"),
        ("tweedie", np.zeros(N), "mean goes to 0"),
        ("truncated-poisson", np.ones(N), "mean goes to 1"),
    ],
)
def test_values_without_a_maximum_are_an_outcome(field, response, values, said):
    observations = gx.Observations(field[0][:N], values)
    found = outcome_of(observations, response=response)
    assert found.ending is Ending.NO_FINITE_MAXIMUM
    assert said in found.message
    with pytest.raises(gx.FitFailed, match="increases"):
        gx.fit(observations, response=response, fixed={"smoothness": 0.5})


def test_all_values_censored_is_an_outcome(field):
    observations = gx.Observations(
        field[0][:N], np.ones(N), lower=np.full(N, -np.inf), upper=np.ones(N)
    )
    found = outcome_of(observations, response="censored")
    assert found.ending is Ending.NO_FINITE_MAXIMUM
    assert "all 150 values are censored" in found.message.lower()


@pytest.mark.parametrize("response", ["bernoulli", "poisson"])
def test_a_separating_covariate_is_an_outcome(field, response):
    places, f = field
    covariate = (places[:N, :1] > 0.5).astype(float)
    values = (poisson if response == "poisson" else binary)(np.random.default_rng(3), f[:N])
    values = np.where(covariate[:, 0] == 1, 0.0, values)
    observations = gx.Observations(
        places[:N], values, covariates=covariate, covariate_names=("wet",)
    )
    found = outcome_of(observations, response=response, trend="wet")
    assert found.ending is Ending.NO_FINITE_MAXIMUM
    assert "wet separate" in found.message


@pytest.mark.parametrize("response", ["poisson", "bernoulli", "gamma"])
def test_values_without_a_field_are_an_outcome(field, response):
    random = np.random.default_rng(0)
    values = {
        "poisson": random.poisson(3.0, N),
        "bernoulli": random.integers(0, 2, N),
        "gamma": random.gamma(2.0, 1.0, N),
    }[response].astype(float)
    found = outcome_of(gx.Observations(field[0][:N], values), response=response)
    assert found.ending in (Ending.AT_LIMIT, Ending.CONVERGED)
    if found.ending is Ending.AT_LIMIT:
        assert "no spatial" in found.message


def test_counts_without_overdispersion_send_the_size_to_its_limit():
    places = np.random.default_rng(6).random((400, 2))
    # binomial counts vary less than Poisson's
    values = np.random.default_rng(2).binomial(20, 0.3, 400).astype(float)
    found = outcome_of(gx.Observations(places, values), response="negative-binomial")
    assert found.ending is Ending.AT_LIMIT
    assert "size" in found.message


# Bad input


@pytest.mark.parametrize(
    ("response", "values", "message"),
    [
        ("poisson", 0.5, "whole numbers of at least 0. Got 0.5 in row 3"),
        ("poisson", -1.0, "whole numbers of at least 0. Got -1 in row 3"),
        ("bernoulli", 2.0, "0 or 1. Got 2 in row 3"),
        ("gamma", 0.0, "positive values"),
        ("beta", 1.0, "between 0 and 1"),
        ("tweedie", -0.1, "at least 0"),
    ],
)
def test_values_that_a_response_cannot_have_are_refused(response, values, message):
    column = np.full(5, 0.5) if response in ("gamma", "beta", "tweedie") else np.ones(5)
    column[1], column[2] = column[1] / 2 if column[0] == 0.5 else 0.0, values
    observations = gx.Observations(np.arange(5.0)[:, None], column)
    with pytest.raises(gx.InvalidInput, match=message):
        gx.fit(observations, response=response)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"response": "poison"}, "Did you mean 'poisson'"),
        ({"response": "poisson", "reml": True}, "no restricted likelihood"),
        ({"response": "poisson", "transform": "boxcox"}, "no transformation|greater than 0"),
        ({"response": "censored"}, "needs limits"),
        ({"response": responses.Poisson(), "method": gx.Exact(tile=64)}, "gx.Exact\\(\\)"),
        ({"response": "poisson", "microscale": True}, "microscale"),
        ({"response": 3}, "`response` must be one of"),
    ],
)
def test_options_that_a_response_cannot_have_are_refused(field, options, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.fit(seen(field, lambda r, f: poisson(r, f) + 1), **options)


@pytest.mark.parametrize(
    ("columns", "response", "message"),
    [
        ({"trials": np.ones(5)}, None, "`trials` is for responses"),
        ({"trials": np.ones(5)}, "poisson", "`trials` are for binomial"),
        ({"exposure": np.ones(5)}, "bernoulli", "use `offset`"),
        ({"error_variance": np.ones(5)}, "poisson", "`error_variance` is for Gaussian"),
        ({"lower": np.r_[-np.inf, 1.0, 0.0, 2.0, 1.0]}, None, 'response="censored"'),
        ({"lower": np.r_[-np.inf, 1.0, 0.0, 2.0, 1.0]}, "poisson", 'response="censored"'),
    ],
)
def test_columns_that_a_response_does_not_use_are_refused(columns, response, message):
    values = np.array([0.0, 1.0, 0.0, 2.0 if response == "poisson" else 1.0, 1.0])
    if "lower" in columns:
        columns = {"lower": np.where(np.isinf(columns["lower"]), -np.inf, values), "upper": values}
    observations = gx.Observations(np.arange(5.0)[:, None], values, **columns)
    with pytest.raises(gx.InvalidInput, match=message):
        gx.fit(observations, response=response)


def test_fits_of_two_responses_are_not_nested(field):
    observations = seen(field, poisson)
    small = gx.fit(observations, response="poisson", fixed=HELD)
    large = gx.fit(observations, response="negative-binomial", fixed=HELD)
    with pytest.raises(gx.InvalidInput, match="their responses differ"):
        gx.likelihood_ratio_test(small, large)


def test_profile_intervals_hold_the_wald_ones_estimate(field):
    fit = gx.fit(seen(field, poisson), response="poisson", fixed=HELD)
    profile, wald = fit.confidence_intervals(method="profile"), fit.confidence_intervals()
    for name, (lower, upper) in profile.items():
        assert lower < fit.model.parameters()[name] < upper
        assert wald[name][0] == pytest.approx(lower, rel=0.5)


def test_a_bootstrap_draws_the_response(field):
    fit = gx.fit(seen(field, poisson), response="poisson", fixed=HELD)
    found = gx.bootstrap(fit, draws=5)
    assert len(found.estimates) == 5
    assert 0.2 < found.estimates["variance"].median() / fit.model.variance < 5


def test_a_checkpoint_resumes(field, tmp_path):
    observations, path = seen(field, poisson), tmp_path / "state.json"
    options = {"response": "poisson", "fixed": HELD, "checkpoint": path}
    first = gx.fit(observations, **options)
    again = gx.fit(observations, **options)
    assert again.log_likelihood == pytest.approx(first.log_likelihood, abs=1e-6)
    with pytest.raises(gx.InvalidInput, match="another problem"):
        gx.fit(observations, **(options | {"response": "negative-binomial"}))


# Fields of other kinds


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(15)], ids=["dense", "vecchia"])
def test_space_time_and_several_variables_have_responses(method):
    random = np.random.default_rng(4)
    places, time = random.random((160, 2)), random.integers(0, 5, 160).astype(float)
    model = gx.Separable(0.8, 0.3, 2.0, 0.5, 0.5)
    f = gx.simulate(model, places, time=time, seed=1)[0]
    counts = random.poisson(np.exp(1 + f)).astype(float)
    observations = gx.Observations(places, counts, time=time)
    held = {"smoothness": 0.5, "time_smoothness": 0.5, "nugget": 0.0}
    fit = gx.fit(observations, method=method, family="separable", response="poisson", fixed=held)
    assert fit.outcome.good
    assert 0.2 < fit.model.variance < 3
    variable = np.arange(160) % 2
    both = gx.Observations(places, counts, variable=variable)
    held = {"smoothness_1": 0.5, "smoothness_2": 0.5}
    fit = gx.fit(both, method=method, family="independent", response="poisson", fixed=held)
    assert fit.outcome.good
    found = gx.predict(fit, places[:3])
    assert found.mean.shape == (6,)
    assert (found.mean > 0).all()


def test_anisotropy_degrees_and_trends_have_responses(field):
    observations = seen(field, poisson)
    turned = gx.fit(observations, response="poisson", anisotropy=True, fixed=HELD)
    assert turned.model.anisotropy is not None
    globe = gx.Observations(
        observations.locations * [20, 10] + [5, 45], observations.values, metric="chordal"
    )
    fit = gx.fit(globe, response="poisson", fixed=HELD, trend="linear")
    assert fit.outcome.good
    assert len(fit.coefficients) == 3


# Faults that were found once


@pytest.mark.parametrize("seed", range(3))
def test_counts_without_a_field_end_at_its_limit(seed):
    random = np.random.default_rng(seed)
    places = random.random((60, 2))
    values = random.poisson(5.0, 60).astype(float)
    found = outcome_of(gx.Observations(places, values), response="poisson")
    assert found.ending is Ending.AT_LIMIT
    assert "no spatial field" in found.message


def test_the_size_of_large_counts_is_estimated():
    random = np.random.default_rng(5)
    places = random.random((200, 2))
    mean = np.exp(gx.simulate(gx.Matern(1.0, 0.3, 1.5), places, seed=1)[0])
    values = random.poisson(1e6 * mean * random.gamma(5000, 1 / 5000, 200)).astype(float)
    observations = gx.Observations(places, values)
    fit = gx.fit(observations, response="negative-binomial", fixed={"smoothness": 1.5})
    assert fit.outcome.ending is Ending.CONVERGED
    assert 1500 < fit.model.response.size < 20_000


def test_values_of_a_tweedie_response_may_have_any_unit(field):
    places, f = field
    random = np.random.default_rng(3)
    values = np.exp(f[:N]) * random.gamma(2, 0.5, N)
    values = np.where(values > 0.3, values, 0.0)
    positive = int((values > 0).sum())
    fits = [
        gx.fit(gx.Observations(places[:N], scale * values), response="tweedie", fixed=HELD)
        for scale in (1.0, 1e-6)
    ]
    known = fits[1].log_likelihood - positive * np.log(1e6)
    assert known == pytest.approx(fits[0].log_likelihood, abs=1e-3)
    assert fits[1].model.variance == pytest.approx(fits[0].model.variance, rel=1e-2)


UNITS = {
    "gamma": lambda random, f: random.gamma(2.0, 0.5, len(f)) * np.exp(f),
    "log-normal": lambda random, f: np.exp(f + random.normal(0.0, 0.4, len(f))),
    "student-t": lambda random, f: f + 0.3 * random.standard_t(4, len(f)),
}


@pytest.mark.parametrize("unit", [1e-6, 1e4])
@pytest.mark.parametrize("response", UNITS)
def test_fits_do_not_depend_on_the_unit_of_the_values(field, response, unit):
    places, f = field
    y = UNITS[response](np.random.default_rng(3), f[:80])
    first, second = (
        gx.fit(gx.Observations(places[:80], y * one), response=response, fixed=HELD)
        for one in (1.0, unit)
    )
    of_values = unit if first.model.response.of_values else 1.0
    shift = 80 * np.log(unit)
    assert second.log_likelihood + shift == pytest.approx(first.log_likelihood, abs=1e-5)
    assert second.model.variance == pytest.approx(first.model.variance * of_values**2, rel=1e-2)
    assert second.model.range == pytest.approx(first.model.range, rel=1e-2)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(20)])
def test_students_t_without_noise_is_an_outcome(method):
    places = np.random.default_rng(1).random((N, 2))
    values = gx.simulate(gx.Matern(1.0, 0.2, 1.5), places, seed=2)[0]
    fit = gx.fit(gx.Observations(places, values), method=method, response="student-t")
    assert fit.model.response.scale < 0.05
    assert "scale is poorly determined" in fit.outcome.message.lower()


@pytest.mark.parametrize("response", ["gamma", "beta", "log-normal", "student-t", "tweedie"])
def test_equal_values_have_no_maximum(field, response):
    found = outcome_of(gx.Observations(field[0][:N], np.full(N, 0.5)), response=response)
    assert found.ending is Ending.NO_FINITE_MAXIMUM
    assert "are equal" in found.message.lower()


def test_a_count_alone_and_extreme_exposures_are_no_crash(field):
    values = np.zeros(N)
    values[7] = 1.0
    observations = gx.Observations(field[0][:N], values)
    assert outcome_of(observations, response="zero-inflated-poisson").ending in (
        Ending.AT_LIMIT,
        Ending.CONVERGED,
        Ending.UNIDENTIFIED,
    )
    tiny = gx.Observations(field[0][:N], values, exposure=np.full(N, 1e-300))
    with pytest.raises(gx.InvalidInput, match="use units of the exposure"):
        gx.fit(tiny, response="poisson")


def test_what_is_of_gaussian_values_refuses_a_response(field):
    fit = gx.fit(seen(field, poisson), response="poisson", fixed=HELD)
    with pytest.raises(gx.InvalidInput, match="have no covariance matrix"):
        gx.prediction_covariance(fit, field[0][N:])
    plain = gx.Matern(1.0, 0.2, 0.5)
    with pytest.raises(gx.InvalidInput, match="without a response"):
        gx.kl_between(plain, fit.model, field[0][:20])


def test_held_out_values_need_their_exposure(field):
    exposure = np.random.default_rng(3).uniform(0.5, 4.0, N + 50)
    observations = seen(field, poisson, exposure=exposure)
    fit = gx.fit(observations, response="poisson", fixed=HELD)
    with pytest.raises(gx.InvalidInput, match="the fit has `exposure`"):
        gx.validate(fit, seen(field, poisson, rows=slice(N, N + 50)))
    with pytest.raises(gx.InvalidInput, match="are for binomial responses"):
        gx.predict(fit, field[0][N:], trials=2.5)


def test_a_bernoulli_response_has_no_trials(field):
    trials = np.full(N + 50, 3.0)
    with pytest.raises(gx.InvalidInput, match='use response="binomial"'):
        gx.fit(seen(field, binary, trials=trials), response="bernoulli", fixed=HELD)
    fit = gx.fit(seen(field, binary), response="bernoulli", fixed=HELD | {"range": 0.2})
    with pytest.raises(gx.InvalidInput, match='use response="binomial"'):
        gx.predict(fit, field[0][N:], trials=5)
    counts = gx.Observations(field[0][:N], np.arange(N) % 3)
    with pytest.raises(gx.InvalidInput, match=r"Bernoulli responses need 0 or 1\. Got 2 in row 3"):
        gx.fit(counts, response="bernoulli", fixed=HELD)


def censored_below(y, share, unit=1.0):
    limit = np.quantile(y, share)
    upper, lower = np.maximum(y, limit), np.where(y < limit, -np.inf, y)
    return {"values": upper * unit, "lower": lower * unit, "upper": upper * unit}


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e6])
def test_fits_of_censored_values_do_not_depend_on_their_unit(field, unit):
    places, f = field
    y = f[:60] + np.random.default_rng(3).normal(0, 0.5, 60)
    first, second = (
        gx.fit(
            gx.Observations(places[:60], **censored_below(y, 0.3, one)),
            response="censored",
            fixed=HELD,
            progress=False,
        )
        for one in (1.0, unit)
    )
    assert second.evaluations == first.evaluations
    np.testing.assert_allclose(second.model.variance, first.model.variance * unit**2, rtol=1e-4)
    np.testing.assert_allclose(second.model.range, first.model.range, rtol=1e-4)
    shift = 42 * np.log(unit)
    np.testing.assert_allclose(second.log_likelihood + shift, first.log_likelihood, rtol=1e-8)


def test_censored_values_without_errors_have_a_field(field):
    places, f = field
    seen = gx.Observations(places[:60], **censored_below(np.exp(1 + f[:60]), 0.3))
    fit = gx.fit(seen, response="censored", fixed=HELD)
    assert fit.outcome.good
    assert 0.05 < fit.model.range < 0.5


def test_a_poor_approximation_of_censored_values_is_said(field):
    places, f = field
    seen = gx.Observations(places[:60], **censored_below(np.exp(1 + f[:60]), 0.3))
    bounds = {"error_variance": (1e-3, 100.0)}
    poor = pytest.warns(gx.GeomxpWarning, match="is not reliable here.* above the integral")
    with poor:
        fit = gx.fit(seen, response="censored", fixed=HELD, bounds=bounds)
    assert fit.model.response.error_variance == pytest.approx(1e-3, rel=1e-2)
    assert fit.evaluations < 200
    assert 'integral="exact"' in fit.outcome.message
    assert fit.outcome.message.startswith("Laplace's approximation")


def test_the_error_of_laplaces_approximation_of_censored_values_is_that_of_the_integral(field):
    from geomxp.likelihood.censored import error_of_laplace

    places, f = field
    model, *others = (
        gx.Matern(1.0, 0.2, 0.5, response=responses.Censored(0.05, integral=integral))
        for integral in ("laplace", "exact")
    )
    part = gx.Observations(places[:60], **censored_below(f[:60], 0.3))
    ends = [gx.log_likelihood(part, one).log_likelihood for one in (model, *others)]
    known, count = error_of_laplace(part, None, gx.Exact(), model, ())
    assert known == pytest.approx(ends[0] - ends[1], abs=1e-3)
    assert abs(known) > 0.5
    assert count == 18


def test_the_error_of_laplaces_approximation_of_many_values_is_that_of_a_part():
    from geomxp.likelihood.censored import MOST_CENSORED, MOST_COMPARED, error_of_laplace

    random = np.random.default_rng(2)
    places = random.random((2000, 2))
    y = random.normal(size=2000)
    model = gx.Matern(0.5, 0.1, 0.5, response=responses.Censored(0.5))
    for share, most in ((0.5, MOST_CENSORED), (0.02, 0.1 * MOST_COMPARED)):
        seen = gx.Observations(places, **censored_below(y, share))
        known, count = error_of_laplace(seen, None, gx.Exact(), model, ())
        assert 0 < count <= most
        assert np.isfinite(known)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
def test_the_spread_of_censored_values_is_that_of_all(share):
    random = np.random.default_rng(0)
    slope = random.normal(size=2000)
    y = 3.0 + 0.5 * slope + random.normal(0.0, 1.1, 2000)
    data = responses.Data(**censored_below(y, share, unit=1e-6))
    design = np.column_stack((np.ones(2000), slope))
    known = responses.Censored().variance_about(data, design, np.zeros(2000))
    assert known == pytest.approx(1.21e-12, rel=0.15)
    ones, offset = design[:, :1], 0.5e-6 * slope
    assert responses.Censored().variance_about(data, ones, offset) == pytest.approx(known, rel=0.05)
    plain = responses.Data(y, None, y, y)
    assert responses.Censored().variance_about(plain, design, offset) is None


def test_censored_values_with_errors_need_no_warning(field, recwarn):
    places, f = field
    y = f[:80] + np.random.default_rng(3).normal(0, 0.5, 80)
    fit = gx.fit(
        gx.Observations(places[:80], **censored_below(y, 0.3)), response="censored", fixed=HELD
    )
    assert "integral" not in fit.outcome.message
    assert not [one for one in recwarn if "integral" in str(one.message)]


def test_a_fit_of_presence_with_exposures_ends():
    random = np.random.default_rng(1)
    places, exposure = random.random((60, 2)), random.uniform(0.1, 10, 60)
    presence = (random.random(60) < 0.6).astype(float)
    fit = gx.fit(
        gx.Observations(places, presence, exposure=exposure),
        response=responses.Bernoulli("cloglog"),
        fixed=HELD | {"range": 0.1},
        progress=False,
        raise_on_failure=False,
    )
    assert np.isfinite(fit.log_likelihood)
