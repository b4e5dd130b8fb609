"""Leaving out without a new factor is kriging without what is left out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, kstest

import geomxp as gx
from geomxp import testing
from geomxp.prediction import validation
from geomxp.prediction.validation import block_numbers, folds_of
from geomxp.runtime.devices import resolve
from geomxp.tiles import factor
from geomxp.tiles.factor import CholeskyFactor

MEUSE = gx.datasets.load("meuse")
NUGGETS = {"nugget": 0.06, "no nugget": 0.0}
TRENDS = ("zero", "constant", "linear", "covariates")


def held(seen, model, method=None, trend="constant", **options):
    """A fit with all parameters given."""
    options.setdefault("fixed", tuple(model.parameters()))
    return gx.fit(seen, model, method, trend=trend, **options)


def without(fit, rows):
    """Kriging of some observations, from all others: mean, variance of the observation."""
    seen = fit.observations
    rest = np.setdiff1d(np.arange(len(seen)), rows)
    covariates = None if seen.covariates is None else seen.covariates[rows]
    others = replace(fit, observations=seen.subset(rest))
    there = gx.predict(others, seen.locations[rows], covariates)
    return there.mean, there.variance_of_observation


@pytest.fixture(scope="module", params=TRENDS)
def trend(request):
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("nugget", NUGGETS.values(), ids=list(NUGGETS))
def test_leaving_one_out_is_kriging_from_all_others(trend, nugget):
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, nugget), trend=trend)
    found = gx.leave_one_out(fit)
    expected = np.array([without(fit, [i]) for i in range(len(MEUSE))])[:, :, 0]
    # the condition number is below 1e4, Xβ of size 10
    np.testing.assert_allclose(found.mean, expected[:, 0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.variance, expected[:, 1], rtol=1e-11)
    np.testing.assert_array_equal(found.observed, MEUSE.values)


@pytest.mark.parametrize("nugget", NUGGETS.values(), ids=list(NUGGETS))
def test_folds_are_kriging_from_all_other_folds(trend, nugget):
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 1.5, nugget), trend=trend)
    found = gx.cross_validate(fit, 4, seed=2)
    for label in range(4):
        rows = np.flatnonzero(found.folds == label)
        mean, variance = without(fit, rows)
        np.testing.assert_allclose(found.mean[rows], mean, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.variance[rows], variance, rtol=1e-9)


WAYS = {
    "tiles": (gx.Exact(tile=40), 1e-11),
    "out of core": (gx.Exact(tile=40, memory="1GB"), 1e-11),
    # backward error ε, times the condition number 50 of Σ
    "mixed": (gx.Exact(gx.by_tile_norm(1e-9), tile=40), 1e-6),
    "refined": (gx.Exact(gx.by_tile_norm(1e-4), tile=40, refine="cg"), 1e-10),
    "all predecessors": (gx.Vecchia(154), 1e-10),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_compute_leaves_out_alike(way):
    method, tolerance = WAYS[way]
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06), trend="covariates")
    other = replace(fit, method=method)
    for validated in (gx.leave_one_out, lambda fit: gx.cross_validate(fit, 3)):
        expected, found = validated(fit), validated(other)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=10 * tolerance)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=10 * tolerance)


@pytest.mark.slow
def test_a_coarse_factor_leaves_out_less_exactly_and_refinement_repairs_it():
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06))
    exact = gx.leave_one_out(fit).mean
    coarse, refined = (
        np.abs(
            gx.leave_one_out(
                replace(fit, method=gx.Exact(gx.by_tile_norm(1e-4), tile=40, refine=refine))
            ).mean
            - exact
        ).max()
        for refine in (None, "gmres")
    )
    assert refined < 1e-11 < 1e-7 < coarse


@pytest.mark.parametrize("trend_of", ["zero", "linear"])
def test_vecchia_leaves_one_out_of_the_density_that_it_stands_for(trend_of):
    seen, model, method = testing.observations(), testing.MODEL, gx.Vecchia(5)
    fit = held(seen, model, method, trend_of)
    inverse = method.prepare(seen).factorize(model).solve(np.eye(60))
    exact = replace(fit, method=gx.Exact())
    x = fit.trend.design(seen.locations)
    q = inverse - inverse @ x @ np.linalg.pinv(x.T @ inverse @ x) @ x.T @ inverse
    found = gx.leave_one_out(fit)
    # the condition number is 200
    expected = seen.values - q @ seen.values / np.diag(q)
    np.testing.assert_allclose(found.mean, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.variance, 1 / np.diag(q), rtol=1e-11)
    assert np.abs(found.mean - gx.leave_one_out(exact).mean).max() > 1e-4


def test_folds_of_vecchia_are_predicted_from_their_nearest_in_the_other_folds():
    fit = held(testing.observations(), testing.MODEL, gx.Vecchia(6, "morton"), "linear")
    found = gx.cross_validate(fit, 3, seed=1)
    rows = np.flatnonzero(found.folds == 2)
    rest = np.flatnonzero(found.folds != 2)
    again = held(testing.observations().subset(rest), testing.MODEL, fit.method, "linear")
    there = gx.predict(again, testing.observations().locations[rows])
    # the fit solves in units of powers of two
    np.testing.assert_allclose(found.mean[rows], there.mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance[rows], there.variance_of_observation, rtol=1e-12)


def test_an_order_of_ones_own_is_kept_without_a_fold():
    order = np.random.default_rng(1).permutation(60)
    fit = held(testing.observations(), testing.MODEL, gx.Vecchia(4, order))
    own = gx.cross_validate(fit, 3)
    assert np.isfinite(own.mean).all()


def test_folds_of_one_leave_one_out():
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06), trend="linear")
    single, left_out = gx.cross_validate(fit, folds=len(MEUSE)), gx.leave_one_out(fit)
    np.testing.assert_allclose(single.mean, left_out.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(single.variance, left_out.variance, rtol=1e-11)


def test_chunks_of_the_diagonal_change_nothing(monkeypatch):
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06), gx.Exact(tile=40))
    whole = gx.leave_one_out(fit)
    monkeypatch.setattr(factor, "CHUNK_ENTRIES", 1000)
    pieces = gx.leave_one_out(fit)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-13)


def test_the_unit_of_the_values_and_the_order_of_the_rows_do_not_matter():
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06))
    found = gx.leave_one_out(fit)
    order = np.random.default_rng(1).permutation(len(MEUSE))
    turned = gx.leave_one_out(replace(fit, observations=MEUSE.subset(order)))
    np.testing.assert_allclose(turned.mean, found.mean[order], rtol=1e-11)
    scaled = gx.Observations(MEUSE.locations, 4.0 * MEUSE.values)
    large = gx.leave_one_out(held(scaled, gx.Matern(16 * 0.6, 220.0, 0.5, 16 * 0.06)))
    np.testing.assert_allclose(large.mean, 4.0 * found.mean, rtol=1e-12)
    np.testing.assert_allclose(large.pit(), found.pit(), rtol=1e-11)


def test_folds_fitted_anew_are_predicted_by_their_own_fits():
    seen = gx.Observations(testing.places(80), 0.0 * np.arange(80))
    seen = gx.Observations(seen.locations, gx.simulate(testing.MODEL, seen, seed=4)[0])
    fit = gx.fit(seen, testing.MODEL, fixed=("smoothness", "nugget"))
    found = gx.cross_validate(fit, 2, refit=True, seed=3)
    assert found.refitted
    rows, rest = np.flatnonzero(found.folds == 1), np.flatnonzero(found.folds == 0)
    again = gx.fit(seen.subset(rest), fit.model, fixed=("smoothness", "nugget"))
    there = gx.predict(again, seen.locations[rows])
    # two searches end within the tolerance 1e-6 of the log-likelihood, 1e-3 standard errors
    np.testing.assert_allclose(found.mean[rows], there.mean, rtol=0, atol=1e-3)
    assert (found.mean != gx.cross_validate(fit, 2, seed=3).mean).any()


@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True])
def test_a_formula_with_its_transforms_is_evaluated_without_the_fold(refit):
    """Whatever a transform remembers of all rows or of some, its columns span the same space."""
    options = {"fixed": {"smoothness": 0.5}}
    by_formula = gx.fit(MEUSE, trend="poly(x, 2) + sqrt_dist", **options)
    x = (MEUSE.locations[:, :1] - 1.8e5) / 1e3
    columns = np.hstack((x, x**2, MEUSE.covariates))
    plain = gx.Observations(MEUSE.locations, MEUSE.values, columns)
    by_columns = gx.fit(plain, trend="covariates", **options)
    found, expected = (gx.cross_validate(fit, 3, refit=refit) for fit in (by_formula, by_columns))
    # two searches end within 1e-6 of the same log-likelihood, 1e-3 standard errors
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-3)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-2)


def test_random_folds_share_the_rows_and_follow_the_seed():
    labels, kind = folds_of(MEUSE, 10, seed=5)
    assert sorted(np.bincount(labels)) == [15] * 5 + [16] * 5
    assert kind == "10 random folds (seed 5)"
    np.testing.assert_array_equal(labels, folds_of(MEUSE, 10, seed=5)[0])
    assert (labels != folds_of(MEUSE, 10, seed=6)[0]).any()


def test_labels_of_ones_own_may_be_words():
    words = np.where(MEUSE.locations[:, 0] < np.median(MEUSE.locations[:, 0]), "west", "east")
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06))
    found = gx.cross_validate(fit, words)
    assert found.kind == "2 given folds"
    assert set(found.to_frame().fold) == {"west", "east"}
    mean, _ = without(fit, np.flatnonzero(words == "west"))
    np.testing.assert_allclose(found.mean[words == "west"], mean, rtol=1e-11)


@pytest.mark.parametrize("dates", [True, False])
def test_a_table_of_observations_with_times_has_their_times(dates):
    days = np.arange("2026-03-01", "2026-03-09", dtype="datetime64[D]")
    when = np.tile(days, 5) if dates else np.tile(np.arange(8.0), 5)
    places = np.repeat(testing.places(5, seed=1), 8, axis=0)
    values = np.random.default_rng(1).standard_normal(40)
    seen = gx.Observations(places, values, time=when, time_name="day")
    fit = held(seen, gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, nugget=0.1))
    frame = gx.cross_validate(fit, 3, in_time="forecast").to_frame()
    assert list(frame)[:4] == ["x", "y", "day", "fold"]
    # the first times are not predicted
    assert (frame.day.to_numpy() == when[when >= frame.day.min()]).all()
    assert frame.day.nunique() == 6
    with pytest.raises(gx.InvalidInput, match="'fold' has the name of a result: rename"):
        gx.leave_one_out(replace(fit, observations=replace(seen, time_name="fold"))).to_frame()


def test_a_block_is_left_out_as_a_whole():
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06))
    found = gx.cross_validate(fit, 5, blocks=400.0, seed=1)
    cells = block_numbers(MEUSE, 400.0)
    for cell in np.unique(cells):
        assert len(np.unique(found.folds[cells == cell])) == 1
        assert np.ptp(MEUSE.locations[cells == cell], axis=0).max() <= 400.0
    assert len(np.unique(found.folds)) == 5
    # what is near is left out as well: predictions are no better
    assert found.scores()["rmse"] > gx.cross_validate(fit, 5, seed=1).scores()["rmse"]


@pytest.mark.parametrize("longitude", [10.0, 179.5])
def test_blocks_on_the_sphere_are_squares_in_km_wherever_the_map_is_cut(longitude):
    random = np.random.default_rng(2)
    east, north = random.random(800) * 3.0, random.random(800) * 2.0
    lon = (longitude + east + 180.0) % 360.0 - 180.0
    seen = gx.Observations(np.column_stack((lon, 59.0 + north)), np.zeros(800), metric="chordal")
    cells = block_numbers(seen, 40.0)
    km = 111.19 * np.column_stack((east * np.cos(np.radians(59.0)), north))
    for cell in np.unique(cells):
        # to the change of a degree's width within a row of blocks, 2 %
        assert np.ptp(km[cells == cell], axis=0).max() < 1.03 * 40.0
    # 171.8 km × 222.4 km
    assert 5 * 6 <= len(np.unique(cells)) <= 6 * 7


def test_predictions_of_a_simulated_field_are_calibrated():
    """From the true model, standardised errors are N(0, 1): nearly independent ones in folds."""
    model = gx.Matern(1.0, 0.1, 0.5, 0.3)
    places = testing.places(600, seed=8)
    seen = gx.Observations(places, gx.simulate(model, places, seed=9)[0])
    found = gx.leave_one_out(held(seen, model))
    assert kstest(found.pit(), "uniform").pvalue > 1e-3
    scores = found.scores(0.9)
    low, high = binom.ppf([1e-4, 1 - 1e-4], 600, 0.9) / 600
    assert low <= scores["coverage"] <= high
    # χ² with 600 degrees of freedom, 4 deviations
    assert abs(scores["mean_squared_standardised_error"] - 1) < 4 * np.sqrt(2 / 600)
    wrong = gx.leave_one_out(held(seen, replace(model, variance=0.25, nugget=0.075))).scores(0.9)
    assert wrong["mean_squared_standardised_error"] == pytest.approx(
        4 * scores["mean_squared_standardised_error"], rel=1e-9
    )
    assert wrong["log_score"] > scores["log_score"]
    assert wrong["crps"] > scores["crps"]


def test_a_validation_says_what_it_is():
    fit = held(MEUSE, gx.Matern(0.6, 220.0, 0.5, 0.06))
    found = gx.leave_one_out(fit)
    frame = found.to_frame(level=0.8)
    assert list(frame.columns) == [
        *("x", "y", "fold", "observed", "mean", "variance", "lower", "upper"),
        *("standardised_error", "pit"),
    ]
    z = (frame.observed - frame["mean"]) / np.sqrt(frame.variance)
    np.testing.assert_allclose(frame.standardised_error, z, rtol=1e-14)
    inside = (frame.lower <= frame.observed) & (frame.observed <= frame.upper)
    assert found.scores(0.8)["coverage"] == inside.mean()
    assert str(found).startswith("Leave-one-out of 155 observations, covariance parameters held")
    assert f"{found.scores()['rmse']:.6g}" in str(found)
    document = found.to_dict(0.8)
    assert document["folds"] == document["n"] == len(found) == 155
    assert document["scores"] == found.scores(0.8)


def indispensable():
    """A covariate that is not 0 at one place only."""
    seen = testing.observations()
    return gx.Observations(seen.locations, seen.values, np.arange(60.0) == 7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: gx.leave_one_out("fit.json"), "`fit` must be a Fit.*Got str"),
        (lambda f: gx.cross_validate(None), "`fit` must be a Fit"),
        (lambda f: gx.cross_validate(f, 1), "`folds` must be a whole number from 2 to 60. Got 1"),
        (lambda f: gx.cross_validate(f, 61), "from 2 to 60. Got 61"),
        (lambda f: gx.cross_validate(f, 2.5), "`folds` must be a whole number, or 60 labels"),
        (lambda f: gx.cross_validate(f, [0, 1]), "one label for each of the 60"),
        (lambda f: gx.cross_validate(f, np.zeros(60)), "at least 2 different labels"),
        (lambda f: gx.cross_validate(f, [np.nan, *range(59)]), "no label in row 1"),
        (lambda f: gx.cross_validate(f, [None, *range(59)]), "no label in row 1"),
        (lambda f: gx.cross_validate(f, ["a", *range(59)], blocks=1.0), "`blocks` needs a number"),
        (lambda f: gx.cross_validate(f, blocks=0.0), "`blocks` must be the side"),
        (lambda f: gx.cross_validate(f, blocks=np.nan), "`blocks` must be the side"),
        (lambda f: gx.cross_validate(f, blocks=1e-300), "must be a larger side"),
        (lambda f: gx.cross_validate(f, blocks=10.0), "10 folds need at least 10 blocks"),
        (lambda f: gx.cross_validate(f, seed=-1), "`seed` must be a whole number"),
        (lambda f: gx.leave_one_out(f).scores(0.0), "`level` must lie between"),
        (
            lambda f: gx.leave_one_out(held(indispensable(), testing.MODEL, trend="covariates")),
            "row 8 cannot be left out",
        ),
        (
            lambda f: gx.cross_validate(held(indispensable(), testing.MODEL, trend="covariates")),
            r"fold \d: the columns of the trend are linearly dependent",
        ),
    ],
)
def test_what_cannot_be_validated_is_named(call, message):
    fit = held(testing.observations(), testing.MODEL)
    with pytest.raises(gx.InvalidInput, match=message):
        call(fit)


def test_a_fold_that_has_no_fit_is_named(monkeypatch):
    seen = gx.Observations(np.arange(12.0), [0.0] * 6 + [1.0, 3.0, 2.0, 5.0, 1.0, 2.0])
    fit = held(seen, gx.Matern(2.0, 1.0, 0.5))
    # nothing is left to estimate but the variance, and the first half has none
    fit = replace(fit, free=("variance",))
    with pytest.raises(gx.GeomxpError, match=r"fold 1: .*no variance"):
        gx.cross_validate(fit, [0] * 6 + [1] * 6, refit=True)


def test_a_fold_whose_parameters_the_others_do_not_tell_is_named():
    """Noise has no range: predictions are the trend, but the estimates mean nothing."""
    seen = gx.Observations(testing.places(40), np.random.default_rng(3).standard_normal(40))
    model = gx.Matern(0.5, 0.05, 0.5, 0.5)
    fit = replace(held(seen, model), free=("variance", "range", "nugget"))
    with pytest.warns(gx.GeomxpWarning, match=r"fold [01]: AT_LIMIT"):
        found = gx.cross_validate(fit, 2, refit=True)
    assert np.isfinite(found.mean).all()


def test_what_the_others_do_not_determine_is_an_error_in_one_line():
    one = CholeskyFactor(np.eye(4, order="F"))
    # the coefficient is known from the first alone
    bare = validation.HeldOut(one, np.arange(4.0), np.eye(4)[:, :1], resolve("cpu"))
    with pytest.raises(gx.NotPositiveDefinite, match="row 1 given all others is lost"):
        bare.one_by_one()
    with pytest.raises(gx.NotPositiveDefinite, match="covariance of the 2 observations held out"):
        bare.together(np.array([0, 2]))


def test_too_smooth_a_field_is_an_error_in_one_line():
    fit = held(testing.observations(), testing.MODEL)
    smooth = replace(fit, model=gx.Matern(1.0, 5.0, 8.0))
    with pytest.raises(gx.NotPositiveDefinite, match="not positive definite"):
        gx.leave_one_out(smooth)


def test_several_variables_are_left_out_together_and_scored_apart():
    random = np.random.default_rng(4)
    places, kinds = np.repeat(random.random((30, 2)), 2, axis=0), np.tile([0, 1], 30)
    values = random.standard_normal(60) * (1 + 9 * kinds)
    names = ("zinc", "lead")
    seen = gx.Observations(places, values, variable=kinds, variable_names=names)
    fit = held(seen, gx.FlexibleMatern((1.0, 81.0), 0.3, (0.5, 1.0), 0.6, (0.1, 2.0)))
    found = gx.leave_one_out(fit)
    # the other variable at the location is known
    for row in (0, 7, 30):
        others = np.delete(np.arange(60), row)
        rest = replace(fit, observations=seen.subset(others))
        there = gx.predict(rest, places[row : row + 1], variable=names[kinds[row]])
        assert found.mean[row] == pytest.approx(there.mean[0], rel=1e-8)
        variance = there.variance_of_observation[0]
        assert found.variance[row] == pytest.approx(variance, rel=1e-8)
    each = [found.of_variable(name) for name in names]
    for k, part in enumerate(each):
        np.testing.assert_array_equal(part.mean, found.mean[kinds == k])
        np.testing.assert_array_equal(part.observed, values[kinds == k])
        assert part.observations.value_name == names[k]
    document = found.to_dict()
    assert document["variables"]["lead"] == each[1].scores()
    assert found.to_frame()["variable"].tolist() == ["zinc", "lead"] * 30
    line = next(line for line in str(found).splitlines() if "RMSE" in line)
    assert line.split() == ["RMSE", *(f"{part.scores()['rmse']:.6g}" for part in each)]
    with pytest.raises(gx.InvalidInput, match="no variable 'gold'"):
        found.of_variable("gold")
