"""Only tests are collected here: the emulator's modules have no doctests."""

import pytest

from cuda_emulator import session

collect_ignore_glob = ["packages/*", "[!t]*.py"]


@pytest.fixture
def machine(request):
    """The emulated machine: `import cupy` gives the emulator, which must find no fault."""
    with session.emulation(request.node.nodeid) as machine:
        yield machine
        assert session.faults_of(machine) == []
