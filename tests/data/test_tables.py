import errno
import os

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli import options
from geomxp.data import tables
from geomxp.prediction.raster import grid_over
from geomxp.reporting import sources

COLUMNS = {"locations": ("x", "y"), "values": "z"}


def written(tmp_path, text, name="t.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def frame():
    random = np.random.default_rng(0)
    return pd.DataFrame(random.standard_normal((6, 4)), columns=["x", "y", "z", "c"])


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz", "csv.gz", "tsv"])
def test_every_kind_of_table_gives_the_same_observations(tmp_path, ending):
    path, data = tmp_path / f"t.{ending}", frame()
    if ending in ("csv.gz", "tsv"):
        data.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    else:
        tables.write_frame(data, path)
    seen = gx.read_table(path, **COLUMNS, covariates=("c",))
    np.testing.assert_array_equal(seen.locations, data[["x", "y"]])
    np.testing.assert_array_equal(seen.values, data["z"])
    np.testing.assert_array_equal(seen.covariates, data[["c"]])
    assert seen.source["sha256"] == tables.sha256(path)


def test_csv_keeps_every_digit(tmp_path):
    path, data = tmp_path / "t.csv", frame() * np.geomspace(1e-300, 1e300, 4)
    tables.write_frame(data, path)
    np.testing.assert_array_equal(
        tables.number_columns(tables.read_frame(path), data.columns), data
    )


def test_columns_called_lon_and_lat_are_chordal(tmp_path):
    path = written(tmp_path, "lon,lat,z\n5,50,1\n6,51,2\n7,50,3\n")
    seen = gx.read_table(path, locations=("lon", "lat"), values="z")
    assert seen.metric == "chordal"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("x,y,z\n", "at least 3 locations are needed. Got 0"),
        ("x,y,z\n1,2,3\n4,5,6\n", "at least 3 locations are needed. Got 2"),
        ("x,y\n1,2\n3,4\n5,6\n", r"no column 'z'. The columns are: x, y"),
        ("x,y,z\n1,2,3\n1,3,oops\n4,4,4\n", r"row 2, column 'z': 'oops' is not a number"),
        ("x,y,z\n1,2,3\n1,3,\n4,4,4\n5,5,NA\n", r"Got nan in row 2, column 'z' \(2 such rows\)"),
        ("x,y,z\n1,2,3\n1,3,4\ninf,4,4\n", r"locations must be finite numbers. Got inf in row 3"),
        ("x,y,z\n1,2,3,9\n1,3,4,9\n", "row 1 has more cells than the header .* It names 3"),
        ("# mine\n1,2,3\n", "the first line must name every column. It names 1"),
        ("x,y,z\n1,2,3\n1,2,3,4,5\n", "line 3 has 5 cells and the first line 3 names"),
        ("x|y|z\n1|2|3\n", "no column 'x': there is only one column"),
        ("x,y,z\nm,m,ppm\na,b,c\n", "row 1, column 'x': 'm' is not a number"),
        ('x,y,z\n1,2,"3\n4,5,6\n', "not a CSV table .*EOF inside string"),
        ("x,y,z,x\n1,2,3,4\n", "two columns are called 'x': rename one of them"),
        ("1,2,3\n4,5,6\n", r"The columns are: 1, 2, 3\. The first line must hold"),
        ("x,y,z\n1,2,2020-01-31\n", "'2020-01-31' is not a number .* write dates as numbers"),
        ("x,y,z\n1,2,31.01.2020\n", "write dates as numbers"),
        ("x,y,z\n1,<0.5,2\n", "'<0.5' is not a number .* replace the bound by a number"),
        ('x,y,z\n1,2,"12,345.6"\n', "'12,345.6' is not a number .* without separators"),
        ('x,y,z\n1,2,"3,4"\n', "'3,4' is not a number .* write decimals with a point"),
        ("x,y,z\n1,2,3\n4,5,1+2j\n7,8,9\n", "'1\\+2j' is not a number"),
        ("x,y,z\n1,2,3\n4,5,1e999\n7,8,9\n", "Got inf in row 2, column 'z'"),
    ],
)
def test_bad_tables_are_named_in_one_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(gx.InvalidInput, match=message) as caught:
        gx.read_table(path, **COLUMNS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


VALUES = [[0.5, -1.25, 1e-3], [2.0, 3.0, 4.5], [5.0, 7.5, 6.0]]


def rows(separator, decimal="."):
    text = [[format(number).replace(".", decimal) for number in row] for row in VALUES]
    return [separator.join(row) for row in text]


@pytest.mark.parametrize(
    "lines",
    [
        ["x,y,z", *rows(",")],
        ["x;y;z", *rows(";")],
        ["x;y;z", *rows(";", ",")],
        ["x\ty\tz", *rows("\t")],
        ["x\ty\tz", *rows("\t", ",")],
        [" x , y ,  z ", *rows(" , ")],
        ['"x", "y", "z"', *rows(",")],
        ["", "x;y;z", *rows(";", ","), ""],
    ],
    ids=repr,
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_table_may_be_written_as_people_do(tmp_path, lines, newline):
    seen = gx.read_table(written(tmp_path, newline.join(lines)), **COLUMNS)
    np.testing.assert_array_equal(np.column_stack((seen.locations, seen.values)), VALUES)


def test_a_comma_is_a_decimal_point_only_where_nothing_else_can_be_meant(tmp_path):
    text = "x;y;z;code\n1;2;3,5;a,b\n4;5;6;1,5\n7;8.5;9;2.5\n"
    found = tables.read_frame(written(tmp_path, text))
    assert found["z"].tolist() == ["3.5", "6", "9"]
    # one cell has a point, so the comma of another is something else
    assert found["code"].tolist() == ["a,b", "1,5", "2.5"]
    # between commas nothing is changed
    found = tables.read_frame(written(tmp_path, 'x,z\n1,"3,5"\n'))
    assert found["z"].tolist() == ["3,5"]


@pytest.mark.parametrize("names", [("East (m)", "North, m"), ("x", "y"), ("größe", "широта, °")])
def test_columns_of_any_name_can_be_named(tmp_path, names):
    path, data = tmp_path / "t.csv", frame()
    data.columns = [*names, "soil pH", "c"]
    data.to_csv(path, index=False)
    seen = gx.read_table(path, locations=names, values="soil pH")
    np.testing.assert_array_equal(seen.locations, data[list(names)])
    text = ",".join(f'"{name}"' for name in names)
    assert options.words(text) == names


def test_what_is_written_as_tsv_is_read_as_tsv(tmp_path):
    data = frame()
    tables.write_frame(data, tmp_path / "t.tsv")
    assert "\t" in (tmp_path / "t.tsv").read_text()
    found = tables.number_columns(tables.read_frame(tmp_path / "t.tsv"), data.columns)
    np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize("ending", ["xlsx", "ods", "json", "html"])
def test_a_file_never_holds_another_kind_than_its_ending_says(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    with pytest.raises(gx.InvalidInput, match=r"write a \.csv"):
        tables.write_frame(frame(), path)
    assert not path.exists()
    if ending in ("xlsx", "ods"):
        with pytest.raises(gx.InvalidInput, match="spreadsheets cannot be written"):
            tables.check_writable(path)
        with pytest.raises(gx.InvalidInput, match="spreadsheets cannot be read: save the sheet as"):
            gx.read_table(written(tmp_path, "PK", path.name), **COLUMNS)


def test_the_values_are_no_coordinate(tmp_path):
    path = written(tmp_path, "x,y,z\n1,2,3\n4,5,6\n7,8,9\n")
    with pytest.raises(gx.InvalidInput, match=r"a column other than the coordinates\. Got 'y'"):
        gx.read_table(path, locations=("x", "y"), values="y")


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(gx.InvalidInput, match="is a folder, not a table"):
        gx.read_table(tmp_path, **COLUMNS)


def test_a_table_is_no_fit(tmp_path):
    path = written(tmp_path, "x,y,z\n1,2,3\n")
    with pytest.raises(
        gx.InvalidInput, match="is a table, not a fit: give the file written by `geomxp"
    ):
        gx.Fit.load(path)


def test_missing_rows_can_be_dropped(tmp_path):
    path = written(tmp_path, "x,y,z\n1,2,3\n1,3,\n4,4,4\n5,5,NA\n6,6,6\ninf,1,1\n")
    seen = gx.read_table(path, **COLUMNS, drop_missing=True)
    np.testing.assert_array_equal(seen.values, [3, 4, 6])


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_that_is_not_utf8_is_refused(tmp_path, encoding):
    path = written(tmp_path, "x,y,zé\n1,2,3\n4,5,6\n7,8,9\n", encoding=encoding)
    with pytest.raises(gx.InvalidInput, match="not UTF-8"):
        gx.read_table(path, **COLUMNS)


def test_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = written(tmp_path, "x,y,z\n1,2,3\n4,5,6\n7,9,9\n", encoding="utf-8-sig")
    assert len(gx.read_table(path, **COLUMNS)) == 3


def test_pickles_are_never_opened(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(gx.InvalidInput, match="not an NPZ archive of numbers"):
        gx.read_table(path, **COLUMNS)


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_missing_text_stays_missing(tmp_path, ending):
    rock = ["a", None, "bb", "a"]
    tables.write_frame(pd.DataFrame({"rock": rock}), tmp_path / f"t.{ending}")
    codes, levels = tables.encode(tables.read_frame(tmp_path / f"t.{ending}"), ["rock"])
    assert levels == {"rock": ("a", "bb")}
    np.testing.assert_array_equal(codes[:, 0], [0, np.nan, 1, 0])


@pytest.mark.parametrize("name", ["t.parquet", "t.npz", "t.csv.gz"])
def test_files_of_another_kind_are_refused(tmp_path, name):
    path = written(tmp_path, "x,y,z\n1,2,3\n", name)
    with pytest.raises(gx.InvalidInput, match="not a"):
        gx.read_table(path, **COLUMNS)


def test_arrays_of_different_lengths_are_no_table(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.ones(3), y=np.ones(4))
    with pytest.raises(gx.InvalidInput, match="1-D arrays of equal length"):
        gx.read_table(tmp_path / "t.npz", **COLUMNS)


def test_full_disk_leaves_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "fit.json"
    tables.write_json(path, {"a": 1})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(gx.GeomxpError, match=r"cannot be written.*No space left"):
        tables.write_json(path, {"a": 2})
    assert tables.read_json(path)["a"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["fit.json"]


def test_a_folder_that_is_not_there_is_said_before_the_work(tmp_path):
    with pytest.raises(gx.InvalidInput, match="does not exist"):
        tables.check_writable(tmp_path / "no" / "fit.json")
    with pytest.raises(gx.InvalidInput, match="is a folder"):
        tables.check_writable(tmp_path)


@pytest.mark.parametrize("name", gx.datasets.DATASETS)
def test_every_data_set_is_what_its_entry_says(name):
    entry = gx.datasets.DATASETS[name]
    assert tables.sha256(gx.datasets.path(name)) == entry.sha256
    seen = gx.datasets.load(name)
    assert seen.source["dataset"] == name
    assert len(seen) >= 100
    readme = (gx.datasets.folder() / "README.md").read_text()
    for word in (entry.file, entry.sha256, entry.value):
        assert word in readme


@pytest.mark.slow
@pytest.mark.parametrize("name", gx.datasets.DATASETS)
def test_a_data_set_knows_the_unit_of_its_coordinates(name):
    entry, seen = gx.datasets.DATASETS[name], gx.datasets.load(name)
    if entry.metric != "euclidean":
        assert seen.unit == "km"
    elif entry.source.startswith("simulated"):
        # a unit square has no unit
        assert seen.unit == "units of the locations"
    else:
        assert seen.unit != "units of the locations"
        assert f"x, y in {seen.unit}" in entry.about
    assert gx.datasets.load(name, metric="euclidean" if name == "weak" else None).unit == seen.unit


def test_columns_that_are_not_a_data_sets_coordinates_have_no_unit():
    seen = gx.datasets.load("meuse", locations=("x", "elev"))
    assert seen.unit == "units of the locations"
    assert gx.datasets.load("meuse", locations=("x", "y"), values="lead").unit == "m"


def test_the_unit_is_said_wherever_lengths_are(tmp_path):
    fit = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})
    assert "correlation 5 %, in m\n" in str(fit)
    fit.save(tmp_path / "fit.json", embed=False)
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.observations.unit == again.observations.subset(slice(9)).unit == "m"
    # observations that are no longer the table's are kept as they are
    part = gx.fit(fit.observations.subset(slice(60)), fit.model, fixed=("smoothness",))
    part.save(tmp_path / "part.json")
    assert gx.Fit.load(tmp_path / "part.json").observations.unit == "m"


def test_unknown_data_set_lists_the_known_ones():
    with pytest.raises(gx.InvalidInput, match="meuse"):
        gx.datasets.load("muse")


def test_derived_columns_of_meuse_are_functions_of_the_measured_ones():
    data = pd.read_csv(gx.datasets.path("meuse"))
    np.testing.assert_allclose(data.log_zinc, np.log(data.zinc), rtol=1e-15)
    np.testing.assert_allclose(data.sqrt_dist, np.sqrt(data.dist), rtol=1e-15)


def test_ozone_of_one_day_is_the_summers_of_that_day():
    summer = pd.read_csv(gx.datasets.path("ozone_summer"))
    assert list(summer) == ["lon", "lat", "date", "o3_ppb"]
    day = summer[summer.date == "1987-06-18"].drop(columns="date").reset_index(drop=True)
    pd.testing.assert_frame_equal(day, pd.read_csv(gx.datasets.path("ozone")), check_exact=True)


def test_ozone_of_the_summer_has_each_station_and_day_at_most_once():
    summer = pd.read_csv(gx.datasets.path("ozone_summer"), parse_dates=["date"])
    assert not summer.duplicated(["lon", "lat", "date"]).any()
    assert summer.date.is_monotonic_increasing
    days = pd.date_range("1987-06-03", "1987-08-31")
    assert list(summer.date.unique()) == list(days[days != "1987-08-29"])
    assert len(summer[["lon", "lat"]].drop_duplicates()) == 153


def test_a_data_set_of_several_times_has_their_column_and_unit():
    seen = gx.datasets.load("ozone_summer")
    assert (seen.time_name, seen.time_unit, seen.time_origin) == ("date", "day", "1987-06-03")
    assert (seen.time.min(), seen.time.max()) == (0.0, 89.0)
    assert gx.datasets.load("ozone").time is None


@pytest.mark.slow
def test_a_fit_to_a_data_set_of_several_times_reads_it_again(tmp_path):
    model = gx.Separable(200.0, 400.0, 2.0, 0.5, 0.5, nugget=10.0)
    seen = gx.datasets.load("ozone_summer")
    fit = gx.fit(seen, model, gx.Vecchia(5), fixed=tuple(model.parameters()))
    fit.save(tmp_path / "fit.json", embed=False)
    assert gx.Fit.load(tmp_path / "fit.json").observations.digest() == seen.digest()
    assert "observations = gx.datasets.load('ozone_summer')\n" in sources.python_lines(fit)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 0]] * 3, [1, 2]), "`values` must hold one number for each of the 3 locations"),
        (([[0, 0, 0, 0]] * 3, [1, 2, 3]), "1, 2 or 3 columns"),
        ((["a", "b", "c"], [1, 2, 3]), "`locations` must be an array of numbers"),
        (([[0, 0]] * 3, [1, 2, 3], [[1], [2]]), "`covariates` must have one row for each"),
        (([[0, 91]] * 3, [1, 2, 3], None, "chordal"), "latitudes must lie between -90 and 90"),
        (([[400, 1]] * 3, [1, 2, 3], None, "chordal"), "longitudes must lie between"),
        (([[0, 0]] * 3, [1, 2, 3], None, "manhattan"), "`metric` must be one of"),
        (([0, 1, 2], [1, 2, 3], None, "chordal"), "needs two columns"),
        (([[0, 0]] * 3, [1, 2, 3], None, "euclidean", ("x", "x")), "different columns. Got x, x"),
    ],
)
def test_wrong_observations_are_named(arguments, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Observations(*arguments)


def test_degrees_under_a_euclidean_metric_draw_a_warning():
    places = np.array([[-94.0, 40.0], [-93.0, 41.0], [-92.0, 40.5]])
    with pytest.warns(gx.GeomxpWarning, match="look like longitude and latitude"):
        gx.Observations(places, [1.0, 2.0, 3.0])
    gx.Observations(places, [1.0, 2.0, 3.0], metric="chordal")
    for name in ("meuse", "jura", "coalash", "weak"):
        gx.datasets.load(name)  # a warning would be an error here


def test_frames_become_observations():
    data = frame()
    seen = gx.Observations.from_frame(data, locations=("x", "y"), values="z", covariates=("c",))
    np.testing.assert_array_equal(seen.covariates[:, 0], data.c)
    with pytest.raises(gx.InvalidInput, match="sequence of column names"):
        gx.Observations.from_frame(data, locations="xy", values="z")


def test_grid_covers_the_bounding_box():
    seen = gx.datasets.load("meuse")
    grid = grid_over(seen, 50)
    assert (grid >= seen.locations.min(axis=0)).all()
    assert (grid <= seen.locations.max(axis=0)).all()
    assert len(np.unique(grid[:, 1])) == 50


# Columns that are taken as locations


@pytest.mark.parametrize(
    ("names", "taken", "metric"),
    [
        (("x", "y"), ("x", "y"), "euclidean"),
        (("Y", "X"), ("X", "Y"), "euclidean"),
        (("lat", "lon"), ("lon", "lat"), "chordal"),
        (("Longitude", "Latitude"), ("Longitude", "Latitude"), "chordal"),
        (("northing", "easting"), ("easting", "northing"), "euclidean"),
        (("x", "y", "northing"), ("x", "y"), "euclidean"),
        (("easting", "y", "lon", "lat"), ("lon", "lat"), "chordal"),
    ],
)
def test_the_only_pair_of_coordinates_is_taken(tmp_path, names, taken, metric):
    data = pd.DataFrame({name: [5.0 + k, 6.0, 7.5] for k, name in enumerate(names)})
    data["z"] = [1.0, 2.0, 4.0]
    data.to_csv(tmp_path / "t.csv", index=False)
    seen = gx.read_table(tmp_path / "t.csv", values="z")
    assert seen.location_names == taken
    assert str(seen.metric) == metric
    np.testing.assert_array_equal(seen.locations, data[list(taken)])
    assert seen.source["locations"] == list(taken)
    assert gx.Observations.from_frame(data, values="z").digest() == seen.digest()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("x", "y", "lon", "lat"), r'They may be x, y or lon, lat: .*locations=\("x", "y"\)'),
        (("x", "y", "X"), "They may be x, y or X, y"),
        (("x", "northing"), r"The columns are: x, northing: .*\(--locations x,northing\)"),
        (("row", "column"), r'The columns are: row, column: .*locations=\("row", "column"\)'),
        (("lon", "long", "lat"), "They may be lon, lat or long, lat"),
    ],
)
def test_coordinates_that_are_not_certain_must_be_named(names, words):
    data = pd.DataFrame({name: [5.0, 6.0, 7.5] for name in names} | {"z": [1.0, 2.0, 4.0]})
    with pytest.raises(gx.InvalidInput, match=words) as caught:
        gx.Observations.from_frame(data, values="z")
    assert "\n" not in str(caught.value)


def test_the_column_of_the_values_is_not_a_coordinate():
    data = pd.DataFrame({"x": [5.0, 6.0, 7.5], "y": [1.0, 2.0, 4.0], "lon": [1, 2, 3]})
    data["lat"] = [3.0, 4.0, 9.0]
    assert gx.Observations.from_frame(data, values="y").location_names == ("lon", "lat")
