"""Pandas and xarray objects beside each other are matched by the labels of their rows."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import geomxp as gx

LABELS = [40, 7, 19, 3, 88]
OTHER = [19, 88, 7, 40, 3]


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.uniform(1, 9, (5, 6)), LABELS, ["x", "y", "z", "depth", "day", "se2"])
    return frame.assign(times=[1, 2, 1, 3, 2], which=["a", "b", "a", "b", "a"])


def made(table, **changes):
    """Return observations of a table, some of whose columns are given otherwise."""
    columns = {
        "values": table.z,
        "covariates": table[["depth"]],
        "time": table.day,
        "variable": table.which,
        "error_variance": table.se2,
        "replicates": table.times,
    }
    return gx.Observations(table[["x", "y"]], **(columns | changes))


COLUMNS = {
    "values": ["z"],
    "covariates": ["depth"],
    "time": ["day"],
    "variable": ["which"],
    "error_variance": ["se2"],
    "replicates": ["times"],
}


def given(table, name):
    """Return the column of an argument: covariates as a frame, others as a Series."""
    return table[COLUMNS[name]] if name == "covariates" else table[COLUMNS[name][0]]


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        ["e", "a", "d", "b", "c"],
        pd.to_datetime(["2021-03-05", "2021-03-01", "2021-03-04", "2021-03-02", "2021-03-03"]),
        pd.MultiIndex.from_tuples([("s", 2), ("t", 1), ("s", 1), ("t", 2), ("u", 1)]),
        pd.RangeIndex(5),
    ],
    ids=["numbers", "text", "dates", "pairs", "default"],
)
def test_a_column_in_another_order_gives_the_same_observations(table, name, labels):
    table = table.set_axis(labels)
    moved = given(table, name).iloc[[2, 4, 1, 0, 3]]
    found = made(table, **{name: moved})
    assert found.digest() == made(table).digest()


@pytest.mark.parametrize("name", COLUMNS)
def test_arrays_and_lists_are_matched_by_position(table, name):
    for plain in (given(table, name).to_numpy(), given(table, name).to_numpy().tolist()):
        assert made(table, **{name: plain}).values.tolist() == table.z.tolist()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("labels", [range(5), [40, 7, 19, 3, 99], ["40", "7", "19", "3", "88"]])
def test_a_column_with_other_labels_is_refused_with_the_remedy(table, name, labels):
    other = given(table, name).set_axis(labels)
    with pytest.raises(gx.InvalidInput, match=rf"`{name}` must have the row labels of the loc"):
        made(table, **{name: other})
    with pytest.raises(gx.InvalidInput, match=rf"{name}\.to_numpy\(\)"):
        made(table, **{name: other})


def test_more_rows_or_fewer_than_the_locations_are_refused(table):
    for rows in (LABELS[:4], [*LABELS, 40]):
        with pytest.raises(gx.InvalidInput, match=r"must have the row labels|repeats"):
            made(table, time=table.day.loc[rows])


def test_labels_that_repeat_match_only_in_the_same_order(table):
    twice = table.set_axis([1, 1, 2, 3, 4])
    assert made(twice).digest() == made(table).digest()
    with pytest.raises(gx.InvalidInput, match="1 repeats"):
        made(twice, error_variance=twice.se2.iloc[::-1])


def test_labelled_columns_beside_an_array_of_locations_need_one_order(table):
    places = table[["x", "y"]].to_numpy()
    about = {"values": table.z, "time": table.day}
    assert gx.Observations(places, **about).time.tolist() == table.day.tolist()
    with pytest.raises(gx.InvalidInput, match="`time` has the row labels of `values` in another"):
        gx.Observations(places, **about | {"time": table.day.loc[OTHER]})


def test_columns_of_xarray_are_matched_by_their_coordinate(table):
    day = xr.DataArray(table.day.loc[OTHER], dims="station", coords={"station": OTHER})
    assert made(table, time=day).digest() == made(table).digest()
    bare = xr.DataArray(table.day.to_numpy(), dims="station")
    assert made(table, time=bare).digest() == made(table).digest()


def test_observations_keep_the_labels_of_their_rows(table):
    for seen in (made(table), gx.Observations.from_frame(table, values="z", time="day")):
        assert seen.row_labels.tolist() == LABELS
        assert seen.subset([0, 2, 4]).row_labels.tolist() == [40, 19, 88]
    assert gx.Observations(np.eye(3), np.ones(3)).row_labels is None
    missing = table.assign(z=table.z.where(table.z.index != 19))
    kept = gx.Observations.from_frame(missing, values="z", drop_missing=True)
    assert kept.row_labels.tolist() == [40, 7, 3, 88]


def test_a_subset_by_truth_values_matches_them_by_label(table):
    seen = gx.Observations.from_frame(table, values="z")
    chosen = table.z.index.isin([40, 19, 3])
    rows = pd.Series(chosen, index=LABELS)
    assert seen.subset(rows.loc[OTHER]).digest() == seen.subset(chosen).digest()
    with pytest.raises(gx.InvalidInput, match="row labels of the observations"):
        seen.subset(rows.reset_index(drop=True))


def test_inputs_of_covariances_are_matched_by_label(table):
    model = gx.Separable(1.0, 3.0, 2.0, smoothness=0.5, time_smoothness=0.5)
    drawn = [
        gx.simulate(model, table[["x", "y"]], time=day, seed=4, progress=False)
        for day in (table.day, table.day.loc[OTHER])
    ]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("locations", [object(), 3.0, None, np.array(1.0), dict])
def test_locations_without_rows_beside_labelled_values_are_refused(locations):
    with pytest.raises(gx.InvalidInput, match="locations"):
        gx.Observations(locations, pd.DataFrame({"a": [1.0, 2.0]}))
