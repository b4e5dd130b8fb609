import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.benchmarks import bench
from geomxp.cli.main import main
from geomxp.data import tables

HELD = ["--fix", "smoothness=0.5"]
MODEL = ["--variance", "0.6", "--range", "220", "--smoothness", "0.5", "--nugget", "0.06"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.json"
    assert main(["fit", "meuse", *HELD, "--output", str(path)]) == 0
    return path


def test_fit_prints_json_and_nothing_else(run):
    status, out, err = run("fit", "meuse", *HELD, "--json")
    assert status == 0
    assert err == ""
    document = json.loads(out)
    assert document["n"] == 155
    assert document["outcome"] == "CONVERGED"
    assert document["method"]["formats"] == {"fp64": 1}
    assert document["log_likelihood"] == pytest.approx(-99.128777624, abs=1e-6)
    assert document["table"]["locations"] == ["x", "y"]
    assert document["trend"]["names"] == ["intercept"]


def test_fit_prints_a_table_and_writes_the_fit(run, tmp_path):
    status, out, _ = run("fit", "meuse", *HELD, "--output", tmp_path / "fit.json")
    assert status == 0
    assert "effective range" in out
    assert gx.Fit.load(tmp_path / "fit.json").model.smoothness == 0.5


@pytest.mark.slow
def test_fit_of_a_file_is_the_fit_of_the_data_set(run, fitted):
    status, out, _ = run(
        "fit",
        gx.datasets.path("meuse"),
        "--locations",
        "x,y",
        "--value",
        "log_zinc",
        *HELD,
        "--json",
    )
    assert status == 0
    assert json.loads(out)["log_likelihood"] == gx.Fit.load(fitted).log_likelihood


def test_covariates_are_used(run):
    status, out, _ = run("fit", "meuse", "--covariates", "sqrt_dist", *HELD, "--json")
    document = json.loads(out)
    assert status == 0
    assert document["trend"]["names"] == ["intercept", "sqrt_dist"]
    assert document["log_likelihood"] == pytest.approx(-74.92046627, abs=1e-6)


@pytest.mark.slow
def test_failed_fit_is_one_line_and_status_1(run, tmp_path):
    output = tmp_path / "fit.json"
    status, out, err = run("fit", "meuse", *HELD, "--reml", "--strict", "--output", output)
    assert status == 1
    assert out == ""
    assert err.count("\n") == 1
    assert "AT_LIMIT: The log-likelihood approaches its supremum as the range" in err
    command = shlex.split(err.strip().partition(" Try: geomxp ")[2])
    assert not output.exists()
    assert run(*command)[0] == 0
    assert output.exists()


def test_a_fit_at_a_limit_is_a_warning_and_can_be_used(run, tmp_path):
    output = tmp_path / "fit.json"
    status, out, err = run("fit", "meuse", *HELD, "--reml", "--json", "--output", output)
    assert status == 0
    assert json.loads(out)["boundary"] == ["range"]
    assert err.count("AT_LIMIT: The log-likelihood approaches its supremum as the range") == 1
    fit = gx.Fit.load(output)
    assert fit.outcome.good
    assert not fit.outcome.attained
    near = gx.predict(fit, fit.observations.locations[:3] + 10.0)
    assert np.isfinite(near.variance).all()


def test_unfinished_fit_draws_a_warning(run):
    status, _, err = run("fit", "meuse", *HELD, "--evaluations", "4")
    assert status == 0
    assert err.startswith("warning: EVALUATION_LIMIT")


@pytest.mark.slow
def test_searches_come_to_the_same_maximum(run):
    values = []
    for search in ("scoring", "bobyqa", "lbfgs", "slsqp"):
        status, out, _ = run("fit", "meuse", *HELD, "--search", search, "--json")
        assert status == 0
        values.append(json.loads(out)["log_likelihood"])
    np.testing.assert_allclose(values, values[0], rtol=0, atol=1e-5)


def test_a_fallback_is_the_methods(run, tmp_path):
    refined = ["--accuracy", "1e-2", "--tile", "32", "--refine", "ir"]
    status, out, _ = run("log-likelihood", "meuse", *MODEL, *refined, "--fallback", "--json")
    assert status == 0
    method = gx.Exact(gx.by_tile_norm(1e-2), 32, refine="ir", fallback=True)
    expected = gx.log_likelihood(
        gx.datasets.load("meuse"), gx.Matern(0.6, 220.0, 0.5, 0.06), method
    )
    assert json.loads(out)["log_likelihood"] == expected.log_likelihood


@pytest.mark.slow
def test_quiet_leaves_the_result_and_errors(run, fitted, tmp_path):
    output = tmp_path / "fit.json"
    loud = run("fit", "meuse", *HELD, "--evaluations", "4", "--output", output)
    assert "fit written to" in loud[1]
    assert loud[2].startswith("warning: EVALUATION_LIMIT")
    status, out, err = run(
        *("fit", "meuse", *HELD, "--evaluations", "4", "--output", output, "--quiet")
    )
    assert (status, err) == (0, "")
    seconds = re.compile(r"in [\d.]+ s| Try: .*")
    lines = [seconds.sub("", line) for line in out.splitlines()]
    assert lines == [seconds.sub("", line) for line in loud[1].splitlines()[:-1]]
    silent = ["--output", tmp_path / "p.csv", "--quiet"]
    assert run("predict", fitted, "meuse", *silent) == (0, "", "")
    assert run("fit", "mewse", "--quiet")[2].count("\n") == 1


def test_log_likelihood_is_that_of_python(run):
    status, out, _ = run("log-likelihood", "meuse", *MODEL, "--trend", "constant", "--json")
    assert status == 0
    expected = gx.log_likelihood(
        gx.datasets.load("meuse"), gx.Matern(0.6, 220.0, 0.5, 0.06), trend="constant"
    )
    document = json.loads(out)
    assert document["log_likelihood"] == expected.log_likelihood
    keys = "log_likelihood log_determinant quadratic_form n formats promotions outcome seconds"
    assert set(keys.split()) <= set(document)


def test_predictions_follow_the_places_columns(run, fitted, tmp_path):
    places, output = tmp_path / "places.csv", tmp_path / "out.csv"
    places.write_text("name,x,y\na,181072,333611\nb,180000,332000\n")
    status, _, _ = run("predict", fitted, places, "--level", "0.9", "--output", output)
    assert status == 0
    found = pd.read_csv(output)
    assert list(found.columns[:7]) == ["name", "x", "y", "mean", "variance", "lower", "upper"]
    there = gx.predict(gx.Fit.load(fitted), [[181072, 333611], [180000, 332000]])
    np.testing.assert_allclose(found["mean"], there.mean, rtol=1e-15)
    np.testing.assert_allclose(found["upper"], there.interval(0.9)[1], rtol=1e-14)


def test_predictions_on_a_grid_as_json(run, fitted):
    status, out, _ = run("predict", fitted, "--grid", "5", "--json")
    document = json.loads(out)
    assert status == 0
    assert document["n"] == len(document["rows"])
    assert set(document["rows"][0]) >= {"x", "y", "mean", "variance", "lower", "upper"}


@pytest.mark.slow
def test_predict_refuses_a_table_that_has_changed(run, tmp_path):
    table, fit = tmp_path / "t.csv", tmp_path / "fit.json"
    table.write_bytes(gx.datasets.path("jura").read_bytes())
    columns = ["--locations", "x,y", "--value", "Co"]
    assert run("fit", table, *columns, *HELD, "--output", fit, "--no-embed")[0] == 0
    assert run("predict", fit, "jura_validation")[0] == 0
    table.write_text(table.read_text().replace("9.32", "9.33"))
    status, _, err = run("predict", fit, "jura_validation")
    assert status == 2
    assert "the table has changed since the fit" in err


def test_simulate_writes_a_field(run, tmp_path):
    path = tmp_path / "field.csv"
    arguments = ["--n", "25", "--variance", "1", "--range", "0.1", "--smoothness", "0.5"]
    assert run("simulate", *arguments, "--seed", "3", "--output", path)[0] == 0
    first = pd.read_csv(path)
    assert list(first.columns) == ["x", "y", "z"]
    assert run("simulate", *arguments, "--seed", "3", "--output", path)[0] == 0
    pd.testing.assert_frame_equal(first, pd.read_csv(path))
    status, out, _ = run("simulate", "--at", "meuse", *MODEL, "--draws", "2", "--json")
    assert status == 0
    assert set(json.loads(out)["rows"][0]) == {"x", "y", "z1", "z2"}


def test_help_and_version(run):
    assert run()[0] == 0
    status, out, _ = run("--help")
    assert status == 0
    for command in ("fit", "log-likelihood", "predict", "simulate", "info"):
        assert command in out
    assert run("--version")[1].strip() == f"geomxp {gx.__version__}"
    assert run("fit", "--help")[0] == 0


PLACES = "x,y\n1,2\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit"], "Missing argument"),
        (["fit", "nosuch.csv"], "nosuch.csv: no such file"),
        (["fit", "meuse", "--colour", "red"], "No such option: --colour: see geomxp fit --help."),
        (["fit", "meuse", "--valeu", "zinc"], "--valeu. Did you mean '--value'? See"),
        (["sing"], "No such command 'sing'"),
        (["prdict"], "No such command 'prdict'. Did you mean 'predict'? See geomxp --help."),
        (["fit", "mewse"], "no data set of this name. Did you mean 'meuse'?"),
        (["simulate", "--at", "Meuse", *MODEL], "Did you mean 'meuse'?"),
        (["fit", "meuse", "--locations", "x,q"], "no column 'q'"),
        (["fit", "meuse", "--value", "gold"], "no column 'gold'"),
        (["fit", "meuse", "--value", "zink"], "sqrt_dist. Did you mean 'zinc'?"),
        (["fit", "meuse", "--method", "vechia"], "Got 'vechia'. Did you mean 'vecchia'?"),
        (
            ["fit", "meuse", "--search", "newton"],
            "--search must be scoring, bobyqa, lbfgs or",
        ),
        (["fit", "meuse", "--fallback"], "--fallback needs --refine ir, cg or gmres"),
        (
            ["fit", "meuse", "--method", "vecchia", "--fallback"],
            "--fallback cannot be used with --method",
        ),
        (
            ["fit", "meuse", "--method", "vecchia", "--accuracy", "0"],
            "--accuracy cannot be used with",
        ),
        (["bench", "choleski"], "Got 'choleski'. Did you mean 'cholesky'?"),
        (["fit", "meuse", "--tolerance", "0"], "`tolerance` must be greater than 0"),
        (["fit", "meuse", "--starts", "0"], "`starts` must be a whole number"),
        (["fit", "meuse", "--fix", "smoothness"], "--fix needs name=value"),
        (["fit", "meuse", "--fix", "smoothness=rough"], "'rough' is not a number"),
        (["fit", "meuse", "--fix", "smoothness=-1"], "`smoothness` must be greater than 0"),
        (["fit", "meuse", "--start", "range=0"], "`range` must be greater than 0"),
        (["fit", "meuse", "--bounds", "range=1"], "--bounds needs name=lower:upper"),
        (["fit", "meuse", "--bounds", "range=1:2", "--start", "range=9"], "lies outside"),
        (
            ["fit", "meuse", "--trend", "cubic"],
            "linear or covariates. Got 'cubic'",
        ),
        (["fit", "meuse", "--metric", "taxi"], "`metric` must be one of"),
        (["fit", "meuse", "--metric", "chordal"], "latitudes must lie between"),
        (["fit", "meuse", "--starts", "many"], "Invalid value for '--starts'"),
        (["fit", "meuse", "--starts=many"], "Got 'many': see geomxp fit --help."),
        (["fit", "meuse", "--locations", "x", "y"], "by commas without spaces: x,y"),
        (["fit", "meuse", "--on", "moon"], '`on` must be "cpu"'),
        (["fit", "meuse", "--output", "no/where/fit.json"], "does not exist"),
        (["log-likelihood", "meuse", "--variance", "1"], "--range and --smoothness must be given"),
        (["log-likelihood", "meuse", *MODEL[:-1], "-3"], "`nugget` must be at least 0"),
        (["predict", "nosuch.json", "meuse"], "nosuch.json: no such file"),
        (["simulate", *MODEL], "give either --n or --at"),
        (["simulate", *MODEL, "--n", "10", "--layout", "grid"], "square number"),
        (["simulate", *MODEL, "--n", "9", "--seed", "-1"], "Invalid value for '--seed'"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(run, arguments, message):
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert message in err
    assert err.startswith("geomxp: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,z\n1,2\n", "no column 'y'"),
        ("x,y\n1,two\n", "row 1, column 'y': 'two' is not a number"),
        ("x,y\n1,\n", "Got nan in row 1, column 'y'"),
        ("x,y,mean\n1,2,3\n", "column 'mean' has the name of a result"),
    ],
)
def test_bad_places_are_one_line_and_status_2(run, fitted, tmp_path, text, message):
    places = tmp_path / "places.csv"
    places.write_text(text)
    status, _, err = run("predict", fitted, places)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1


def test_missing_gpu_is_one_line_and_status_1(run, monkeypatch):
    monkeypatch.setattr("geomxp.runtime.devices.gpu_count", lambda: 0)
    status, _, err = run("fit", "meuse", "--on", "gpu")
    assert status == 1
    assert "this machine has 0" in err


def test_duplicates_without_nugget_are_named(run, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x,y,z\n0,0,1\n1,0,2\n0,1,3\n1,0,5\n2,2,2\n")
    columns = ["--locations", "x,y", "--value", "z"]
    status, _, err = run("fit", table, *columns, "--fix", "nugget=0")
    assert status == 2
    assert "rows 2 and 4 are at the same location" in err
    held = ["--variance", "1", "--range", "1", "--smoothness", "0.5"]
    status, _, err = run("log-likelihood", table, *columns, *held)
    assert status == 2
    assert "rows 2 and 4 are at the same location" in err


def test_outputs_never_destroy_an_input_or_each_other(run, tmp_path):
    table = tmp_path / "t.csv"
    table.write_bytes(gx.datasets.path("jura").read_bytes())
    columns = ["--locations", "x,y", "--value", "Co", *HELD]
    status, _, err = run("fit", table, *columns, "--report", table)
    assert status == 2
    assert "is an input" in err
    assert table.read_bytes() == gx.datasets.path("jura").read_bytes()
    same = tmp_path / "o.json"
    status, _, err = run("fit", table, *columns, "--output", same, "--report", same)
    assert status == 2
    assert "is another output" in err
    status, _, err = run("fit", table, *columns, "--checkpoint", "/dev/full")
    assert status == 2
    assert "not a regular file" in err


def test_a_report_that_cannot_be_written_loses_no_estimate(run, tmp_path, monkeypatch):
    def full(*_, **__):
        raise gx.GeomxpError("r.html: cannot be written (No space left on device).")

    monkeypatch.setattr("geomxp.cli.commands.report", full)
    status, out, err = run("fit", "meuse", *HELD, "--report", tmp_path / "r.html")
    assert status == 1
    assert "log-likelihood" in out
    assert err == "geomxp: r.html: cannot be written (No space left on device).\n"


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_predictions_in_binary_files_are_read_back(run, fitted, tmp_path, ending):
    places, output = tmp_path / "places.csv", tmp_path / f"out.{ending}"
    places.write_text("name,x,y\na,181072,333611\nb,180000,332000\n")
    assert run("predict", fitted, places, "--output", output)[0] == 0
    frame = tables.read_frame(output)
    assert list(frame["name"]) == ["a", "b"]
    np.testing.assert_array_equal(frame["x"], [181072, 180000])
    assert frame["mean"].dtype == np.float64


def test_a_traceback_is_shown_only_with_debug(run, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("the sky fell")

    monkeypatch.setattr("geomxp.cli.commands.fit_with", broken)
    status, _, err = run("fit", "meuse")
    assert status == 1
    assert err == "geomxp: RuntimeError: the sky fell (an error in geomxp; --debug shows where)\n"
    with pytest.raises(RuntimeError):
        run("fit", "meuse", "--debug")


@pytest.mark.slow
def test_module_and_command_are_the_same():
    run = subprocess.run(
        [sys.executable, "-m", "geomxp", "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == f"geomxp {gx.__version__}"


@pytest.mark.slow
def test_bench_prints_rates_beside_baselines(run, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    status, out, _ = run("bench", "likelihood", "--n", "64", "--json")
    assert status == 0
    rows = {row["what"]: row for row in json.loads(out)["likelihood"]}
    assert rows["dpotrf"]["times_dpotrf"] == 1.0
    assert rows["log-likelihood"]["seconds"] > 0
    assert run("bench", "nothing")[0] == 2
    monkeypatch.setattr(bench, "COPIED_BYTES", 2**20)
    status, out, _ = run("bench", "ceilings", "--n", "64", "--json")
    rows = json.loads(out)["ceilings"]
    assert status == 0
    assert {row["cores"] for row in rows} == {1}
    products = {row["what"]: row for row in rows if row["unit"] == "GFLOP/s"}
    assert {what[:4] for what in products} >= {"fp64", "fp32"}
    for row in products.values():
        assert row["rate"] == pytest.approx(2 * 64**3 / row["seconds"] / 1e9)
    assert rows[-1]["rate"] == pytest.approx(2 * 2**20 / rows[-1]["seconds"] / 1e9)
    for what, names in (("cholesky", "accuracy times_dpotrf"), ("nested", "layers times_library")):
        status, out, _ = run("bench", what, "--n", "200", "--json")
        assert status == 0
        assert all(set(names.split()) <= set(row) for row in json.loads(out)[what])
