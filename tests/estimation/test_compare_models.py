import json

import numpy as np
import pytest

import geomxp as gx
from geomxp.prediction.simulate import lay_out


@pytest.fixture(scope="module")
def seen():
    return gx.datasets.load("meuse", formula="sqrt_dist + elev")


@pytest.fixture(scope="module")
def found(seen):
    return gx.compare_models(
        seen,
        smoothness=(0.5, 1.5, "free"),
        nuggets=(0, "free"),
        anisotropy=(False, True),
        trends=("constant", "poly(elev, 2)"),
    )


def candidate(found, **words):
    return next(c for c in found.candidates if c.choice.words | words == c.choice.words)


@pytest.mark.slow
def test_every_combination_is_there_once(found):
    choices = {tuple(c.choice.words.items()) for c in found.candidates}
    assert len(choices) == len(found.candidates) == 24


@pytest.mark.slow
def test_each_is_the_fit_of_its_choice(found, seen):
    plain = candidate(found, trend="constant", smoothness="1.5", nugget="free", anisotropic="no")
    alone = gx.fit(seen, fixed={"smoothness": 1.5})
    # two searches of tolerance 1e-6 from different starts
    assert plain.fit.log_likelihood == pytest.approx(alone.log_likelihood, abs=1e-5)
    turned = candidate(
        found, trend="poly(elev, 2)", smoothness="0.5", nugget="0", anisotropic="yes"
    )
    alone = gx.fit(
        seen, fixed={"smoothness": 0.5, "nugget": 0}, anisotropy=True, trend="poly(elev, 2)"
    )
    assert turned.fit.log_likelihood >= alone.log_likelihood - 1e-5


@pytest.mark.slow
def test_no_model_lies_below_one_that_it_contains(found):
    pairs = [
        (large, small)
        for large in found.candidates
        for small in found.candidates
        if large.ranked and small.ranked and large.choice.contains(small.choice)
    ]
    assert len(pairs) > 60
    for large, small in pairs:
        assert large.log_likelihood >= small.log_likelihood - 1e-3


def test_containing_is_an_order():
    from geomxp.estimation.compare import Choice

    small, large = Choice("x", False, 0.0, 0.5), Choice("x", True, "free", "free")
    assert large.contains(small)
    assert large.contains(large)
    assert not small.contains(large)
    assert not Choice("x", True, "free", 1.5).contains(small)
    assert not Choice("y", True, "free", "free").contains(small)
    axes = Choice("x", False, "free", "free", axis_ranges=True)
    assert large.contains(axes)
    assert axes.contains(small)
    assert not axes.contains(large)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["aic", "aicc", "bic"])
def test_the_frame_is_what_the_criterion_says(seen, criterion):
    frame = gx.compare_models(
        seen, trends=("constant", "sqrt_dist"), nuggets=(0, "free"), criterion=criterion
    ).to_frame()
    ranked = frame[frame["weight"].notna()]
    k, n = ranked["parameters"].astype(float), len(seen)
    values = {"aic": 2 * k - 2 * ranked["log_likelihood"]}
    values["aicc"] = values["aic"] + 2 * k * (k + 1) / (n - k - 1)
    values["bic"] = k * np.log(n) - 2 * ranked["log_likelihood"]
    for name, expected in values.items():
        np.testing.assert_allclose(ranked[name].to_numpy(float), expected, rtol=1e-14)
    assert ranked[criterion].is_monotonic_increasing
    delta = ranked[criterion] - ranked[criterion].min()
    np.testing.assert_allclose(ranked["delta"], delta, atol=1e-12)
    np.testing.assert_allclose(ranked["weight"], np.exp(-delta / 2) / np.exp(-delta / 2).sum())
    # what has no maximum stands last
    assert frame["weight"].notna().to_numpy().tolist() == sorted(frame["weight"].notna())[::-1]


@pytest.mark.slow
def test_what_fails_stays_with_its_reason():
    places = lay_out(49, "jittered", 3)
    values = gx.simulate(gx.Matern(1.0, 0.5, 1.5), places, seed=1)[0]
    # two equal observations of one location: without limit as the nugget goes to 0
    twins = np.vstack([places, places[:1]]), np.append(values, values[0])
    seen = gx.Observations(*twins)
    found = gx.compare_models(seen, smoothness=(0.5,), nuggets=(0.05, "free"))
    last = found.candidates[-1]
    assert last.fit.outcome.ending is gx.Ending.NO_FINITE_MAXIMUM
    row = found.to_frame().iloc[-1]
    assert row["outcome"].startswith("NO_FINITE_MAXIMUM: ")
    assert np.isnan(row["aic"])
    assert np.isnan(row["estimate_range"])
    assert "smoothness 0.5 nugget free anisotropic no: NO_FINITE_MAXIMUM" in str(found)


def test_an_error_of_one_model_is_its_reason():
    places = [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 1.0], [1.0, 2.0], [3.0, 1.0]]
    twins = gx.Observations(places, [1.0, 2.0, 0.5, 3.0, 1.5, 0.0, 2.0])
    held = {"smoothness": (0.5,), "nuggets": (0, 0.5)}
    found = gx.compare_models(twins, **held)
    assert found.candidates[-1].fit is None
    assert "same location" in found.candidates[-1].outcome
    with pytest.raises(gx.FitFailed, match=r"no model could be fitted; .*same location"):
        gx.compare_models(twins, smoothness=(0.5,), nuggets=(0,))


def test_the_best_is_told_from_the_wrong_ones():
    places = np.random.default_rng(0).random((300, 2))
    truth = gx.Matern(1.0, 0.1, 1.5)
    drawn = gx.Observations(places, gx.simulate(truth, places, seed=2)[0])
    found = gx.compare_models(drawn, smoothness=(0.5, 1.5), nuggets=(0,), trends=("zero",))
    assert found.best.model.smoothness == 1.5
    # ν = 1/2 is no rival for places so dense
    assert found.to_frame()["weight"][0] > 0.999


def test_restricted_likelihoods_of_one_trend_compare(seen):
    found = gx.compare_models(seen, smoothness=(1.0, 1.5), trends=("sqrt_dist",), reml=True)
    assert all(c.fit.reml for c in found.candidates)
    with pytest.raises(gx.InvalidInput, match="restricted likelihoods of different trends"):
        gx.compare_models(seen, trends=("constant", "sqrt_dist"), reml=True)


def test_vecchias_fits_compare_too(seen):
    found = gx.compare_models(seen, gx.Vecchia(20), smoothness=(0.5, 1.5))
    assert all(isinstance(c.fit.method, gx.Vecchia) for c in found.candidates)


@pytest.mark.slow
def test_each_is_told_as_it_comes(seen):
    told = []
    found = gx.compare_models(seen, smoothness=(0.5, 1.5), each=told.append)
    assert {id(one) for one in told} == {id(one) for one in found.candidates}
    # the same call gives an equal comparison
    assert found == gx.compare_models(seen, smoothness=(0.5, 1.5))
    assert found != gx.compare_models(seen, smoothness=(0.5, 1.5), criterion="bic")
    assert [c.choice.smoothness for c in told] == [0.5, 1.5]


@pytest.mark.slow
def test_the_document_has_no_nan(found):
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["n"] == 155
    assert len(document["rows"]) == 24
    best = document["rows"][0]
    assert best["delta"] == 0
    assert best["estimate_range"] == found.best.model.range


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"smoothness": 0.5}, "`smoothness` must be a sequence"),
        ({"smoothness": ()}, "`smoothness` must be a sequence"),
        ({"smoothness": "free"}, "`smoothness` must be a sequence"),
        ({"smoothness": (0.0,)}, "`smoothness` must hold positive numbers"),
        ({"smoothness": ("some",)}, "`smoothness` must hold positive numbers"),
        ({"smoothness": (0.5, 0.5)}, "`smoothness` names 0.5 twice"),
        ({"nuggets": (-1.0,)}, "`nuggets` must hold"),
        ({"nuggets": (True,)}, "`nuggets` must hold"),
        ({"anisotropy": ("yes",)}, "`anisotropy` must hold True and False"),
        ({"axis_ranges": (1,)}, "`axis_ranges` must hold True and False"),
        ({"anisotropy": (True,), "axis_ranges": (True,)}, "leave one out"),
        ({"trends": "constant"}, "`trends` must be a sequence"),
        ({"trends": ("lineer",)}, "`trend` must be one of"),
        ({"trends": ("sqrt_dist + I(2 * sqrt_dist)",)}, "linearly dependent"),
        ({"criterion": "dic"}, "`criterion` must be one of: aic, aicc, bic"),
    ],
)
def test_wrong_choices_are_one_line(seen, options, words):
    with pytest.raises(gx.InvalidInput, match=words):
        gx.compare_models(seen, **options)


@pytest.mark.slow
def test_the_table_has_the_whole_names_of_parameters():
    places = np.repeat(np.random.default_rng(1).random((12, 2)), 4, axis=0)
    times = np.tile(np.arange(4.0), 12)
    model = gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, nugget=0.1)
    values = gx.simulate(model, places, time=times, seed=2)[0]
    seen = gx.Observations(places, values, time=times)
    compared = gx.compare_models(seen, families=("separable",))
    assert "time_smoothness" in str(compared).split()


def test_smoothness_is_a_choice_of_matern_models_only():
    random = np.random.default_rng(0)
    seen = gx.Observations(
        random.random((40, 2)), random.gamma(2.0, 1.0, 40), variable=np.arange(40) % 2
    )
    found = gx.compare_models(
        seen, families=("independent-spherical",), transforms=("boxcox",), progress=False
    )
    (row,) = found.to_frame().to_dict("records")
    assert row["weight"] == 1.0
    assert np.isfinite([row["estimate_boxcox_power_1"], row["estimate_boxcox_power_2"]]).all()
    assert not any("axis_ratio" in name or "anisotropy_" in name for name in row)


def test_a_range_for_each_axis_is_compared_with_an_ellipse_and_one_range(seen):
    compared = gx.compare_models(
        seen, smoothness=(0.5,), anisotropy=(True, False), axis_ranges=(False, True)
    )
    frame = compared.to_frame().set_index("anisotropic")
    assert sorted(frame.index) == ["axes", "no", "yes"]
    assert dict(frame["parameters"]) == {"no": 4, "axes": 5, "yes": 6}
    alone = gx.fit(seen, fixed={"smoothness": 0.5}, axis_ranges=True, progress=False)
    # two searches of tolerance 1e-6 from different starts
    assert frame["log_likelihood"]["axes"] == pytest.approx(alone.log_likelihood, abs=1e-5)
    assert frame["estimate_axis_ratio_2"].notna().to_dict() == {
        "axes": True, "no": False, "yes": False,
    }  # fmt: skip
