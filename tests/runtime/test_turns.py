"""Turns at BLAS: one number of threads for the whole process, and many callers."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import scipy.linalg  # noqa: F401  (loads its BLAS)

from geomxp.runtime import devices, turns

threadpoolctl = pytest.importorskip("threadpoolctl")
PATIENCE = 120
"""Seconds after which a test that waits for another thread fails."""


def blas():
    """Return the numbers of threads of the BLAS libraries."""
    found = threadpoolctl.threadpool_info()
    return [one["num_threads"] for one in found if one["internal_api"] == "openblas"]


def has(number):
    return set(blas()) <= {number}


class Caller:
    """A thread that computes in a turn until it is told to leave."""

    def __init__(self, number):
        self.number, self.inside, self.go = number, threading.Event(), threading.Event()
        self.right, self.thread = None, threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        with turns.turn(self.number):
            self.inside.set()
            self.go.wait(PATIENCE)
            self.right = has(self.number)

    def enter(self):
        assert self.inside.wait(PATIENCE)
        return self

    def leave(self):
        self.go.set()
        self.thread.join(PATIENCE)
        assert self.right


def test_the_last_of_overlapping_turns_restores_the_number():
    before = blas()
    first = Caller(1).enter()
    # it enters during the first turn, and leaves after it
    second = Caller(1).enter()
    first.leave()
    assert has(1)
    second.leave()
    assert blas() == before


def test_callers_with_different_numbers_do_not_compute_at_the_same_time():
    before = blas()
    first = Caller(1).enter()
    second = Caller(3)
    assert not second.inside.wait(0.05)
    first.leave()
    second.enter().leave()
    assert blas() == before


def test_a_caller_waits_behind_one_that_needs_another_number():
    """Otherwise callers of one number that follow each other would keep the others out."""
    first = Caller(1).enter()
    other = Caller(2)
    while not turns._gate._queue:
        pass
    third = Caller(1)
    assert not third.inside.wait(0.05)
    first.leave()
    other.enter()
    assert not third.inside.is_set()
    other.leave()
    third.enter().leave()


def test_inside_a_turn_the_number_changes_and_is_the_same_again():
    before = blas()
    with turns.turn(3):
        with turns.turn(1), turns.turn(1):
            assert has(1)
        assert has(3)
        with turns.given_up():
            assert blas() == before
        assert has(3)
    assert blas() == before


@pytest.mark.parametrize("number", [1, 3])
def test_after_an_exception_blas_has_its_threads_again(number):
    before = blas()

    def failing():
        with turns.turn(2), turns.turn(number):
            raise KeyError(number)

    with pytest.raises(KeyError):
        failing()
    assert blas() == before
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(failing) for _ in range(40)]:
            assert isinstance(future.exception(PATIENCE), KeyError)
    assert blas() == before


@pytest.mark.slow
def test_callers_whose_numbers_change_in_opposite_orders_all_end():
    before = blas()

    def call(k):
        outer, inner = (1, 3) if k % 2 else (3, 1)
        with turns.turn(outer):
            right = has(outer)
            with turns.turn(inner):
                right &= has(inner)
            return right & has(outer)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(40), timeout=PATIENCE))
    assert blas() == before


@pytest.mark.parametrize("share", ["share", "in_threads", "in_kept_thread"])
def test_threads_that_work_for_a_caller_have_its_turn(share, monkeypatch):
    """They would wait for the caller that waits in the queue, and this one for them."""
    monkeypatch.setattr(devices, "usable_cores", lambda: 3)
    seen = []

    def work(_=None):
        # another number than the caller's: the caller's holds
        with turns.turn(2):
            seen.append(has(1))

    with turns.turn(1):
        other = Caller(2)
        while not turns._gate._queue:
            pass
        if share == "share":
            devices.share(work, range(6), 3)
        elif share == "in_threads":
            devices.in_threads(work, range(6), 10**6)
        else:
            devices.in_kept_thread(turns.working_for(work))()
        assert not other.inside.is_set()
    other.enter().leave()
    assert seen
    assert all(seen)


def test_a_caller_that_waits_for_another_thread_gives_up_its_turn():
    """As one that waits for tasks of a cluster whose workers are threads of this process."""
    with turns.turn(3):
        with turns.given_up():
            Caller(1).enter().leave()
        assert has(3)


SCRIPT = """
import os, sys, threading
os.environ.update(OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
import threadpoolctl
from geomxp.runtime.turns import turn

def blas():
    found = threadpoolctl.threadpool_info()
    return {one["num_threads"] for one in found if one["user_api"] == "blas"}

inside, go = threading.Event(), threading.Event()

def other():
    with turn(1):
        inside.set()
        go.wait()

thread = threading.Thread(target=other)
with turn(2):
    pass
thread.start()
inside.wait()
child = os.fork()
if not child:
    # the thread that had the turn is not in this process
    alone = blas()
    with turn(1):
        within = blas()
    os._exit((alone, within, blas()) != ({2}, {1}, {2}))
go.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or blas() != {2})
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_process_has_no_turns_of_other_threads():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], timeout=PATIENCE)
    assert done.returncode == 0
