"""Help that teaches: every example in it runs; and what a shell completes."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
from reports import briefly
from terminals import Run

import geomxp as gx
from geomxp.cli import options

COMMANDS = {
    (command.__name__).replace("_", "-"): command
    for commands in options.COMMANDS.values()
    for command in commands
}


def examples(command):
    """Lines of a command's help that begin with geomxp, as a shell would take them."""
    text = inspect.getdoc(command).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("geomxp ")]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_of_the_help_runs(run, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # the benchmark sets it for its process
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines = examples(COMMANDS[name])
    assert len(lines) >= 2
    monkeypatch.setattr("geomxp.benchmarks.bench.COPIED_BYTES", 2**20)
    for line in lines:
        # fewer draws of a bootstrap take seconds instead of minutes
        words = ["4" if word == "499" else word for word in line]
        words += ["--n", "256"] if words == ["bench", "ceilings"] else []
        with briefly():
            status, out, err = run(*words)
        # predict says what its intervals are of, and where the observations are from
        known = re.compile(r"the observations are|% intervals of")
        told = [each for each in err.splitlines() if not known.search(each)]
        assert (status, told) == (0, []), line
        assert out
        outputs = {"--output", "--report", "--figure"}
        written = [line[k + 1] for k, word in enumerate(line) if word in outputs]
        assert all((tmp_path / file).stat().st_size for file in written)
    shown = run(name, "--help")[1]
    for line in lines:
        # as it is to be typed: not broken by the width of a terminal
        assert f"geomxp {shlex.join(line[:3])}"[:60] in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_options_stand_in_panels_and_say_what_they_do(run, name):
    status, out, _ = run(name, "-h")
    assert status == 0
    # all but --help belong somewhere
    default = out.partition("─ Options ─")[2].partition("╰")[0]
    assert [word for word in default.split() if word.startswith("--")] == ["--help"]
    assert "--json" in out
    assert "--quiet" in out
    for word in ("<str>", "<float>", "list["):
        assert word not in out.partition("─ Options ─")[2]


def test_commands_that_compute_alike_have_the_same_options():
    shared = (
        options.TABLE_OPTIONS,
        options.TREND_OPTIONS,
        options.MODEL_OPTIONS,
        options.METHOD_OPTIONS,
    )
    for name, groups in {
        "fit": (
            options.TABLE_OPTIONS,
            options.TREND_OPTIONS,
            options.SEARCH_OPTIONS,
            options.METHOD_OPTIONS,
        ),
        "log-likelihood": shared,
        "compare-models": (options.TABLE_OPTIONS,),
        "compare": (options.MODEL_OPTIONS,),
        "simulate": (options.MODEL_OPTIONS,),
    }.items():
        has = inspect.signature(COMMANDS[name]).parameters
        reference = {
            **inspect.signature(COMMANDS["fit"]).parameters,
            **inspect.signature(COMMANDS["log-likelihood"]).parameters,
        }
        for option in (option for group in groups for option in group):
            if option != "table":
                ours, theirs = (side[option].annotation for side in (has, reference))
                assert ours.__metadata__[0].param_decls == theirs.__metadata__[0].param_decls
                assert ours.__metadata__[0].help == theirs.__metadata__[0].help


def test_every_option_belongs_to_a_command():
    used = {name for command in COMMANDS.values() for name in inspect.signature(command).parameters}
    assert set(options.OPTIONS) == used - {"ctx"}


def test_commands_stand_in_groups_of_what_one_wants(run):
    status, out, _ = run("--help")
    assert status == 0
    rows = out.splitlines()
    titles = [
        next(k for k, row in enumerate(rows) if f"─ {group} ─" in row) for group in options.COMMANDS
    ]
    assert titles == sorted(titles)
    for title, commands in zip(titles, options.COMMANDS.values(), strict=True):
        for command in commands:
            name = command.__name__.replace("_", "-")
            row = next(k for k, row in enumerate(rows) if row.startswith(f"│ {name} "))
            assert max(t for t in titles if t < row) == title


def asked(*words):
    """Return the variables by which a shell asks what to propose for the last of some words."""
    line = shlex.join(["geomxp", *words[:-1]]) + " " + words[-1]
    about = {"COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    return about | {"_GEOMXP_COMPLETE": "complete_bash"}


@pytest.fixture
def complete(run, monkeypatch):
    """A function that returns what a shell would propose for the last of some words."""

    def complete(*words):
        with monkeypatch.context() as shell:
            for name, value in asked(*words).items():
                shell.setenv(name, value)
            status, out, err = run()
        assert (status, err) == (0, "")
        return out.split()

    return complete


def test_a_shell_can_be_taught(run, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    for shell in ("bash", "zsh", "fish"):
        status, out, err = run("--show-completion", shell)
        assert (status, err) == (0, "")
        assert f"_GEOMXP_COMPLETE=complete_{shell}" in out


@pytest.mark.slow
def test_a_shell_asks_a_process_of_its_own(tmp_path):
    code = "import sys; from geomxp.cli.main import main; sys.exit(main([]))"
    run = Run(["-c", code], tmp_path, **asked("compa"))
    assert run.finish() == (0, "")
    assert run.output.decode().split() == ["compare-models", "compare"]


def test_a_shell_completes_commands_data_sets_columns_and_files(complete, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wells.csv").write_text("east,north,depth\n1,2,3\n")
    (tmp_path / "wells.doc").write_text("")
    (tmp_path / "fit.json").write_text("{}")
    assert complete("compa") == ["compare-models", "compare"]
    assert complete("fit", "me") == ["meuse", "meuse_lime", "medium"]
    assert complete("fit", "we") == ["weak", "wells.csv"]
    assert complete("predict", "") == ["fit.json"]
    assert complete("fit", "wells.csv", "--value", "d") == ["depth"]
    (tmp_path / "brunnen.csv").write_text("Ost; Tiefe\n1,5;2,5\n")
    assert complete("fit", "brunnen.csv", "--value", "T") == ["Tiefe"]
    columns = complete("fit", "meuse", "--locations", "x,")
    assert set(columns) == {f"x,{name}" for name in header() if name != "x"}


def header():
    return gx.datasets.path("meuse").read_text().partition("\n")[0].split(",")


def test_words_and_columns_are_proposed_in_the_process_too(tmp_path, monkeypatch):
    from types import SimpleNamespace

    monkeypatch.chdir(tmp_path)
    at = lambda table: SimpleNamespace(params={"table": table}, args=[])  # noqa: E731
    assert options.among(("exact", "vecchia"))("v") == ["vecchia"]
    assert options.columns(at("meuse"), "log") == ["log_zinc"]
    assert options.columns(at(None), "x") == options.columns(at("no.csv"), "x") == []
    Path("folder").mkdir()
    Path("folder", "some.parquet").touch()
    assert options.tables("fol") == ["folder/"]
    assert options.tables("folder/") == ["folder/some.parquet"]
    # no Parquet file: nowhere to say so
    assert options.columns(at("folder/some.parquet"), "x") == []
    assert options.tables("nowhere/") == []
