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
    done = subprocess.run(
        [sys.executable, script, *words],
        env=os.environ | {"PYTHONPATH": str(clone), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip()


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
