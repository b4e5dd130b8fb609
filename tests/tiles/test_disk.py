import errno
import fcntl
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from opened import open_files

import geomxp as gx
from geomxp.covariance.ordering import hilbert
from geomxp.linalg.formats import FP64
from geomxp.tiles import assemble, cholesky, memories
from geomxp.tiles.cholesky import factorize, left_looking
from geomxp.tiles.layout import Layout
from geomxp.tiles.memories import PAGE_BYTES, Disk, Ram, aligned, pages
from geomxp.tiles.out_of_core import OutOfCoreDevice, OutOfCoreStore
from geomxp.tiles.stores import InCore

LAYOUT = Layout(257, 32)
MODELS = {
    "plain": (gx.Matern(1.0, 0.1, 0.5, 1e-2), gx.uniform("fp64")),
    "mixed": (gx.Matern(1.0, 0.1, 0.5, 1e-2), gx.by_tile_norm(1e-5)),
    "promoted": (gx.Matern(1.0, 0.2, 2.5, 1e-4), gx.layered("fp16", "fp32", "fp64")),
}


@pytest.fixture(params=["direct", "cached"])
def way(request, monkeypatch, tmp_path):
    """Where the filesystem takes direct access, and where it refuses it."""
    if request.param == "cached":
        refuse_direct(monkeypatch)
    elif not Disk(LAYOUT, 0, tmp_path).direct:
        pytest.skip(f"the filesystem of {tmp_path} has no direct access")
    return request.param


def refuse_direct(monkeypatch):
    control = fcntl.fcntl

    def refused(descriptor, command, flags=0):
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return control(descriptor, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refused)


def random_bytes(count, seed):
    data = aligned(count)
    data[:] = np.random.default_rng(seed).integers(0, 256, len(data))
    return data


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 10**6])
def test_buffers_begin_on_a_page_and_are_whole_pages(count):
    buffer = aligned(count)
    assert buffer.ctypes.data % PAGE_BYTES == 0
    assert len(buffer) == pages(count) == -(-count // PAGE_BYTES) * PAGE_BYTES


def test_what_is_written_is_read_again_in_any_order(way, tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path)
    assert scratch.direct == (way == "direct")
    # accumulators that are out have keys beyond the last block row
    keys = [*left_looking(LAYOUT.tiles), (LAYOUT.tiles, 0), (LAYOUT.tiles, 3)]
    count = FP64.bytes * LAYOUT.tile**2
    data = {key: random_bytes(count, seed) for seed, key in enumerate(keys)}
    for key in reversed(keys):
        scratch.write(key, data[key])
    for key in keys:
        found = aligned(count)
        scratch.read(key, found)
        np.testing.assert_array_equal(found, data[key])


def test_a_tile_is_written_over_in_another_size(way, tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path)
    scratch.write((1, 0), random_bytes(4096, 1))
    longer = random_bytes(8192, 2)
    scratch.write((1, 0), longer)
    scratch.write((0, 0), random_bytes(8192, 3))
    found = aligned(8192)
    scratch.read((1, 0), found)
    np.testing.assert_array_equal(found, longer)


def test_a_file_without_a_name_is_seen_by_nobody(way, tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path)
    scratch.write((0, 0), random_bytes(4096, 1))
    assert not list(tmp_path.iterdir())
    assert open_files(tmp_path)


@pytest.mark.slow
def test_a_named_file_and_its_journal_go_with_their_store(way, tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path, "a problem")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".journal", ".tiles"]
    scratch.close()
    assert not list(tmp_path.iterdir())
    del scratch
    assert not open_files(tmp_path)


@pytest.mark.slow
def test_a_store_that_nobody_has_any_more_leaves_no_file_and_no_warning(tmp_path):
    Disk(LAYOUT, 0, tmp_path, "a problem")
    # an unclosed journal would be a ResourceWarning, an error here
    assert not open_files(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_was_never_written_is_an_error(tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path)
    with pytest.raises(OSError, match="ends too early"):
        scratch.read((3, 1), aligned(4096))


def test_on_a_filesystem_in_memory_it_works_as_well():
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm to write to")
    scratch = Disk(LAYOUT, 0, "/dev/shm")
    data, found = random_bytes(8192, 4), aligned(8192)
    scratch.write((2, 1), data)
    scratch.read((2, 1), found)
    np.testing.assert_array_equal(found, data)


# directories that cannot be used


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(gx.InvalidInput, match=r"missing cannot be used: No such file.*: name anot"):
        Disk(LAYOUT, 0, tmp_path / "missing")


@pytest.mark.parametrize("problem", [None, "a problem"])
def test_a_directory_that_is_a_file_is_named(tmp_path, problem):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(gx.InvalidInput, match="file cannot be used: Not a directory: name another"):
        Disk(LAYOUT, 0, file, problem)


@pytest.mark.parametrize("problem", [None, "a problem"])
def test_a_directory_that_may_not_be_written_is_named(tmp_path, problem):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(gx.InvalidInput, match="cannot be used: Permission denied: name another"):
        Disk(LAYOUT, 0, tmp_path, problem)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [None, "a problem"])
def test_an_error_where_the_file_is_opened_leaves_nothing(monkeypatch, tmp_path, problem):

    def broken(descriptor, command, flags=0):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "fcntl", broken)
    with pytest.raises(gx.InvalidInput, match="cannot be used: Input/output error"):
        Disk(LAYOUT, 0, tmp_path, problem)
    assert not list(tmp_path.iterdir())
    assert not open_files(tmp_path)


# full disks


@pytest.mark.slow
@pytest.mark.parametrize("problem", [None, "a problem"])
def test_a_disk_without_room_is_refused_before_anything_is_computed(tmp_path, problem):
    with pytest.raises(gx.NotEnoughMemory, match=r"need 1000000000.0 GB of disk, .* free in"):
        Disk(LAYOUT, 10**18, tmp_path, problem)
    assert not list(tmp_path.iterdir())
    assert not open_files(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_is_one_clear_line(monkeypatch, tmp_path, code):
    scratch = Disk(LAYOUT, 0, tmp_path)

    def full(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(gx.NotEnoughMemory, match=r"^the disk of .* is full: name another scratch"):
        scratch.write((0, 0), aligned(4096))


def test_a_disk_that_is_full_when_the_journal_is_written_is_one_clear_line(monkeypatch, tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path, "a problem")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(gx.NotEnoughMemory, match=r"^the disk of .* is full: name another scratch"):
        scratch.note(["promote", 1], at_once=True)


def test_what_is_written_in_parts_is_whole_in_the_end(monkeypatch, tmp_path):
    """Writes and reads may do a part of what is asked for."""
    scratch = Disk(LAYOUT, 0, tmp_path)
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:PAGE_BYTES], at))
    monkeypatch.setattr(os, "preadv", lambda fd, data, at: preadv(fd, [data[0][:PAGE_BYTES]], at))
    data, found = random_bytes(5 * PAGE_BYTES, 5), aligned(5 * PAGE_BYTES)
    scratch.write((0, 0), data)
    scratch.read((0, 0), found)
    np.testing.assert_array_equal(found, data)


def write_all(scratch, keys):
    for key in keys:
        scratch.write(key, aligned(8192))


def test_a_disk_of_a_megabyte_fills_up_and_is_empty_again(tmp_path):
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", tmp_path], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("no right to mount a small filesystem")
    try:
        seen = gx.Observations(np.random.default_rng(0).random((600, 2)), np.zeros(600))
        method = gx.Exact(tile=64, memory="1MB", scratch=tmp_path)
        with pytest.raises(gx.NotEnoughMemory, match=r"MB of disk, .* free in"):
            gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5, 0.01), method)
        assert not list(tmp_path.iterdir())
        # the check finds room, the disk does not
        scratch = Disk(LAYOUT, 0, tmp_path)
        with pytest.raises(gx.NotEnoughMemory, match="is full: name another"):
            write_all(scratch, left_looking(300))
        scratch.close()
        assert os.statvfs(tmp_path).f_bavail * PAGE_BYTES >= 2**20 - PAGE_BYTES
    finally:
        subprocess.run(["umount", tmp_path], check=True)


# two at one time


CLAIM = """
import sys
from geomxp import InvalidInput
from geomxp.tiles.memories import Disk
from geomxp.tiles.layout import Layout
try:
    Disk(Layout(64, 16), 0, sys.argv[1], "a problem")
except InvalidInput as error:
    print(error)
"""


def test_another_process_with_the_same_problem_is_refused_and_the_first_goes_on(tmp_path):
    first = Disk(LAYOUT, 0, tmp_path, "a problem")
    run = subprocess.run(
        [sys.executable, "-c", CLAIM, tmp_path], capture_output=True, text=True, check=True
    )
    assert run.stdout.endswith("computes this problem. Name another scratch directory.\n")
    assert first.path.exists()
    data, found = random_bytes(4096, 6), aligned(4096)
    first.write((0, 0), data)
    first.read((0, 0), found)
    np.testing.assert_array_equal(found, data)


def test_a_second_factor_of_a_problem_in_one_process_has_a_file_of_its_own(tmp_path):
    first = Disk(LAYOUT, 0, tmp_path, "a problem")
    second = Disk(LAYOUT, 0, tmp_path, "a problem")
    assert second.path is None
    assert first.path.exists()
    second.close()
    first.close()
    assert not list(tmp_path.iterdir())
    assert Disk(LAYOUT, 0, tmp_path, "a problem").path is not None


def test_two_problems_in_one_directory_do_not_see_each_other(tmp_path):
    one, other = (Disk(LAYOUT, 0, tmp_path, problem) for problem in ("one", "other"))
    one.write((0, 0), random_bytes(4096, 1))
    other.write((0, 0), random_bytes(4096, 2))
    found = aligned(4096)
    one.read((0, 0), found)
    np.testing.assert_array_equal(found, random_bytes(4096, 1))
    other.close()
    assert one.path.exists()


# runs that were killed


def store_of(case, directory):
    model, rule = MODELS[case]
    places = np.random.default_rng(1).random((257, 2))
    matrix = assemble.originals(model, places[hilbert(places)], "euclidean", 32)
    formats = rule(matrix.norms())
    if directory is None:
        return InCore(matrix, formats)
    slow = Disk(matrix.layout, 0, directory, f"problem {case}")
    part = OutOfCoreDevice(matrix, Ram(slow), 0, 2)
    store = OutOfCoreStore(formats, [part])
    part.budget = store.sizes.least + 10**5
    return store


def bits(store):
    tiles = [store.final(*pair) for pair in left_looking(store.layout.tiles)]
    return [(t.form.name, t.exponent, t.shape, t.values.tobytes(order="F")) for t in tiles]


def counted(store):
    """Factor; return how many tiles that took."""
    count = [0]

    def run(store, tiles):
        count[0] += len(tiles)
        cholesky.run(store, tiles)

    factorize(store, store.order(), run)
    return count[0]


CHILD = """
import os, signal, sys
sys.path.insert(0, {here!r})
import test_disk as t
from geomxp.tiles import memories as disk

disk.JOURNAL_INTERVAL_SECONDS = {seconds}
store = t.store_of({case!r}, {directory!r})
write, note, seen = disk.Disk.write, disk.Disk.note, [0, False]

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def counted(self, key, data):
    seen[0] += 1
    if {kind!r} == "write" and seen[0] == {at}:
        killed()
    write(self, key, data)
    if {kind!r} == "rewritten" and seen[1] and key[0] == seen[1]:
        killed()

def noted(self, entry, at_once=False):
    note(self, entry, at_once)
    if entry[0] == "promote":
        seen[1] = entry[1]
        if {kind!r} == "promote":
            killed()

disk.Disk.write, disk.Disk.note = counted, noted
t.counted(store)
"""


def kill_half_way(case, directory, kind="write", at=30, seconds=0):
    """Let another process compute, and kill it."""
    about = {"here": str(Path(__file__).parent), "case": case, "directory": str(directory)}
    text = CHILD.format(**about, kind=kind, at=at, seconds=seconds)
    # the package may stand beside the tests only
    path = os.pathsep.join([str(Path(gx.__file__).parents[1]), *filter(None, sys.path)])
    child = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert child.returncode == -signal.SIGKILL, child.stderr


@pytest.fixture(scope="module")
def whole():
    """The bits of the factors in one memory, by case."""
    found = {}
    for case in MODELS:
        store = store_of(case, None)
        factorize(store, store.order(), cholesky.run)
        found[case] = store.formats.rows, bits(store)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 10])
@pytest.mark.parametrize("case", ["plain", "mixed"])
def test_a_killed_run_goes_on_where_it_was(whole, tmp_path, case, seconds):
    kill_half_way(case, tmp_path, seconds=seconds)
    store = store_of(case, tmp_path)
    assert counted(store) < 45
    assert bits(store) == whole[case][1]
    store.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_comes_to_its_end(whole, tmp_path):
    for _ in range(2):
        kill_half_way("mixed", tmp_path, at=12)
    store = store_of("mixed", tmp_path)
    assert counted(store) < 45 - 12
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["promote", "rewritten"])
def test_a_run_that_is_killed_while_a_block_row_is_promoted_goes_on_with_it(whole, tmp_path, kind):
    """Whether its tiles are given up, or are already written over in their finer format."""
    kill_half_way("promoted", tmp_path, kind, seconds=10)
    store = store_of("promoted", tmp_path)
    counted(store)
    assert store.formats.rows == whole["promoted"][0]
    assert bits(store) == whole["promoted"][1]


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    directory = tmp_path_factory.mktemp("left")
    kill_half_way("mixed", directory)
    return directory


@pytest.fixture
def killed(left, tmp_path):
    """A directory that a killed run of the mixed case has left."""
    return Path(shutil.copytree(left, tmp_path, dirs_exist_ok=True))


def journal_of(directory):
    return next(directory.glob("*.journal"))


def entries_of(directory):
    """Return the entries of a journal, without their checksums."""
    _, *lines = journal_of(directory).read_text().splitlines()
    return [json.loads(line.partition(" ")[2]) for line in lines]


@pytest.mark.slow
def test_half_a_last_line_in_the_journal_is_not_believed(whole, killed):
    path = journal_of(killed)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:7])
    store = store_of("mixed", killed)
    assert len(store.headers) == len(lines) - 2
    counted(store)
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
@pytest.mark.parametrize("rubbish", [b"\xff\xfe\x00\n\n", b"no JSON\n{\n"])
@pytest.mark.parametrize("where", ["instead", "after"])
def test_a_journal_of_rubbish_costs_time_and_nothing_else(whole, killed, rubbish, where):
    path = journal_of(killed)
    path.write_bytes((path.read_bytes() if where == "after" else b"") + rubbish)
    with pytest.warns(gx.GeomxpWarning, match="the journal of finished tiles in .* changed after"):
        store = store_of("mixed", killed)
    assert bool(store.headers) == (where == "after")
    counted(store)
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
@pytest.mark.parametrize("rubbish", [b"", b"\0" * 5000])
def test_a_journal_without_a_line_is_that_of_a_run_that_has_just_begun(whole, killed, rubbish):
    journal_of(killed).write_bytes(rubbish)
    store = store_of("mixed", killed)
    assert counted(store) == 45
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
def test_a_journal_of_another_problem_is_not_believed(whole, killed):
    path = journal_of(killed)
    path.write_text("another problem\n" + "\n".join(path.read_text().splitlines()[1:]) + "\n")
    with pytest.warns(gx.GeomxpWarning, match="the journal of finished tiles in .* changed after"):
        store = store_of("mixed", killed)
    assert not store.headers
    assert counted(store) == 45
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
@pytest.mark.parametrize("size", [None, 0, 3 * PAGE_BYTES])
def test_a_journal_without_its_tiles_is_not_believed(whole, killed, size):
    """Somebody has removed the large file, or cut it off."""
    path = journal_of(killed).with_suffix(".tiles")
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)
    with pytest.warns(gx.GeomxpWarning, match="finished tiles in .* changed after they were"):
        store = store_of("mixed", killed)
    counted(store)
    assert bits(store) == whole["mixed"][1]


# damage: every tile and every line has a checksum


def flip(path, at, mask):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def start_of(killed, key):
    """Return the file of the tiles and the offset of one."""
    i, k = key
    path = journal_of(killed).with_suffix(".tiles")
    return path, PAGE_BYTES + (i * (i + 1) // 2 + k) * pages(8 * 32**2)


def finished(killed):
    return [tuple(entry[1:3]) for entry in entries_of(killed)]


@pytest.mark.slow
@pytest.mark.parametrize("mask", [0x80, 0x40, 0x01], ids=["sign", "exponent", "one bit"])
def test_a_tile_with_a_changed_bit_is_computed_again(whole, killed, mask):
    keys = finished(killed)
    # the last byte of the first FP64 entry: sign and exponent
    path, start = start_of(killed, (1, 1))
    assert (1, 1) in keys
    flip(path, start + 7, mask)
    with pytest.warns(gx.GeomxpWarning, match=f"1 of {len(keys)} finished tiles in .* Check the d"):
        store = store_of("mixed", killed)
    assert set(keys) - set(store.headers) == {(1, 1)}
    assert counted(store) == 45 - len(keys) + 1
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
def test_two_tiles_that_changed_places_are_computed_again(whole, killed):
    path, first = start_of(killed, (0, 0))
    _, second = start_of(killed, (1, 1))
    data, size = bytearray(path.read_bytes()), pages(8 * 32**2)
    data[first : first + size], data[second : second + size] = (
        data[second : second + size],
        data[first : first + size],
    )
    path.write_bytes(data)
    with pytest.warns(gx.GeomxpWarning, match="2 of .* finished tiles"):
        store = store_of("mixed", killed)
    counted(store)
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["exponent", "removed", "exchanged", "shape"])
def test_a_changed_line_of_the_journal_is_not_believed_nor_any_after_it(whole, killed, change):
    path = journal_of(killed)
    lines = path.read_text().splitlines(keepends=True)
    # a tile in FP16, whose exponent scales it
    k = next(k for k, line in enumerate(lines) if '"fp16"' in line)
    if change == "exponent":
        checksum, _, entry = lines[k].partition(" ")
        entry = json.loads(entry)
        entry[4] += 1
        lines[k] = f"{checksum} {json.dumps(entry)}\n"
    elif change == "shape":
        lines[k] = lines[k].replace("[32, 32]", "[32, 31]")
    elif change == "removed":
        del lines[k]
    else:
        lines[k - 1 : k + 1] = lines[k], lines[k - 1]
    path.write_text("".join(lines))
    with pytest.warns(gx.GeomxpWarning, match="the journal of finished tiles"):
        store = store_of("mixed", killed)
    assert len(store.headers) == k - 1 - (change == "exchanged")
    counted(store)
    assert bits(store) == whole["mixed"][1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    ["[]", "{}", "[1]", '["tile", 0]', '["promote", "x"]', '["promote", 99]', '["tile", 0, 1]']
    + [f'["tile", 0, 0, {form}, [32, 32]]' for form in ('"fp99", 0, "float64"', '"fp64", 0, "U9"')]
    + ['["tile", 0, 0, "fp64", 0, "O", [32, 32]]', '["tile", 0, 0, "fp64", 0, "M8", [32, 32]]']
    + ['["tile", 0, 0, "fp64", 1e999, "float64", [32, 32]]', '["tile", 0, 0, "fp64", 0, 3, 4]'],
)
def test_lines_that_no_run_writes_raise_no_foreign_error(whole, killed, entry):
    """Also with valid checksums, and in journals without any."""
    path = journal_of(killed)
    mark, _, *problem = path.read_text().splitlines()[0].split(" ")
    path.write_text(" ".join([mark, *problem]) + f"\n{entry}\n")
    with pytest.warns(gx.GeomxpWarning, match="the journal of finished tiles"):
        store = store_of("mixed", killed)
    assert not store.headers
    assert counted(store) == 45
    assert bits(store) == whole["mixed"][1]


def test_a_journal_of_another_version_is_believed_with_a_warning(whole, killed):
    path = journal_of(killed)
    head, *lines = path.read_text().splitlines()
    old = [json.dumps(json.loads(line.partition(" ")[2])[:7]) for line in lines]
    path.write_text("\n".join([head.replace(" crc32 ", " "), *old, ""]))
    with pytest.warns(gx.GeomxpWarning, match="without checksums .* remove .*tiles"):
        store = store_of("mixed", killed)
    assert len(store.headers) == len(lines)
    # from now on they have checksums
    assert path.read_text().splitlines()[1:] == lines
    counted(store)
    assert bits(store) == whole["mixed"][1]


# names that somebody else has taken


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".tiles", ".journal"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "fifo", "folder", "open"])
def test_a_predictable_name_that_is_no_file_of_ours_is_refused(tmp_path, suffix, kind):
    scratch = Disk(LAYOUT, 0, tmp_path, "a problem")
    path = scratch.path.with_suffix(suffix)
    scratch.close()
    victim = tmp_path / "victim"
    if kind != "dangling link":
        victim.write_text("precious")
        victim.chmod(0o600)
    if "link" in kind:
        (os.link if kind == "hard link" else os.symlink)(victim, path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("")
        path.chmod(0o666)
    with pytest.raises(gx.InvalidInput, match=rf"the scratch file {path} .*: remove it, or name"):
        Disk(LAYOUT, 0, tmp_path, "a problem")
    assert not open_files(tmp_path)
    if kind == "dangling link":
        assert not victim.exists()
    else:
        assert victim.read_text() == "precious"
    assert sorted(set(tmp_path.iterdir()) - {victim}) == [path]


def test_a_link_under_the_name_of_the_new_journal_is_removed_and_not_followed(tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path, "a problem")
    path, victim = scratch.path.with_suffix(".new"), tmp_path / "victim"
    scratch.close()
    victim.write_text("precious")
    path.symlink_to(victim)
    Disk(LAYOUT, 0, tmp_path, "a problem").close()
    assert list(tmp_path.iterdir()) == [victim]
    assert victim.read_text() == "precious"


def test_a_scratch_file_of_another_user_is_refused(tmp_path):
    scratch = Disk(LAYOUT, 0, tmp_path, "a problem")
    path = scratch.path
    scratch.close()
    path.write_text("")
    path.chmod(0o600)
    try:
        os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("no right to give a file to another user")
    with pytest.raises(gx.InvalidInput, match=r"belongs to another user \(uid 12345\)"):
        Disk(LAYOUT, 0, tmp_path, "a problem")


def test_tiles_without_their_journal_are_computed_again(whole, killed):
    journal_of(killed).unlink()
    store = store_of("mixed", killed)
    assert counted(store) == 45
    assert bits(store) == whole["mixed"][1]


def test_the_journal_names_no_tile_that_is_not_on_the_disk(monkeypatch, tmp_path):
    """Entries are written after the tiles are: fdatasync comes between."""
    calls = []
    sync, force = os.fdatasync, os.fsync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (calls.append("tiles"), sync(fd)))
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("journal"), force(fd)))
    scratch = Disk(LAYOUT, 0, tmp_path, "a problem")
    scratch.note(["tile", 0, 0], at_once=True)
    scratch.note(["tile", 1, 0])
    assert calls == ["tiles", "journal"]
    assert entries_of(tmp_path) == [["tile", 0, 0]]
    monkeypatch.setattr(memories, "JOURNAL_INTERVAL_SECONDS", 0.0)
    scratch.note(["tile", 2, 0])
    assert entries_of(tmp_path) == [
        ["tile", 0, 0],
        ["tile", 1, 0],
        ["tile", 2, 0],
    ]


@pytest.mark.slow
def test_a_run_that_ctrl_c_ends_leaves_what_a_killed_one_leaves(monkeypatch, tmp_path):
    seen = gx.Observations(np.random.default_rng(0).random((257, 2)), np.zeros(257))
    model, method = (
        gx.Matern(1.0, 0.1, 0.5, 1e-2),
        gx.Exact(tile=32, memory="1MB", scratch=tmp_path),
    )
    expected = gx.log_likelihood(seen, model, method).log_determinant
    assert not list(tmp_path.iterdir())
    tile = assemble.Originals.tile

    def stopped(originals, i, k, *rest, **options):
        if (i, k) == (6, 6):
            raise KeyboardInterrupt
        return tile(originals, i, k, *rest, **options)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(assemble.Originals, "tile", stopped)
        # norms are taken beforehand
        interrupted.setattr(assemble.Originals, "norms", lambda self: np.ones((9, 9)))
        with pytest.raises(KeyboardInterrupt):
            gx.log_likelihood(seen, model, method)
    gc.collect()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".journal", ".tiles"]
    assert gx.log_likelihood(seen, model, method).log_determinant == expected
    gc.collect()
    assert not list(tmp_path.iterdir())
