import numpy as np
import pytest

import geomxp as gx
from geomxp import plots
from geomxp.plots.counts import frequencies, shares

N = 160


def drawn(response, seed=0, n=N):
    """Return a fit at the model from which its values were drawn."""
    locations = np.random.default_rng(seed).random((n, 2))
    model = gx.Matern(0.7, 0.2, 0.5, response=response)
    values = gx.simulate(model, locations, seed=seed)[0]
    seen = gx.Observations(locations, values, value_name="caught")
    return gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)


@pytest.fixture(scope="module")
def counted():
    return gx.leave_one_out(drawn("poisson"))


@pytest.fixture(scope="module")
def binary():
    return gx.leave_one_out(drawn("bernoulli"))


@pytest.fixture(scope="module")
def of_trials():
    trials = np.resize([2.0, 7.0], N)
    locations = np.random.default_rng(3).random((N, 2))
    model = gx.Matern(0.7, 0.2, 0.5, response="binomial")
    eta = gx.simulate(gx.Matern(0.7, 0.2, 0.5), locations, seed=3)[0]
    values = np.random.default_rng(4).binomial(trials.astype(int), 1 / (1 + np.exp(-eta)))
    seen = gx.Observations(locations, values, trials=trials)
    return gx.leave_one_out(gx.fit(seen, model, fixed=tuple(model.parameters())))


@pytest.mark.parametrize("name", ["counted", "binary", "of_trials"])
def test_frequencies_observed_and_expected_sum_to_the_number_of_values(name, request):
    validation = request.getfixturevalue(name)
    found = frequencies(validation)
    assert found.observed.sum() == len(validation)
    assert found.expected.sum() == pytest.approx(len(validation), rel=1e-12)
    assert (found.expected >= 1).all()
    assert (found.low <= found.high).all()
    assert found.last[-1] == np.inf


def test_expected_frequencies_are_sums_of_predictive_probabilities(counted):
    found = frequencies(counted)
    single = [k for k, text in enumerate(found.names) if text.isdigit()]
    for k in single[:4]:
        at = float(found.names[k])
        probability = np.exp(counted.mixture.log_density(np.full(N, at)))
        assert found.expected[k] == pytest.approx(probability.sum(), rel=1e-5)
        assert found.observed[k] == (counted.observed == at).sum()


def test_a_correct_model_stays_inside_the_bands_of_most_bins():
    inside = []
    for seed in range(4):
        for response in ("poisson", "bernoulli"):
            validation = gx.leave_one_out(drawn(response, seed))
            found = shares(validation)
            inside.append((found.low <= found.observed) & (found.observed <= found.high))
            if response == "poisson":
                found = frequencies(validation)
                inside.append((found.low <= found.observed) & (found.observed <= found.high))
    assert np.mean(np.concatenate(inside)) >= 0.85


def test_a_model_that_misses_the_zeros_leaves_the_bands():
    fit = drawn("poisson", seed=5)
    values = fit.observations.values.copy()
    values[::3] = 0
    seen = gx.Observations(fit.observations.locations, values)
    wrong = gx.leave_one_out(gx.fit(seen, fit.model, fixed=tuple(fit.model.parameters())))
    found = frequencies(wrong)
    assert found.names[0] == "0"
    assert found.observed[0] > found.high[0]
    probabilities = shares(wrong)
    assert (probabilities.observed < probabilities.low).any()


def test_many_counts_are_joined_into_few_bars():
    locations = np.random.default_rng(0).random((60, 2))
    values = np.random.default_rng(1).poisson(np.exp(7 + locations[:, 0]))
    model = gx.Matern(0.1, 0.3, 0.5, response="poisson")
    seen = gx.Observations(locations, values)
    found = frequencies(gx.leave_one_out(gx.fit(seen, model, fixed=tuple(model.parameters()))))
    assert 3 < len(found.last) <= 25
    assert found.observed.sum() == 60
    assert "–" in found.names[3]


def test_bars_hang_from_the_expected_frequencies(counted):
    ax, found = plots.rootogram(counted), frequencies(counted)
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(tops, np.sqrt(found.expected), rtol=1e-12)
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, np.sqrt(found.observed), rtol=1e-12)
    assert ax.get_xlabel() == "caught"
    assert "160" in ax.get_ylabel()


def test_the_last_bar_of_trials_ends_at_their_number(binary, of_trials):
    assert frequencies(binary).names == ["0", "1"]
    assert frequencies(of_trials).names[-1] == "7"


def test_shares_are_of_all_values_and_all_trials(binary, of_trials):
    found = shares(binary, bins=4)
    assert found.counts.sum() == N
    assert found.counts @ found.observed == pytest.approx(binary.observed.sum())
    assert found.counts @ found.predicted == pytest.approx(binary.mean.sum())
    assert (np.diff(found.predicted) > 0).all()
    trials = of_trials.observations.trials
    whole = shares(of_trials, bins=2)
    assert whole.predicted.min() >= (of_trials.mean / trials).min()
    assert len(shares(of_trials, bins=500).counts) <= N


def test_calibration_of_counts_is_of_values_above_zero(counted):
    found = shares(counted)
    assert found.counts @ found.observed == pytest.approx((counted.observed > 0).sum())
    expected = (1 - counted.mixture.cumulative(0.0)).sum()
    assert found.counts @ found.predicted == pytest.approx(expected)
    ax = plots.calibration(counted, bins=5)
    assert ax.get_xlabel() == "predicted probability of caught > 0"
    assert ax.get_legend_handles_labels()[1][-1] == "32 values each"


def test_equal_probabilities_are_one_bin_and_have_a_picture(binary):
    model = gx.Matern(1e-20, 0.2, 0.5, response="bernoulli")
    seen = binary.observations
    flat = gx.fit(seen, model, trend="zero", fixed=tuple(model.parameters()))
    assert len(shares(gx.leave_one_out(flat)).counts) == 1
    assert plots.calibration(flat).get_ylabel() == "observed share"


def test_hurdles_have_both_pictures():
    presence, amount = drawn("bernoulli", 8), drawn("truncated-poisson", 9)
    values = presence.observations.values * amount.observations.values
    seen = gx.Observations(presence.observations.locations, values)
    response = gx.responses.Hurdle("truncated-poisson")
    held = {"variance": 0.7, "range": 0.2, "smoothness": 0.5, "nugget": 0.0}
    found = gx.leave_one_out(gx.fit(seen, response=response, fixed=held))
    assert frequencies(found).expected.sum() == pytest.approx(N)
    assert shares(found).counts.sum() == N
    assert plots.rootogram(found).get_ylabel() == f"√frequency (of {N})"


def test_other_distributions_are_refused_with_the_remedy():
    random = np.random.default_rng(0)
    locations, values = random.random((30, 2)), random.gamma(2.0, 1.0, 30)
    plain = gx.Matern(1.0, 0.2, 0.5, nugget=0.1)
    amounts = gx.Matern(1.0, 0.2, 0.5, response="gamma")
    positive = gx.Matern(1.0, 0.2, 0.5, response="truncated-poisson")
    for model, z in ((plain, values), (amounts, values), (positive, np.ceil(values))):
        seen = gx.Observations(locations, z)
        found = gx.leave_one_out(gx.fit(seen, model, fixed=tuple(model.parameters())))
        with pytest.raises(gx.InvalidInput, match=r"values that may be 0.*geomxp\.plots\.coverage"):
            plots.calibration(found)
        if model is not positive:
            with pytest.raises(gx.InvalidInput, match=r'geomxp\.plots\.pit.*response="poisson"'):
                plots.rootogram(found)


@pytest.mark.parametrize("bins", [1, 2.5, True, "many"])
def test_bins_are_whole_numbers_of_at_least_two(binary, bins):
    with pytest.raises(gx.InvalidInput, match="`bins` must be a whole number"):
        plots.calibration(binary, bins=bins)


def test_maps_and_residuals_name_what_they_show(counted, binary):
    assert plots.normal_quantiles(counted).get_ylabel() == "quantile residual"
    assert plots.standardised_residuals_map(binary).get_title() == "Quantile residuals"
    fit = drawn("bernoulli")
    raster = gx.predict_raster(fit, cells=6)
    np.testing.assert_array_equal(raster.centre, raster.mean)
    ax = plots.prediction_map(fit, raster=raster)
    assert ax.get_title() == "Probability"
    assert ax.child_axes[0].get_ylabel() == "probability of caught"
    assert plots.prediction_error_map(fit, raster=raster).get_title().endswith("the probability")
    assert plots.prediction_map(drawn("poisson"), cells=6).get_title() == "Mean of a value"


def test_the_semivariogram_of_a_response_has_the_noise_of_its_values():
    fit = drawn("poisson")
    ax = plots.variogram(fit, envelope=39)
    assert ax.get_ylabel() == "semivariance of working values"
    noise = fit.gaussian.observations.error_variance.mean()
    line = max(ax.get_lines(), key=lambda one: len(one.get_xdata()))
    assert line.get_ydata()[0] == pytest.approx(noise, rel=0.05)
    (points,) = [one for one in ax.collections if len(one.get_offsets()) > 1]
    at, gamma = np.asarray(points.get_offsets()).T
    ratio = gamma / np.interp(at, *line.get_data())
    assert 0.4 < ratio.min() < ratio.max() < 2.5


def test_parameters_of_a_field_have_the_unit_of_the_values_only_if_the_link_is_the_identity():
    seen = gx.Observations(np.arange(3.0), [1.0, 2.0, 4.0], value_name="zinc", value_unit="g")
    for name, unit in (("poisson", None), ("student-t", "(g)²"), ("censored", "(g)²")):
        model = gx.Matern(1.0, 2.0, 0.5, response=name)
        for one in ("variance", "nugget"):
            assert plots.unit_of(model.parameter(one), seen, model.response) == unit
        assert plots.unit_of(model.parameter("range"), seen, model.response) == seen.unit
