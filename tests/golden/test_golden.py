"""What geomxp computed before its modules were rearranged, it computes still; see `record.py`."""

import json
import os
import re
import shutil

import pytest
from golden import record

import geomxp as gx

GOLDEN = json.loads(record.VALUES.read_text())


SEARCHED = {
    "estimates": 1e-4,
    "coefficients": 1e-4,
    "errors of coefficients": 1e-4,
    "standard errors": 1e-3,
    "observed": 1e-3,
}
"""Least relative tolerances of what depends on where a search ends, within its own tolerance."""


@pytest.fixture(scope="module")
def other_machine():
    """How this machine differs from the one that recorded the bits; "" if it does not."""
    here = record.machine()
    return ", ".join(name for name, known in GOLDEN["machine"].items() if here[name] != known)


def differences(known, found, tolerance, where=""):
    """Return where two JSON values differ, as lines of text.

    A number in a list is compared on the scale of the largest one there. An object may have keys
    that were not recorded: documents gain entries.
    """
    if isinstance(known, dict) and isinstance(found, dict):
        if not set(known) <= set(found):
            return [f"{where}: keys {sorted(set(known) - set(found))} were recorded"]
        pairs = [(f"{where}.{key}", known[key], found[key]) for key in known]
    elif isinstance(known, list) and isinstance(found, list):
        if len(known) != len(found):
            return [f"{where}: {len(known)} items were recorded, not {len(found)}"]
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(known, found, strict=True))]
        numbers = [abs(item) for item in known if isinstance(item, float)]
        scale = max(numbers, default=0.0)
        near = [
            isinstance(a, float) and isinstance(b, float) and abs(a - b) <= tolerance * scale
            for _, a, b in pairs
        ]
        pairs = [pair for pair, same in zip(pairs, near, strict=True) if not same]
    else:
        same = type(known) is type(found) and known == found
        if isinstance(known, float) and isinstance(found, float):
            same = abs(known - found) <= tolerance * abs(known)
        return [] if same else [f"{where}: {known!r} was recorded, not {found!r}"]
    return [
        line
        for at, a, b in pairs
        for line in differences(a, b, max(tolerance, SEARCHED.get(at.split(".")[-1], 0.0)), at)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", record.ENTRIES)
def test_what_is_computed_is_what_was_recorded(name, other_machine):
    known = GOLDEN["entries"][name]
    if known["bits"] and not os.environ.get("GEOMXP_GOLDEN_BITS"):
        pytest.skip("bits change with most changes of the code: set GEOMXP_GOLDEN_BITS=1")
    if known["bits"] and other_machine:
        pytest.skip(f"bits were recorded on a machine of another kind: {other_machine}")
    tolerance = 0.0 if known["tolerance"] == "exact" else known["tolerance"]
    found = differences(known["values"], record.computed(name), tolerance)
    assert not found, "\n".join(found[:20])


def test_what_was_recorded_is_still_compared():
    assert set(GOLDEN["entries"]) == set(record.ENTRIES)


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (1.0, 1.0 + 1e-5),
        (1, 2),
        (1, 1.0),
        (True, 1),
        (None, 0.0),
        ("a", "b"),
        ([1.0, 2.0], [1.0]),
        ([1.0, 2.0], [1.0, 2.1]),
        ([1, 2], [2, 2]),
        ({"a": 1.0, "b": 2.0}, {"a": 1.0}),
        ({"a": [{"b": 1.0}]}, {"a": [{"b": 1.1}]}),
        (1.0, "nan"),
    ],
)
def test_a_value_that_has_changed_is_seen(known, found):
    assert differences(known, found, 1e-6)
    assert not differences(known, known, 1e-6)


def test_a_document_may_gain_keys():
    assert not differences({"a": 1.0}, {"a": 1.0, "b": 2.0}, 1e-6)


def test_numbers_in_a_list_have_one_scale():
    assert not differences([1.0, 1e-12], [1.0, -1e-12], 1e-10)
    assert differences([1.0, 1e-12], [1.0, -1e-12], 1e-13)


def test_an_array_that_changes_anywhere_has_another_summary():
    array = [float(number) for number in range(100)]
    known = record.plain(record.summary(array))
    for i in range(100):
        changed = [*array[:i], array[i] + 1e-3, *array[i + 1 :]]
        assert differences(known, record.plain(record.summary(changed)), 1e-9)


# what a killed or an interrupted process has left


@pytest.fixture
def files(tmp_path):
    """A copy of the files that were written before: what goes on from them changes them."""
    return shutil.copytree(record.FILES, tmp_path / "files")


def test_the_files_name_no_folder_of_the_machine_that_wrote_them():
    for name in record.FIT_FILES:
        table = json.loads((record.FILES / name).read_text())["table"]
        assert table is None or "/" not in table["path"]


def test_a_search_goes_on_from_the_checkpoint_of_an_interrupted_one(files, tmp_path):
    checkpoint = files / record.CHECKPOINT.name
    kept = json.loads(checkpoint.read_text())
    whole, resumed = record.search(tmp_path / "new.json"), record.search(checkpoint)
    assert whole.outcome.good
    assert resumed.outcome.good
    # the whole search is led by Vecchia's approximation, the resumed one by the checkpoint
    assert 0 < resumed.evaluations - kept["evaluations"] < 20
    # from the best model of the checkpoint on: nothing worse is an improvement
    assert all(row["log_likelihood"] >= kept["log_likelihood"] for row in resumed.history)
    assert resumed.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)
    assert resumed.model.parameters() == pytest.approx(whole.model.parameters(), rel=1e-4)
    assert json.loads(checkpoint.read_text())["evaluations"] > kept["evaluations"]


@pytest.mark.slow
def test_a_command_goes_on_from_the_checkpoint_of_a_limited_one(files, tmp_path):
    checkpoint = files / record.COMMAND_CHECKPOINT.name
    kept = json.loads(checkpoint.read_text())
    whole = record.search_by_command(tmp_path / "new.json")
    resumed = record.search_by_command(checkpoint)
    assert whole["outcome"] == resumed["outcome"] == "CONVERGED"
    # most of them compare the nugget, 2 % of the variance, with 0
    assert 0 < resumed["evaluations"] - kept["evaluations"] < 80
    assert resumed["log_likelihood"] == pytest.approx(whole["log_likelihood"], abs=1e-6)
    for name in ("variance", "range", "nugget"):
        assert resumed["model"][name] == pytest.approx(whole["model"][name], rel=1e-4)


def test_a_checkpoint_of_another_problem_is_refused(files):
    words = [*record.COMMAND_SEARCH, "--checkpoint", files / record.CHECKPOINT.name]
    status, out, err = record.command(*words)
    assert (status, out) == (2, "")
    assert "another problem" in err


def test_a_killed_run_goes_on_with_the_tiles_that_it_has_left(files, other_machine):
    if other_machine:
        pytest.skip(f"tiles were written on a machine of another kind: {other_machine}")
    folder = files / record.SCRATCH.name
    journal = next(folder.glob("*.journal"))
    head, *lines = journal.read_text().splitlines()
    version = re.search(r" geomxp (\S+) ", head).group(1)
    if version != gx.__version__:
        pytest.skip(f"another version, {version}, has left the tiles: they are not used")
    with pytest.warns(gx.GeomxpWarning, match="without checksums"):
        resumed = record.scratch_run(folder)
    tiles = sum(resumed.precision_map.counts().values())
    assert 10 < len(lines) < tiles
    # each tile is written once, when it is final
    assert resumed.traffic.copies_out == tiles - len(lines)
    assert resumed.traffic.copies_in > 0
    assert record.bits_of(resumed) == record.bits_of(record.scratch_run(None))
    known = GOLDEN["entries"]["the bits of a run whose tiles lie in a scratch directory"]
    assert record.bits_of(resumed) == known["values"]
    assert not list(folder.iterdir())


def test_a_run_without_tiles_to_go_on_from_writes_them_all(tmp_path):
    whole = record.scratch_run(tmp_path)
    assert whole.traffic.copies_out == sum(whole.precision_map.counts().values())
