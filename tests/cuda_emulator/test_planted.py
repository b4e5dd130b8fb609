"""The tests of GPU code catch faults."""

import pytest

from cuda_emulator import planted


@pytest.mark.slow
@pytest.mark.parametrize("fault", planted.FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault):
    found, output = planted.caught(fault)
    assert found, output


def test_the_readme_lists_the_planted_faults():
    assert planted.table() in (planted.ROOT / "tests/cuda_emulator/README.md").read_text()
