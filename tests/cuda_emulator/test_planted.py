"""The tests of GPU code catch faults."""

import os
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from cuda_emulator import planted


@pytest.fixture(scope="module")
def runs():
    """The runs with each fault, some at a time."""
    if find_spec("distributed"):
        # each run is then a copy of the process that Dask workers are copies of
        import clusters

        clusters.begin()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield {fault: threads.submit(planted.caught, fault) for fault in planted.FAULTS}
        threads.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", planted.FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault, runs):
    found, output = runs[fault].result()
    assert found, output


def test_without_a_fault_the_test_passes():
    fault = next(each for each in planted.FAULTS if each.file == "linalg/device.py")
    found, output = planted.caught(fault._replace(new=fault.old))
    assert not found, output


def test_the_readme_lists_the_planted_faults():
    assert planted.table() in (planted.ROOT / "tests/cuda_emulator/README.md").read_text()
