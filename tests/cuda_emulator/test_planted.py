"""The tests of GPU code catch faults."""

import os
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from cuda_emulator import planted


@pytest.fixture(scope="module")
def begun():
    """The process that each run is a copy of: that of Dask workers, if there is Dask."""
    if find_spec("distributed"):
        import clusters

        clusters.begin()


@pytest.fixture(scope="module")
def runs(begun):
    """The runs with each fault, some at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield {fault: threads.submit(planted.caught, fault) for fault in planted.FAULTS}
        threads.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", planted.FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault, runs):
    found, output = runs[fault].result()
    assert found, output


@pytest.mark.slow
def test_without_a_fault_the_test_passes(begun):
    fault = next(each for each in planted.FAULTS if each.file == "linalg/device.py")
    found, output = planted.caught(fault._replace(new=fault.old))
    assert not found, output


def test_the_readme_lists_the_planted_faults():
    assert planted.table() in (planted.ROOT / "tests/cuda_emulator/README.md").read_text()
