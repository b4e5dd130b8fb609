"""What tests of the command line share."""

import pytest

from geomxp.cli.main import main


@pytest.fixture
def run(capsys):
    """A function that runs a command and returns its status, output and messages."""

    def run(*arguments):
        status = main(list(map(str, arguments)))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
