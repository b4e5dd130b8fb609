"""Commands in advice run as they are printed, whatever the columns are called."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

NAMES = [
    ("pH w", "soil depth"),
    ("Cd, mg/kg", "o'clock"),
    ('the "best" one', "rate (a,b)"),
    ("$HOME", "a;b|c"),
    ('"all" of it, twice', "x*"),
]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a table whose columns have these names, and go to its folder."""
    monkeypatch.chdir(tmp_path)

    def write(first, second, value="z", places=("x", "y"), text=False):
        random = np.random.default_rng(7)
        table = pd.DataFrame(random.uniform(0, 9, (40, 2)), columns=list(places))
        table[first], table[second] = random.normal(size=(2, 40))
        table[value] = table[first] - table[second] + 0.1 * random.normal(size=40)
        if text:
            table[second] = np.tile(["clay", "sand"], 20)
        table.to_csv("table.csv", index=False)

    return write


@pytest.mark.slow
@pytest.mark.parametrize("names", NAMES[1::3])
def test_the_next_command_of_explore_reads_the_same_columns(run, written, names):
    first, second = names
    written(first, second, value="lead, ppm", places=("East, m", "North, m"))
    listed = gx.data.names.joined
    status, out, err = run(
        *("explore", "table.csv", "--locations", listed(("East, m", "North, m"))),
        *("--value", listed(("lead, ppm",)), "--covariates", listed(names), "--json"),
    )
    assert status == 0, err
    words = shlex.split(json.loads(out)["command"])
    # a report takes seconds
    assert (words[0], words[-2]) == ("geomxp", "--report")
    status, out, err = run(*words[1:-2], "--fix", "smoothness=0.5")
    assert status == 0, err
    seen = gx.Fit.load("table-fit.json").observations
    assert (seen.covariate_names, seen.value_name) == (names, "lead, ppm")
    assert seen.location_names == ("East, m", "North, m")


@pytest.mark.slow
@pytest.mark.parametrize("names", NAMES)
def test_the_advice_for_covariates_of_text_runs(run, written, names):
    written(*names, text=True)
    listed = gx.data.names.joined(names)
    words = ("fit", "table.csv", "--value", "z", "--fix", "smoothness=0.5")
    status, _, err = run(*words, "--covariates", listed)
    assert (status, "write a formula" in err) == (2, True)
    advice = shlex.split(err[err.index("(--formula") + 1 : err.rindex(")")])
    for more in ((), ("--covariates", listed)):
        status, out, err = run(*words, *advice, *more, "--json")
        assert status == 0, err
        assert f"{names[1]}[T.sand]".replace('"', '\\"') in out


@pytest.mark.slow
def test_the_advice_without_a_value_runs(run, written):
    written("a", "b", value="c", places=("East, m", "North, m"))
    status, _, err = run("fit", "table.csv", "--fix", "smoothness=0.5", "--quiet")
    assert status == 2
    command = shlex.split(err[err.index("for example: ") + 13 : err.index(". The columns are")])
    status, _, err = run(*command[1:], "--output", "fit.json")
    assert status == 0, err
    assert gx.Fit.load("fit.json").observations.location_names == ("East, m", "North, m")


def test_a_shell_completes_a_name_with_a_comma_in_quotation_marks(written, run):
    from types import SimpleNamespace

    from geomxp.cli import options

    written("Cd, mg/kg", "b")
    about = SimpleNamespace(params={"table": "table.csv"}, args=[])
    assert options.columns(about, "b,C") == ['b,"Cd, mg/kg"']
