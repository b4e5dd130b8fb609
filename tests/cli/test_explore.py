import json
import shlex

import numpy as np
import pytest

import geomxp as gx


@pytest.fixture
def wells(tmp_path, monkeypatch):
    """A messy table: skewed values, sentinels, replicates and coordinates in degrees."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    lon, lat = 5 + rng.random(80), 50 + rng.random(80)
    model = gx.Matern(1.0, 20.0, 0.5, 0.1)
    values = np.exp(gx.simulate(model, np.c_[lon, lat], metric="chordal", seed=1)[0])
    lines = [f"{x:.4f};{y:.4f};{z:.3f}" for x, y, z in zip(lat, lon, values, strict=True)]
    lines[4] = "50.1;5.2;-999"
    lines[9] = lines[8][: lines[8].rindex(";")] + ";0.5"
    (tmp_path / "wells.csv").write_text("\n".join(["Latitude;Longitude;lead", *lines]) + "\n")
    return ("wells.csv", "--locations", "Latitude,Longitude", "--value", "lead")


def test_json_is_that_of_the_library(run):
    status, out, err = run("explore", "meuse", "--value", "zinc", "--json")
    assert (status, err) == (0, "")
    expected = gx.explore(gx.datasets.load("meuse", values="zinc")).to_dict()
    found = json.loads(out)
    for name in expected.keys() - {"costs", "findings", "call"}:
        assert found[name] == json.loads(json.dumps(expected[name])), name
    assert [row["method"] for row in found["costs"]] == ["exact", "vecchia, 30 neighbours"]


def test_text_has_the_findings_and_the_next_command(run):
    status, out, err = run("explore", "jura", "--value", "Cd", "--trend", "linear")
    assert (status, err) == (0, "")
    assert out.startswith("259 observations")
    assert "Suggested transformation: log" in out
    assert "trend linear, distances in km" in out
    assert "geomxp fit jura --value Cd --trend linear --transform log --output" in out


def test_a_formula_is_the_trend_of_the_variograms_and_of_the_next_command(run):
    status, out, _ = run("explore", "meuse", "--formula", "sqrt_dist", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["variogram"]["trend"] == "sqrt_dist"
    assert "--formula sqrt_dist" in found["command"]


@pytest.mark.slow
def test_a_messy_table_is_explored_and_the_next_command_fits_it(run, wells):
    status, out, err = run("explore", *wells, "--json")
    assert status == 0
    found = json.loads(out)
    assert found["sentinels"] == {"lead": [{"number": -999.0, "rows": 1}]}
    assert found["duplicates"] == {"rows": 1, "same": 0}
    assert (found["metric"], found["unit"], found["suggestion"]) == ("chordal", "km", "log")
    # the findings have the sentinels and duplicates; the exchange of columns is said once
    assert err.count("warning:") == 1
    assert "Longitude,Latitude" in err
    words = shlex.split(found["command"])
    for option in (
        ("--locations", "Longitude,Latitude"),
        ("--missing", "-999"),
        ("--duplicates", "keep"),
    ):
        assert words[words.index(option[0]) + 1] == option[1]
    assert "--drop-missing" in words
    status, out, err = run(*words[1:], "--fix", "smoothness=0.5")
    assert status in (0, 1)
    assert "79 observations at 78 locations" in out
    assert "missing" not in err


@pytest.mark.slow
def test_a_report_is_written_and_named(run, wells, tmp_path):
    status, out, _ = run("explore", *wells, "--report", "lead.html")
    assert status == 0
    assert out.endswith("report written to lead.html\n")
    text = (tmp_path / "lead.html").read_text("utf-8")
    assert "Exploration of lead" in text
    assert "geomxp explore wells.csv" in text


@pytest.mark.slow
def test_many_rows_are_sampled_with_the_seed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).random((2100, 3)).round(4).tolist()
    text = "\n".join(["x,y,z", *(",".join(map(str, row)) for row in rows)])
    (tmp_path / "many.csv").write_text(text)
    words = ("explore", "many.csv", "--locations", "x,y", "--value", "z", "--json")
    found = [json.loads(run(*words, "--seed", seed)[1])["variogram"] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert (found[0]["locations"], found[0]["total"]) == (2000, 2100)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no.csv",), "no.csv"),
        (("meuse", "--value", "gold"), "gold"),
        (("meuse", "--trend", "cubic"), "--trend must be"),
        (("meuse", "--trend", "linear", "--formula", "elev"), "only one of --trend and --formula"),
        (("meuse", "--report", "nowhere/r.html"), "nowhere/r.html"),
        (("meuse", "--seed", "-1"), "--seed"),
        (("meuse", "--duplicates", "merge"), "--duplicates must be"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run, words, said):
    status, out, err = run("explore", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_rows_without_a_number_are_left_out_and_counted(run, tmp_path):
    rng = np.random.default_rng(3)
    rows = [f"{x:.3f},{y:.3f},{z:.3f}" for x, y, z in rng.random((30, 3))]
    path = tmp_path / "holes.csv"
    path.write_text("\n".join(["x,y,z", *rows]) + "\n")
    assert "--drop-missing" not in run("explore", path, "--value", "z")[1]
    rows[4], rows[8] = "0.1,0.2,", "0.1,0.2,NA"
    path.write_text("\n".join(["x,y,z", *rows]) + "\n")
    status, out, err = run("explore", path, "--value", "z")
    assert (status, err.count("warning")) == (0, 0)
    assert "28 observations" in out
    assert "2 rows have no number in a used column: left out" in out
    assert "--value z --drop-missing" in out


@pytest.mark.parametrize(
    ("power", "header", "option"),
    [
        (1, "x,y,z,z_se", "--error-variance 'I(z_se ** 2)'"),
        (1, "x,y,z,variance", "--error-variance variance"),
        (np.exp, "x,y,z,z_se", "--error-variance 'I(z_se ** 2 / z ** 2)'"),
        (np.exp, "x,y,z,z_var", "--error-variance 'I(z_var / z ** 2)'"),
    ],
)
def test_columns_that_may_hold_errors_are_advised_as_an_option_that_works(
    run, tmp_path, monkeypatch, power, header, option
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    values = 10 + 2 * rng.standard_normal(60)
    values = np.exp(values / 3) if power is np.exp else values
    rows = zip(*rng.random((2, 60)), values, 0.1 + 0.1 * rng.random(60), strict=True)
    text = "\n".join(",".join(f"{number:.4f}" for number in row) for row in rows)
    (tmp_path / "e.csv").write_text(f"{header}\n{text}\n")
    status, out, _ = run("explore", "e.csv", "--value", "z")
    assert status == 0
    assert f"({option})" in " ".join(out.split())
    # the option is part of the next command once it is given
    status, out, _ = run("explore", "e.csv", "--value", "z", *shlex.split(option))
    assert status == 0
    assert option in out[out.index("Run next:") : out.index("In Python:")]
    assert "may hold" not in out
