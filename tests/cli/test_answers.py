"""The commands `predict` and `simulate` beyond what test_cli.py and test_rasters.py ask of them."""

import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx


@pytest.fixture(scope="module")
def fit():
    seen, model = gx.datasets.load("meuse"), gx.Matern(0.6, 220.0, 0.5, 0.06)
    return gx.fit(seen, model, fixed=tuple(model.parameters()))


@pytest.fixture(scope="module")
def saved(fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.json"
    fit.save(path)
    return path


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    path = tmp_path_factory.mktemp("places") / "places.csv"
    path.write_text("name,x,y\na,181072,333611\nb,180000,332000\n")
    return path


THERE = [[181072, 333611], [180000, 332000]]


def test_blocks_and_neighbours_are_those_of_python(run, saved, fit, places, tmp_path):
    status, _, _ = run("predict", saved, places, "--block", "40,20", "--output", tmp_path / "b.csv")
    assert status == 0
    found, there = pd.read_csv(tmp_path / "b.csv"), gx.predict(fit, THERE, block=(40, 20))
    assert list(found.columns) == ["name", "x", "y", "mean", "variance", "lower", "upper"]
    np.testing.assert_allclose(found["variance"], there.variance, rtol=1e-14)
    status, out, _ = run("predict", saved, places, "--neighbours", 12, "--local-trend", "--json")
    assert status == 0
    there = gx.predict(fit, THERE, neighbours=12, local_trend=True)
    rows = json.loads(out)["rows"]
    assert [row["mean"] for row in rows] == there.mean.tolist()


def test_blocks_may_be_points_as_in_python(run, saved, fit, places):
    sides = ("--block", "400,200", "--discretisation", "2", "--json")
    status, out, _ = run("predict", saved, places, *sides)
    there = gx.predict(fit, THERE, block=(400, 200), discretisation=2)
    assert status == 0
    assert [row["mean"] for row in json.loads(out)["rows"]] == there.mean.tolist()
    assert (there.mean != gx.predict(fit, THERE, block=(400, 200)).mean).all()
    cells = ("--grid", "4", "--block", "cell", "--discretisation", "2", "--json")
    status, out, _ = run("predict", saved, *cells)
    raster = gx.predict_raster(fit, cells=4, block=True, discretisation=2)
    assert status == 0
    assert [row["mean"] for row in json.loads(out)["rows"]] == raster.mean.ravel().tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--discretisation", "4"], "--discretisation is for blocks: give --block"),
        (["--block", "40,20", "--discretisation", "0"], "Invalid value for '--discretisation'"),
        (["--block", "40,20,10"], "`block` must be 2 side(s)"),
        (["--block", "polygons"], "--block polygons needs a file of polygons"),
        (["--grid", "5"], "give either a table of LOCATIONS, or --grid, --resolution or --like"),
        (["--bounds", "0,0,1,1"], "give either a table of LOCATIONS"),
    ],
)
def test_wrong_predictions_are_one_line_and_status_2(run, saved, places, options, words):
    status, out, err = run("predict", saved, places, *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_intervals_of_observations_have_their_own_columns(run, saved, fit, places):
    status, out, _ = run("predict", saved, places, "--of", "observation", "--json")
    document = json.loads(out)
    assert (status, document["of"]) == (0, "observation")
    lower, upper = gx.predict(fit, THERE).interval(of="observation")
    row = document["rows"][1]
    assert (row["lower_of_observation"], row["upper_of_observation"]) == (lower[1], upper[1])
    assert not {"lower", "upper"} & set(row)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "observation_lower, observation_upper are those of a new observation: compare"),
        (("--of", "observation"), "upper_of_observation are 80 % intervals of a new observation"),
        (("--block", "40,20"), "upper are 80 % intervals of the noise-free field's averages"),
    ],
)
def test_standard_error_says_what_the_intervals_are_of(run, saved, places, options, said):
    level = ("--level", "0.8")
    status, out, err = run("predict", saved, places, *options, *level)
    names = out.splitlines()[0].split(",")
    assert (status, said in err) == (0, True)
    # every bound that is written is named
    for name in names:
        assert ("lower" not in name and "upper" not in name) or name in err
    assert run("predict", saved, places, *options, *level, "--quiet")[2] == ""


def test_the_usual_table_has_the_intervals_of_observations_too(run, saved, fit, places):
    _, out, _ = run("predict", saved, places, "--level", "0.8", "--json")
    row, there = json.loads(out)["rows"][0], gx.predict(fit, THERE)
    for of, names in {
        "field": ("lower", "upper"),
        "observation": ("observation_lower", "observation_upper"),
    }.items():
        assert tuple(row[name] for name in names) == tuple(
            end[0] for end in there.interval(0.8, of)
        )


def test_polygons_of_a_file_are_blocks(run, saved, fit, tmp_path):
    geopandas = pytest.importorskip("geopandas")
    shapely = pytest.importorskip("shapely")
    shapes = [
        shapely.box(180_000, 332_000, 180_300, 332_200),
        shapely.box(179_000, 330_000, 179_100, 330_400),
    ]
    path, output = tmp_path / "districts.geojson", tmp_path / "out.csv"
    frame = geopandas.GeoDataFrame({"district": ["a", "b"]}, geometry=shapes, crs="EPSG:28992")
    frame.to_file(path)
    status, _, err = run("predict", saved, path, "--block", "polygons", "--output", output)
    # the data set meuse does not say in which system it is
    assert status == 2
    assert "have no coordinate reference system" in err
    seen = gx.Observations(fit.observations.locations, fit.observations.values, crs="EPSG:28992")
    known = tmp_path / "known.json"
    gx.fit(seen, fit.model, fixed=tuple(fit.model.parameters())).save(known)
    status, out, _ = run("predict", known, path, "--block", "polygons")
    assert status == 0
    assert "district" in out
    status, _, _ = run("predict", known, path, "--block", "polygons", "--output", output)
    assert status == 0
    np.testing.assert_allclose(
        pd.read_csv(output)["mean"], gx.predict(fit, block=shapes).mean, rtol=1e-6
    )


@pytest.mark.parametrize("of", [None, "field", "observation"])
def test_fields_given_a_fits_observations_are_those_of_python(run, saved, fit, places, of):
    more = [] if of is None else ["--of", of]
    arguments = ["--fit", saved, "--at", places, "--draws", 3, "--seed", 4, *more]
    status, out, _ = run("simulate", *arguments, "--json")
    assert status == 0
    rows = pd.DataFrame(json.loads(out)["rows"])
    assert list(rows.columns) == ["x", "y", "z1", "z2", "z3"]
    expected = gx.simulate(fit, THERE, 3, seed=4, of=of)
    np.testing.assert_array_equal(rows[["z1", "z2", "z3"]].to_numpy().T, expected)


def test_a_models_field_is_drawn_without_noise_if_asked(run):
    model = ["--variance", 1, "--range", 0.1, "--smoothness", 0.5]
    plain = run("simulate", "--n", 9, *model, "--nugget", 0.5, "--of", "field", "--json")
    assert plain == run("simulate", "--n", 9, *model, "--json")
    assert plain != run("simulate", "--n", 9, *model, "--nugget", 0.5, "--json")


SEPARABLE = ["--family", "separable", "--variance", "1", "--range", "0.1", "--smoothness", "0.5"]
SEPARABLE += ["--parameter", "time_range=2", "--parameter", "time_smoothness=0.5"]


def test_space_time_models_are_drawn_at_times(run, tmp_path):
    model, path = gx.Separable(1.0, 0.1, 2.0, 0.5, 0.5), tmp_path / "field.csv"
    arguments = ["--n", 4, "--time", "0,1.5,7", "--seed", 3, "--output", path]
    assert run("simulate", *SEPARABLE, *arguments)[0] == 0
    found = pd.read_csv(path)
    assert list(found.columns) == ["x", "y", "time", "z"]
    assert found["time"].tolist() == [0.0] * 4 + [1.5] * 4 + [7.0] * 4
    assert (found[["x", "y"]].iloc[:4].to_numpy() == found[["x", "y"]].iloc[4:8].to_numpy()).all()
    places = found[["x", "y"]].to_numpy()
    expected = gx.simulate(model, places, time=found["time"].to_numpy(), seed=3)[0]
    np.testing.assert_allclose(found["z"], expected, rtol=0, atol=1e-14)
    # a column of dates, and one time for all rows
    dates = pd.to_datetime("2026-03-01") + pd.to_timedelta(24 * found["time"], "h")
    found.drop(columns=["time", "z"]).assign(day=dates).to_csv(tmp_path / "days.csv", index=False)
    arguments = ["--at", tmp_path / "days.csv", "--time", "day", "--seed", 3, "--json"]
    status, out, _ = run("simulate", *SEPARABLE, *arguments)
    assert status == 0
    assert [row["z"] for row in json.loads(out)["rows"]] == pytest.approx(expected, abs=1e-12)
    found.iloc[:4, :2].to_csv(tmp_path / "here.csv", index=False)
    once = run("simulate", *SEPARABLE, "--at", tmp_path / "here.csv", "--time", "2026-03-01")
    assert once[0] == 0
    assert once[1].count("2026-03-01") == 4


def test_a_space_time_fit_is_drawn_at_the_times_of_a_table_or_at_one(run, tmp_path):
    places = np.random.default_rng(0).random((40, 2))
    when = pd.date_range("2026-03-01", periods=5).to_numpy()[np.arange(40) % 5]
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "day": when, "z": places[:, 0]})
    seen = gx.Observations.from_frame(frame, values="z", time="day")
    model = gx.Separable(1.0, 0.1, 2.0, 0.5, 0.5, 0.1)
    fit = gx.fit(seen, model, gx.Exact(), fixed=tuple(model.parameters()), trend="zero")
    fit.save(tmp_path / "fit.json")
    there = frame[["x", "y", "day"]].head(3)
    there.to_csv(tmp_path / "there.csv", index=False)
    known = ("--fit", tmp_path / "fit.json", "--at", tmp_path / "there.csv", "--json")
    for more, time in (((), there["day"]), (("--time", "2026-03-09"), "2026-03-09")):
        status, out, _ = run("simulate", *known, *more)
        assert status == 0
        rows = json.loads(out)["rows"]
        expected = gx.simulate(fit, there[["x", "y"]].to_numpy(), time=time)[0]
        assert [row["z"] for row in rows] == pytest.approx(expected, abs=1e-12)
        days = [row["day"] for row in rows]
        assert days == ["2026-03-09"] * 3 if more else ["2026-03-01", "2026-03-02", "2026-03-03"]


def test_the_times_of_new_locations_may_be_in_another_column(run, tmp_path):
    places = np.random.default_rng(0).random((40, 2))
    seen = gx.Observations(places, places[:, 0], time=np.arange(40.0) % 5)
    model = gx.Separable(1.0, 0.1, 2.0, 0.5, 0.5, 0.1)
    fit = gx.fit(seen, model, gx.Exact(), fixed=tuple(model.parameters()), trend="zero")
    fit.save(tmp_path / "fit.json")
    there = pd.DataFrame({"x": [0.1, 0.2], "y": [0.3, 0.4], "hours": [1.0, 6.0]})
    there.to_csv(tmp_path / "there.csv", index=False)
    known = ("predict", tmp_path / "fit.json", tmp_path / "there.csv", "--json", "--time")
    status, out, _ = run(*known, "hours")
    expected = gx.predict(fit, there[["x", "y"]].to_numpy(), time=[1.0, 6.0]).mean
    assert status == 0
    means = [row["mean"] for row in json.loads(out)["rows"]]
    assert means == pytest.approx(expected, abs=1e-12)
    there.drop(columns="hours").to_csv(tmp_path / "there.csv", index=False)
    status, out, _ = run(*known, "6")
    assert status == 0
    assert [(row["time"], row["mean"]) for row in json.loads(out)["rows"]] == [
        (6.0, pytest.approx(mean, abs=1e-12))
        for mean in gx.predict(fit, there[["x", "y"]].to_numpy(), time=6.0).mean
    ]
    there.to_csv(tmp_path / "there.csv", index=False)
    status, _, err = run(*known, "hour")
    assert status == 2
    assert "no column 'hour'. Did you mean 'hours'? --time is a column, a number or a date." in err


def test_commas_may_join_parameters(run):
    together = ["simulate", "--family", "separable", "--variance", 1, "--range", 0.1, "--n", 3]
    together += ["--smoothness", 0.5, "--seed", 1, "--time", 0]
    apart = ["--parameter", "time_range=2", "--parameter", "time_smoothness=0.5"]
    once = run(*together, "--parameter", "time_range=2, time_smoothness=0.5")
    assert once[0] == 0
    assert once == run(*together, *apart)


def test_a_table_with_a_column_of_times_does_not_disturb_a_spatial_fit(run, saved, tmp_path):
    path = tmp_path / "there.csv"
    path.write_text("time,x,y\n7,181072,333611\n")
    status, out, _ = run("simulate", "--fit", saved, "--at", path, "--json")
    assert status == 0
    assert list(json.loads(out)["rows"][0]) == ["x", "y", "z"]


def test_fields_of_fits_are_drawn_on_grids(run, saved, fit, tmp_path):
    pytest.importorskip("netCDF4")
    raster = gx.predict_raster(fit, cells=3)
    raster.save(tmp_path / "grid.nc")
    status, out, _ = run("simulate", "--fit", saved, "--at", tmp_path / "grid.nc", "--json")
    assert status == 0
    assert len(json.loads(out)["rows"]) == raster.mean.size


def test_the_unit_of_dates_is_said_where_a_model_is_drawn(run, tmp_path):
    path = tmp_path / "there.csv"
    path.write_text("x,y,when\n0,0,2026-03-01\n1,0,2026-03-01T05:00\n")
    status, _, err = run("simulate", *SEPARABLE, "--at", path, "--time", "when")
    assert (status, "times are in hours since 2026-03-01" in err) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SEPARABLE, "--n", "5", "--time", ","], "--time needs numbers: 0,1,2"),
        (
            [*SEPARABLE, "--n", "5", "--time", "1", "--locations", "time,y"],
            "'time' names a coordinate and the times",
        ),
        ([*SEPARABLE, "--n", "5"], "a separable model needs times: give --time"),
        (
            ["--variance", "1", "--range", "1", "--smoothness", "1", "--n", "5", "--time", "1"],
            "the matern family does not use times",
        ),
        ([*SEPARABLE, "--at", "meuse", "--time", "dits"], "no column 'dits'. Did you mean 'dist'"),
        (["--range", "3", "--n", "5"], "--variance and --smoothness must be given, or --fit"),
        (["--fit", "fit.json"], "--fit needs locations: give --at"),
        (["--fit", "fit.json", "--range", "3"], "leave out --range"),
        (["--fit", "fit.json", "--at", "meuse", "--n", "5"], "leave out --n"),
        (["--fit", "fit.json", "--at", "meuse", "--of", "trend"], "--of must be field or"),
        (["--fit", "fit.json", "--at", "weak.csv"], "weak.csv: no such file"),
    ],
)
def test_wrong_simulations_are_one_line_and_status_2(run, saved, arguments, message):
    status, out, err = run("simulate", *(saved if a == "fit.json" else a for a in arguments))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
