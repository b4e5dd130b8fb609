"""What all tests share."""

import os

import pytest
from hypothesis import HealthCheck, settings

import geomxp as gx

# examples are as slow as the machine, which may pause in one of them; CI draws always the same
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("patient")


def pytest_collection_modifyitems(items):
    """GPU tests are skipped aloud where there is none."""
    try:
        from geomxp.execution.devices import resolve

        resolve("gpu")
    except gx.GeomxpError as error:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(scope="module")
def client():
    """The client of a Dask cluster with two worker processes of a thread each."""
    from clusters import start

    local, client = start()
    yield client
    client.close()
    local.close()


@pytest.fixture
def workers(client):
    """Their addresses; those that a test has killed were started anew."""
    from clusters import present

    return present(client)
