"""Waiting for what comes when it comes: only a failure waits to the end."""

import time

PATIENCE = 300.0
"""Seconds, for a machine that is slow and busy."""


def comes_true(condition, seconds=PATIENCE):
    """Wait for a condition; return whether it came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_until(condition, seconds=PATIENCE):
    """Wait for a condition that must come true."""
    assert comes_true(condition, seconds), "what was waited for has not come"
