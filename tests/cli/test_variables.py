"""Several variables on the command line: wide and long tables, and predictions by name."""

import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

FAMILY = ("--family", "independent")
HELD = [
    *("--fix", "range_1=300", "--fix", "range_2=200"),
    *("--fix", "smoothness_1=0.5", "--fix", "smoothness_2=0.5"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    frame = pd.read_csv(gx.datasets.path("meuse"))
    frame[["x", "y"]] -= [180_000, 331_500]
    frame.to_csv(folder / "wide.csv", index=False)
    frame["id"] = frame.index
    long = frame.melt(["id", "x", "y"], ["log_zinc", "om"], "element", "content").dropna()
    long.sort_values("id", kind="stable").to_csv(folder / "long.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def saved(folder):
    """The file of a fit of both variables, by the library."""
    data = gx.read_table(folder / "wide.csv", values=("log_zinc", "om"))
    model = gx.Independent((0.5, 10), (300, 200), 0.5, (0.05, 1))
    fit = gx.fit(data, model, fixed=tuple(model.parameters()))
    fit.save(folder / "fit.json", embed=False)
    return folder / "fit.json"


@pytest.mark.slow
def test_wide_and_long_tables_give_the_same_fit(run, folder):
    documents = []
    for table, columns in (
        ("wide.csv", ("--value", "log_zinc,om")),
        ("long.csv", ("--value", "content", "--variable", "element")),
    ):
        status, out, err = run("fit", folder / table, *columns, *FAMILY, *HELD, "--json")
        assert status == 0, err
        documents.append(json.loads(out))
    one, other = documents
    assert one["log_likelihood"] == other["log_likelihood"]
    assert one["trend"]["names"] == ["log_zinc: intercept", "om: intercept"]
    assert one["table"]["values"] == ["log_zinc", "om"]
    assert other["table"]["variable"] == "element"
    # independent variables: the sum of the fits of each
    total = 0.0
    for value, k in (("log_zinc", 1), ("om", 2)):
        held = ("--fix", f"range={300 if k == 1 else 200}", "--fix", "smoothness=0.5")
        status, out, _ = run(
            *("fit", folder / "wide.csv", "--value", value, "--drop-missing", "--json"), *held
        )
        assert status == 0
        total += json.loads(out)["log_likelihood"]
    assert one["log_likelihood"] == pytest.approx(total, abs=1e-4)


def test_values_may_be_functions_with_commas(run, folder):
    words = ("log-likelihood", folder / "wide.csv", *FAMILY)
    values = {"variance": (1, 10), "range": (300, 200), "smoothness": (0.5, 0.5), "nugget": (1, 2)}
    for name, numbers in values.items():
        for k, number in enumerate(numbers, 1):
            words += ("--parameter", f"{name}_{k}={number}")
    words += ("--trend", "constant", "--json")
    status, out, _ = run(*words, "--value", '"log(zinc)", where(om > abs(sqrt(abs(2))), om, 2)')
    assert status == 0
    data = gx.read_table(
        folder / "wide.csv", values=("log(zinc)", "where(om > abs(sqrt(abs(2))), om, 2)")
    )
    expected = gx.log_likelihood(data, gx.Independent(**values), trend="constant")
    assert json.loads(out)["log_likelihood"] == expected.log_likelihood


@pytest.mark.slow
def test_each_variable_may_have_a_trend(run, folder):
    words = ("fit", folder / "wide.csv", "--value", "log_zinc,om", *FAMILY, *HELD, "--json")
    status, out, _ = run(*words, "--trend", "log_zinc: linear; om: constant")
    assert status == 0
    names = ["log_zinc: intercept", "log_zinc: x", "log_zinc: y", "om: intercept"]
    assert json.loads(out)["trend"]["names"] == names
    status, _, err = run(*words, "--trend", "log_zinc: linear; cadmium: constant")
    assert status == 2
    assert "--trend" in err or "trend" in err


@pytest.mark.slow
def test_each_value_may_have_an_error_variance(run, folder):
    words = ("fit", folder / "wide.csv", "--value", "log_zinc,om", *FAMILY, *HELD, "--json")
    status, out, _ = run(*words, "--error-variance", "none,I(0.01 * elev)")
    assert status == 0
    document = json.loads(out)
    assert document["table"]["error_variance"] == [None, "I(0.01 * elev)"]
    status, _, err = run(*words, "--error-variance", "elev")
    assert status == 2
    assert "a column, or None, for each of log_zinc, om" in err


def test_predictions_by_name(run, folder, saved, tmp_path):
    fit = gx.Fit.load(saved)
    frame = pd.read_csv(folder / "wide.csv")[["x", "y"]][:4] + 7
    frame.to_csv(tmp_path / "new.csv", index=False)
    for name in ("om", "log_zinc"):
        status, out, _ = run("predict", saved, tmp_path / "new.csv", "--variable", name, "--json")
        assert status == 0
        rows = pd.DataFrame(json.loads(out)["rows"])
        np.testing.assert_allclose(rows["mean"], gx.predict(fit, frame, variable=name).mean)
        assert set(rows["variable"]) == {name}
    for option in ((), ("--variable", "log_zinc,om")):
        status, _, _ = run(
            "predict", saved, tmp_path / "new.csv", "--output", tmp_path / "out.csv", *option
        )
        assert status == 0
        written = pd.read_csv(tmp_path / "out.csv")
        assert written["variable"].tolist() == ["log_zinc", "om"] * 4
        np.testing.assert_allclose(written["mean"], gx.predict(fit, frame).mean)
    status, out, _ = run("simulate", "--fit", saved, "--at", tmp_path / "new.csv", "--json")
    assert status == 0
    assert [row["variable"] for row in json.loads(out)["rows"]] == ["log_zinc", "om"] * 4


def test_maps_show_one_variable(run, saved, tmp_path):
    status, _, err = run("predict", saved, "--grid", 4)
    assert status == 2
    assert "a map shows one variable of log_zinc, om" in err
    assert "--variable" in err
    status, out, _ = run("predict", saved, "--grid", 4, "--variable", "om", "--json")
    assert status == 0
    raster = gx.predict_raster(gx.Fit.load(saved), cells=4, variable="om")
    rows = json.loads(out)["rows"]
    np.testing.assert_allclose([row["mean"] for row in rows], raster.to_frame()["mean"])


def test_what_is_wrong_is_said_with_a_remedy(run, folder, saved):
    for words, said in (
        (
            ("explore", folder / "wide.csv", "--value", "zinc,om"),
            "on the command line one --value, or a table with the rows of one variable",
        ),
        (
            ("predict", saved, folder / "wide.csv", "--variable", "log_zink"),
            "Did you mean 'log_zinc'?",
        ),
        (
            ("predict", saved, folder / "wide.csv", "--variable", ","),
            "needs the name or the number",
        ),
        (("fit", folder / "wide.csv", "--value", "zinc,zinc"), "names 'zinc' twice"),
        (
            ("fit", folder / "wide.csv", "--value", "zinc,om", *FAMILY, "--trend", "zinc: dist"),
            "There is none for om",
        ),
        (
            (
                *("fit", folder / "wide.csv", "--value", "zinc,om", *FAMILY),
                *("--trend", "zinc: dist; om: constant"),
            ),
            "a column must be a covariate, covariates=('dist',) (--covariates dist)",
        ),
        (
            (
                *("fit", folder / "wide.csv", "--value", "zinc,om", *FAMILY, "--drop-missing"),
                *("--transform", "log,none,sqrt"),
            ),
            "one transformation or one for each of the 2 variables",
        ),
        (
            ("fit", folder / "wide.csv", "--value", "zinc,om", "--drop-missing"),
            "such as parsimonious-matern (--family parsimonious-matern)",
        ),
        (
            ("fit", folder / "wide.csv", "--value", "log(zinc oxide)"),
            "names with spaces must be in backticks: `zinc oxide`",
        ),
        (("fit", folder / "wide.csv", "--value", "zinc,tin", *FAMILY), "no column 'tin'"),
    ):
        status, _, err = run(*words)
        assert status == 2
        assert said in err


@pytest.mark.slow
def test_nugget_covariances_are_estimated_and_given(run, folder):
    held = (*("fit", folder / "wide.csv", "--value", "log_zinc,om"), *FAMILY, *HELD, "--json")
    documents = []
    for more in ((), ("--nugget-covariance",), ("--fix", "nugget_covariance_12=0")):
        status, out, err = run(*held, *more)
        assert status == 0, err
        documents.append(json.loads(out))
    separate, shared, zero = documents
    assert shared["log_likelihood"] > separate["log_likelihood"]
    assert zero["log_likelihood"] == pytest.approx(separate["log_likelihood"], abs=1e-6)
    covariance = shared["model"]["nugget_covariance_12"]
    error = shared["standard_errors"]["nugget_covariance_12"]
    assert covariance > 2 * error > 0
    values = {name: x for name, x in shared["model"].items() if name != "metric"}
    options = [word for name, x in values.items() for word in ("--parameter", f"{name}={x}")]
    status, out, err = run(
        *("log-likelihood", folder / "wide.csv", "--value", "log_zinc,om", *FAMILY, *options),
        *("--trend", "constant", "--json"),
    )
    assert status == 0, err
    found = json.loads(out)["log_likelihood"]
    assert found == pytest.approx(shared["log_likelihood"], rel=1e-12)
    one = ("fit", folder / "wide.csv", "--value", "log_zinc", "--nugget-covariance")
    status, _, err = run(*one)
    assert status == 2
    assert "nugget covariances need a family of several variables" in err


def test_nuggets_of_a_given_model_are_0_if_not_given(run, folder):
    given = [*("--value", "log_zinc,om"), *FAMILY, "--trend", "constant"]
    for name, numbers in {"variance": (0.5, 10), "range": (300, 200), "smoothness": (1, 1)}.items():
        for k, number in enumerate(numbers):
            given += ["--parameter", f"{name}_{k + 1}={number}"]
    known = run("log-likelihood", folder / "wide.csv", *given, "--json")
    zero = ["--parameter", "nugget_1=0", "--parameter", "nugget_2=0"]
    asked = run("log-likelihood", folder / "wide.csv", *given, *zero, "--json")
    assert known[0] == asked[0] == 0, known[2]
    same = [json.loads(out)["log_likelihood"] for _, out, _ in (known, asked)]
    assert same[0] == same[1]
    status, _, err = run("simulate", "--n", "9", *given[2:4], *given[6:])
    assert status == 2
    assert "draws models of one variable. Got family independent" in err


def test_intervals_name_the_variables(run, folder):
    about = (*FAMILY, *HELD, "--fix", "nugget_1=0.1", "--fix", "nugget_2=1")
    status, out, err = run(
        "fit", folder / "wide.csv", "--value", "log_zinc,om", *about, "--intervals", "wald"
    )
    assert status == 0, err
    after = out.partition("confidence intervals, Wald")[2]
    assert "variance of log_zinc" in after
    assert "variance 1" not in after


def test_a_map_needs_the_covariates_of_its_variable_only(run, folder, tmp_path):
    data = gx.read_table(folder / "wide.csv", values=("log_zinc", "om"), covariates=("sqrt_dist",))
    model = gx.Independent((0.5, 10), (300, 200), 0.5, (0.05, 1))
    trend = {"log_zinc": "sqrt_dist", "om": "constant"}
    fit = gx.fit(data, model, fixed=tuple(model.parameters()), trend=trend)
    assert np.isfinite(gx.predict_raster(fit, cells=4, variable="om").mean).all()
    with pytest.raises(gx.InvalidInput, match="needs the covariates sqrt_dist"):
        gx.predict_raster(fit, cells=4, variable="log_zinc")


def test_blocks_have_a_time_and_a_variable_as_in_python(run, tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.random((60, 2)), columns=["x", "y"])
    table["time"], table["element"] = random.integers(0, 3, 60) / 2, ["zinc", "lead"] * 30
    table["value"] = random.standard_normal(60)
    table.to_csv(tmp_path / "table.csv", index=False)
    data = gx.read_table(
        tmp_path / "table.csv", values="value", time="time", variable="element", crs="EPSG:28992"
    )
    kind = gx.family_of("separable-independent")
    model = kind.from_parameters({p.name: p.value for p in kind.declared_for(2)})
    fit = gx.fit(data, model, fixed=tuple(model.parameters()))
    fit.save(tmp_path / "fit.json")
    known = ("predict", tmp_path / "fit.json")
    there = table[["x", "y"]][:4]
    there.to_csv(tmp_path / "there.csv", index=False)
    asked = ("--time", "0.3", "--variable", "lead")
    output = tmp_path / "blocks.csv"
    status, _, err = run(
        *known, tmp_path / "there.csv", "--block", "0.1,0.2", *asked, "--output", output
    )
    assert status == 0, err
    found = pd.read_csv(output)
    expected = gx.predict(fit, there, block=(0.1, 0.2), time=0.3, variable="lead")
    np.testing.assert_allclose(found["mean"], expected.mean, rtol=1e-9)
    assert found["element"].tolist() == ["lead"] * 4
    # all variables without --variable
    status, out, err = run(
        *known, tmp_path / "there.csv", "--block", "0.1,0.2", "--time", "0.3", "--json"
    )
    assert status == 0, err
    assert [row["element"] for row in json.loads(out)["rows"]] == ["zinc", "lead"] * 4
    status, out, err = run(*known, "--grid", "3", "--block", "cell", *asked, "--json")
    assert status == 0, err
    raster = gx.predict_raster(fit, cells=3, block=True, time=0.3, variable="lead")
    means = [row["mean"] for row in json.loads(out)["rows"]]
    np.testing.assert_allclose(means, raster.mean.ravel(), rtol=1e-9)
    status, _, err = run(*known, tmp_path / "there.csv", "--block", "0.1,0.2")
    assert (status, "needs the time" in err) == (2, True)
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    shapes = [shapely.box(0.1, 0.1, 0.3, 0.4), shapely.box(0.5, 0.5, 0.8, 0.6)]
    frame = geopandas.GeoDataFrame({"time": [0.0, 0.5]}, geometry=shapes, crs="EPSG:28992")
    frame.to_file(tmp_path / "shapes.geojson")
    status, _, err = run(
        *known,
        tmp_path / "shapes.geojson",
        "--block",
        "polygons",
        "--variable",
        "lead",
        "--output",
        output,
    )
    assert status == 0, err
    found = pd.read_csv(output)
    expected = gx.predict(fit, block=shapes, time=[0.0, 0.5], variable="lead")
    np.testing.assert_allclose(found["mean"], expected.mean, rtol=1e-6)
