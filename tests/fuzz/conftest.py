"""The number of cases of the fuzz suite."""

import fuzzing


def pytest_configure(config):
    fuzzing.wanted = config.getoption("--fuzz")
