"""The study of mutants: small mistakes, each in one place, which a test of a checkout catches."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "mutants"))


CHANGES = [
    ("a + b", "a - b"),
    ("a  @ (b)", "a  * (b)"),
    ("a is not b", "a is b"),
    ("a not in b", "a in b"),
    ("a and b and c", "a or b and c"),
    ("-a", "(a)"),
    ("not a", "(a)"),
    ("True", "False"),
    ("7", "8"),
    ("0.0", "1.0"),
    ("a[b, c]", "a[c, b]"),
    ("a[b:]", "a[(b) + 1:]"),
    ("f(a, b)", "f(b, a)"),
    ("f(a, b=c)", "f(a)"),
    ("a if b else c", "a if (not (b)) else c"),
    ("[a for a in b if c]", "[a for a in b if (not (c))]"),
    ("'é' < b", "'é' <= b"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_each_kind_of_place_is_changed(old, new):
    import mutations

    found = list(mutations.mutants("a.py", f"x = {old}\n"))
    assert [mutations.applied(each, f"x = {old}\n") for each in found] == [f"x = {new}\n"]


def test_a_kernel_is_changed_outside_its_comments():
    import mutations

    text = "x = a + 1; // b + 2\n/* c < 3 */ if (i < 16) {\n"
    changed = [mutations.applied(each, text) for each in mutations.mutants("a.cu", text)]
    changes = ((" + 1;", " - 1;"), ("1;", "2;"), ("i < 16", "i <= 16"), ("16", "17"))
    assert sorted(changed) == sorted(text.replace(*change) for change in changes)


@pytest.mark.slow
def test_mutants_of_a_module_differ_from_it_in_one_place_and_are_found_there():
    import mutations

    text = (ROOT / "geomxp/covariance/wendland.py").read_text()
    found = list(mutations.mutants("covariance/wendland.py", text))
    assert len(found) > 40
    assert len(set(found)) == len(found)
    whole = ast.dump(ast.parse(text))
    for each in found[::7]:
        changed = mutations.applied(each, text)
        same = next(k for k, (a, b) in enumerate(zip(text, changed, strict=False)) if a != b)
        assert text.count("\n", 0, same) >= each.line - 1
        assert len(changed) - len(text) == len(each.new) - len(each.old)
        if mutations.parses(each, text):
            assert ast.dump(ast.parse(changed)) != whole
        with pytest.raises(ValueError, match="no longer"):
            mutations.applied(each._replace(old=each.old + "?"), text)


CAUGHT = [
    ("a - b", 60.0, ("tests/test_it.py::test_sum", 2)),
    ("a + 1 * b", 60.0, ("", 2)),
    ("a +", 60.0, ("(collection)", 0)),
    ("a - b", -1.0, ("", 0)),
]
"""What takes the place of a sum, the budget of tests, and what catches it after how many tests."""

FILES = {
    "geomxp/__init__.py": "",
    "geomxp/it.py": "def sum_of(a, b):\n    return a + b\n",
    "tests/test_it.py": "from geomxp import it\n\n\n"
    "def test_zero():\n    assert it.sum_of(0, 0) == 0\n\n\n"
    "def test_sum():\n    assert it.sum_of(1, 2) == 3\n",
}

SCRIPT = """
from pathlib import Path
import catching

if __name__ == "__main__":
    text, tests = Path("geomxp/it.py").read_text(), [f"tests/test_it.py::test_{x}" for x in TESTS]
    for new, budget in MUTANTS:
        catching.BUDGET = budget
        print(catching.caught(Path.cwd(), "it.py", text.replace("a + b", new), tests)[:2])
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git, which lists the files, is missing")
def test_the_first_test_that_fails_catches_a_mutant(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    # in a process that has not imported the package
    script, mutants = tmp_path / "script.py", [case[:2] for case in CAUGHT]
    script.write_text(f"TESTS = 'zero', 'sum'\nMUTANTS = {mutants}\n{SCRIPT}")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "experiments" / "mutants")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [repr(case[2]) for case in CAUGHT]
