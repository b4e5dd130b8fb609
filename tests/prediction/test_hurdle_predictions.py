"""Predictions, draws and validation of a hurdle, and the laws of its distributions."""

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.responses import Bernoulli, Gamma, LogNormal, TruncatedPoisson
from geomxp.prediction import kriging
from geomxp.prediction.mixtures import HurdleMixture, Mixture
from geomxp.prediction.scores import mixed_summary

HELD = {"variance": 0.8, "range": 0.2, "smoothness": 0.5}
NEW, N = testing.places(6, seed=9), 30
AMOUNTS = {"gamma": Gamma(2.0), "log-normal": LogNormal(0.4), "counts": TruncatedPoisson()}


@pytest.fixture(params=AMOUNTS)
def mixture(request):
    mean = np.array([-1.0, 0.0, 1.5])
    presence = Mixture(Bernoulli(), mean, np.array([0.1, 1.0, 0.5]))
    return HurdleMixture(presence, Mixture(AMOUNTS[request.param], 1 - mean, np.full(3, 0.3)))


@pytest.fixture(scope="module", params=["gamma", "truncated-poisson"])
def fitted(request):
    random, places = np.random.default_rng(4), testing.places(N, seed=4)
    counts = request.param == "truncated-poisson"
    amount = 1.0 + random.poisson(2.0, N) if counts else random.gamma(2.0, 1.0, N)
    seen = gx.Observations(places, (random.random(N) < 0.6) * amount)
    hurdle = gx.responses.Hurdle(request.param)
    return gx.fit(seen, response=hurdle, fixed=HELD, progress=False)


def test_cumulative_and_quantile_are_inverse(mixture):
    zero = mixture.cumulative(0.0)
    np.testing.assert_allclose(zero, 1 - mixture.probability, rtol=1e-12)
    assert (mixture.quantile(0.99 * zero) == 0).all()
    for share in (0.01, 0.5, 0.99):
        p = zero + share * (1 - zero)
        found = mixture.quantile(p)
        assert (mixture.cumulative(found) >= p - 1e-10).all()
        assert (mixture.below(found) <= p + 1e-10).all()
        assert (found > 0).all()
    assert (mixture.cumulative(-1.0) == 0).all()
    assert (mixture.below(0.0) == 0).all()


def test_probabilities_sum_to_one_and_moments_are_theirs(mixture):
    # by the trapezoidal rule in log y, or sums over counts
    y = np.arange(1.0, 300) if mixture.discrete else np.exp(np.linspace(-9, 7, 800))
    width = 1.0 if mixture.discrete else y * 16 / 799
    every = mixture.of_rows(np.repeat(np.arange(3), len(y)))
    density = np.exp(every.log_density(np.tile(y, 3))).reshape(3, -1) * width
    mean, square = density @ y, density @ y**2
    zeros = np.exp(mixture.log_density(np.zeros(3)))
    np.testing.assert_allclose(zeros + density.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(mean, mixture.mean_value(), rtol=1e-5)
    np.testing.assert_allclose(square - mean**2, mixture.variance_value(), rtol=1e-4)


def test_draws_have_its_moments_and_pits_are_uniform(mixture):
    many = mixture.of_rows(np.repeat(np.arange(3), 5000))
    draws = many.draw(np.random.default_rng(0))
    mean, error = mixture.mean_value(), np.sqrt(mixture.variance_value() / 5000)
    assert (abs(draws.reshape(3, -1).mean(axis=1) - mean) < 4 * error).all()
    some = slice(None, None, 50)
    pit = many.of_rows(np.arange(15000)[some]).pit(draws[some], np.random.default_rng(1))
    assert abs(np.sort(pit) - (np.arange(300) + 0.5) / 300).max() < 1.63 / np.sqrt(300)


def test_the_crps_is_that_of_many_draws(mixture):
    y = np.array([0.0, 2.0, 3.0])
    random = np.random.default_rng(2)
    many = mixture.of_rows(np.tile(np.arange(3), 4000))
    draws, others = (many.draw(random).reshape(-1, 3) for _ in range(2))
    expected = abs(draws - y).mean(axis=0) - 0.5 * abs(draws - others).mean(axis=0)
    spread = np.sqrt(mixture.variance_value() / 4000)
    assert (abs(mixture.crps(y) - expected) < 5 * spread).all()
    found = mixed_summary(mixture, mixture.mean_value(), mixture.variance_value(), y)
    assert found["brier"] == pytest.approx(np.mean(((y != 0) - mixture.probability) ** 2))


def test_a_prediction_is_the_product_of_presence_and_amount(fitted):
    found = gx.predict(fitted, NEW)
    presence, amount = (gx.predict(part, NEW) for part in (fitted.presence, fitted.amount))
    assert found.presence == presence
    assert found.amount == amount
    np.testing.assert_allclose(found.mean, presence.mean * amount.mean)
    np.testing.assert_allclose(found.mean_of_observation, found.mean, rtol=1e-6)
    frame = found.to_frame()
    np.testing.assert_array_equal(frame["probability_of_presence"], presence.mean)
    np.testing.assert_array_equal(frame["mean_of_amount"], amount.mean)
    lower, upper = found.interval(0.9, of="observation")
    above = found.probability_above(0.0, of="observation")
    np.testing.assert_allclose(above, presence.mean, rtol=1e-8)
    assert (lower <= found.quantile(0.5, of="observation")).all()
    assert (upper > 0).all()
    assert (found.variance_of_observation > found.variance).all()


def test_quantiles_of_the_field_are_those_of_draws(fitted):
    found = gx.predict(fitted, NEW)
    random, draws = np.random.default_rng(1), 1.0
    for part in (found.presence, found.amount):
        mean, variance = part.gaussian
        z = mean + np.sqrt(variance) * random.standard_normal((4000, 6))
        draws = draws * part.transform.inverse(z)
    for p in (0.05, 0.5, 0.95):
        share = (draws <= found.quantile(p)).mean(axis=0)
        # of 4,000 draws, and of the 400 nodes
        assert (abs(share - p) < 4 * np.sqrt(p * (1 - p) / 4000) + 0.006).all()
    share = (draws > 1.0).mean(axis=0)
    assert (abs(found.probability_above(1.0) - share) < 0.04).all()


def test_a_map_is_the_prediction_at_its_cells(fitted):
    whole = gx.predict_raster(fitted, cells=4)
    # the grid is that of all places, not of those with an amount
    assert whole.extent == gx.predict_raster(fitted.presence, cells=4).extent
    mask = np.ones(whole.mean.shape, dtype=bool)
    mask[0, 0] = False
    found = gx.predict_raster(fitted, cells=4, mask=mask)
    assert np.isnan(found.mean[0, 0])
    frame = found.to_frame()
    expected = gx.predict(fitted, frame[["x", "y"]]).to_frame()
    np.testing.assert_allclose(frame, expected, rtol=1e-12)
    layers = found.layers()
    np.testing.assert_allclose(
        layers["probability_of_presence"][0] * layers["mean_of_amount"][0], found.mean
    )
    with pytest.raises(gx.InvalidInput, match="predicted at locations: average draws"):
        gx.predict_raster(fitted, cells=4, block=True)


def test_maps_of_several_times_are_those_of_each_time():
    random, places = np.random.default_rng(5), testing.places(40, seed=5)
    seen = gx.Observations(places, np.arange(40) % 3 * 1.0, time=random.random(40))
    model = gx.Separable(0.5, 0.2, 0.5, smoothness=0.5, time_smoothness=0.5)
    fit = gx.fit(seen, model, response="hurdle", fixed=tuple(model.parameters()), progress=False)
    series = gx.predict_raster(fit, cells=3, time=[0.2, 0.8])
    alone = gx.predict_raster(fit, cells=3, time=0.8)
    np.testing.assert_allclose(series[1].mean, alone.mean)
    assert "probability_of_presence" in series.to_xarray()


def test_draws_of_observations_have_the_moments_of_predictions(fitted):
    found = gx.predict(fitted, NEW)
    draws = gx.simulate(fitted, NEW, draws=4000, of="observation")
    error = np.sqrt(found.variance_of_observation / 4000)
    assert (abs(draws.mean(axis=0) - found.mean_of_observation) < 4.5 * error).all()
    assert (abs((draws == 0).mean(axis=0) - 1 + found.presence.mean) < 0.04).all()
    again = gx.simulate(fitted, NEW, draws=2, of="observation")
    np.testing.assert_array_equal(again, gx.simulate(fitted, NEW, draws=2, of="observation"))


def test_leaving_one_out_is_cross_validation_with_single_folds(fitted):
    alone, folds = gx.leave_one_out(fitted), gx.cross_validate(fitted, len(fitted.observations))
    # of the same mode with and without a value
    np.testing.assert_allclose(alone.mean, folds.mean, rtol=0.2)
    present = fitted.observations.values > 0
    amounts = gx.leave_one_out(fitted.amount)
    np.testing.assert_allclose(alone.mixture.amount.mean[present], amounts.mixture.mean)
    assert set(alone.scores()) > {"crps", "brier", "log_score"}


def test_folds_are_the_same_for_both_parts(fitted):
    labels = np.arange(N) % 4
    found = gx.cross_validate(fitted, labels)
    presence = gx.cross_validate(fitted.presence, labels)
    np.testing.assert_allclose(found.mixture.presence.mean, presence.mixture.mean)
    positive = fitted.observations.values > 0
    amount = gx.cross_validate(fitted.amount, labels[positive])
    np.testing.assert_allclose(found.mixture.amount.mean[positive], amount.mixture.mean)
    assert np.isfinite(found.mean).all()


def test_a_held_out_table_is_scored_by_its_predictions(fitted):
    held = gx.Observations(NEW, np.array([0.0, 1.0, 2.0, 0.0, 3.0, 1.0]))
    scored, predicted = gx.validate(fitted, held), gx.predict(fitted, NEW)
    np.testing.assert_allclose(scored.mean, predicted.mean_of_observation)
    np.testing.assert_allclose(scored.variance, predicted.variance_of_observation)
    np.testing.assert_allclose(scored.interval()[1], predicted.interval(of="observation")[1])
    with pytest.raises(gx.InvalidInput, match=r"at least 0\. Got -1 in row 1"):
        gx.validate(fitted, gx.Observations(NEW, np.array([-1.0, 1.0, 2.0, 0.0, 3.0, 1.0])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 0.1}, "predicted at locations: average draws"),
        ({"trials": 3}, "`trials` are for binomial responses"),
        ({"draws": 1}, "`draws`"),
    ],
)
def test_what_a_hurdle_cannot_predict_is_refused(fitted, options, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict(fitted, NEW, **options)


def test_quantiles_of_many_places_are_those_of_each(fitted, monkeypatch):
    found = gx.predict(fitted, NEW)
    whole = found.quantile(0.3), found.probability_above(1.0), found.interval(0.5)
    # chunks of three places
    monkeypatch.setattr(kriging, "CHUNK_ENTRIES", 3 * kriging.NODES_OF_HURDLE)
    parts = found.quantile(0.3), found.probability_above(1.0), found.interval(0.5)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_cells_that_a_mask_leaves_out_have_no_prediction(fitted):
    mask = np.zeros((4, 4), dtype=bool)
    mask[1:3, 1] = True
    layers = gx.predict_raster(fitted, cells=4, bounds=(0, 0, 1, 1), mask=mask, progress=False)
    found = [array for array, _ in layers.layers().values()]
    found += [layers.probability_above(1.0), layers.probability_above(1.0, "observation")]
    for array in found:
        np.testing.assert_array_equal(np.isnan(array), ~mask)


def test_a_probability_has_no_unit_of_the_values(fitted):
    layers = gx.predict_raster(fitted, cells=2, progress=False).layers(units="mm")
    assert layers["probability_of_presence"][1]["units"] == "1"
    assert {each["units"] for _, each in layers.values()} == {"1", "mm"}


@pytest.mark.parametrize("of", ["field", "observation"])
@pytest.mark.parametrize("name", ["trials", "offset", "exposure"])
def test_columns_that_the_fit_would_refuse_are_refused(fitted, name, of):
    with pytest.raises(gx.InvalidInput, match=name):
        gx.simulate(fitted, NEW, of=of, **{name: 5.0})
    with pytest.raises(gx.InvalidInput, match=name):
        gx.predict(fitted, NEW, **{name: 5.0})


def test_held_out_values_need_the_exposure_of_the_fit():
    random, places = np.random.default_rng(4), testing.places(N, seed=4)
    values = (random.random(N) < 0.6) * (1.0 + random.poisson(2.0, N))
    seen = gx.Observations(places, values, exposure=random.uniform(0.5, 2.0, N))
    hurdle = gx.responses.Hurdle(link="cloglog")
    fit = gx.fit(seen, response=hurdle, fixed=HELD, progress=False)
    with pytest.raises(gx.InvalidInput, match="the fit has `exposure`"):
        gx.validate(fit, gx.Observations(NEW, np.arange(len(NEW))), progress=False)
