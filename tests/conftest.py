"""Options, markers and fixtures of all tests."""

import os
from collections import Counter
from pathlib import Path

import pytest
from cuda_emulator import session
from hypothesis import HealthCheck, settings

# no deadlines, because the machine may be loaded; CI always draws the same examples
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("patient")

WHERE, REASON = pytest.StashKey[str](), pytest.StashKey[str]()
EMULATION = pytest.StashKey[object]()

SLOW = Path(__file__).parent / "slow.txt"
"""Names of the test functions whose cases took more than a few seconds together when measured."""


def pytest_addoption(parser):
    parser.addoption(
        "--gpu",
        choices=("real", "emulated", "none"),
        help="where tests marked `gpu` run; default: a real GPU if there is one, else emulated",
    )
    parser.addoption(
        "--record-slow",
        type=float,
        metavar="SECONDS",
        help="write the names of the test functions that take longer to tests/slow.txt",
    )


def pytest_configure(config):
    if getattr(config.option, "numprocesses", None):
        # pytest-xdist: its workers inherit this, so that they do not compete for the cores
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    where = config.getoption("--gpu")
    if where == "real" and not session.real_gpus():
        raise pytest.UsageError("--gpu=real found no GPU, or no CuPy: use --gpu=emulated")
    where = where or ("real" if session.real_gpus() else "emulated")
    config.stash[WHERE], config.stash[REASON] = where, "--gpu=none"
    if where == "emulated" and not session.compiler():
        reason = "the CUDA emulator needs g++, which was not found"
        config.stash[WHERE], config.stash[REASON] = "none", reason


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    slow = set(SLOW.read_text().split())
    for item in items:
        if function_of(item.nodeid) in slow or item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.slow)
        if config.stash[WHERE] == "none" and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=config.stash[REASON]))


def function_of(nodeid):
    """Return the name of a test's function, without file, class and parameters."""
    return nodeid.partition("[")[0].rpartition("::")[2]


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
    record_slow(terminalreporter, config.getoption("--record-slow"))
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


def record_slow(terminalreporter, limit):
    """Write the test functions that took longer than a limit in seconds to tests/slow.txt."""
    if limit is None:
        return
    seconds = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                seconds[function_of(report.nodeid)] += report.duration
    sources = "".join(path.read_text() for path in SLOW.parent.rglob("test_*.py"))
    slow = {name for name, duration in seconds.items() if duration > limit}
    not_run = {name for name in SLOW.read_text().split() if name not in seconds}
    exist = {name for name in slow | not_run if f"def {name}(" in sources}
    SLOW.write_text("".join(f"{name}\n" for name in sorted(exist)))


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
