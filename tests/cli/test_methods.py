"""The command line's words for where and how to compute: --method, --memory, --on, --refine."""

import json

import numpy as np
import pytest

import geomxp as gx
from geomxp.benchmarks import batched, bench

MEUSE = ["meuse", "--variance", "0.6", "--range", "220", "--smoothness", "0.5", "--nugget", "0.06"]
PLACES = [[179500.0, 331000.0], [180000.0, 332000.0]]


def log_likelihood(run, *options):
    status, out, err = run("log-likelihood", *MEUSE, *options, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_vecchia_with_all_neighbours_is_the_exact_likelihood(run):
    exact = log_likelihood(run, "--trend", "constant")
    all_before = log_likelihood(
        run, "--trend", "constant", "--method", "vecchia", "--neighbours", 154
    )
    few = log_likelihood(run, "--trend", "constant", "--method", "vecchia", "--neighbours", 3)
    assert all_before["log_likelihood"] == pytest.approx(exact["log_likelihood"], rel=1e-12)
    assert few["log_likelihood"] != pytest.approx(exact["log_likelihood"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [["--memory", "1MB"], ["--device-memory", "1MB"], ["--on", "cpu,cpu"]],
    ids=lambda words: words[0],
)
def test_where_the_tiles_lie_changes_no_bit(run, place, tmp_path):
    here = log_likelihood(run, "--tile", 16)
    there = log_likelihood(run, "--tile", 16, *place)
    assert there["log_likelihood"] == here["log_likelihood"]


def test_scratch_files_are_removed_when_all_is_done(run, tmp_path):
    log_likelihood(run, "--tile", 16, "--memory", "1MB", "--scratch", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["ir", "cg", "gmres"])
def test_refined_quadratic_forms_are_fp64s(run, method):
    exact = log_likelihood(run)
    refined = log_likelihood(run, "--accuracy", "1e-4", "--tile", 32, "--refine", method)
    assert refined["quadratic_form"] == pytest.approx(exact["quadratic_form"], rel=1e-12)
    assert refined["refinement"]["method"] == method
    assert log_likelihood(run, "--refine", "none")["refinement"] is None


def test_a_fit_by_vecchia_is_saved_and_predicts(run, tmp_path):
    status, out, _ = run(
        *("fit", "meuse", "--fix", "smoothness=0.5", "--method", "vecchia", "--neighbours", 20),
        *("--output", tmp_path / "fit.json", "--json"),
    )
    document = json.loads(out)
    assert status == 0
    assert document["method"]["name"] == "vecchia"
    assert document["method"]["neighbours"] == 20
    fit = gx.Fit.load(tmp_path / "fit.json")
    places = tmp_path / "places.csv"
    places.write_text("x,y\n" + "\n".join(f"{x},{y}" for x, y in PLACES) + "\n")
    status, out, _ = run("predict", tmp_path / "fit.json", places, "--neighbours", 154, "--json")
    assert status == 0
    found = [row["mean"] for row in json.loads(out)["rows"]]
    np.testing.assert_allclose(found, gx.predict(fit, PLACES, neighbours=154).mean, rtol=1e-12)


def test_compare_puts_neighbours_beside_accuracies(run):
    status, out, _ = run(
        "compare",
        *MEUSE,
        "--accuracies",
        "1e-6",
        "--tile",
        32,
        "--neighbours",
        "5,20,154",
        "--json",
    )
    rows = json.loads(out)["rows"]
    assert status == 0
    assert [row["accuracy"] for row in rows] == [1e-6, None, None, None]
    assert [row.get("neighbours") for row in rows] == [None, 5, 20, 154]
    kl = [row["kl"] for row in rows[1:]]
    assert kl[0] > kl[1] > abs(kl[2])
    assert abs(kl[2]) < 1e-8
    status, out, _ = run("compare", *MEUSE, "--neighbours", "5,20")
    assert status == 0
    assert "neighbours" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "nearest"], "--method must be auto, exact or vecchia"),
        (["--method", "exact", "--neighbours", "5"], "--neighbours needs --method vecchia"),
        (["--neighbours", "5", "--tile", "5"], "--tile for --method exact: leave one of them out"),
        (["--method", "vecchia", "--tile", "5"], "--tile cannot be used with --method vecchia"),
        (
            ["--method", "vecchia", "--memory", "1GB"],
            "--memory cannot be used with --method vecchia",
        ),
        (["--method", "vecchia", "--neighbours", "-1"], "`neighbours` must be"),
        (["--memory", "much"], "`memory` must be a size"),
        (["--memory", "1MB", "--device-memory", "1MB"], "cannot both be given"),
        (["--scratch", "/tmp"], "give both"),
        (["--memory", "1MB", "--scratch", "/no/such/place"], "cannot be used"),
        (["--memory", "10kB"], "need at least"),
        (["--on", "cpu,gpu"], ""),
        (["--refine", "qmr"], "`refine` must be None or one of"),
    ],
)
def test_words_that_do_not_fit_are_one_line(run, options, words):
    status, out, err = run("log-likelihood", *MEUSE, *options)
    assert status in (1, 2)
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_wrong_numbers_of_neighbours_are_named(run):
    status, _, err = run("compare", *MEUSE, "--neighbours", "5,many")
    assert (status, err.count("\n")) == (2, 1)
    assert "Got 'many'" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["ceilings", "--smoothness", "1"], "has no covariances: leave out --smoothness"),
        (["matern", "--tune"], "--tune is for `bench batched`"),
        (["matern", "--on", "gpu"], "`bench matern` runs on the CPU: leave out --on. Got --on gpu"),
        (["nested", "--on", "tpu"], '`on` must be "cpu", "gpu" or "gpu:N". Got \'tpu\''),
        (["cholesky", "--on", "gpu:0,gpu:1"], "Got 'gpu:0,gpu:1'"),
    ],
)
def test_what_a_benchmark_does_not_know_is_refused(run, options, words):
    status, out, err = run("bench", *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err


ON_A_GPU = ("ceilings", "cholesky", "nested", "batched", "likelihood")


@pytest.mark.parametrize("what", ON_A_GPU)
def test_a_missing_gpu_is_one_line_before_anything_is_timed(run, what, monkeypatch):
    def missing():
        raise gx.MissingDevice('on="gpu" needs CuPy')

    monkeypatch.setattr("geomxp.runtime.devices.gpu_count", missing)
    status, out, err = run("bench", what, "--on", "gpu")
    assert (status, out, err) == (1, "", 'geomxp: on="gpu" needs CuPy\n')
    monkeypatch.setattr("geomxp.runtime.devices.gpu_count", lambda: 1)
    status, out, err = run("bench", what, "--on", "gpu:1")
    assert (status, out) == (1, "")
    assert "needs GPU number 1; this machine has 1" in err


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("what", ON_A_GPU[1:])
def test_a_gpu_is_timed_beside_its_own_library(run, what, monkeypatch):
    interleaved = bench.interleaved
    for module in (batched, bench):
        monkeypatch.setattr(
            module, "interleaved", lambda candidates, _, *rest: interleaved(candidates, 1, *rest)
        )
    n = 8 if what == "batched" else 128
    status, out, _ = run("bench", what, "--n", n, "--on", "gpu", "--json")
    rows = json.loads(out)[what]
    assert status == 0
    assert all(row["seconds"] > 0 for row in rows)
    names = {"cholesky": "times_dpotrf", "nested": "times_library", "batched": "times_cupy"}
    assert all(names.get(what, "times_dpotrf") in row for row in rows)


@pytest.mark.gpu
def test_ceilings_of_a_gpu_have_all_arithmetics(monkeypatch):
    monkeypatch.setattr(bench, "COPIED_BYTES", 2**16)
    rows = bench.ceilings(32, 1, on="gpu")
    assert [row["what"] for row in rows] == [
        *("fp64, cuBLAS", "fp32, cuBLAS", "fp16, matrix units", "bf16, matrix units", "copy"),
    ]
    assert all(row["rate"] > 0 for row in rows)
