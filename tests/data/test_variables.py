"""Observations of several variables, from wide and long tables."""

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp import testing

NAMES = ("zinc", "lead", "soil pH")
FIELDS = ("locations", "values", "variable", "covariates", "time", "error_variance")


def wide(n=12, seed=0):
    """A table with a row for each location; some values of lead and soil pH are missing."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(testing.places(n), columns=["x", "y"])
    for name in NAMES:
        frame[name] = np.exp(random.standard_normal(n))
    frame["elev"], frame["rock"] = random.random(n), random.choice(["clay", "lime"], n)
    frame["hour"] = np.arange(n) % 4
    frame.loc[[1, 5], "lead"] = np.nan
    frame.loc[[0, 5, 7], "soil pH"] = np.nan
    return frame


def long(frame):
    """The same values with a row for each, all variables of a location after each other."""
    others = [name for name in frame if name not in NAMES]
    melted = frame.reset_index().melt(["index", *others], list(NAMES), "element", "content")
    melted["order"] = melted["element"].map(NAMES.index)
    return melted.dropna(subset="content").sort_values(["index", "order"], ignore_index=True)


def same(one, other):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.variable_names == other.variable_names
    assert one.levels == other.levels
    assert one.digest() == other.digest()


COLUMNS = {"covariates": ("elev", "rock"), "time": "hour"}


def test_a_wide_table_is_its_long_table():
    frame = wide()
    one = gx.Observations.from_frame(frame, values=NAMES, **COLUMNS)
    same(
        one,
        gx.Observations.from_frame(long(frame), values="content", variable="element", **COLUMNS),
    )
    assert len(one) == 31
    assert one.variable_names == NAMES
    # all variables of a row come before the next row
    np.testing.assert_array_equal(one.variable[:6], [0, 1, 0, 2, 0, 1])
    np.testing.assert_array_equal(one.values[:3], [*frame.loc[0, ["zinc", "lead"]], frame.zinc[1]])


@pytest.mark.parametrize("k", range(3))
def test_a_variable_of_several_is_that_column_alone(k):
    frame = wide()
    several = gx.Observations.from_frame(frame, values=NAMES, value_unit="mg/kg", **COLUMNS)
    alone = gx.Observations.from_frame(
        frame, values=NAMES[k], drop_missing=True, value_unit="mg/kg", **COLUMNS
    )
    for variable in (k, NAMES[k]):
        one = several.of_variable(variable)
        same(one, alone)
        assert (one.value_name, one.value_unit) == (NAMES[k], "mg/kg")
        assert one.variable is None


def test_functions_of_columns_are_variables():
    frame = wide()
    logs = gx.Observations.from_frame(frame, values=("log(zinc)", "I(lead / 2)"))
    plain = gx.Observations.from_frame(frame, values=("zinc", "lead"))
    assert logs.variable_names == ("log(zinc)", "I(lead / 2)")
    expected = np.where(plain.variable == 0, np.log(plain.values), plain.values / 2)
    np.testing.assert_array_equal(logs.values, expected)
    frame.loc[3, "zinc"] = 0.0
    with pytest.raises(gx.InvalidInput, match=r"log\(zinc\) is not finite for zinc = 0 in row 4"):
        gx.Observations.from_frame(frame, values=("lead", "log(zinc)"))


def test_missing_values_leave_out_only_themselves(tmp_path):
    frame = wide().assign(tin=-9999.0)
    frame.loc[2, list(NAMES)] = np.nan
    frame.loc[4:, "tin"] = np.arange(8.0)
    # a row without any value does not need a location
    frame.loc[2, "x"] = np.nan
    names = (*NAMES, "tin")
    data = gx.Observations.from_frame(frame, values=names, missing=-9999.0)
    counts = {"zinc": 1, "lead": 3, "soil pH": 4, "tin": 4}
    assert data.source["missing_values"] == counts
    assert np.bincount(data.variable).tolist() == [12 - n for n in counts.values()]
    for text in (repr(data), str(data)):
        assert "4 variables (zinc 11, lead 9, soil pH 8, tin 8) at 11 locations" in text
        assert "missing and left out: zinc 1, lead 3, soil pH 4, tin 4" in text
    frame.to_csv(tmp_path / "t.csv", index=False)
    read = gx.read_table(tmp_path / "t.csv", values=names, missing=-9999.0)
    same(read, data)
    assert read.source["values"] == list(names)


def test_other_missing_numbers_are_errors_or_dropped():
    frame = wide()
    frame.loc[6, "elev"] = np.nan
    about = {"values": NAMES, "covariates": ("elev",)}
    with pytest.raises(gx.InvalidInput, match=r"Got nan in row 7, column 'elev'.*drop-missing"):
        gx.Observations.from_frame(frame, **about)
    dropped = gx.Observations.from_frame(frame, drop_missing=True, **about)
    same(dropped, gx.Observations.from_frame(frame.drop(index=6), **about))
    assert dropped.source["left_out"] == 3
    frame = wide()
    frame.loc[8, "lead"] = np.inf
    with pytest.raises(gx.InvalidInput, match="Got inf in row 9, column 'lead'"):
        gx.Observations.from_frame(frame, values=NAMES)
    kept = gx.Observations.from_frame(frame, values=NAMES, drop_missing=True)
    frame.loc[8, "lead"] = np.nan
    same(kept, gx.Observations.from_frame(frame, values=NAMES))


def test_each_variable_has_its_error_variance():
    frame = wide().assign(se=np.linspace(0.1, 0.3, 12), var=0.5)
    frame.loc[[1, 5], "var"] = np.nan
    data = gx.Observations.from_frame(
        frame, values=NAMES, error_variance=("I(se ** 2)", "var", None)
    )
    rows = frame.index.to_numpy()[np.nonzero(frame[list(NAMES)].notna().to_numpy())[0]]
    errors = np.column_stack([frame.se**2, frame["var"], np.zeros(12)])
    np.testing.assert_array_equal(data.error_variance, errors[rows, data.variable])
    frame.loc[2, "var"] = np.nan
    with pytest.raises(gx.InvalidInput, match=r"Got nan in row 3, column 'var'"):
        gx.Observations.from_frame(frame, values=NAMES, error_variance=(None, "var", None))


@pytest.mark.parametrize("duplicates", ["keep", "drop", "mean"])
def test_duplicates_are_those_of_one_variable(duplicates):
    frame = wide()
    frame = pd.concat([frame, frame.iloc[[1, 3]].assign(zinc=2.0)], ignore_index=True)
    about = {"duplicates": duplicates}
    several = gx.Observations.from_frame(frame, values=NAMES, **about)
    for name in NAMES:
        alone = gx.Observations.from_frame(frame, values=name, drop_missing=True, **about)
        one = several.of_variable(name)
        np.testing.assert_array_equal(one.values, alone.values)
        expected = np.ones(len(alone)) if alone.replicates is None else alone.replicates
        found = np.ones(len(one)) if one.replicates is None else one.replicates
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(gx.InvalidInput, match=r"5 values are at .*row 13 at that of row 2"):
        gx.Observations.from_frame(frame, values=NAMES, duplicates="error")


def test_long_tables_number_names_in_order_of_appearance(tmp_path):
    table = long(wide())
    data = gx.Observations.from_frame(table, values="content", variable="element")
    backwards = gx.Observations.from_frame(table[::-1], values="content", variable="element")
    assert data.variable_names == NAMES
    assert backwards.variable_names == NAMES[::-1]
    for name in NAMES:
        expected = data.of_variable(name).values
        np.testing.assert_array_equal(backwards.of_variable(name).values[::-1], expected)
    numbers = table.assign(element=data.variable)
    numbered = gx.Observations.from_frame(numbers, values="content", variable="element")
    np.testing.assert_array_equal(numbered.variable, data.variable)
    assert numbered.variable_names == ()
    assert "3 variables (variable 0 12, variable 1 10, variable 2 9)" in repr(numbered)
    table.to_csv(tmp_path / "long.csv", index=False)
    same(gx.read_table(tmp_path / "long.csv", values="content", variable="element"), data)
    table.loc[3, "element"] = None
    with pytest.raises(gx.InvalidInput, match="row 4: column 'element' names no variable"):
        gx.Observations.from_frame(table, values="content", variable="element")
    some = gx.Observations.from_frame(
        table, values="content", variable="element", drop_missing=True
    )
    assert len(some) == len(data) - 1


def test_arrays_may_name_the_variables():
    data = gx.Observations.from_frame(wide(), values=NAMES)
    names = np.array(NAMES)[data.variable]
    same(gx.Observations(data.locations, data.values, variable=names), data)
    turned = gx.Observations(
        data.locations, data.values, variable=names, variable_names=NAMES[::-1]
    )
    np.testing.assert_array_equal(turned.variable, 2 - data.variable)
    assert turned.digest() != data.digest()
    assert turned.subset([4, 2, 0]).variable_names == NAMES[::-1]


def test_points_and_grids_have_several_variables():
    geopandas, xarray = pytest.importorskip("geopandas"), pytest.importorskip("xarray")
    frame = wide()
    points = geopandas.GeoDataFrame(
        frame.drop(columns=["x", "y"]), geometry=geopandas.points_from_xy(frame.x, frame.y)
    )
    same(
        gx.Observations.from_frame(points, values=NAMES),
        gx.Observations.from_frame(frame, values=NAMES),
    )
    cells = {name: (("y", "x"), frame[name].to_numpy().reshape(3, 4).copy()) for name in NAMES}
    for _, array in cells.values():
        array[1, 2] = np.nan
    grid = xarray.Dataset(cells, {"y": [0.0, 1.0, 2.0], "x": [5.0, 6.0, 8.0, 9.0]})
    with pytest.warns(gx.GeomxpWarning, match="1 of 12 cells have no zinc or lead or soil pH"):
        data = gx.Observations.from_xarray(grid, values=NAMES)
    plain = grid.to_dataframe().reset_index()
    same(data, gx.Observations.from_frame(plain, values=NAMES))
    with pytest.raises(gx.InvalidInput, match="one or several of the variables: zinc, lead"):
        gx.Observations.from_xarray(grid)


def test_longitude_and_latitude_are_found_and_ordered():
    frame = wide().rename(columns={"x": "lat", "y": "lon"})
    with pytest.warns(gx.GeomxpWarning, match="were exchanged"):
        data = gx.Observations.from_frame(frame, values=NAMES, locations=("lat", "lon"))
    assert data.location_names == ("lon", "lat")
    np.testing.assert_array_equal(data.locations[0], frame.loc[0, ["lon", "lat"]].astype(float))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": ("zinc", "zinc")}, "`values` names 'zinc' twice"),
        ({"values": ()}, "`values` must name the column of the values, or several"),
        ({"values": ("zinc", 3)}, "`values` must name columns by text. Got 3"),
        ({"values": ("zinc", "led")}, "no column 'led'.*Did you mean 'lead'"),
        ({"values": ("zinc", "rock")}, "row 1, column 'rock': .* is not a number"),
        (
            {"values": ("zinc", "x"), "locations": ("x", "y")},
            "must be a column other than the coordinates. Got 'x'",
        ),
        ({"variable": "rock"}, "`variable` is for a table with one column of values. Got 'rock'"),
        ({"error_variance": "elev"}, r"a column, or None, for each of zinc, lead.*Got 'elev'"),
        ({"error_variance": ("elev",)}, r"a column, or None, for each of zinc, lead"),
        ({"error_variance": ("elev", 2)}, "`error_variance` must name columns by text. Got 2"),
        ({"time": "lead"}, "`time` must name a column other than the values. Got 'lead'"),
    ],
)
def test_wrong_columns_are_named(changes, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Observations.from_frame(wide(), **({"values": ("zinc", "lead")} | changes))


def test_a_column_without_numbers_is_refused():
    frame = wide().assign(zinc=np.nan, lead=np.nan)
    with pytest.raises(gx.InvalidInput, match="zinc, lead have no values that can be used"):
        gx.Observations.from_frame(frame, values=("zinc", "lead"))


def test_a_variable_that_cannot_be_taken_is_named():
    frame = wide()
    frame.loc[2:, "lead"] = np.nan
    data = gx.Observations.from_frame(frame, values=NAMES)
    with pytest.raises(gx.InvalidInput, match=r"at least 3 observations.*Got 1 of 'lead'"):
        data.of_variable("lead")
    with pytest.raises(gx.InvalidInput, match=r"no variable 'zink'.*Did you mean 'zinc'"):
        data.of_variable("zink")
    with pytest.raises(gx.InvalidInput, match="must be less than 3, the number of"):
        data.of_variable(3)
    with pytest.raises(gx.InvalidInput, match="of one variable: use them as they are"):
        data.of_variable("zinc").of_variable("zinc")


@pytest.mark.parametrize("as_text", [False, True])
def test_codes_other_than_0_and_1_are_names(as_text):
    places, values = testing.places(6), np.arange(6.0)
    codes = [20, 10, 20, 10, 20, 10]
    given = [str(code) for code in codes] if as_text else codes
    data = gx.Observations(places, values, variable=given)
    assert data.variable_labels == ("10", "20")
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "z": values, "code": codes})
    of_table = gx.Observations.from_frame(frame, values="z", variable="code")
    assert of_table.variable_names == ("10", "20")
    for name in (10, "10", 10.0):
        np.testing.assert_array_equal(data.of_variable(name).values, values[1::2])
        np.testing.assert_array_equal(of_table.of_variable(name).values, values[1::2])
    with pytest.raises(gx.InvalidInput, match=r"no variable '0'\. The variables are: 10, 20"):
        of_table.of_variable(0)


def test_a_fit_of_codes_has_no_variable_without_data():
    places, codes = testing.places(40), np.tile([1, 2], 20)
    values = np.random.default_rng(0).standard_normal(40)
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "z": values, "code": codes})
    data = gx.Observations.from_frame(frame, values="z", variable="code")
    model = gx.Independent((1.0, 2.0), (0.1, 0.2), 0.5, 0.1)
    fit = gx.fit(data, model, fixed=tuple(model.parameters()))
    both = gx.predict(fit, [[0.2, 0.3]])
    assert np.asarray(both.variable).tolist() == ["1", "2"]
    for code in (1, 2):
        one = gx.predict(fit, [[0.2, 0.3]], variable=code)
        for name in (code, str(code)):
            np.testing.assert_allclose(one.mean, both.of_variable(name).mean, rtol=1e-12)
    of_rows = gx.predict(fit, frame.drop(columns="z").iloc[:4])
    np.testing.assert_array_equal(of_rows.mean, gx.predict(fit, data.subset(range(4))).mean)
    left_out = gx.cross_validate(fit, folds=4)
    assert left_out.of_variable(2).observed.tolist() == values[1::2].tolist()


def test_a_subset_keeps_the_numbers_of_its_variables():
    data = gx.Observations(testing.places(6), np.arange(6.0), variable=[0, 1] * 3)
    some = data.subset([1, 3, 5])
    assert some.variable.tolist() == [1, 1, 1]
    assert some.variable_labels == data.variable_labels == ("variable 0", "variable 1")


@pytest.mark.parametrize("missing", [None, np.nan, "", " ", pd.NA])
def test_a_missing_name_is_refused(missing):
    with pytest.raises(gx.InvalidInput, match=r"must name a variable in every row.*row 2 "):
        gx.Observations(testing.places(4), np.arange(4.0), variable=["a", missing, "a", "b"])
