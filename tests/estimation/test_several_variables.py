"""Fits of models for several variables."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp.estimation import starts
from geomxp.testing import places

FAMILIES = ("independent", "coregionalization", "parsimonious-matern", "flexible-matern")
SMOOTHNESS_OF_THREE = {"smoothness_1": 0.5, "smoothness_2": 0.8, "smoothness_3": 1.2}
TRUE = gx.FlexibleMatern((1.0, 4.0), (0.2, 0.1), (0.5, 1.0), 0.5, (0.1, 0.2))


def field(n=120, seed=1, truth=TRUE, values=1.0):
    """Values of two variables at n places each, half of them common."""
    where = np.vstack(
        (
            places(n, seed=seed),
            places(n, seed=seed)[: n // 2],
            places(n, seed=seed + 50)[: n - n // 2],
        )
    )
    kinds = np.repeat([0, 1], n)
    z = gx.simulate(truth, where, variable=kinds, seed=seed)[0]
    return gx.Observations(where, z * np.broadcast_to(values, 2)[kinds], variable=kinds)


@pytest.fixture(scope="module")
def fits():
    return {family: gx.fit(field(), family=family, trend="zero") for family in FAMILIES}


@pytest.mark.slow
def test_fits_end_at_maxima(fits):
    seen = field()
    truth = gx.log_likelihood(seen, TRUE, trend="zero").log_likelihood
    for family, fit in fits.items():
        assert fit.outcome.good, family
        evaluator = fit.method.prepare(fit.observations)
        for name in fit.free:
            value = fit.model.parameters()[name]
            for factor in (0.99, 1.01):
                other = fit.model.replace(**{name: value * factor})
                if other.valid_on("euclidean", 2):
                    assert evaluator(other).log_likelihood <= fit.log_likelihood + 1e-6, name
        if family == "flexible-matern":
            assert fit.log_likelihood > truth
    # nested families
    assert (
        fits["flexible-matern"].log_likelihood > fits["parsimonious-matern"].log_likelihood - 1e-6
    )
    assert fits["flexible-matern"].log_likelihood > fits["independent"].log_likelihood


@pytest.mark.slow
def test_independent_variables_are_fitted_as_each_alone(fits):
    seen, together = field(), fits["independent"]
    alone = []
    for k in range(2):
        rows = seen.variable == k
        one = gx.Observations(seen.locations[rows], seen.values[rows])
        alone.append(gx.fit(one, trend="zero"))
    total = sum(fit.log_likelihood for fit in alone)
    assert together.log_likelihood == pytest.approx(total, abs=1e-5)
    for k, fit in enumerate(alone):
        for name, value in fit.model.parameters().items():
            found = together.model.parameters()[f"{name}_{k + 1}"]
            assert found == pytest.approx(value, rel=5e-3, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["flexible-matern", "coregionalization"])
def test_units_of_the_variables_do_not_matter(fits, family):
    scaled = gx.fit(field(values=(1e4, 1e-3)), family=family, trend="zero")
    before = fits[family]
    shift = 120 * (np.log(1e4) + np.log(1e-3))
    assert scaled.log_likelihood == pytest.approx(before.log_likelihood - shift, abs=1e-6)
    ratio = scaled.model.variances / before.model.variances
    np.testing.assert_allclose(ratio, [1e8, 1e-6], rtol=1e-3)
    np.testing.assert_allclose(scaled.model.correlations, before.model.correlations, atol=1e-4)


@pytest.mark.slow
def test_the_order_of_the_variables_does_not_matter(fits):
    seen = field()
    turned = gx.Observations(seen.locations, seen.values, variable=1 - seen.variable)
    for family in ("parsimonious-matern", "flexible-matern"):
        fit = gx.fit(turned, family=family, trend="zero")
        assert fit.log_likelihood == pytest.approx(fits[family].log_likelihood, abs=1e-4)


@pytest.mark.slow
def test_intervals_tests_and_files_know_correlations(fits, tmp_path):
    fit = fits["flexible-matern"]
    wald = fit.confidence_intervals()["correlation_12"]
    profile = fit.confidence_intervals(method="profile", names=["correlation_12"])
    low, high = profile["correlation_12"]
    assert low < fit.model.parameters()["correlation_12"] < high
    np.testing.assert_allclose(wald, (low, high), atol=0.1)
    # ends of a profile interval are where ℓ has fallen by half a quantile
    held = gx.fit(
        fit.observations, family="flexible-matern", trend="zero", fixed={"correlation_12": low}
    )
    assert fit.log_likelihood - held.log_likelihood == pytest.approx(1.9207, abs=2e-2)
    none = gx.fit(
        fit.observations, family="flexible-matern", trend="zero", fixed={"correlation_12": 0.0}
    )
    test = gx.likelihood_ratio_test(none, fit)
    assert test.degrees_of_freedom == 1
    assert test.p_value < 0.01
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.model == fit.model
    assert again.confidence_intervals()["correlation_12"] == wald


@pytest.mark.slow
def test_a_nugget_of_one_variable_may_be_0():
    truth = gx.FlexibleMatern((1.0, 1.0), (0.2, 0.2), (0.5, 0.5), 0.5, (0.0, 0.5))
    for family in FAMILIES:
        held = {"smoothness_1": 0.5, "smoothness_2": 0.5}
        fit = gx.fit(field(truth=truth, seed=4), family=family, trend="zero", fixed=held)
        assert fit.outcome.good, family
        assert fit.model.nugget[0] < 0.05
        assert fit.model.nugget[1] > 0.2
        if fit.model.nugget[0] == 0:
            assert fit.standard_errors["nugget_1"] is None
            assert "nugget_1" not in fit.free


@pytest.mark.slow
def test_vecchia_fits_near_the_exact_maximum(fits):
    fit = gx.fit(field(), family="parsimonious-matern", method=gx.Vecchia(40), trend="zero")
    assert fit.outcome.good
    near = gx.log_likelihood(field(), fit.model, trend="zero").log_likelihood
    assert near > fits["parsimonious-matern"].log_likelihood - 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "held"),
    [
        ("independent", SMOOTHNESS_OF_THREE),
        ("coregionalization", {}),
        ("parsimonious-matern", {}),
        ("flexible-matern", SMOOTHNESS_OF_THREE),
    ],
)
def test_three_variables_are_fitted(family, held):
    truth = gx.ParsimoniousMatern((1.0, 2.0, 0.5), 0.2, (0.5, 0.8, 1.2), (0.5, -0.3, 0.2), 0.05)
    where, kinds = np.repeat(places(140), 3, axis=0), np.tile([0, 1, 2], 140)
    z = gx.simulate(truth, where, variable=kinds, seed=2)[0]
    seen = gx.Observations(where, z, variable=kinds)
    fit = gx.fit(seen, family=family, trend="zero", fixed=held)
    assert fit.outcome.good
    assert fit.model.valid_on("euclidean", 2)
    if family != "independent":
        assert (
            fit.log_likelihood
            > gx.log_likelihood(
                fit.observations, gx.Independent(*_marginal(truth)), trend="zero"
            ).log_likelihood
        )


def _marginal(model):
    return model.variance, (model.range,) * 3, model.smoothness, model.nugget


@pytest.mark.slow
def test_fixed_and_started_parameters_keep_their_values(fits):
    seen = field()
    held = {"smoothness_1": 0.5, "smoothness_2": 1.0, "nugget_2": 0.2}
    fit = gx.fit(seen, family="flexible-matern", trend="zero", fixed=held)
    assert {name: fit.model.parameters()[name] for name in held} == held
    assert fits["flexible-matern"].log_likelihood >= fit.log_likelihood - 1e-6


def test_values_without_a_variable_are_refused():
    with pytest.raises(gx.InvalidInput, match="needs the variable of each value"):
        gx.fit(gx.Observations(places(20), np.arange(20.0)), family="flexible-matern")


@pytest.mark.slow
def test_intervals_of_loadings_are_in_their_units(fits):
    for values in ((1.0, 1.0), (1e4, 1e-3)):
        fit = fits["coregionalization"]
        if values != (1.0, 1.0):
            fit = gx.fit(field(values=values), family="coregionalization", trend="zero")
        loading = fit.model.parameters()["loading_21"]
        low, high = fit.confidence_intervals()["loading_21"]
        half = 1.959964 * fit.standard_errors["loading_21"]
        np.testing.assert_allclose((low, high), (loading - half, loading + half), rtol=1e-6)
        profile = fit.confidence_intervals(method="profile", names=["loading_21"])["loading_21"]
        np.testing.assert_allclose(profile, (low, high), atol=0.3 * half)
        k = fit.free.index("loading_21")
        error = np.sqrt(np.linalg.inv(gx.information(fit))[k, k])
        assert error == pytest.approx(fit.standard_errors["loading_21"], rel=1e-9)


@pytest.mark.slow
def test_correlations_have_intervals_by_the_delta_method(fits):
    for family, fit in fits.items():
        table = fit.correlation_table(0.9)
        assert list(table.first + table.second) == ["variable 0variable 1"]
        (row,) = table.itertuples()
        assert row.estimate == pytest.approx(fit.model.correlations[0, 1], rel=1e-12)
        if family == "independent":
            assert np.isnan(row.standard_error)
            continue
        if family != "coregionalization":
            wald = fit.confidence_intervals(0.9)["correlation_12"]
            np.testing.assert_allclose((row.lower, row.upper), wald, rtol=1e-12)
        # correlations of models drawn from the distribution of the estimates
        names, values = fit.free, fit.model.parameters()
        plain = {p.name: p.transform == "identity" for p in fit.model.table}
        covariance = 1e-4 * np.linalg.inv(gx.information(fit))
        # moments of these draws are exact: orthogonal columns without a mean
        columns = np.random.default_rng(3).standard_normal((100, 1 + len(names)))
        columns[:, 0] = 1.0
        white = 10 * np.linalg.qr(columns)[0][:, 1:]
        draws = white @ np.linalg.cholesky(covariance).T
        found = []
        for draw in draws:
            moved = {
                n: values[n] + x if plain[n] else values[n] * np.exp(x)
                for n, x in zip(names, draw, strict=True)
            }
            found.append(fit.model.replace(**moved).correlations[0, 1])
        assert row.standard_error == pytest.approx(100 * np.std(found), rel=0.01)
    one = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    with pytest.raises(gx.InvalidInput, match=r"need a model of several variables.*'matern'"):
        one.correlation_table()


@pytest.mark.slow
def test_tables_name_variables_and_not_their_numbers(fits):
    seen = field()
    named = gx.Observations(
        seen.locations, seen.values, variable=seen.variable, variable_names=("zinc", "lead")
    )
    fit = gx.fit(
        named,
        fits["coregionalization"].model,
        fixed=tuple(fits["coregionalization"].model.parameters()),
    )
    for text in (str(fit), fit._repr_html_()):
        for name in ("loading of lead on field 1", "range of field 2", "nugget of lead"):
            assert name in text
    fit = gx.fit(
        named,
        fits["flexible-matern"].model,
        fixed=tuple(fits["flexible-matern"].model.parameters()),
    )
    assert "correlation of zinc and lead" in str(fit)
    flexible, fields = (fits[name].model for name in ("flexible-matern", "coregionalization"))
    assert gx.plots.unit_of(flexible.parameter("variance_2"), named) == "squared units of lead"
    assert gx.plots.unit_of(fields.parameter("loading_21"), named) == "units of lead"
    assert gx.plots.unit_of(flexible.parameter("correlation_12"), named) is None


@pytest.mark.slow
def test_messages_of_fits_name_variables():
    seen = field(
        truth=gx.FlexibleMatern((1.0, 1.0), (0.2, 0.2), (0.5, 0.5), 0.5, (0.0, 0.5)), seed=4
    )
    named = gx.Observations(
        seen.locations, seen.values, variable=seen.variable, variable_names=("zinc", "lead")
    )
    held = {"smoothness_1": 0.5, "smoothness_2": 0.5}
    bounds = {"nugget_1": (0.05, 1.0), "correlation_12": (0.9, 0.95)}
    fit = gx.fit(named, family="parsimonious-matern", trend="zero", fixed=held, bounds=bounds)
    assert fit.boundary
    for name in fit.boundary:
        said = {"nugget_1": "nugget of zinc", "correlation_12": "correlation of zinc and lead"}
        assert said[name] in fit.outcome.message
        assert name.replace("_", " ") not in fit.outcome.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inside", "family", "tested"),
    [
        ("independent", "flexible-matern", "correlation of variable 0 and variable 1"),
        ("independent", "coregionalization", "loading of variable 1 on field 1"),
        ("parsimonious-matern", "flexible-matern", "equal ranges"),
    ],
)
def test_a_family_is_tested_within_one_that_contains_it(fits, inside, family, tested):
    restricted, full = fits[inside], fits[family]
    model, _ = restricted.model.as_member_of(type(full.model))
    same = gx.log_likelihood(field(), model, trend="zero").log_likelihood
    assert same == pytest.approx(restricted.log_likelihood, rel=1e-13)
    found = gx.likelihood_ratio_test(restricted, full)
    gain = full.log_likelihood - restricted.log_likelihood
    assert found.statistic == pytest.approx(2 * gain, rel=1e-12)
    assert found.degrees_of_freedom == 1
    assert found.message == f"tested: {tested}; compared with chi-square"
    with pytest.raises(gx.InvalidInput, match="the fits are not nested: their families are"):
        gx.likelihood_ratio_test(full, restricted)


@pytest.mark.slow
def test_equal_ranges_of_three_variables_need_a_model_of_the_larger_family():
    near = gx.ParsimoniousMatern((1.0,) * 3, 0.2, (0.3, 1.0, 2.0), (0.6, 0.5, 0.6))
    flexible = gx.FlexibleMatern((1.0,) * 3, (0.2,) * 3, (0.3, 1.0, 2.0), (0.1,) * 3)
    where, kinds = np.repeat(places(30), 3, axis=0), np.tile([0, 1, 2], 30)
    seen = gx.Observations(where, np.arange(90.0) % 7, variable=kinds)
    fits = [
        gx.fit(seen, one, fixed=tuple(one.parameters()), trend="zero") for one in (near, flexible)
    ]
    # valid in the plane, but not in every dimension, as the flexible models of three variables are
    with pytest.raises(gx.InvalidInput, match="the fits are not nested"):
        gx.likelihood_ratio_test(*fits)


@pytest.mark.slow
def test_equal_ranges_are_tested_by_the_bootstrap():
    seen, held = field(60), {"smoothness_1": 0.5, "smoothness_2": 1.0}
    about = {"fixed": held, "trend": "zero"}
    fits = [gx.fit(seen, family=one, **about) for one in ("parsimonious-matern", "flexible-matern")]
    found = gx.likelihood_ratio_test(*fits, bootstrap=2)
    assert len(found.draws) == 2
    assert min(found.draws) >= 0
    assert max(found.draws) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "boundary"), [(0, ()), (1, ("correlation_12",))])
def test_the_sign_of_a_variable_does_not_matter_at_the_limit_of_a_correlation(seed, boundary):
    random, held = np.random.default_rng(seed), {"smoothness_1": 1.0, "smoothness_2": 1.0}
    where = random.random((50, 2))
    z = gx.simulate(gx.Matern(1.0, 0.2, 1.0), where, seed=seed)[0]
    first, second = (z + 0.1 * random.normal(size=50) for _ in range(2))
    both = np.vstack((where, where))
    seen = {
        sign: gx.Observations(both, np.r_[first, sign * second], variable=np.repeat([0, 1], 50))
        for sign in (1, -1)
    }
    fits = {
        sign: gx.fit(one, family="parsimonious-matern", fixed=held, raise_on_failure=False)
        for sign, one in seen.items()
    }
    assert all(fit.outcome.good for fit in fits.values())
    assert fits[1].boundary == boundary
    assert fits[-1].log_likelihood == pytest.approx(fits[1].log_likelihood, abs=1e-5)
    assert fits[-1].model.correlation[0] == pytest.approx(-fits[1].model.correlation[0], abs=1e-4)


@pytest.mark.slow
def test_further_starts_are_random_models_near_the_first():
    seen, held = field(n=25), {"smoothness_1": 0.5, "smoothness_2": 1.0}
    about = {"family": "parsimonious-matern", "fixed": held, "trend": "zero"}
    one, few, same, other = (
        gx.fit(seen, starts=starts, seed=seed, **about)
        for starts, seed in ((1, 0), (4, 0), (4, 0), (4, 3))
    )
    assert one.evaluations < few.evaluations == same.evaluations != other.evaluations
    for fit in (few, same, other):
        assert fit.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-5)


@pytest.mark.slow
def test_fits_of_several_families_share_the_models_of_single_variables(monkeypatch):
    searches, searched = [], starts.searched

    def counted(*arguments):
        searches.append(arguments)
        return searched(*arguments)

    def fitted(seen, family="parsimonious-matern", **fixed):
        """Return the number of searches for a single variable, and the model after one step."""
        before, about = len(searches), {"evaluations": 1, "raise_on_failure": False}
        fit = gx.fit(seen, family=family, trend="zero", fixed=fixed, **about)
        return len(searches) - before, fit.model

    monkeypatch.setattr(starts, "searched", counted)
    monkeypatch.setattr(starts, "_alone_known", {})
    seen = field(70, seed=3)
    # two for each variable: smoothness free and fixed
    assert fitted(seen, "independent")[0] == 4
    count, shared = fitted(seen)
    assert count == 0
    monkeypatch.setattr(starts, "_alone_known", {})
    assert fitted(seen) == (4, shared)
    assert fitted(seen, range=0.2)[0] == 4
    assert fitted(replace(seen, values=seen.values + 0.1))[0] == 4
    # the same numbers in another column
    for name in ("error_variance", "replicates"):
        other = replace(seen, **{name: np.full(len(seen), 2.0)})
        assert fitted(other, "independent")[0] == 4


def test_a_model_of_more_variables_than_the_observations_is_not_estimated():
    seen, model = field(n=20), gx.Independent((1.0, 4.0, 2.0), 0.2, 0.5, 0.1)
    with pytest.raises(gx.InvalidInput, match="3 variables and the observations have 2"):
        gx.fit(seen, model, trend="zero")
    with pytest.raises(gx.InvalidInput, match="or fix all parameters"):
        gx.fit(seen, model, fixed=("variance_3", "range_3"))
    known = gx.fit(seen, model, fixed=tuple(model.parameters()), trend="zero")
    assert known.model == model
    expected = gx.log_likelihood(seen, model, trend="zero").log_likelihood
    assert known.log_likelihood == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "held", "n"),
    [
        ("parsimonious-matern", {"smoothness_1": 0.5}, 40),
        ("flexible-matern", {"smoothness_1": 0.5, "smoothness_2": 0.5}, 25),
        (
            "coregionalization",
            {"smoothness_1": 0.5, "smoothness_2": 0.5, "range_2": 0.2},
            25,
        ),
        # the search uses up its evaluations
        (
            "coregionalization",
            {"smoothness_1": 0.5, "smoothness_2": 0.5, "range_2": 0.2},
            40,
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_collinear_variables_have_no_finite_maximum(family, held, n):
    where, names = places(n, seed=3), np.repeat(["zinc", "lead"], n)
    z = gx.simulate(gx.Matern(1.0, 0.2, 0.5, 0.1), where, seed=3)[0]
    seen = gx.Observations(np.vstack((where, where)), np.r_[z, 1 - 2 * z], variable=names)
    said = f"zinc and lead are collinear at their {n} common"
    with pytest.raises(gx.FitFailed, match=said) as end:
        gx.fit(seen, family=family, fixed=held)
    assert end.value.fit.outcome.ending is gx.Ending.NO_FINITE_MAXIMUM
    # the remedy works
    fixed = end.value.fit.outcome.options["fixed"]
    assert set(fixed) == {"nugget_1", "nugget_2"}
    assert np.isfinite(gx.fit(seen, family=family, fixed=held | fixed).log_likelihood)


@pytest.mark.parametrize("model", [None, TRUE], ids=["family", "model"])
def test_options_that_several_variables_lack_are_refused(model):
    seen, about = field(n=20), {"family": "flexible-matern"} if model is None else {"model": model}
    rows = [*range(40), 0, 1]
    twice = gx.Observations(seen.locations[rows], seen.values[rows], variable=seen.variable[rows])
    with pytest.raises(gx.InvalidInput, match="no microscale variance: leave `microscale` out"):
        gx.fit(twice, microscale=True, **about)


@pytest.mark.slow
def test_compared_models_hold_smoothness_and_nugget_of_each_variable():
    found = gx.compare_models(
        field(n=40),
        families=("independent", "parsimonious-matern"),
        smoothness=(0.5,),
        nuggets=(0, "free"),
    )
    frame = found.to_frame()
    assert (frame[["estimate_smoothness_1", "estimate_smoothness_2"]] == 0.5).all(axis=None)
    none = frame[frame.nugget == "0"]
    assert len(none) == 2
    assert (none[["estimate_nugget_1", "estimate_nugget_2"]] == 0.0).all(axis=None)
    assert dict(zip(none.family, none.parameters, strict=True)) == {
        "independent": 6,
        "parsimonious-matern": 6,
    }


@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(10)], ids=str)
def test_errors_of_the_others_hold_a_range_on_which_the_likelihood_is_flat(method, tmp_path):
    truth = gx.Independent((1.0, 1e-12), 0.3, 0.5, (0.05, 1.0))
    options = {"family": "independent", "method": method, "progress": False, "tolerance": 1e-9}
    # without a field the second variable has no range
    held = {"smoothness_1": 0.5, "smoothness_2": 0.5, "variance_2": 1e-8}
    seen, start = field(n=60, truth=truth), {"range_2": 0.3}
    fit = gx.fit(seen, fixed=held, start=start, **options)
    assert fit.outcome.ending is gx.Ending.UNIDENTIFIED
    assert "other parameters hold the range of variable 1" in fit.outcome.message
    assert fit.information is None
    assert "range_2" in fit.free
    length = fit.model.range[1]
    without = gx.fit(seen, fixed=held | {"range_2": length}, **options)
    for name, error in without.standard_errors.items():
        # two searches
        assert fit.standard_errors[name] == (error and pytest.approx(error, rel=1e-3)), name
    assert fit.standard_errors["variance_1"] > 0
    fit.save(tmp_path / "fit.json")
    assert gx.Fit.load(tmp_path / "fit.json").standard_errors == fit.standard_errors
