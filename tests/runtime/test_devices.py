import os
import platform
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from geomxp.runtime import devices


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_cpu_quota_of_a_container_is_believed(tmp_path, files, cores):
    write(tmp_path, files)
    assert devices.cpu_quota(tmp_path) == cores


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "1000", "memory.current": "400"}, 600),
        ({"memory.max": "max", "memory.current": "400"}, None),
        ({"memory/memory.limit_in_bytes": "9" * 19, "memory/memory.usage_in_bytes": "1"}, None),
        ({}, None),
    ],
)
def test_memory_limit_of_a_container_is_believed(tmp_path, files, left):
    write(tmp_path, files)
    assert devices.memory_limit(tmp_path) == left


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")


def test_cores_follow_the_quota(monkeypatch):
    monkeypatch.setattr(devices, "cpu_quota", lambda: 0.5)
    assert devices.usable_cores() == 1


def test_cores_follow_the_variable_that_openmp_follows(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert devices.usable_cores() == 1


def test_blas_runs_on_one_thread_for_small_matrices():
    from threadpoolctl import threadpool_info

    with devices.blas_threads(10):
        # MKL, which may have been loaded since, is told by `linalg.blas`
        open_blas = [lib for lib in threadpool_info() if lib["internal_api"] == "openblas"]
        counts = {lib["num_threads"] for lib in open_blas}
    assert counts == {1}


@pytest.mark.parametrize(("asked", "threads"), [("1", 1), ("2", 2), ("9,4", 3), ("", 3), ("x", 3)])
def test_threads_of_blas_follow_the_variable_of_openblas(asked, threads, monkeypatch):
    from threadpoolctl import threadpool_info

    monkeypatch.setattr(devices, "usable_cores", lambda: 3)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)
    with devices.blas_threads(10_000):
        open_blas = [lib for lib in threadpool_info() if lib["internal_api"] == "openblas"]
        counts = {lib["num_threads"] for lib in open_blas}
    assert counts == {threads}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the mode of the processor is set on Linux on x86-64 only",
)
def test_subnormal_numbers_are_zero_inside_the_block_only():
    small, subnormal = np.array([1e-200]), np.array([1e-310])
    with devices.subnormals_as_zero():
        inside = (small * 1e-110)[0], (subnormal * 2)[0]
    assert inside == (0.0, 0.0)
    assert (small * 1e-110)[0] == 1e-310

    def failing():
        with devices.subnormals_as_zero():
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert (small * 1e-110)[0] == 1e-310


def test_a_cluster_is_an_address_or_a_client():
    assert devices.is_cluster("tcp://127.0.0.1:8786")
    assert not devices.is_cluster("cpu")


@pytest.mark.parametrize(
    ("count", "text"), [(7.5e9, "7.5 GB"), (2e6, "2.0 MB"), (4096, "4.1 kB"), (12, "12 bytes")]
)
def test_bytes_are_written_with_a_unit(count, text):
    assert devices.human_bytes(count) == text


def test_threads_share_items_and_keep_their_order(monkeypatch):
    monkeypatch.setattr(devices, "usable_cores", lambda: 4)
    together = threading.Barrier(4, timeout=30)

    def work(item):
        if item < 4:
            together.wait()
        return item * item, threading.get_ident()

    squares, threads = zip(*devices.in_threads(work, range(100), 1_000_000), strict=True)
    assert squares == tuple(k * k for k in range(100))
    assert len(set(threads)) == 4


def test_after_errors_no_item_begins_and_the_first_items_error_is_raised(monkeypatch):
    monkeypatch.setattr(devices, "usable_cores", lambda: 2)
    together, begun, failed = threading.Barrier(2, timeout=30), [], threading.Event()

    def work(item):
        begun.append(item)
        if item < 2:
            together.wait()
        if item == 0:
            failed.wait(30)
            # the other thread has time to begin another item
            time.sleep(0.2)
        failed.set()
        raise ArithmeticError(f"item {item}")

    with pytest.raises(ArithmeticError, match="item 0"):
        devices.in_threads(work, range(50), 1_000_000)
    assert set(begun) == {0, 1}


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends a process on Windows")
def test_after_an_interruption_no_item_begins(monkeypatch):
    """Ctrl-C raises in the main thread only, which waits for the others."""
    monkeypatch.setattr(devices, "usable_cores", lambda: 2)
    begun = []

    def work(item):
        begun.append(item)
        if item == 1:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            devices.in_threads(work, range(50), 1_000_000)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) <= 4


# brief work, shared with kept threads


def idents(threads, items=100):
    """Return the threads that share items; all take part."""
    together = threading.Barrier(threads, timeout=30)
    seen, done = {}, []

    def work(item):
        if threading.get_ident() not in seen:
            seen[threading.get_ident()] = item
            together.wait()
        done.append(item)

    devices.share(work, range(items), threads)
    assert sorted(done) == list(range(items))
    return set(seen)


def test_brief_work_is_shared_by_the_caller_and_kept_threads():
    first, again = idents(3), idents(3)
    assert len(first) == 3
    assert threading.get_ident() in first
    assert again == first
    assert idents(1) == {threading.get_ident()}


def test_a_single_item_is_done_by_the_caller():
    found = []
    devices.share(lambda item: found.append(threading.get_ident()), [7], 4)
    assert found == [threading.get_ident()]
    devices.share(found.append, [], 4)
    assert len(found) == 1


def test_threads_within_brief_work_share_work_too():
    inner = []
    devices.share(lambda _: devices.share(inner.append, range(5), 3), range(4), 3)
    assert sorted(inner) == sorted([*range(5)] * 4)


@pytest.mark.parametrize("failing", ["caller", "kept thread"])
def test_an_error_in_brief_work_is_raised_and_ends_it(failing):
    me, together, begun = threading.get_ident(), threading.Barrier(2, timeout=30), []

    def work(item):
        begun.append(item)
        if item < 2:
            together.wait()
        if (threading.get_ident() == me) == (failing == "caller"):
            raise ArithmeticError(f"item {item}")
        # the other thread has time to fail
        time.sleep(0.1)

    with pytest.raises(ArithmeticError):
        devices.share(work, range(50), 2)
    assert len(begun) <= 4
    assert len(idents(2)) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends a process on Windows")
def test_after_an_interruption_no_brief_work_begins():
    begun, ended = [], []

    def work(item):
        begun.append(item)
        if item == 1:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        ended.append(item)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            devices.share(work, range(50), 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) <= 4
    # none is still at work
    assert len(begun) - len(ended) <= 1


def test_kept_threads_compute_with_subnormal_numbers_wherever_they_were_started(monkeypatch):
    monkeypatch.setattr(devices, "_idle", [])
    together, me = threading.Barrier(2, timeout=30), threading.get_ident()
    found = {}

    def work(_):
        together.wait()
        found[threading.get_ident()] = float(np.float64(1e-300) * np.float64(1e-15))

    with devices.subnormals_as_zero():
        devices.share(work, range(2), 2)
    mine = found.pop(me)
    assert mine == (0.0 if devices._has_mxcsr() else 1e-315)
    assert list(found.values()) == [1e-315]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_a_child_process_starts_its_own_threads():
    assert len(idents(2)) == 2
    with warnings.catch_warnings():
        # Python 3.12 warns of threads, which the child does not use
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            # ends the child if it hangs
            signal.alarm(60)
            os._exit(0 if len(idents(2)) == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_at_most_limits_the_cores_of_the_calling_thread(monkeypatch):
    monkeypatch.setattr(devices, "cpu_quota", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with devices.at_most(3):
        assert devices.usable_cores() == 3
        for inner, cores in ((1, 1), (7, 3)):
            with devices.at_most(inner):
                assert devices.usable_cores() == cores
        assert devices.usable_cores() == 3
    assert devices.usable_cores() == 64


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this needs Linux")
def test_shared_work_keeps_off_the_core_of_the_calling_thread(monkeypatch):
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("this needs two cores")
    assert devices._current_core() in cores
    mine = min(cores)
    monkeypatch.setattr(devices, "_idle", [])
    monkeypatch.setattr(devices, "_current_core", lambda: mine)
    together, found, woken = threading.Barrier(2, timeout=30), {}, []

    def noted(thread, cores, run_on=devices._run_on):
        woken.append(cores)
        run_on(thread, cores)

    def work(_):
        together.wait()
        found[threading.get_ident()] = os.sched_getaffinity(0)

    monkeypatch.setattr(devices, "_run_on", noted)
    devices.share(work, range(2), 2)
    assert found.pop(threading.get_ident()) == cores
    # awake, it may run on all cores again
    assert list(found.values()) == [cores]
    assert woken == [cores - {mine}, cores]


def test_a_thread_that_cannot_start_leaves_nobody_at_work(monkeypatch):
    monkeypatch.setattr(devices, "_idle", [])
    ended, start = [], devices.in_kept_thread

    def second_fails(work, elsewhere, started=[]):  # noqa: B006
        if started:
            raise RuntimeError("can't start new thread")
        started.append(1)
        return start(work, elsewhere)

    def work(item):
        time.sleep(0.05)
        ended.append(item)

    monkeypatch.setattr(devices, "in_kept_thread", second_fails)
    with pytest.raises(RuntimeError, match="start new thread"):
        devices.share(work, range(50), 3)
    count = len(ended)
    time.sleep(0.2)
    assert len(ended) == count <= 2


def test_loops_are_compiled_where_none_can_be_kept(monkeypatch):
    caching = pytest.importorskip("numba.core.caching")
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert devices.njit(cache=True)(lambda x: x + 1.5)(1.0) == 2.5


@pytest.mark.slow
def test_loops_are_compiled_anew_when_a_module_that_they_use_has_changed(tmp_path):
    constants, within = tmp_path / "constants.py", tmp_path / "within.py"
    constants.write_text("import numpy as np\nTEN = 10\nARRAY = np.array([100.0])\n")
    within.write_text(
        "from geomxp.runtime.devices import njit\n"
        "@njit(cache=True)\ndef one(x):\n    return 1.0 + x\n"
    )
    (tmp_path / "user.py").write_text(
        "from constants import ARRAY, TEN\nfrom within import one\n"
        "from geomxp.runtime.devices import njit\n"
        "@njit(cache=True)\ndef both(x):\n    return one(x) + TEN + ARRAY[0]\n"
        "print(both(0.0), sum(both.stats.cache_hits.values()))\n"
    )

    def run():
        # without .pyc files, which may seem to be up to date
        command = [sys.executable, "-B", "-c", "import user"]
        about = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
        return subprocess.check_output(command, env=about, text=True).split()

    assert run() == ["111.0", "0"]
    assert run() == ["111.0", "1"]
    changes = [
        (within, "1.0", "3.0"),
        (constants, "TEN = 10", "TEN = 20"),
        (constants, "100", "300"),
    ]
    for (path, old, new), value in zip(changes, ("113.0", "123.0", "323.0"), strict=True):
        path.write_text(path.read_text().replace(old, new))
        assert run() == [value, "0"]
    assert run() == ["323.0", "1"]
