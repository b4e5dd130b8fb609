"""Options, markers and fixtures of all tests."""

import gc
import os
import random
from pathlib import Path

import pytest
from cuda_emulator import session
from hypothesis import HealthCheck, settings
from seconds import longest_first

# no deadlines, because the machine may be loaded; CI always draws the same examples
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("patient")

WHERE, REASON = pytest.StashKey[str](), pytest.StashKey[str]()
EMULATION, STATE = pytest.StashKey[object](), pytest.StashKey[dict]()


# their import would compute, or load libraries, and change this process
collect_ignore_glob = ["begun.py", "golden/record.py", "references/make_*.py"]
collect_ignore_glob += ["likelihood/concurrent_calls.py"]

SECONDS = Path(__file__).parents[1] / "docs/pages/development/seconds.md"


def pytest_addoption(parser):
    parser.addoption(
        "--gpu",
        choices=("real", "emulated", "none"),
        help="where to run tests marked `gpu`: on a GPU, on the CUDA emulator, or not at all "
        "(default: on a GPU if there is one, otherwise emulated)",
    )
    parser.addoption(
        "--fuzz",
        type=int,
        metavar="N",
        help="total number of new random cases for tests/fuzz (default: the same few in each run)",
    )
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run the test files, and the tests within each file, in the random order of SEED",
    )


def pytest_configure(config):
    if hasattr(config.option, "loadscopereorder"):
        # pytest-xdist would begin with the files that have the most tests
        config.option.loadscopereorder = False
    if getattr(config.option, "numprocesses", None):
        # pytest-xdist: its workers inherit this, so that they do not compete for the cores
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    where = config.getoption("--gpu")
    if where == "real" and not session.real_gpus():
        raise pytest.UsageError(
            "--gpu=real needs a GPU and CuPy, and one was not found: use --gpu=emulated"
        )
    where = where or ("real" if session.real_gpus() else "emulated")
    config.stash[WHERE], config.stash[REASON] = where, "--gpu=none"
    if where == "emulated" and not session.compiler():
        reason = "the CUDA emulator needs g++, which was not found"
        config.stash[WHERE], config.stash[REASON] = "none", reason


def pytest_sessionstart(session):
    session.config.stash[STATE] = _state()


def pytest_collection_finish(session):
    # many tests collect garbage: not among modules and tests, which stay
    gc.freeze()
    before = session.config.stash[STATE]
    changed = {name: x for name, x in _state().items() if before.get(name) != x}
    session.config.stash[STATE] = changed


@pytest.fixture(scope="session")
def changed_by_collection(pytestconfig):
    """The settings of this process that the import of all tests has changed."""
    return pytestconfig.stash[STATE]


def _state():
    """Return settings that hold for all tests, so that no module may change them when imported."""
    from geomxp.runtime import devices

    numbers = {name: x for name, x in vars(devices).items() if isinstance(x, int | float)}
    return numbers | {name: x for name, x in os.environ.items() if name.endswith("_THREADS")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    seed = config.getoption("--shuffle")
    if seed is not None:
        items.sort(key=lambda item: _drawn(seed, item.nodeid))
        items.sort(key=lambda item: _drawn(seed, str(item.path)))
    elif hasattr(config, "workerinput"):
        # no worker is alone with a long file at the end
        page = SECONDS.read_text(encoding="utf-8") if SECONDS.exists() else ""
        first = {name: k for k, name in enumerate(longest_first(page))}
        items.sort(key=lambda item: first.get(item.location[0], len(first)))
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.slow)
        if config.stash[WHERE] == "none" and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=config.stash[REASON]))


def _drawn(seed, name):
    return random.Random(f"{seed} {name}").random()


@pytest.fixture(scope="session", autouse=True)
def _compilation_is_not_announced():
    """On a machine without compiled code, some tests would find the notice on standard error."""
    from geomxp.runtime import devices

    devices.COMPILATION_NOTICE_SECONDS, before = 1e6, devices.COMPILATION_NOTICE_SECONDS
    yield
    devices.COMPILATION_NOTICE_SECONDS = before


@pytest.fixture(params=["matrix units", "AVX-512", "widening"])
def way(request, monkeypatch):
    """How a CPU multiplies coarse formats: on matrix units, BF16 in AVX-512, or in FP32."""
    from geomxp.linalg import blas
    from geomxp.linalg.formats import BF16

    if request.param == "widening":
        monkeypatch.setattr(blas, "has_unit", lambda form: False)
    elif request.param == "AVX-512":
        monkeypatch.setattr(blas, "on_matrix_units", lambda form: False)
        if not blas.in_avx512(BF16):
            pytest.skip("this CPU has no instructions of AVX-512 for BF16")
    elif not blas.on_matrix_units(BF16):
        pytest.skip("this CPU has no matrix units for BF16, or MKL is not installed")
    return request.param


def emulated(item):
    """Return whether a test is to run on the emulator."""
    return item.config.stash[WHERE] == "emulated" and item.get_closest_marker("gpu")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if emulated(item):
        item.stash[EMULATION] = session.emulation(item.nodeid)
        item.stash[EMULATION].__enter__()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a test in which the emulator found a violation, even if the code caught its error."""
    try:
        return (yield)
    finally:
        if emulated(item):
            from cuda_emulator import machine

            found = session.faults_of(machine)
            if found:
                pytest.fail("the CUDA emulator found:\n" + "\n".join(found), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    try:
        return (yield)
    finally:
        if EMULATION in item.stash:
            item.stash[EMULATION].__exit__(None, None, None)
            del item.stash[EMULATION]


def pytest_terminal_summary(terminalreporter, config):
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if "gpu" in report.keywords and report.when == "call"
    ]
    if reports:
        passed = sum(report.passed for report in reports)
        place = {"real": "on a GPU", "emulated": "on the CUDA emulator", "none": "nowhere"}
        terminalreporter.write_line(
            f"GPU tests: {len(reports)} ran {place[config.stash[WHERE]]}, {passed} passed."
        )


@pytest.fixture(scope="module")
def client():
    """Client of a Dask cluster of two worker processes with one thread each."""
    from clusters import start

    local, client = start()
    yield client
    client.close()
    local.close()


@pytest.fixture
def workers(client):
    """Addresses of the workers; killed workers have been restarted."""
    from clusters import present

    return present(client)
