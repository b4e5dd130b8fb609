"""What all tests share."""

import pytest

import geomxp as gx


def pytest_collection_modifyitems(items):
    """GPU tests are skipped aloud where there is none."""
    try:
        from geomxp.execution.devices import resolve

        resolve("gpu")
    except gx.GeomxpError as error:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=str(error)))
