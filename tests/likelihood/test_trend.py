import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.likelihood.trend import Trend, fit_trend
from geomxp.tiles.factor import CholeskyFactor

HELD = {"smoothness": 0.5}
FORMULA = "log(dist) + C(rock) + poly(x, 2)"


def table(n=70, seed=0):
    """Values with a trend in a distance, a rock and a coordinate far from its origin."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": 5e5 + 1000 * random.random(n),
            "y": 1000 * random.random(n),
            "dist": 0.1 + random.random(n),
            "rock": random.choice(["clay", "lime", "sand"], n),
        }
    )
    field = gx.simulate(gx.Matern(1, 100, 0.5, nugget=0.1), frame[["x", "y"]].to_numpy(), seed=1)
    rock = frame["rock"].map({"clay": 0.0, "lime": 2.0, "sand": -1.0})
    return frame.assign(z=field[0] + rock + 2 * frame["dist"])


def read(frame, formula=FORMULA):
    return gx.Observations.from_frame(frame, locations=("x", "y"), values="z", formula=formula)


@pytest.fixture(scope="module")
def fitted():
    return gx.fit(read(table()), fixed=HELD, trend=FORMULA)


NEW = table(9, seed=5).drop(columns="z")
PLACES = NEW[["x", "y"]].to_numpy()


def test_a_formula_of_the_coordinates_is_the_linear_trend():
    seen = read(table())
    one, other = (gx.fit(seen, fixed=HELD, trend=trend) for trend in ("linear", "x + y"))
    assert other.trend.names == one.trend.names == ("intercept", "x", "y")
    assert other.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-13)
    np.testing.assert_array_equal(other.coefficients, one.coefficients)


@pytest.mark.parametrize("reml", [False, True])
def test_the_basis_of_a_space_moves_the_likelihood_by_its_determinant_only(reml):
    # ML knows the space; REML also |T| of X₂ = X₁T, by -log|T|
    seen, model = read(table()), gx.Matern(0.9, 110, 0.5, nugget=0.1)
    texts = ("poly(x, 2)", "I(x - 5e5) + I((x - 5e5)**2)")
    first, second = (Trend.of(seen, text).design(seen.locations) for text in texts)
    change = np.linalg.lstsq(first, second, rcond=None)[0]
    one, other = (
        gx.log_likelihood(seen, model, trend=text, reml=reml).log_likelihood for text in texts
    )
    expected = one - (np.linalg.slogdet(change)[1] if reml else 0.0)
    # n·u·κ(X) of the powers
    assert other == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
def test_a_fit_knows_no_unit_of_the_covariates():
    frame = table()
    one = gx.fit(read(frame, "dist"), fixed=HELD, trend="dist")
    other = gx.fit(read(frame.assign(dist=1000 * frame["dist"]), "dist"), fixed=HELD, trend="dist")
    assert other.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-12)
    assert other.coefficients[1] == pytest.approx(one.coefficients[1] / 1000, rel=1e-9)


def test_levels_are_a_mean_for_each(fitted):
    frame = table()
    seen = read(frame)
    by_hand = frame.assign(
        lime=(frame["rock"] == "lime") * 1.0, sand=(frame["rock"] == "sand") * 1.0
    )
    plain = gx.Observations.from_frame(
        by_hand, locations=("x", "y"), values="z", covariates=("lime", "sand")
    )
    model = gx.Matern(0.9, 110, 0.5, nugget=0.1)
    one = gx.log_likelihood(seen, model, trend="rock")
    other = gx.log_likelihood(plain, model, trend="covariates")
    assert one.log_likelihood == other.log_likelihood
    np.testing.assert_array_equal(one.coefficients, other.coefficients)
    np.testing.assert_allclose(
        gx.log_likelihood(seen, model, trend="0 + rock").log_likelihood,
        one.log_likelihood,
        rtol=1e-12,
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", [gx.Exact(), gx.Vecchia(20)], ids=["exact", "vecchia"])
@pytest.mark.parametrize("from_table", [True, False])
def test_a_saved_fit_predicts_the_same_bits(tmp_path, method, from_table):
    frame = table()
    seen = read(frame)
    if from_table:
        frame.to_csv(tmp_path / "rocks.csv", index=False)
        seen = gx.read_table(
            tmp_path / "rocks.csv", locations=("x", "y"), values="z", formula=FORMULA
        )
    fit = gx.fit(seen, method=method, fixed=HELD, trend=FORMULA)
    fit.save(tmp_path / "fit.json")
    document = json.loads((tmp_path / "fit.json").read_text())
    assert document["trend"]["kind"] == "formula"
    assert document["trend"]["formula"] == FORMULA
    assert (document["table"] is not None) == from_table
    back = gx.Fit.load(tmp_path / "fit.json")
    assert back.trend == fit.trend
    for one, other in zip(*(_predicted(f) for f in (fit, back)), strict=True):
        np.testing.assert_array_equal(one, other)


def _predicted(fit):
    there = gx.predict(fit, PLACES, NEW)
    return there.mean, there.variance, gx.simulate(fit, PLACES, 2, covariates=NEW)


def test_places_may_be_a_frame_a_dict_or_observations(fitted):
    first = gx.predict(fitted, PLACES, NEW)
    columns = {"rock": NEW["rock"].tolist(), "dist": NEW["dist"].to_numpy()}
    # with other levels, and in another order, than the observations have them
    other = gx.Observations(PLACES, np.arange(9.0), NEW[["rock", "dist"]])
    for there in (gx.predict(fitted, PLACES, columns), gx.predict(fitted, other)):
        np.testing.assert_array_equal(there.mean, first.mean)
        np.testing.assert_array_equal(there.variance, first.variance)


def test_predictions_do_not_depend_on_the_places_beside(fitted):
    # transforms keep the means and levels of the observations
    whole = gx.predict(fitted, PLACES, NEW).mean
    alone = gx.predict(fitted, PLACES[4:5], NEW.iloc[4:5]).mean
    assert alone[0] == pytest.approx(whole[4], rel=1e-13)


def test_covariates_of_other_observations_are_taken_by_name():
    frame = table().assign(w=lambda f: f["dist"] ** 2)
    seen = gx.Observations.from_frame(
        frame, locations=("x", "y"), values="z", covariates=("dist", "w")
    )
    fit = gx.fit(seen, fixed=HELD, trend="covariates")
    turned = gx.Observations.from_frame(
        frame, locations=("x", "y"), values="z", covariates=("w", "dist")
    )
    np.testing.assert_array_equal(gx.predict(fit, turned).mean, gx.predict(fit, seen).mean)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rock": "gold"}, "row 1, column 'rock': 'gold' is a level that no observation has"),
        ({"dist": -1.0}, r"'log\(dist\)' must be finite. Got nan in row 1 \(9 such rows\)"),
        ({"dist": 0.0}, r"'log\(dist\)' must be finite. Got -inf in row 1"),
        ({"dist": "far"}, "row 1, column 'dist': 'far' is not a number"),
        ({"dist": np.nan}, "covariates must be finite numbers. Got nan in row 1, column 'dist'"),
        ({"rock": None}, "covariates must be finite numbers. Got nan in row 1, column 'rock'"),
    ],
)
def test_wrong_covariates_of_places_are_one_line(fitted, change, words):
    with pytest.raises(gx.InvalidInput, match=words):
        gx.predict(fitted, PLACES, NEW.assign(**change))


@pytest.mark.parametrize(
    ("covariates", "words"),
    [
        (None, "the trend needs 2 covariates"),
        (NEW[["dist"]], "no column 'rock'"),
        (NEW.iloc[:3], "must have 9 rows, one per location. Got 3"),
        (np.ones((9, 1)), "the trend needs 2 covariates"),
        (np.full((9, 2), 0.5), "holds codes of 3 levels, 0 to 2. Got 0.5 in row 1"),
        (np.array([["a", "b"]] * 9), "`covariates` must be numbers, or a frame"),
    ],
)
def test_covariates_that_do_not_fit_are_one_line(fitted, covariates, words):
    with pytest.raises(gx.InvalidInput, match=words):
        gx.predict(fitted, PLACES, covariates)


@pytest.mark.parametrize(
    ("trend", "words"),
    [
        (
            "lineer",
            "`trend` must be one of: zero, .*, or a formula of the columns x, y, dist, rock",
        ),
        ("", "`trend` must be one of"),
        (None, "`trend` must be one of"),
        ("log(elev)", "no column 'elev'"),
        ("covariates", r"'rock' is text: write a formula, trend=\"dist \+ rock\""),
        ("dist + I(2 * dist)", r"linearly dependent: 'I\(2 \* dist\)'"),
        ("x + poly(x, 2)", "linearly dependent"),
        ("log(x - x)", "must be finite. Got -inf in row 1"),
        ("C(x)", "has 70 levels for 70 observations, so that its coefficients are not estimable"),
        ("rock + I(rock == 'clay')", "linearly dependent"),
    ],
)
def test_trends_that_cannot_be_are_one_line(trend, words):
    with pytest.raises(gx.InvalidInput, match=words):
        gx.fit(read(table()), fixed=HELD, trend=trend)


def test_a_column_called_as_a_kind_can_be_meant():
    frame = table().rename(columns={"dist": "linear"})
    seen = gx.Observations.from_frame(frame, locations=("x", "y"), values="z", formula="~ linear")
    assert Trend.of(seen, "linear").names == ("intercept", "x", "y")
    named = Trend.of(seen, "~ linear")
    assert named.names == ("intercept", "linear")
    assert Trend.of(seen, named.text) == named


def test_a_fit_whose_formula_is_not_harmless_is_refused(fitted, tmp_path):
    document = fitted.to_dict()
    for text, words in (
        ("I(__import__('os').getcwd())", "no function"),
        ("log(dist)", "gives the columns"),
        (7, "must be text"),
    ):
        document["trend"]["formula"] = text
        (tmp_path / "fit.json").write_text(json.dumps(document))
        with pytest.raises(gx.InvalidInput, match=words):
            gx.Fit.load(tmp_path / "fit.json")


def test_a_map_needs_a_formula_of_coordinates_only(fitted):
    from geomxp.prediction.raster import predict_raster

    raster = predict_raster(gx.fit(read(table()), fixed=HELD, trend="poly(x, 2)"), cells=4)
    assert np.isfinite(raster.mean).all()
    with pytest.raises(gx.InvalidInput, match="needs the covariates dist, rock everywhere"):
        predict_raster(fitted, cells=4)


METHODS = {
    "dense": gx.Exact(),
    "tiles": gx.Exact(tile=16),
    "refined": gx.Exact(tile=16, refine="gmres"),
    "vecchia": gx.Vecchia(20),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize("offset", [2.0**10, 2.0**20, -(2.0**30)])
def test_an_offset_in_the_span_of_the_trend_costs_no_digits(method, trend, offset):
    random = np.random.default_rng(0)
    locations, model = random.random((100, 2)), gx.Matern(1.0, 0.05, 0.5, 1.0)
    # the sum of values and offset is exact
    values = np.round(random.standard_normal(100) * 2**20) / 2**20
    for reml in (False, True):
        near, far = (
            gx.log_likelihood(gx.Observations(locations, z), model, method, trend=trend, reml=reml)
            for z in (values, values + offset)
        )
        # a trend of several columns is subtracted in FP64 with errors of 1e-16 of the offset
        tolerance = 1e-14 + (0.0 if trend == "constant" else 1e-20 * abs(offset))
        assert far.log_likelihood == pytest.approx(near.log_likelihood, rel=tolerance)
        assert far.coefficients[0] - offset == pytest.approx(
            near.coefficients[0], abs=4e-16 * abs(offset)
        )
        assert far.coefficients[1:] == pytest.approx(near.coefficients[1:], abs=1e-10)


def test_fits_predictions_and_draws_do_not_depend_on_an_offset():
    random = np.random.default_rng(1)
    locations, new = random.random((60, 2)), random.random((5, 2))
    model, fixed = gx.Matern(1.0, 0.2, 0.5, 0.1), ("smoothness",)
    values = np.round(gx.simulate(model, locations, seed=2)[0] * 2**20) / 2**20
    offset = 2.0**30
    near, far = (
        gx.fit(gx.Observations(locations, z), model, fixed=fixed) for z in (values, values + offset)
    )
    assert far.log_likelihood == pytest.approx(near.log_likelihood, rel=1e-11)
    assert far.model.range == pytest.approx(near.model.range, rel=1e-4)
    # the spacing of numbers near 2^30 is 1e-7
    means = [gx.predict(fit, new).mean for fit in (near, far)]
    assert means[1] - offset == pytest.approx(means[0], abs=1e-5)
    draws = [gx.simulate(fit, new, draws=2, seed=0) for fit in (near, far)]
    assert draws[1] - offset == pytest.approx(draws[0], abs=1e-4)


def test_a_design_that_is_singular_has_no_estimate():
    factor = CholeskyFactor(np.eye(4, order="F"))
    twice = np.eye(4)[:, [0, 0]]
    with pytest.raises(gx.NotPositiveDefinite, match="X'Σ⁻¹X is not positive definite"):
        fit_trend(factor, np.arange(4.0), twice)


def of_two(n=40):
    """Two variables, not at the same locations, with covariates; and a model of both."""
    frame = table(n).assign(lead=lambda f: 3 - f["z"] + f["dist"])
    frame.loc[::3, "lead"] = np.nan
    frame.loc[1::5, "z"] = np.nan
    about = {"locations": ("x", "y"), "covariates": ("dist", "rock")}
    data = gx.Observations.from_frame(frame, values=("z", "lead"), **about)
    return data, gx.Independent((1, 2), (90, 150), (0.5, 1.5), (0.1, 0.2))


ALL = ("zero", "constant", "linear", "0 + rock", FORMULA, "bs(dist, df=4) + center(y)")


@pytest.mark.parametrize("text", ALL)
def test_the_design_of_several_variables_is_that_of_each(text):
    data, _ = of_two()
    whole = Trend.of(data, text)
    design = whole.design(data.locations, data.covariates, data.variable)
    first, names = 0, []
    for k, name in enumerate(data.variable_names):
        one = data.of_variable(name)
        alone = Trend.of(one, text)
        block = design[:, first : first + len(alone.names)]
        rows = data.variable == k
        np.testing.assert_array_equal(block[rows], alone.design(one.locations, one.covariates))
        assert not block[~rows].any()
        first += len(alone.names)
        names += [f"{name}: {column}" for column in alone.names]
    assert design.shape[1] == first
    assert list(whole.names) == names
    assert whole.text == alone.text
    assert whole.needs == alone.needs


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("text", ALL)
def test_independent_variables_have_the_sum_of_their_log_likelihoods(text, reml):
    data, model = of_two()
    whole = gx.log_likelihood(data, model, trend=text, reml=reml)
    each = [
        gx.log_likelihood(data.of_variable(k), model.marginal(k), trend=text, reml=reml)
        for k in range(2)
    ]
    total = sum(one.log_likelihood for one in each)
    assert whole.log_likelihood == pytest.approx(total, rel=1e-11)
    expected = np.concatenate([one.coefficients for one in each])
    np.testing.assert_allclose(whole.coefficients, expected, rtol=1e-7)


def test_a_trend_of_several_variables_names_the_variable_at_fault():
    data, model = of_two()
    lead = np.flatnonzero(data.variable == 1)
    with pytest.raises(gx.InvalidInput, match="'lead': a trend with 3 coefficients needs more"):
        gx.log_likelihood(
            data.subset(np.r_[np.flatnonzero(data.variable == 0), lead[:3]]), model, trend="linear"
        )
    flat = np.array(data.covariates)
    flat[lead, 0] = 2.0
    constant = gx.Observations(
        data.locations,
        data.values,
        flat[:, :1],
        variable=data.variable,
        variable_names=data.variable_names,
    )
    with pytest.raises(gx.InvalidInput, match=r"variable 'lead': the columns .* dependent"):
        gx.log_likelihood(constant, model, trend="covariates")
    some = Trend.of(data.subset(lead), "constant")
    assert some.names == ("lead: intercept",)
    with pytest.raises(gx.InvalidInput, match="no observation is of the variable 'z'"):
        some.design(data.locations, None, data.variable)
    with pytest.raises(gx.InvalidInput, match=r"of z, lead needs|variables z, lead needs"):
        Trend.of(data, "constant").design(data.locations)
