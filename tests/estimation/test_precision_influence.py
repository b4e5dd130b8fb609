import numpy as np
import pytest

import geomxp as gx
from geomxp.estimation.compare import frame_of_fits


@pytest.fixture(scope="module")
def meuse():
    return gx.datasets.load("meuse")


@pytest.fixture(scope="module")
def frame(meuse):
    method = gx.Exact(tile=32)
    return gx.precision_influence(meuse, (1e-3, 1e-7), method=method, fixed={"smoothness": 0.5})


@pytest.mark.slow
def test_rows_are_fp64_and_the_accuracies_from_fine_to_coarse(frame):
    assert frame["precision"].tolist() == ["fp64", "1e-07", "1e-03"]
    assert np.isnan(frame["accuracy"][0])
    assert frame["accuracy"][1:].tolist() == [1e-7, 1e-3]
    assert (frame["tiles_fp64"] + frame["tiles_fp32"] + frame["tiles_fp16"] == 15).all()
    assert frame.loc[0, "tiles_fp64"] == 15


@pytest.mark.slow
def test_first_row_is_the_fit_in_fp64(frame, meuse):
    fit = gx.fit(meuse, method=gx.Exact(tile=32), fixed={"smoothness": 0.5})
    for name, value in fit.model.parameters().items():
        assert frame[f"estimate_{name}"][0] == value
    assert frame["standard_error_range"][0] == fit.standard_errors["range"]
    assert np.isnan(frame["standard_error_smoothness"]).all()


@pytest.mark.slow
def test_fine_tiles_move_estimates_by_little_of_their_standard_errors(frame):
    for name in ("variance", "range", "nugget"):
        moved = np.abs(frame[f"estimate_{name}"] - frame[f"estimate_{name}"][0])
        assert moved[1] < 1e-3 * frame[f"standard_error_{name}"][0]


@pytest.mark.slow
def test_fits_that_were_made_already_give_the_same_frame(frame, meuse):
    ways = [gx.Exact(gx.by_tile_norm(1e-3), tile=32, keep_formats=True), gx.Exact(tile=32)]
    first = gx.fit(meuse, method=ways[1], fixed={"smoothness": 0.5})
    fits = [gx.fit(meuse, first.model, ways[0], fixed=("smoothness",)), first]
    again = frame_of_fits(fits)
    assert again["precision"].tolist() == ["fp64", "1e-03"]
    assert again["estimate_range"].tolist() == frame["estimate_range"][[0, 2]].tolist()
    assert (
        again.attrs
        == frame.attrs
        == {
            "parameter_units": {
                "variance": "squared units of log_zinc",
                "range": meuse.unit,
                "smoothness": None,
                "nugget": "squared units of log_zinc",
            }
        }
    )
    with pytest.raises(gx.InvalidInput, match="one of `fits` must be in FP64"):
        frame_of_fits(fits[:1])
    with pytest.raises(gx.InvalidInput, match=r"by another rule or method \(vecchia\)"):
        frame_of_fits([first, gx.fit(meuse, first.model, gx.Vecchia(5), fixed=first.free)])
    with pytest.raises(gx.InvalidInput, match="Got str"):
        frame_of_fits(["fit.json"])


def test_anisotropy_and_a_nugget_of_zero_are_taken_along():
    places = np.random.default_rng(4).random((60, 2))
    truth = gx.Matern(1.0, 0.2, 0.5, 0.0, (30.0, 0.4))
    seen = gx.Observations(places, gx.simulate(truth, places, seed=2)[0])
    frame = gx.precision_influence(
        seen, (1e-8,), model=truth, method=gx.Exact(tile=20), fixed=("smoothness", "nugget")
    )
    one, two = frame["estimate_anisotropy_ratio"]
    assert two == pytest.approx(one, abs=0.05 * frame["standard_error_anisotropy_ratio"][0])
    assert (frame["estimate_nugget"] == 0).all()


def test_a_fit_that_fails_keeps_its_row_and_its_reason(meuse, monkeypatch):
    from geomxp.estimation import compare

    whole = compare.fit_model

    def failing(observations, model, method, **about):
        if method.noisy:
            raise gx.NotPositiveDefinite("no factor in these formats")
        return whole(observations, model, method, **about)

    monkeypatch.setattr(compare, "fit_model", failing)
    frame = gx.precision_influence(meuse, (1e-2,), fixed={"smoothness": 0.5})
    assert frame["outcome"][1] == "no factor in these formats"
    assert np.isnan(frame["estimate_range"][1])
    assert frame["accuracy"][1] == 1e-2
    assert frame["tiles_fp64"].tolist() == [1, 0]


def test_accuracies_that_are_none_are_refused(meuse):
    for accuracies in (["much"], [], [1e-3, 1e-3], 1e-3, [-1.0]):
        with pytest.raises(gx.InvalidInput, match="accurac"):
            gx.precision_influence(meuse, accuracies)
    with pytest.raises(gx.InvalidInput, match="`method` must have number formats"):
        gx.precision_influence(meuse, method=gx.Vecchia(10))
