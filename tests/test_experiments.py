import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def git(*words, cwd):
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path):
    """A clone of this repository, whose experiments import its own package."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is not a git repository")
    git("clone", "--quiet", "--no-hardlinks", str(ROOT), "clone", cwd=tmp_path)
    shutil.copy(ROOT / "experiments" / "common.py", tmp_path / "clone" / "experiments")
    who = ("-c", "user.name=geomxp", "-c", "user.email=geomxp@localhost")
    git(*who, "commit", "--quiet", "--all", "--allow-empty", "--message=x", cwd=tmp_path / "clone")
    return tmp_path / "clone"


def commit_of(clone, *words):
    """Return how an experiment ends: the commit that it would write, or its message."""
    code = "import common; print(common.COMMIT)"
    script = clone / "experiments" / "recovery" / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(clone / 'experiments')!r})\n{code}\n")
    # the script itself is not a change
    (clone / ".git" / "info" / "exclude").write_text("script.py\n")
    # sources are compiled once, and not into the clone
    environment = os.environ | {"PYTHONPATH": str(clone)}
    environment |= {"PYTHONPYCACHEPREFIX": str(clone.parent / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, script, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip()


@pytest.mark.slow
def test_an_experiment_refuses_to_write_results_of_uncommitted_code(clone):
    commit = git("describe", "--always", cwd=clone)
    assert commit_of(clone) == commit
    # tables and figures of an earlier command are no change of the code
    (clone / "experiments" / "recovery" / "results" / "more.csv").write_text("a\n1\n")
    (clone / "experiments" / "recovery" / "figures" / "more.png").write_text("")
    assert commit_of(clone) == commit
    (clone / "geomxp" / "more.py").write_text("")
    assert "uncommitted changes" in commit_of(clone)
    assert commit_of(clone, "--dirty") == f"{commit}-dirty"
    assert commit_of(clone, "--tiny") == f"{commit}-dirty"
    assert commit_of(clone, "--output=elsewhere") == f"{commit}-dirty"


@pytest.fixture(scope="module")
def common():
    """The module that experiments share."""
    about = importlib.util.spec_from_file_location("common", ROOT / "experiments" / "common.py")
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


CELLS = [{"n": n, "name": name} for n in (1, 2) for name in ("a", "b", "c")]


def rows_of(n, name):
    yield {"value": n / 3, "text": name * n}


def interrupted_after(count):
    def rows(**cell):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return rows_of(**cell)

    left = list(range(count))
    return rows


def test_an_interrupted_study_goes_on_with_the_missing_rows(common, tmp_path):
    whole, path = tmp_path / "whole.csv", tmp_path / "study.csv"
    common.resume(whole, CELLS, rows_of)
    with pytest.raises(KeyboardInterrupt):
        common.resume(path, CELLS, interrupted_after(4))
    assert len(common.read_rows(path)) == 4
    common.resume(path, CELLS, interrupted_after(2))
    assert path.read_text() == whole.read_text()
    # nothing is left to do
    common.resume(path, CELLS, interrupted_after(0))
    common.resume(path, CELLS, interrupted_after(6), anew=True)
    assert path.read_text() == whole.read_text()


def test_processes_share_a_study(common, tmp_path):
    whole, path = tmp_path / "whole.csv", tmp_path / "study.csv"
    common.resume(whole, CELLS, rows_of)
    with pytest.raises(KeyboardInterrupt):
        common.resume(path, CELLS, interrupted_after(1), every=(0, 2))
    for part in (0, 1):
        common.resume(path, CELLS, rows_of, every=(part, 2))
    assert not path.exists()
    common.resume(path, CELLS, interrupted_after(0))
    assert path.read_text() == whole.read_text()
    assert sorted(tmp_path.iterdir()) == [path, whole]


def test_rows_of_several_commits_name_them_all(common, tmp_path, monkeypatch):
    path = tmp_path / "study.csv"
    monkeypatch.setattr(common, "COMMIT", "first")
    common.resume(path, CELLS[:3], rows_of)
    monkeypatch.setattr(common, "COMMIT", "second")
    common.resume(path, CELLS, rows_of)
    assert path.read_text().startswith("# commit: first, second\n")


def test_rows_with_other_columns_are_not_appended(common, tmp_path):
    path = tmp_path / "study.csv"
    common.resume(path, CELLS[:1], lambda **cell: [{"before": 1}])
    with pytest.raises(SystemExit, match=r"other columns\. Replace them: --anew"):
        common.resume(path, CELLS, rows_of)
    assert len(common.read_rows(path)) == 1
