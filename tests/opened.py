"""What this process has open."""

import gc
import os

import pytest


def open_files(folder):
    """Return the open files below a folder: other files and connections come and go by themselves.

    Files without a name are listed under the folder they were made in.
    """
    descriptors = "/proc/self/fd"
    if not os.path.isdir(descriptors):
        pytest.skip("this system does not list a process's open files")
    gc.collect()
    found = (_target(os.path.join(descriptors, number)) for number in os.listdir(descriptors))
    below = os.path.join(os.path.realpath(folder), "")
    return sorted(path for path in found if path.startswith(below))


def _target(descriptor):
    try:
        return os.readlink(descriptor)
    except OSError:
        # that of the listing itself
        return ""
