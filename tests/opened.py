"""What this process has open."""

import os


def open_files():
    """Return how many files are open: connections of other tests' clusters come and go."""
    folder = "/proc/self/fd"
    return sum(map(_is_file, (os.path.join(folder, number) for number in os.listdir(folder))))


def _is_file(descriptor):
    try:
        return os.readlink(descriptor).startswith("/")
    except OSError:
        # that of the listing itself
        return False
