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
