"""A script that a warm process runs is as one that Python runs."""

import os
import subprocess
import sys

import pytest
from waiting import wait_until
from warm import python_with

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="Python itself runs the script")

SCRIPT = """
import os, sys, warnings
print(__name__, sys.argv, os.getcwd(), os.environ["COLOUR"], "decimal" in sys.modules, input())
print(os.path.dirname(__file__) == sys.path[0], file=sys.stderr)
if sys.argv[1] == "warn":
    warnings.warn("rain")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def python():
    with python_with("decimal", PYTHONWARNINGS="error") as words:
        yield words


def run(python, folder, *words):
    environment = os.environ | {"COLOUR": "green"}
    about = {"input": "line\n", "capture_output": True, "text": True, "check": False}
    return subprocess.run([*python, *words], cwd=folder, env=environment, **about)


def test_a_script_has_its_own_arguments_environment_folder_streams_and_status(python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for status in (0, 3):
        done = run(python, tmp_path, script, "quietly", str(status))
        words = [str(script), "quietly", str(status)]
        assert done.stdout == f"__main__ {words} {tmp_path} green True line\n"
        assert (done.stderr, done.returncode) == ("True\n", status)


def test_warnings_and_errors_end_a_script_as_in_python(python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run(python, tmp_path, script, "warn", "0")
    assert done.returncode == 1
    assert done.stderr.endswith("UserWarning: rain\n")


def test_a_module_runs_as_with_m(python, tmp_path):
    (tmp_path / "named.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert run(python, tmp_path, "-m", "named", "a").stdout == "__main__ ['a']\n"


def test_a_safe_path_is_kept(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.path)")
    paths = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tmp_path / "first")}
    with python_with("decimal", **paths) as words:
        found = run(words, tmp_path, script).stdout
    plain = subprocess.run(
        [sys.executable, script], env=os.environ | paths, capture_output=True, text=True, check=True
    )
    assert found == plain.stdout


@needs_fork
def test_a_script_ends_with_the_process_that_asked_for_it(python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, time; print(os.getpid(), flush=True); time.sleep(3600)")
    with subprocess.Popen([*python, script], stdout=subprocess.PIPE) as asking:
        process = int(asking.stdout.readline())
        asking.kill()
    wait_until(lambda: not alive(process))
    # and others still run
    assert run(python, tmp_path, "-m", "this").returncode == 0


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@needs_fork
def test_a_library_that_is_not_there_is_named():
    missing = "nothing_of_this_name"
    with pytest.raises(RuntimeError, match=missing), python_with(missing):
        pass
