import warnings

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.likelihood import automatic
from geomxp.likelihood.automatic import METHOD_CALLS, METHOD_FLAGS, choice_in_words

MANY = 6_100
MODEL = gx.Matern(1.0, 0.1, 0.5, nugget=0.1)
HELD = {"fixed": {"smoothness": 0.5}, "progress": False}


@pytest.fixture(scope="module")
def many():
    """Observations of more locations than the exact likelihood is chosen for."""
    locations = np.random.default_rng(0).random((MANY, 2))
    (values,) = gx.simulate(MODEL, locations, method=gx.Vecchia(30), seed=0)
    return gx.Observations(locations, values)


def has_free(monkeypatch, count):
    """Let so many bytes be free."""
    for module in ("runtime.devices", "likelihood.automatic", "likelihood.cost"):
        monkeypatch.setattr(f"geomxp.{module}.free_memory", lambda: count)


def test_the_number_of_locations_decides():
    assert automatic.automatic(6_000) == gx.Exact()
    assert automatic.automatic(6_001) == gx.Vecchia(30)


def test_the_memory_decides_where_the_matrix_does_not_fit(monkeypatch):
    has_free(monkeypatch, 200_000_000)
    assert automatic.automatic(4_000) == gx.Exact()
    assert automatic.automatic(6_000) == gx.Vecchia(30)


def test_what_vecchia_refuses_stays_exact():
    assert automatic.automatic(10**6, tabulated=False) == gx.Exact()
    for on in ("tcp://127.0.0.1:8786", "cpu,cpu"):
        assert automatic.automatic(10**6, on=on) == gx.Exact(on=on)


@pytest.mark.gpu
def test_a_gpu_is_kept():
    assert automatic.automatic(100, on="gpu") == gx.Exact(on="gpu")
    assert automatic.automatic(10**6, on="gpu") == gx.Vecchia(30, on="gpu")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"method": None}, {"method": "auto"}])
def test_a_fit_of_few_locations_is_exact_and_says_nothing(options):
    observations = gx.datasets.load("meuse")
    fit = gx.fit(observations, **HELD, **options)
    assert fit.method == gx.Exact()
    assert fit.model == gx.fit(observations, method=gx.Exact(), **HELD).model


@pytest.mark.slow
def test_repeated_observations_of_few_locations_are_exact():
    locations = np.random.default_rng(1).random((60, 2)).repeat(120, axis=0)
    (values,) = gx.simulate(MODEL, locations, seed=1, of="observation")
    fit = gx.fit(gx.Observations(locations, values), **HELD)
    assert len(fit.observations) == 7_200
    assert fit.method == gx.Exact()


@pytest.mark.slow
def test_a_fit_of_many_locations_is_vecchias_and_says_so_in_one_line(many):
    with pytest.warns(gx.GeomxpWarning) as caught:
        fit = gx.fit(many, **HELD)
    (line,) = [str(one.message) for one in caught]
    assert line.startswith("6,100 locations: Vecchia's approximation with 30 neighbours (a fit: ")
    assert "The exact likelihood (a fit: " in line
    assert line.endswith(" MB): method=gx.Exact().")
    assert "\n" not in line
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        # the method is given
        warnings.simplefilter("error")
        given = gx.fit(many, method=gx.Vecchia(30), **HELD)
    assert fit.method == given.method == gx.Vecchia(30)
    assert fit.model == given.model


@pytest.mark.slow
def test_the_chosen_method_is_saved_and_predicts(many, tmp_path):
    with pytest.warns(gx.GeomxpWarning, match="Vecchia's approximation"):
        fit = gx.fit(many, **HELD)
    path = tmp_path / "fit.json"
    fit.save(path)
    assert fit.to_dict()["method"]["name"] == "vecchia"
    loaded = gx.Fit.load(path)
    assert loaded.method == gx.Vecchia(30)
    places = [[0.5, 0.5], [0.1, 0.9]]
    expected = gx.predict(fit, places, neighbours=30, progress=False).mean
    assert np.array_equal(gx.predict(loaded, places, neighbours=30, progress=False).mean, expected)


def test_a_very_smooth_model_of_many_locations_is_exact(monkeypatch):
    monkeypatch.setattr("geomxp.likelihood.automatic.MOST_EXACT_LOCATIONS", 100)
    monkeypatch.setattr("geomxp.estimation.fit.MOST_EXACT_LOCATIONS", 100)
    observations = gx.datasets.load("meuse")
    with pytest.warns(gx.GeomxpWarning, match="this family does not have"):
        fit = gx.fit(observations, fixed={"smoothness": 60.0}, progress=False)
    assert fit.method == gx.Exact()


def test_a_method_by_another_name_is_refused():
    with pytest.raises(gx.InvalidInput, match=r'"auto", or a method such as .* Got \'exact\''):
        gx.fit(testing.observations(50), method="exact")
    # the others have no such choice
    with pytest.raises(gx.InvalidInput, match="Got 'auto'"):
        gx.log_likelihood(testing.observations(50), MODEL, "auto")
    with pytest.raises(gx.InvalidInput, match="Got 'auto'"):
        gx.compare_models(testing.observations(50), "auto")


@pytest.mark.parametrize("spelled", [METHOD_CALLS, METHOD_FLAGS], ids=["calls", "options"])
def test_the_line_names_the_other_choice(spelled, monkeypatch):
    vecchia = choice_in_words(gx.Vecchia(30), 20_000, spelled=spelled)
    exact = choice_in_words(gx.Exact(), 5_000, spelled=spelled)
    assert exact.endswith(f": {spelled['vecchia']}.")
    decided = choice_in_words(gx.Vecchia(20), 500, spelled=spelled, because="--neighbours")
    assert "20 neighbours because of --neighbours (a fit: " in decided
    assert decided.endswith(f": {spelled['exact']} without --neighbours.")
    has_free(monkeypatch, 2_000_000_000)
    beyond = choice_in_words(gx.Vecchia(30), 20_000, spelled=spelled)
    assert beyond.endswith(f"1.6 GB on a disk): {spelled['disk'].format('1GB')}.")
    assert vecchia.partition(". The")[0] == beyond.partition(". The")[0]


def test_the_message_about_memory_names_what_works(monkeypatch):
    observations = testing.observations(1_000)
    has_free(monkeypatch, 20_000_000)
    monkeypatch.setattr("geomxp.likelihood.factors.free_memory", lambda: 20_000_000)
    with pytest.raises(gx.NotEnoughMemory) as caught:
        gx.log_likelihood(observations, MODEL, gx.Exact())
    message = str(caught.value)
    for word in (
        "--method vecchia",
        "gx.Vecchia(30)",
        "--memory ",
        'gx.Exact(memory="',
        "--kl 1e-3",
    ):
        assert word in message
    assert "gx.Exact(gx.for_divergence(1e-3))" in message
    value = gx.log_likelihood(observations, MODEL, gx.Vecchia(30)).log_likelihood
    assert np.isfinite(value)
