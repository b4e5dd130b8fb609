"""Fits of models whose nuggets are correlated between variables at one location."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.testing import places

TRUE = gx.ParsimoniousMatern((1.0, 2.0), 0.2, (0.5, 1.0), 0.4, (0.3, 0.4), nugget_covariance=0.25)
HELD = {"smoothness_1": 0.5, "smoothness_2": 1.0}
FEW_FREE = HELD | {"range": 0.2, "correlation_12": 0.4}
ETA = "nugget_covariance_12"


def field(truth=TRUE, n=120, seed=0, units=1.0, **about):
    """Values of all variables at n places."""
    p = truth.variables
    where, kinds = np.repeat(places(n, seed=seed), p, axis=0), np.tile(np.arange(p), n)
    z = gx.simulate(truth, where, variable=kinds, seed=seed)[0]
    return gx.Observations(where, z * np.broadcast_to(units, p)[kinds], variable=kinds, **about)


def fitted(seen=None, family="parsimonious-matern", fixed=HELD, covariance=True, **about):
    seen = field() if seen is None else seen
    return gx.fit(
        seen, family=family, fixed=fixed, nugget_covariance=covariance, progress=False, **about
    )


@pytest.fixture(scope="module")
def fit():
    return fitted()


@pytest.fixture(scope="module")
def without():
    return fitted(covariance=False)


@pytest.fixture(scope="module")
def uncorrelated():
    return fitted(fixed=HELD | {ETA: 0.0})


def check_is_maximum(fit, others=0.01):
    """Assert that no model near the estimate, within its limits, has a larger ℓ."""
    evaluator = fit.method.prepare(fit.observations, np.eye(2)[fit.observations.variable])
    values, value = fit.model.parameters(), fit.log_likelihood
    for name in fit.free + fit.boundary:
        for change in (-others, others):
            other = fit.model.replace(**{name: values[name] * (1 + change)})
            if other.valid_on("euclidean", 2):
                assert evaluator(other).log_likelihood <= value + 1e-6, name


@pytest.mark.slow
@pytest.mark.parametrize("family", ["independent", "coregionalization", "flexible-matern"])
@pytest.mark.parametrize("reml", [False, True])
def test_fits_end_at_maxima(family, reml):
    seen = field(n=80)
    fit = fitted(seen, family, reml=reml)
    assert fit.outcome.good
    assert ETA in fit.free
    check = fitted(seen, family, reml=reml, start={ETA: 0.0})
    assert check.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-5)
    if not reml:
        check_is_maximum(fit)


@pytest.mark.slow
def test_noise_of_variables_is_estimated(fit, without, uncorrelated):
    assert fit.model.parameters()[ETA] == pytest.approx(0.25, abs=3 * fit.standard_errors[ETA])
    assert "nugget covariance of variable 0 and variable 1" in str(fit)
    assert without.model.nugget_covariance is None
    assert uncorrelated.log_likelihood == pytest.approx(without.log_likelihood, abs=1e-6)


@pytest.mark.slow
def test_diagonal_nuggets_are_tested_within_correlated_ones(fit, without, uncorrelated):
    for restricted in (without, uncorrelated):
        test = gx.likelihood_ratio_test(restricted, fit)
        gain = fit.log_likelihood - restricted.log_likelihood
        assert test.statistic == pytest.approx(2 * gain, rel=1e-12)
        assert test.degrees_of_freedom == 1
        assert test.p_value < 0.01
        assert "tested: nugget covariance of variable 0 and variable 1" in test.message
    with pytest.raises(gx.InvalidInput, match="not nested"):
        gx.likelihood_ratio_test(fit, without)


@pytest.mark.slow
@pytest.mark.parametrize("end", [0, 1])
def test_ends_of_profile_intervals_are_half_a_quantile_below(fit, end):
    intervals = fit.confidence_intervals(method="profile", names=[ETA, "nugget_1"])
    for name, interval in intervals.items():
        held = fitted(fixed=HELD | {name: interval[end]})
        assert fit.log_likelihood - held.log_likelihood == pytest.approx(1.9207, abs=1e-3)


@pytest.mark.slow
def test_standard_errors_are_those_of_the_observed_information(fit):
    design = np.eye(2)[fit.observations.variable]
    evaluator, values = fit.method.prepare(fit.observations, design), fit.model.parameters()
    rows = []
    for name in fit.free:
        step = 1e-4 * abs(values[name])
        high, low = (
            evaluator.derivatives(
                fit.model.replace(**{name: values[name] + k * step}), fit.free
            ).score
            for k in (1, -1)
        )
        rows.append((low - high) / (2 * step))
    errors = np.sqrt(np.diag(np.linalg.inv(np.array(rows))))
    found = [fit.standard_errors[name] for name in fit.free]
    np.testing.assert_allclose(found, errors, rtol=1e-3)
    k = fit.free.index(ETA)
    inverse = np.linalg.inv(gx.information(fit))
    assert np.sqrt(inverse[k, k]) == pytest.approx(fit.standard_errors[ETA], rel=1e-6)
    low, high = fit.confidence_intervals()[ETA]
    half = 1.959964 * fit.standard_errors[ETA]
    np.testing.assert_allclose((low, high), (values[ETA] - half, values[ETA] + half), rtol=1e-6)


@pytest.mark.slow
def test_units_and_the_order_of_the_variables_do_not_matter(fit):
    scaled = fitted(field(units=(1e4, 1e-3)))
    shift = 120 * np.log(1e4 * 1e-3)
    assert scaled.log_likelihood == pytest.approx(fit.log_likelihood - shift, abs=1e-5)
    eta = fit.model.parameters()[ETA]
    assert scaled.model.parameters()[ETA] == pytest.approx(10 * eta, rel=1e-3)
    assert scaled.standard_errors[ETA] == pytest.approx(10 * fit.standard_errors[ETA], rel=1e-3)
    seen = field()
    turned = gx.Observations(seen.locations, seen.values, variable=1 - seen.variable)
    other = fitted(turned, fixed={"smoothness_1": 1.0, "smoothness_2": 0.5})
    assert other.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-5)


@pytest.mark.slow
def test_files_keep_the_model(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.model == fit.model
    assert again.confidence_intervals() == fit.confidence_intervals()
    there = places(5, seed=3)
    np.testing.assert_array_equal(gx.predict(again, there).mean, gx.predict(fit, there).mean)


@pytest.mark.slow
def test_perfectly_correlated_nuggets_are_a_bound():
    truth = replace(TRUE, nugget=(0.3, 0.3), nugget_covariance=0.3)
    fit = fitted(field(truth, seed=3))
    assert fit.boundary == (ETA,)
    assert fit.outcome.good
    assert "at the largest value that the nuggets allow" in fit.outcome.message
    first, second = fit.model.nugget
    assert fit.model.parameters()[ETA] == pytest.approx(np.sqrt(first * second), rel=2e-3)
    # along the bound ℓ has a maximum
    evaluator = fit.method.prepare(fit.observations, np.eye(2)[fit.observations.variable])
    for name, value in zip(("nugget_1", "nugget_2"), fit.model.nugget, strict=True):
        for factor in (0.98, 1.02):
            nuggets = fit.model.parameters() | {name: factor * value}
            eta = (nuggets["nugget_1"] * nuggets["nugget_2"]) ** 0.5
            other = fit.model.replace(**{name: factor * value, ETA: eta * (1 - 1e-12)})
            assert evaluator(other).log_likelihood <= fit.log_likelihood + 1e-4


@pytest.mark.slow
def test_a_nugget_of_0_has_no_covariances():
    truth = replace(TRUE, nugget=(0.0, 0.5), nugget_covariance=0.0)
    fit = fitted(field(truth, seed=4))
    assert fit.outcome.good
    assert (
        fit.log_likelihood >= fitted(field(truth, seed=4), covariance=False).log_likelihood - 1e-6
    )
    if fit.model.nugget[0] == 0:
        assert fit.model.parameters()[ETA] == 0
        assert fit.standard_errors[ETA] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nugget", "covariance", "seed"), [((0.01, 0.4), 0.06, 0), ((0.02, 0.4), -0.08, 2)]
)
def test_searches_from_nuggets_of_0_reach_the_same_maximum(nugget, covariance, seed):
    seen = field(replace(TRUE, nugget=nugget, nugget_covariance=covariance), n=150, seed=seed)
    fit = fitted(seen, fixed=FEW_FREE)
    for start in ({"nugget_1": 0.0, "nugget_2": 0.0}, {"nugget_1": 0.3, "nugget_2": 0.3}):
        again = fitted(seen, fixed=FEW_FREE, start=start)
        assert again.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-5)
    # ℓ falls with the first nugget alone
    without = fitted(seen, covariance=False)
    assert without.model.nugget[0] < 0.01
    assert fit.log_likelihood > without.log_likelihood + 1


@pytest.mark.slow
@pytest.mark.parametrize("search", ["bobyqa", "lbfgs", "slsqp"])
def test_other_searches_reach_the_same_maximum(fit, search):
    found = fitted(search=search)
    assert found.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-5)


@pytest.mark.slow
def test_bounds_of_nugget_covariances_are_kept(fit):
    for box in ((0.0, 0.1), (0.4, 0.6)):
        found = fitted(fixed=FEW_FREE, bounds={ETA: box})
        assert found.boundary == (ETA,)
        assert box[0] <= found.model.parameters()[ETA] <= box[1]
        assert found.log_likelihood < fit.log_likelihood
    held = fitted(fixed=HELD | {"nugget_1": 0.0})
    assert held.model.parameters()[ETA] == 0.0
    # nuggets next to a covariance that is held away from 0 have a limit
    held = fitted(fixed=HELD | {ETA: 0.1, "nugget_2": 0.1})
    assert held.model.nugget[0] >= 0.1 - 1e-9


@pytest.mark.slow
def test_three_variables_are_fitted():
    truth = gx.ParsimoniousMatern(
        *((1.0, 2.0, 1.5), 0.2, (0.5, 1.0, 0.5), (0.4, 0.2, 0.1), (0.3, 0.4, 0.2)),
        nugget_covariance=(0.25, -0.1, 0.0),
    )
    held = {"smoothness_1": 0.5, "smoothness_2": 0.5, "smoothness_3": 0.5}
    seen = field(truth, n=150)
    fit = fitted(seen, fixed=held)
    assert fit.outcome.good
    for name in ("nugget_covariance_12", "nugget_covariance_13", "nugget_covariance_23"):
        error = fit.standard_errors[name]
        assert abs(fit.model.parameters()[name] - truth.parameters()[name]) < 3.5 * error
    test = gx.likelihood_ratio_test(fitted(seen, fixed=held, covariance=False), fit)
    assert test.degrees_of_freedom == 3


@pytest.mark.slow
def test_vecchia_and_mixed_precision_fit_near_the_exact_maximum(fit):
    near = fitted(method=gx.Vecchia(60))
    same = gx.log_likelihood(field(), near.model, trend="constant").log_likelihood
    assert same > fit.log_likelihood - 0.3
    mixed = fitted(method=gx.Exact(gx.by_tile_norm(1e-9), 48))
    assert mixed.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-3)


@pytest.mark.slow
def test_draws_of_a_fit_have_correlated_noise(fit):
    new = np.repeat(places(6, seed=9), 2, axis=0)
    kinds = np.tile([0, 1], 6)
    about = {"variable": kinds, "draws": 20_000, "seed": 2}
    field_, noisy = (gx.simulate(fit, new, of=of, **about) for of in ("field", "observation"))
    added = np.cov(noisy.T) - np.cov(field_.T)
    want = np.kron(np.eye(6), fit.model.nugget_matrix)
    size = np.sqrt(np.diag(np.cov(noisy.T)))
    assert (np.abs(added - want) < 6 * np.outer(size, size) / np.sqrt(20_000)).all()


@pytest.mark.slow
def test_the_bootstrap_estimates_nugget_covariances_again(fit):
    found = gx.bootstrap(fit, draws=4, seed=1)
    assert ETA in set(found.to_frame().parameter)


def few_common(common):
    """Values of two variables at 60 places each, some of them common."""
    where = np.vstack((places(60), places(60)[:common], places(60 - common, seed=9)))
    kinds = np.repeat([0, 1], 60)
    values = gx.simulate(replace(TRUE, nugget_covariance=None), where, variable=kinds, seed=1)[0]
    return gx.Observations(where, values, variable=kinds, variable_names=("zinc", "lead"))


@pytest.mark.slow
def test_too_few_common_locations_are_refused():
    with pytest.raises(gx.InvalidInput) as refused:
        fitted(few_common(9))
    assert str(refused.value) == (
        "the nugget covariance of zinc and lead needs at least 10 locations with both values. Got "
        "9: hold it at 0 (fixed={'nugget_covariance_12': 0.0}, --fix nugget_covariance_12=0), or "
        "leave the nugget covariances out."
    )
    assert fitted(few_common(9), fixed=HELD | {ETA: 0.0}).outcome.good


@pytest.mark.slow
def test_several_values_of_a_variable_at_a_location_are_refused():
    seen = field(n=30)
    model = replace(TRUE, nugget_covariance=0.1)
    twice = gx.Observations(
        np.vstack((seen.locations, seen.locations[:3])),
        np.r_[seen.values, seen.values[:3] + 0.3],
        variable=np.r_[seen.variable, seen.variable[:3]],
    )
    means = gx.Observations(
        seen.locations, seen.values, variable=seen.variable, replicates=np.full(60, 2)
    )
    frame = pd.DataFrame(twice.locations, columns=["x", "y"])
    frame = frame.assign(z=twice.values, kind=twice.variable)
    about = {"values": "z", "variable": "kind", "locations": ("x", "y")}
    # what the message says works
    once = gx.Observations.from_frame(frame, **about, duplicates="drop")
    values = [gx.log_likelihood(one, model).log_likelihood for one in (once, seen)]
    assert values[0] == values[1]
    for several in (twice, means):
        for call in (fitted, lambda one: gx.log_likelihood(one, model)):
            with pytest.raises(gx.InvalidInput, match="use one of them"):
                call(several)
    with pytest.raises(gx.InvalidInput, match='of="field"'):
        gx.simulate(gx.fit(seen, model, fixed=tuple(model.parameters())), [[0.5, 0.5]] * 2,
                    variable=0, of="observation")  # fmt: skip


@pytest.mark.slow
def test_models_with_and_without_are_compared():
    choices = {"smoothness": (0.5,), "nuggets": (0, "free"), "nugget_covariance": (True, False)}
    found = gx.compare_models(field(), families=("parsimonious-matern",), **choices)
    frame = found.to_frame().set_index(["nugget", "nugget_covariance"])
    # nuggets of 0 have no covariances
    assert set(frame.index) == {("0", "no"), ("free", "no"), ("free", "yes")}
    best = frame.loc[("free", "yes")]
    assert frame.index[0] == ("free", "yes")
    assert best.parameters == frame.loc[("free", "no")].parameters + 1
    held = {"smoothness_1": 0.5, "smoothness_2": 0.5}
    alone = fitted(fixed=held)
    assert best.log_likelihood == pytest.approx(alone.log_likelihood, abs=1e-4)
    assert best[f"estimate_{ETA}"] == pytest.approx(alone.model.parameters()[ETA], rel=1e-2)
    assert "nugget cov." in str(found)
    assert (
        "nugget_covariance"
        not in gx.compare_models(field(), families=("independent",), smoothness=(0.5,)).to_frame()
    )
    for wrong, message in {
        (True,): "nuggets of 0 have no covariances",
        ("yes",): "True and False",
    }.items():
        with pytest.raises(gx.InvalidInput, match=message):
            gx.compare_models(
                field(), families=("independent",), nuggets=(0,), nugget_covariance=wrong
            )


def test_other_families_have_no_nugget_covariances():
    with pytest.raises(gx.InvalidInput, match="are for several variables"):
        gx.compare_models(gx.datasets.load("meuse"), nugget_covariance=(False, True))
    with pytest.raises(gx.InvalidInput, match="need a family of several variables"):
        gx.fit(gx.datasets.load("meuse"), nugget_covariance=True)
    with pytest.raises(gx.InvalidInput, match="nugget_covariance"):
        gx.fit(field(n=30), family="independent", nugget_covariance="yes")
    with pytest.raises(gx.InvalidInput, match="positive semidefinite"):
        fitted(fixed=HELD | {"nugget_1": 0.1, "nugget_2": 0.1, ETA: 0.2})
