"""Fits of a hurdle: two independent models, their sums, their file and bad input."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.cli.main import main
from geomxp.covariance.responses import Bernoulli, Gamma

HELD = {"variance": 0.5, "range": 0.2, "smoothness": 0.5}


def observations(n=60, counts=False, **columns):
    random, places = np.random.default_rng(4), testing.places(n, seed=4)
    amount = 1.0 + random.poisson(2.0, n) if counts else random.gamma(2.0, 1.0, n)
    return gx.Observations(places, (random.random(n) < 0.6) * amount, **columns)


@pytest.fixture(scope="module")
def fitted():
    return gx.fit(observations(), response="hurdle", fixed=HELD, progress=False)


def test_the_log_likelihood_is_that_of_presence_and_of_amounts(fitted):
    seen = observations()
    positive = seen.values > 0
    presence = replace(seen, values=positive.astype(float))
    apart = (
        gx.fit(presence, response="bernoulli", fixed=HELD, progress=False),
        gx.fit(seen.subset(positive), response="gamma", fixed=HELD, progress=False),
    )
    assert fitted.log_likelihood == sum(one.log_likelihood for one in apart)
    assert fitted.degrees_of_freedom == sum(one.degrees_of_freedom for one in apart) == 3
    assert fitted.aic == pytest.approx(6 - 2 * fitted.log_likelihood)
    assert fitted.bic == pytest.approx(3 * np.log(60) - 2 * fitted.log_likelihood)
    assert fitted.presence.model == apart[0].model
    assert fitted.amount.model == apart[1].model
    assert fitted.outcome.good


def test_whole_numbers_have_truncated_poisson_amounts():
    fit = gx.fit(observations(counts=True), response="hurdle", fixed=HELD, progress=False)
    assert fit.amount.model.response.name == "truncated-poisson"
    gamma = gx.responses.Hurdle(gx.responses.Gamma(2.0), link="probit")
    fit = gx.fit(observations(counts=True), response=gamma, fixed=HELD, progress=False)
    assert fit.amount.model.response.name == "gamma"
    assert fit.presence.model.response.link == "probit"


def test_each_part_may_have_options_of_its_own(tmp_path):
    options = {
        "fixed": {"presence": HELD, "amount": HELD | {"gamma_shape": 2.0}},
        "family": {"amount": "wendland"},
        "checkpoint": tmp_path / "state.json",
    }
    for trend in ({"presence": "linear", "amount": "zero"}, "presence: linear; amount: zero"):
        options["fixed"]["amount"] |= {"smoothness": 1.5}
        fit = gx.fit(observations(), response="hurdle", trend=trend, **options, progress=False)
        assert (fit.presence.trend.kind, fit.amount.trend.kind) == ("linear", "zero")
        assert (fit.presence.model.family, fit.amount.model.family) == ("matern", "wendland")
        assert fit.amount.model.response == Gamma(2.0)


@pytest.mark.parametrize("option", ["fixed", "start", "bounds"])
def test_parameters_of_the_amounts_are_those_of_the_amount_alone(option):
    known = {"fixed": HELD | {"gamma_shape": 2.0}}
    if option == "start":
        known = {"fixed": HELD, "start": {"gamma_shape": 2.0}}
    if option == "bounds":
        known = {"fixed": HELD, "bounds": {"gamma_shape": (2.0, 2.1)}}
    both = gx.fit(observations(), response="hurdle", progress=False, **known)
    assert list(both.presence.model.parameters()) == ["variance", "range", "smoothness", "nugget"]
    alone = gx.fit(both.amount.observations, response="gamma", progress=False, **known)
    assert both.amount.model == alone.model


def test_an_exposure_acts_on_both_parts_with_the_link_cloglog():
    exposed = observations(counts=True, exposure=np.linspace(1, 2, 60))
    hurdle = gx.responses.Hurdle(link="cloglog")
    fit = gx.fit(exposed, response=hurdle, fixed=HELD, progress=False)
    assert fit.presence.observations.exposure is not None
    place = [[0.5, 0.5]]
    more, less = (gx.predict(fit, place, exposure=times) for times in (2.0, 1.0))
    assert more.presence.mean > less.presence.mean
    assert more.amount.mean > less.amount.mean


def test_a_saved_fit_predicts_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "fit.json")
    read = gx.HurdleFit.load(tmp_path / "fit.json")
    assert read == fitted
    place = [[0.4, 0.6]]
    assert gx.predict(read, place) == gx.predict(fitted, place)
    document = fitted.to_dict()
    assert document["presence"]["response"] == {"name": "bernoulli", "link": "logit"}
    assert document["log_likelihood"] == fitted.log_likelihood
    with pytest.raises(gx.InvalidInput, match=r"fit of a hurdle: read it with gx\.HurdleFit\.load"):
        gx.Fit.load(tmp_path / "fit.json")


def test_summaries_have_both_parts(fitted):
    for text in (str(fitted), fitted._repr_html_()):
        assert "of which 25 are not 0" in text
        for name in ("Presence", "Amount", "gamma shape"):
            assert name in text
    assert repr(fitted).startswith("<HurdleFit of value, 60 locations: COMPUTED")


def test_an_outcome_names_the_parts():
    ones = observations(counts=True)
    ones = replace(ones, values=np.minimum(ones.values, 1.0))
    fit = gx.fit(ones, response="hurdle", fixed=HELD, progress=False, raise_on_failure=False)
    assert not fit.outcome.good
    assert "amount: NO_FINITE_MAXIMUM: All 34 values are 1" in str(fit.outcome)
    with pytest.raises(gx.FitFailed, match="amount: NO_FINITE_MAXIMUM"):
        gx.fit(ones, response="hurdle", fixed=HELD, progress=False)


def changed(**changes):
    return replace(observations(), **changes)


@pytest.mark.parametrize(
    ("seen", "options", "message"),
    [
        (changed(values=np.arange(60) - 1.0), {}, "at least 0. Got -1 in row 1"),
        (changed(values=np.zeros(60)), {}, "all 60 values are 0: a hurdle needs values"),
        (changed(values=np.ones(60)), {}, 'none of the 60 .* use response="truncated-poisson"'),
        (changed(offset=np.ones(60)), {}, r"`offset` of .*Hurdle\(link='cloglog'\)"),
        (changed(exposure=np.ones(60)), {}, "`exposure` of a hurdle"),
        (changed(trials=np.ones(60)), {}, "`trials` are for binomial responses"),
        (changed(lower=np.full(60, -np.inf), upper=observations().values), {}, "exact values"),
        (changed(variable=np.arange(60) % 2), {}, "a hurdle has one variable"),
        (changed(), {"fixed": ["smoothnes"]}, "presence: `fixed`"),
        (changed(), {"trend": {"presence": "linear"}}, "none for amount"),
        (
            changed(),
            {"transform": "log"},
            r'a hurdle has no transformation.*Hurdle\("log-normal"\)',
        ),
        (changed(), {"reml": True}, "presence: a bernoulli response has no restricted"),
        ([1.0], {}, "`observations` must be Observations"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(seen, options, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.fit(seen, response="hurdle", progress=False, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gx.responses.Hurdle("poisson"), "truncated-poisson, gamma.* Got 'poisson'"),
        (lambda: gx.responses.Hurdle("gama"), "Did you mean 'gamma'"),
        (lambda: gx.responses.Hurdle(Bernoulli()), "response for positive values"),
        (lambda: gx.responses.Hurdle(link="log"), "`link` of a bernoulli response"),
        (
            lambda: gx.log_likelihood(observations(), gx.Matern(1.0, 1.0, 0.5), response="hurdle"),
            "a hurdle has two models",
        ),
    ],
)
def test_bad_hurdles_are_refused(make, message):
    with pytest.raises(gx.InvalidInput, match=message):
        make()


def test_other_functions_name_the_fits_of_the_parts(fitted):
    with pytest.raises(gx.InvalidInput, match=r"Use one of its fits, \.presence or \.amount"):
        gx.likelihood_ratio_test(fitted, fitted)


def test_the_command_line_fits_predicts_validates_and_draws(tmp_path, capsys):
    seen, table, fit = observations(), str(tmp_path / "rain.csv"), str(tmp_path / "fit.json")
    rows = np.column_stack((seen.locations, seen.values))
    np.savetxt(table, rows, header="x,y,rain", delimiter=",", comments="")
    fixed = [word for name in HELD for word in ("--fix", f"{name}={HELD[name]}")]
    options = ["--locations", "x,y", "--value", "rain", "--response", "hurdle", *fixed]
    assert main(["fit", table, *options, "--output", fit]) == 0
    assert "Hurdle model of rain" in capsys.readouterr().out
    assert main(["predict", fit, table]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert "mean,variance,probability_of_presence,mean_of_amount,median,lower" in head
    for words in (["--leave-one-out"], [table], ["--folds", "3"]):
        assert main(["validate", fit, *words]) == 0
        assert "brier" in capsys.readouterr().out
    assert main(["simulate", "--fit", fit, "--at", table]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 61
    assert main(["fit", table, *options, "--report", str(tmp_path / "r.html")]) != 0
    assert "--report is for one model, and a hurdle has two" in capsys.readouterr().err
    assert main(["predict", fit, "--grid", "5", "--crs", "EPSG:28992"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("x,y,mean,variance,probability_of_presence,mean_of_amount")
    assert len(rows) >= 20
