"""`geomxp compare` and the options that choose formats."""

import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.cli.commands import adding
from geomxp.cli.main import main
from geomxp.plots import comparisons

MODEL = ["--variance", "1", "--range", "0.1", "--smoothness", "0.5"]
MEUSE = ["meuse", "--variance", "0.6", "--range", "220", "--smoothness", "0.5", "--nugget", "0.06"]


def run(capsys, *arguments):
    status = main(list(arguments))
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_compare_prints_what_the_contract_names(capsys):
    status, out, _ = run(
        capsys,
        "compare",
        "--n",
        "150",
        *MODEL,
        "--accuracies",
        "1e-4,1e-8",
        "--tile",
        "30",
        "--json",
    )
    assert status == 0
    document = json.loads(out)
    assert document["n"] == 150
    assert {"log_determinant", "seconds"} <= set(document["reference"])
    assert [row["accuracy"] for row in document["rows"]] == [1e-4, 1e-8]
    for row in document["rows"]:
        names = "formats bytes kl kl_log_determinant log_determinant_error quadratic_form_error"
        assert set(f"{names} promotions seconds speedup accuracy".split()) <= set(row)
        assert sum(row["formats"].values()) == 15
        assert row["quadratic_form_error"] is None
        assert row["kl_log_determinant"] == pytest.approx(row["log_determinant_error"] / 2)
    coarse, fine = document["rows"]
    assert coarse["bytes"] < fine["bytes"]
    assert coarse["kl"] > fine["kl"] > -1e-10


def test_compare_of_a_table_tells_the_error_of_the_quadratic_form(capsys):
    status, out, _ = run(capsys, "compare", *MEUSE, "--tile", "31", "--trend", "constant", "--json")
    assert status == 0
    seen = gx.datasets.load("meuse")
    model = gx.Matern(0.6, 220, 0.5, 0.06)
    exact = gx.log_likelihood(seen, model, trend="constant")
    document = json.loads(out)
    assert document["reference"]["quadratic_form"] == pytest.approx(exact.quadratic_form, rel=1e-12)
    row = document["rows"][0]
    mixed = gx.log_likelihood(
        seen, model, gx.Exact(gx.by_tile_norm(1e-5), tile=31), trend="constant"
    )
    assert row["quadratic_form_error"] == pytest.approx(
        mixed.quadratic_form - exact.quadratic_form, rel=1e-5
    )
    assert row["formats"] == mixed.precision_map.counts()


def test_compare_writes_a_table_and_a_figure(capsys, tmp_path):
    table, figure = tmp_path / "compare.csv", tmp_path / "compare.png"
    status, out, _ = run(
        capsys,
        *("compare", "--n", "120", *MODEL, "--kls", "1e-2,1e-5"),
        *("--tile", "30", "--output", str(table), "--figure", str(figure)),
    )
    assert status == 0
    frame = pd.read_csv(table)
    assert len(frame) == 2
    assert (frame["kl"] <= frame["kl_target"]).all()
    assert str(table) in out
    assert figure.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_compare_and_log_likelihood_take_tiles_of_low_rank(capsys):
    words = ("compare", "--n", "800", *MODEL, "--kls", "1e-2", "--low-rank", "--tile", "100")
    status, out, _ = run(capsys, *words, "--json")
    assert status == 0
    row = json.loads(out)["rows"][0]
    assert row["formats"] == {"fp64": 8, "fp32 low rank": 28}
    assert row["kl"] < row["kl_target"] == row["predicted_kl"] == 1e-2
    words = ("log-likelihood", "medium", *MODEL, "--kl", "1e-6", "--low-rank")
    status, out, _ = run(capsys, *words, "--json")
    assert status == 0
    document = json.loads(out)
    seen = gx.datasets.load("medium")
    exact = gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5)).log_likelihood
    assert document["log_likelihood"] == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "--n", "50", *MODEL, "--low-rank"), "--low-rank needs targets"),
        (("log-likelihood", *MEUSE, "--low-rank"), "--low-rank needs a target"),
        (
            ("log-likelihood", *MEUSE, "--kl", "1e-3", "--low-rank", "--device-memory", "1GB"),
            "device_memory",
        ),
        (("compare", *MODEL), "either a TABLE or --n"),
        (("compare", "--n", "50", *MODEL, "--accuracies", "x"), "'x' is not a number"),
        (("compare", "--n", "50", *MODEL, "--accuracies", "0"), "positive"),
        (("compare", "--n", "50", *MODEL, "--kls", "-1"), "positive"),
        (("compare", "--n", "50", *MODEL, "--layers", "fp12"), "fp12"),
        (("compare", "--n", "50", *MODEL, "--tile", "51"), "Got tile=51 for 50 locations"),
        (("log-likelihood", *MEUSE, "--kl", "1e-3", "--accuracy", "1e-8"), "--accuracy and --kl"),
        (("log-likelihood", *MEUSE, "--tile", "0"), "Got tile=0"),
        (("compare", "--n", "50", *MODEL, "--accuracies", ","), "need a number or a format"),
        (("compare", "--n", "50", *MODEL, "--trend", "constant"), "--trend needs a TABLE"),
        (("compare", "--n", "50", *MODEL, "--figure", "x.txt"), "must end with .png"),
        (("compare", "--n", "50", *MODEL, "--layers", "fp32", "--figure", "x.png"), "one of them"),
    ],
)
def test_wrong_options_get_one_line(capsys, arguments, words):
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.slow
def test_a_fit_in_mixed_formats_says_so_and_predicts_with_them(capsys, tmp_path):
    path = tmp_path / "fit.json"
    status, out, _ = run(
        capsys,
        "fit",
        "meuse",
        "--accuracy",
        "1e-8",
        "--tile",
        "40",
        "--output",
        str(path),
        "--json",
    )
    assert status == 0
    method = json.loads(out)["method"]
    assert method["accuracy"] == 1e-8
    assert method["tile"] == 40
    assert sum(method["formats"].values()) == 10
    assert len(method["formats"]) > 1
    fit = gx.Fit.load(path)
    assert fit.method == gx.Exact(gx.by_tile_norm(1e-8), tile=40)
    exact = gx.fit(gx.datasets.load("meuse"), progress=False)
    assert fit.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-5)
    there, here = (gx.predict(f, [[180000, 332000]]) for f in (fit, exact))
    np.testing.assert_allclose(there.mean, here.mean, rtol=1e-3)


def test_every_rule_survives_a_saved_fit(tmp_path):
    seen = gx.datasets.load("meuse").subset(np.arange(60))
    model = gx.Matern(0.6, 220, 0.5, 0.06)
    fixed = ("variance", "range", "smoothness", "nugget")
    for rule in (
        gx.uniform("fp32"),
        gx.by_band(("fp32", 1), "fp16"),
        gx.by_tile_norm(1e-6, scale=False),
        gx.layered("fp16", "fp32"),
        gx.for_divergence(1e-3),
    ):
        fit = gx.fit(seen, model, gx.Exact(rule, tile=20), fixed=fixed, progress=False)
        fit.save(tmp_path / "fit.json")
        assert gx.Fit.load(tmp_path / "fit.json").method == fit.method


def test_a_rule_of_the_callers_own_is_used_and_not_saved_as_another(tmp_path):
    def mine(norms):
        return gx.uniform("fp32")(norms)

    seen = gx.datasets.load("meuse").subset(np.arange(60))
    fixed = ("variance", "range", "smoothness", "nugget")
    model = gx.Matern(0.6, 220, 0.5, 0.06)
    fit = gx.fit(seen, model, gx.Exact(mine, tile=20), fixed=fixed, progress=False)
    assert fit.formats == {"fp32": 6}
    fit.save(tmp_path / "fit.json")
    with pytest.raises(gx.InvalidInput, match="a precision function of the caller"):
        gx.Fit.load(tmp_path / "fit.json")


def test_the_picture_of_a_map_has_a_cell_for_every_tile():
    formats = gx.layered("fp16", "fp32")(np.ones((4, 4)))
    ax = comparisons.precision_map(formats)
    drawn = ax.get_images()[0].get_array()
    assert drawn.shape == (4, 4)
    assert np.isfinite(drawn.filled(np.nan)).sum() == 10
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["FP64, 4", "FP32, 2", "FP16, 4"]


@pytest.mark.slow
def test_a_fit_in_coarse_formats_converges_and_says_how_far_its_estimates_shift():
    random = np.random.default_rng(3)
    places = random.random((300, 2))
    model = gx.Matern(1.0, 0.1, 0.5, 0.05)
    seen = gx.Observations(places, gx.simulate(model, places, seed=3)[0])
    exact = gx.fit(seen, model, fixed=("smoothness",), progress=False)
    coarse = gx.Exact(gx.for_divergence(1e-2), tile=47)
    mixed = gx.fit(seen, model, coarse, fixed=("smoothness",), progress=False)
    assert mixed.divergence.met
    shift = f"may be as large as {mixed.divergence.shift:.1g} standard errors"
    assert shift in mixed.outcome.message
    assert "tiles: " in str(mixed)
    assert "tiles: " not in str(exact)
    scatter = mixed.divergence.scatter
    assert abs(mixed.log_likelihood - exact.log_likelihood) < 5 * scatter


def test_promotions_are_a_warning():
    seen = gx.datasets.load("meuse").subset(np.arange(100))
    method = gx.Exact(gx.by_tile_norm(1e-2), tile=20)
    with pytest.warns(gx.GeomxpWarning, match="tiles were promoted"):
        gx.log_likelihood(seen, gx.Matern(1.0, 3000.0, 2.5, 1e-6), method)


def test_a_large_divergence_leads_to_formats_chosen_by_divergence(capsys, tmp_path):
    words = ["compare", "--n", "600", "--variance", "1", "--range", "0.210158"]
    words += ["--smoothness", "1.5", "--tile", "100", "--accuracies", "1e-4,1e-5"]
    status, out, err = run(capsys, *words, "--output", str(tmp_path / "rows.csv"), "--json")
    assert status == 0
    worst = max(json.loads(out)["rows"], key=lambda row: row["kl"])
    assert worst["kl"] > 0.01
    message = " ".join(err.split())
    assert f"the divergence at ε = {worst['accuracy']:g} is {worst['kl']:.2g} nats" in message
    command = message[message.index("geomxp compare") :].split()[1:]
    assert command == [*words[:-2], "--json", "--kls", "1e-3"]
    assert adding(["--kl", "1"], ["a", "--", "b.csv"]) == ["a", "--kl", "1", "--", "b.csv"]
    status, out, err = run(capsys, *command)
    assert status == 0
    assert json.loads(out)["rows"][0]["kl"] < 1e-3
    assert "divergence at" not in err
