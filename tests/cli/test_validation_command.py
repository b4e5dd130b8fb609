import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli.main import main


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.json"
    assert main(["fit", "meuse", "--fix", "smoothness=0.5", "--output", str(path)]) == 0
    return path


def test_scores_are_those_of_the_library(run, fitted):
    status, out, err = run("validate", fitted, "--leave-one-out", "--level", 0.8, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    expected = gx.leave_one_out(gx.Fit.load(fitted))
    assert document["scores"] == expected.scores(0.8)
    assert (document["kind"], document["level"]) == ("leave-one-out", 0.8)


def test_ten_random_folds_are_what_is_done_unasked(run, fitted):
    status, out, err = run("validate", fitted)
    assert (status, err) == (0, "")
    assert out.startswith("10 random folds (seed 0) of 155 observations")
    assert "of 95 % intervals" in out
    _, again, _ = run("validate", fitted, "--seed", 1)
    assert again.splitlines()[2] != out.splitlines()[2]


def test_predictions_are_written(run, fitted, tmp_path):
    table = tmp_path / "errors.csv"
    status, out, _ = run(
        *("validate", fitted, "--folds", 5, "--blocks", 500, "--level", 0.9, "--output", table)
    )
    assert status == 0
    assert f"predictions written to {table}" in out
    frame = pd.read_csv(table)
    expected = gx.cross_validate(gx.Fit.load(fitted), 5, blocks=500.0)
    np.testing.assert_allclose(frame["mean"], expected.mean, rtol=1e-15)
    np.testing.assert_array_equal(frame.fold, expected.folds)
    np.testing.assert_allclose(frame.lower, expected.interval(0.9)[0], rtol=1e-15)


def test_folds_are_fitted_anew_where_asked(run, fitted):
    status, out, _ = run("validate", fitted, "--folds", 2, "--refit", "--json")
    assert status == 0
    document = json.loads(out)
    assert document["refitted"]
    held = gx.cross_validate(gx.Fit.load(fitted), 2).scores()
    assert document["scores"]["rmse"] != held["rmse"]
    assert document["scores"]["rmse"] == pytest.approx(held["rmse"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--leave-one-out", "--folds", "5"], "--leave-one-out excludes --folds"),
        (["--leave-one-out", "--refit", "--blocks", "9"], "excludes --blocks and --refit"),
        (["--folds", "1"], "`folds` must be a whole number from 2 to 155. Got 1"),
        (["--blocks", "-3"], "`blocks` must be the side of a square"),
        (["--blocks", "1e6"], "10 folds need at least 10 blocks. Blocks of side 1e+06 give 1"),
        (["--leave-one-out", "--on", "moon"], '`on` must be "cpu"'),
        (["--refit", "--on", "gpu"], '`on` must be "cpu" (this process) or a Dask cluster'),
        (["--level", "95"], "`level` must lie between 0 and 1"),
        (["--output", "/nowhere/errors.csv"], "the folder /nowhere does not exist"),
        (["--folds", "many"], "valid integer"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(run, fitted, options, message):
    status, out, err = run("validate", fitted, *options)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_what_is_no_fit_is_refused(run, tmp_path):
    status, _, err = run("validate", tmp_path / "none.json")
    assert status == 2
    assert "no such file" in err


# A held-out table


@pytest.fixture
def tables(tmp_path):
    """A table with most columns that a fit can remember, whose last 15 rows are held out."""
    rng = np.random.default_rng(17)
    table = pd.DataFrame(rng.uniform(0, 9, (60, 2)), columns=["Easting", "Northing"])
    table = table.assign(se=rng.uniform(0.1, 0.4, 60), soil=np.tile(["clay", "sand", "loam"], 20))
    table["zinc, ppm"] = np.exp(np.sin(table.Easting) + 0.2 * rng.normal(size=60)).round(4)
    table["lead"] = np.exp(np.cos(table.Northing) + 0.2 * rng.normal(size=60)).round(4)
    table["day"] = pd.to_datetime("2024-05-01") + pd.to_timedelta(rng.integers(0, 9, 60), "D")
    table.loc[[3, 50], "lead"] = -99.0
    table[:45].to_csv(tmp_path / "seen.csv", index=False)
    table[45:].to_csv(tmp_path / "held.csv", index=False)
    return table, tmp_path


def scored(run, folder, *words):
    """Return the JSON of a held-out table's scores."""
    status, out, err = run("validate", folder / "fit.json", folder / "held.csv", *words, "--json")
    assert status == 0, err
    return json.loads(out)


CASES = {
    "function, text and errors": (
        *("--value", "log(lead)", "--formula", "soil", "--error-variance", "I(se ** 2)"),
        *("--missing", "-99", "--drop-missing"),
    ),
    "several variables": (
        *("--value", "lead,se", "--family", "independent", "--missing", "-99"),
        *("--fix", "smoothness_1=0.5", "--fix", "smoothness_2=0.5"),
    ),
    "a name with a comma": ("--value", '"zinc, ppm"', "--locations", "Northing,Easting"),
    "dates": (
        *("--value", "lead", "--time", "day", "--family", "separable", "--missing", "-99"),
        *("--drop-missing", "--fix", "smoothness=0.5", "--fix", "time_smoothness=0.5"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("embed", ["--embed", "--no-embed"])
@pytest.mark.parametrize("case", CASES)
def test_a_table_is_read_as_that_of_the_fit(run, tables, case, embed):
    (_, folder), output = tables, ("--evaluations", "40", "--quiet", embed, "--output")
    run("fit", folder / "seen.csv", *CASES[case], *output, folder / "fit.json")
    fit = gx.Fit.load(folder / "fit.json")
    found = scored(run, folder, "--level", "0.8")
    about = {name: fit.observations.source.get(name) for name in ("time", "error_variance")}
    held = gx.read_table(
        folder / "held.csv",
        locations=fit.observations.location_names,
        values=fit.observations.source.get("values", fit.observations.value_name),
        formula=fit.observations.source.get("formula"),
        missing=-99,
        drop_missing=True,
        **about,
    )
    assert found["n"] == len(held)
    assert found["scores"] == pytest.approx(gx.validate(fit, held).scores(0.8), rel=1e-9)


def test_a_fit_of_a_frame_names_the_columns_of_the_table(run, tables):
    table, folder = tables
    table = table.assign(lead=table.lead.abs())
    held = {"fixed": {"smoothness": 0.5}, "progress": False, "raise_on_failure": False}
    about = {"locations": ("Easting", "Northing"), "covariates": ("se",)}
    seen = gx.Observations.from_frame(table[:45], values="zinc, ppm", **about)
    fit = gx.fit(seen, trend="covariates", **held)
    fit.save(folder / "fit.json")
    other = gx.Observations.from_frame(table[45:], values="zinc, ppm", **about)
    assert scored(run, folder)["scores"] == pytest.approx(gx.validate(fit, other).scores(), 1e-9)
    # a row for each value, and a column of its variable
    long = table.melt(["Easting", "Northing"], ["lead", "se"], "metal", "amount")
    long[long.index % 4 != 0].to_csv(folder / "held.csv", index=False)
    columns = {"locations": ("Easting", "Northing"), "values": "amount", "variable": "metal"}
    seen = gx.Observations.from_frame(long[long.index % 4 == 0], **columns)
    model = gx.Independent((0.5, 0.5), (2.0, 2.0), 0.5, nugget=(0.1, 0.1))
    held["fixed"] = tuple(model.parameters())
    gx.fit(seen, model, **held).save(folder / "fit.json")
    assert set(scored(run, folder)["variables"]) == {"lead", "se"}
    # a column for each variable
    seen = gx.Observations.from_frame(
        table[:45], values=("lead", "se"), locations=about["locations"]
    )
    gx.fit(seen, model, **held).save(folder / "fit.json")
    table[45:].to_csv(folder / "held.csv", index=False)
    assert scored(run, folder)["n"] == 30


@pytest.mark.slow
def test_decimal_commas_are_those_of_the_table(run, tables):
    table, folder = tables
    run("fit", folder / "seen.csv", "--value", '"zinc, ppm"', "--output", folder / "fit.json")
    expected = scored(run, folder)["scores"]
    table[45:].to_csv(folder / "held.csv", index=False, sep=";", decimal=",")
    assert scored(run, folder)["scores"] == expected
    assert scored(run, folder, "--decimal", ",")["scores"] == expected


@pytest.mark.slow
def test_points_of_a_file_have_their_own_coordinates(run, tables):
    geopandas = pytest.importorskip("geopandas")
    table, folder = tables
    crs = ("--crs", "EPSG:32631")
    run("fit", folder / "seen.csv", "--value", '"zinc, ppm"', *crs, "--output", folder / "fit.json")
    expected = scored(run, folder)["scores"]
    points = geopandas.points_from_xy(table.Easting, table.Northing, crs="EPSG:32631")
    plain = table[["zinc, ppm"]][45:]
    geopandas.GeoDataFrame(plain, geometry=points[45:]).to_file(folder / "held.gpkg")
    out = run("validate", folder / "fit.json", folder / "held.gpkg", "--json")[1]
    assert json.loads(out)["scores"] == pytest.approx(expected, rel=1e-9)


def test_a_data_set_may_stand_for_the_table_and_predictions_are_written(run, tmp_path):
    fit, table = tmp_path / "fit.json", tmp_path / "errors.csv"
    model = gx.Matern(3.0, 0.3, 0.5, 3.0)
    seen = gx.datasets.load("jura", values="Ni", locations=("x", "y"))
    gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False).save(fit)
    status, out, _ = run("validate", fit, "jura_validation", "--level", "0.9", "--output", table)
    assert status == 0
    assert out.startswith("Held-out table of 100 observations, covariance parameters held\n\n")
    assert "of 90 % intervals" in out
    frame = pd.read_csv(table)
    assert list(frame.columns[:5]) == ["x", "y", "observed", "mean", "variance"]
    assert frame.observed.tolist() == pd.read_csv(gx.datasets.path("jura_validation")).Ni.tolist()


@pytest.mark.slow
def test_rows_that_the_fit_has_too_are_counted(run, tables):
    table, folder = tables
    run("fit", folder / "seen.csv", "--value", '"zinc, ppm"', "--output", folder / "fit.json")
    table[40:].to_csv(folder / "held.csv", index=False)
    status, out, err = run("validate", folder / "fit.json", folder / "held.csv")
    assert (status, "5 of the 20 observations are also in the fit" in out) == (0, True)
    assert "warning: 5 of the 20 observations are also in the fit" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["meuse", "--folds", "5"], "--folds and a TABLE exclude each other"),
        (["meuse", "--blocks", "500"], "--blocks and a TABLE exclude each other"),
        (["meuse", "--refit", "--leave-one-out"], "--refit and --leave-one-out and a TABLE"),
        (["meuse", "--in-time", "blocks"], "--in-time and a TABLE exclude each other"),
        (["muse"], "muse: no such file, and no data set of this name. Did you mean 'meuse'?"),
        (["jura"], "jura_pred.csv: no column 'sqrt_dist'"),
        (["--drop-missing"], "--drop-missing needs a TABLE"),
        (["--decimal", ","], "--decimal needs a TABLE"),
        (["meuse", "--level", "2"], "`level` must lie between 0 and 1"),
        (["meuse", "--on", "nowhere"], "`on`"),
    ],
)
def test_bad_usage_of_a_table_is_one_line_and_status_2(run, fitted, options, message):
    status, out, err = run("validate", fitted, *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
