"""Trials, offsets and exposures: columns that the distribution of a value depends on."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data.observations import RESPONSE_ROLES
from geomxp.data.options import options_of
from geomxp.estimation.document import read_as_observed

VALUES, N = [3.0, 0.0, 7.0, 2.0, 5.0], 5
COLUMNS = {
    "trials": [10.0, 4.0, 7.0, 2.0, 9.0],
    "offset": [0.5, -1.0, 0.0, 2.0, 0.25],
    "exposure": [1.0, 2.0, 0.5, 4.0, 1.0],
    "lower": [-np.inf, 0.0, 7.0, 2.0, 4.0],
    "upper": [3.0, 0.0, np.inf, 2.0, 6.0],
}
PLACES = np.column_stack((np.arange(N), [0, 1, 0, 2, 1]))
FRAME = pd.DataFrame(
    {"x": PLACES[:, 0], "y": PLACES[:, 1], "deaths": VALUES, "births": COLUMNS["trials"]}
    | {"area": COLUMNS["exposure"], "shift": COLUMNS["offset"]}
)
OPTIONS = {"trials": "births", "offset": "shift", "exposure": "area"}


def observations(**columns):
    return gx.Observations(PLACES, VALUES, **columns)


def read(**options):
    return gx.Observations.from_frame(FRAME, values="deaths", **options)


def test_every_column_of_a_response_is_tested_here():
    assert set(COLUMNS) == set(RESPONSE_ROLES)


def test_columns_of_a_response_are_none_without_them():
    seen = observations()
    assert all(getattr(seen, name) is None for name in RESPONSE_ROLES)
    assert seen.total_offset is None


def test_the_total_offset_has_the_logarithm_of_the_exposure():
    offset, exposure = np.array(COLUMNS["offset"]), np.array(COLUMNS["exposure"])
    assert observations(offset=offset).total_offset.tolist() == offset.tolist()
    np.testing.assert_allclose(observations(exposure=exposure).total_offset, np.log(exposure))
    both = observations(offset=offset, exposure=exposure)
    np.testing.assert_allclose(both.total_offset, offset + np.log(exposure))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_a_response_follows_its_rows(name):
    seen, rows = observations(**{name: COLUMNS[name]}), [4, 0, 2]
    some = seen.subset(rows)
    assert getattr(some, name).tolist() == [COLUMNS[name][row] for row in rows]
    assert not getattr(some, name).flags.writeable
    of_two = replace(seen, variable=[0, 0, 0, 0, 1]).of_variable(0)
    assert getattr(of_two, name).tolist() == COLUMNS[name][:4]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_a_response_is_matched_by_labels(name):
    labels = pd.Index(list("abcde"))
    column = pd.Series(COLUMNS[name], index=labels)
    places = pd.DataFrame(PLACES, index=labels)
    seen = gx.Observations(places, VALUES, **{name: column[::-1]})
    assert getattr(seen, name).tolist() == COLUMNS[name]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_a_response_is_part_of_the_data_but_not_of_the_inputs(name):
    plain, seen = observations(), observations(**{name: COLUMNS[name]})
    assert seen == observations(**{name: COLUMNS[name]})
    assert seen != plain
    assert seen.digest() != plain.digest()
    assert seen.inputs == plain.inputs
    assert name in {one.role for one in seen.columns}
    assert (" of 5 values " if name in ("lower", "upper") else name) in str(seen)


def test_the_same_numbers_in_another_role_are_other_data():
    seen = [observations(**{name: COLUMNS["trials"]}) for name in OPTIONS]
    assert len({one.digest() for one in seen}) == 3


def test_trials_may_also_be_the_exposure():
    seen = read(trials="births", exposure="births")
    assert seen.trials.tolist() == seen.exposure.tolist() == COLUMNS["trials"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"trials": [1, 0, 7, 2, 0]},
            r"`trials` must hold whole .* Got 0 in row 2 \(2 such rows\)",
        ),
        ({"trials": 1.5}, "`trials` must hold whole numbers of at least 1. Got 1.5 in row 1"),
        ({"trials": [1, 2]}, "`trials` must hold one number for each of the 5 locations"),
        ({"offset": [0, np.inf, 0, 0, 0]}, "offset must be finite numbers. Got inf in row 2"),
        ({"exposure": [1, 2, 0, 1, 1]}, "`exposure` must be greater than 0. Got 0 in row 3"),
        ({"exposure": [1, np.nan, 1, 1, 1]}, "exposure must be finite numbers. Got nan in row 2"),
        ({"trials": 3, "trials_name": 3}, "`trials_name` must be text"),
    ],
)
def test_numbers_that_a_column_cannot_have_are_refused(columns, message):
    with pytest.raises(gx.InvalidInput, match=message):
        observations(**columns)


# Tables


def test_columns_are_read_with_their_names():
    seen = read(**OPTIONS)
    for name, column in OPTIONS.items():
        assert getattr(seen, name).tolist() == COLUMNS[name]
        assert getattr(seen, f"{name}_name") == column
    assert [one.name for one in seen.columns][3:] == ["births", "shift", "area"]


def test_columns_may_be_functions_of_columns():
    seen = read(offset="log(area)", exposure="I(area * births)", trials="I(births + deaths)")
    np.testing.assert_allclose(seen.offset, np.log(FRAME["area"]))
    np.testing.assert_allclose(seen.exposure, FRAME["area"] * FRAME["births"])
    assert seen.trials.tolist() == (FRAME["births"] + FRAME["deaths"]).tolist()
    assert seen.offset_name == "log(area)"


def test_each_variable_has_its_own_columns():
    frame = FRAME.assign(old=[1.0, 2.0, 1.0, 0.0, np.nan])
    columns = {"trials": ("births", None), "exposure": (None, "area")}
    seen = gx.Observations.from_frame(frame, values=("deaths", "old"), **columns)
    deaths, old = seen.of_variable("deaths"), seen.of_variable("old")
    assert (deaths.trials.tolist(), old.trials.tolist()) == (COLUMNS["trials"], [1.0] * 4)
    assert (deaths.exposure.tolist(), old.exposure.tolist()) == ([1.0] * 5, COLUMNS["exposure"][:4])
    with pytest.raises(gx.InvalidInput, match=r'such as \("trials", None\). Got \'births\''):
        gx.Observations.from_frame(frame, values=("deaths", "old"), trials="births")


@pytest.mark.parametrize("name", OPTIONS)
def test_missing_numbers_are_refused_or_left_out(name):
    frame = FRAME.copy()
    frame.loc[1, OPTIONS[name]] = np.nan
    with pytest.raises(gx.InvalidInput, match=f"row 2, column '{OPTIONS[name]}'.*--drop-missing"):
        gx.Observations.from_frame(frame, values="deaths", **{name: OPTIONS[name]})
    seen = gx.Observations.from_frame(
        frame, values="deaths", drop_missing=True, **{name: OPTIONS[name]}
    )
    assert getattr(seen, name).tolist() == [COLUMNS[name][row] for row in (0, 2, 3, 4)]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_column_of_a_response_is_not_that_of_the_values(name):
    with pytest.raises(gx.InvalidInput, match=f"`{name}` must name a column other than the values"):
        read(**{name: "deaths"})
    with pytest.raises(gx.InvalidInput, match="no column 'people'"):
        read(**{name: "people"})


@pytest.mark.parametrize("options", [*({name: one} for name, one in OPTIONS.items()), {"below": 1}])
def test_values_with_a_column_of_a_response_have_no_mean(options):
    frame = pd.concat([FRAME, FRAME.iloc[:2]])
    about = {"values": "deaths", **options}
    with pytest.raises(gx.InvalidInput, match=r"have no mean: use duplicates='keep' or 'drop'"):
        gx.Observations.from_frame(frame, duplicates="mean", **about)
    with pytest.raises(gx.InvalidInput, match="use duplicates='drop' or 'keep'"):
        gx.Observations.from_frame(frame, duplicates="error", **about)
    dropped = gx.Observations.from_frame(frame, duplicates="drop", **about)
    assert dropped == gx.Observations.from_frame(FRAME, **about)
    assert len(gx.Observations.from_frame(frame, duplicates="keep", **about)) == N + 2


def test_the_source_reads_the_same_columns_again(tmp_path):
    path = tmp_path / "sids.csv"
    FRAME.to_csv(path, index=False)
    seen = gx.read_table(path, values="deaths", **OPTIONS)
    assert gx.read_table(path, **options_of(seen.source)) == seen


# Saved fits


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(1)
    places = random.random((20, 2))
    plain = gx.Observations(places, random.normal(size=20))
    return gx.fit(plain, fixed={"smoothness": 0.5, "range": 0.3, "nugget": 0.1}, progress=False)


def with_columns(fit, names):
    """Return the fit with observations that have these columns."""
    values = np.arange(20.0)
    known = {name: np.resize(column, 20) for name, column in COLUMNS.items()}
    known["lower"] = np.where(values < 5, -np.inf, values)
    known["upper"] = np.where(values > 15, np.inf, values)
    columns = {name: known[name] for name in names}
    seen = gx.Observations(fit.observations.locations, values, trials_name="births", **columns)
    return replace(fit, observations=seen)


@pytest.mark.parametrize("names", [*((name,) for name in COLUMNS), tuple(COLUMNS)], ids=str)
def test_columns_of_a_response_survive_a_saved_fit(fitted, tmp_path, names):
    fit = with_columns(fitted, names)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json").observations
    assert again.digest() == fit.observations.digest()
    for name in names:
        np.testing.assert_array_equal(getattr(again, name), getattr(fit.observations, name))
    assert again.trials_name == ("births" if "trials" in names else "trials")


@pytest.mark.parametrize("name", ["trials", "offset", "exposure"])
def test_only_limits_of_a_saved_fit_may_be_null(fitted, tmp_path, name):
    path = tmp_path / "fit.json"
    with_columns(fitted, tuple(COLUMNS)).save(path)
    text = path.read_text()
    start = text.index(f'"{name}": [') + len(f'"{name}": [')
    path.write_text(text[:start] + "null," + text[start:].partition(",")[2])
    with pytest.raises(gx.InvalidInput, match=f"observations.{name} must be a list of numbers"):
        gx.Fit.load(path)


def test_another_table_is_read_with_the_columns_of_the_fit(fitted, tmp_path):
    fit = with_columns(fitted, ("trials", "exposure"))
    frame = pd.DataFrame(fit.observations.locations + 0.01, columns=["x", "y"])
    frame = frame.assign(value=1.0, births=9, exposure=2.0)
    frame.to_csv(tmp_path / "other.csv", index=False)
    other = read_as_observed(fit, tmp_path / "other.csv")
    assert (other.trials.tolist(), other.exposure.tolist()) == ([9.0] * 20, [2.0] * 20)
