"""Map a function over independent items, in this process or on a Dask cluster.

A task is not bound to a worker: Dask repeats it on another one if its worker is lost. Arguments
are pickled here, in one piece: arrays that Dask unpacks may be unaligned and read-only. Results
have the same bits wherever they are computed.
"""

import pickle
import time
import uuid
import warnings
from collections import deque
from contextvars import ContextVar
from functools import cache

from ..errors import GeomxpError, GeomxpWarning, InvalidInput, LostCluster
from .dask import (
    CHECK_INTERVAL_SECONDS,
    REPLACEMENT_SECONDS,
    TOLERATED_LOSSES,
    DaskBackend,
    address_of,
    itself,
    other_version,
)
from .devices import is_cluster, pinned, usable_cores
from .turns import given_up

MOST_TASKS_AHEAD = 100
"""Unfinished tasks that the scheduler holds at most, or two per thread of the cluster if more."""

_process = uuid.uuid4().hex
"""Identifier of this process."""

_warned = ContextVar("warned", default=None)
"""Warnings of the task that a thread runs, so far."""


class Tasks:
    """Independent computations in this process or on a Dask cluster.

    `on` is "cpu" (this process, one task after the other) or a cluster: the address of its
    scheduler, or a client. `method` is the method that each task computes with; it must use no
    cluster and no scratch directory itself. Messages call the caller's argument `option`. `threads`
    tasks run at the same time.
    """

    def __init__(self, on="cpu", method=None, option="on"):
        self.workers, self.local, self.threads = None, True, 1
        if isinstance(on, str) and on == "cpu":
            return
        if not is_cluster(on):
            raise InvalidInput(
                f'`{option}` must be "cpu" (this process) or a Dask cluster: the address of its '
                f'scheduler, such as "tcp://host:8786", or a client. Got {on!r}.'
            )
        if method is not None and is_cluster(method.on):
            raise InvalidInput(
                f"`{option}` distributes independent computations, and this method already "
                f'computes on a cluster: leave `{option}` out, or use a method with on="cpu".'
            )
        if method is not None and method.scratch is not None:
            raise InvalidInput(
                f"`scratch` keeps the tiles of one computation, and `{option}` runs several at the "
                "same time: leave one of them out."
            )
        self.workers, self.local = DaskBackend(address_of(on)), False
        self.threads = self.workers.threads

    def over(self, function, common, items, on_done=lambda: None):
        """Yield function(common, item) of all items, in order; the first error in order is raised.

        `function` is imported by workers by name; equal arguments must give equal bits. `common` is
        sent to each worker once. on_done() is called whenever a task is done, in any order.
        """
        if self.local:
            for item in items:
                result = function(common, item)
                on_done()
                yield result
            return
        run = _Run(self.workers, function, common, items, on_done)
        try:
            for k in range(len(items)):
                yield run.result(k)
        finally:
            # also when the caller is interrupted
            run.cancel()


class _Run:
    """The tasks of one call: those on the cluster, and results that wait for their turn."""

    def __init__(self, workers, function, common, items, on_done):
        self.workers, self.client, self.on_done = workers, workers.client, on_done
        self._call, self._items = _packed((function, common)), items
        self._waiting = deque(range(len(items)))
        self._ahead = max(MOST_TASKS_AHEAD, 2 * workers.threads)
        self._common, self._tasks, self._arrived = None, {}, {}
        self._losses, self._last_worker = 0, time.monotonic()
        workers.forget_paused()

    def result(self, k):
        """Wait for item k; return its result or raise its exception."""
        while k not in self._arrived:
            self._send()
            self._wait()
        outcome = self._arrived.pop(k)
        if isinstance(outcome, Exception):
            raise outcome
        result, warned = outcome
        for message in warned:
            # attributed to the caller of the public function, whose helper asks for the results
            warnings.warn(message, GeomxpWarning, stacklevel=5)
        return result

    def cancel(self):
        """Cancel all tasks and release their data."""
        self._drop(list(self._tasks))
        if self._common is not None:
            self._forget([self._common])
            self._common = None

    def _send(self):
        """Submit the next items until the scheduler holds enough."""
        import asyncio

        from .._version import __version__

        if self._common is None:
            # a task, not scattered data: Dask repeats it if its worker is lost
            self._common = self.workers.submit(None, itself, self._call)
        loop = self.client.loop.asyncio_loop
        while self._waiting and len(self._tasks) < self._ahead:
            k = self._waiting[0]
            arguments = __version__, _process, self._common, _packed(self._items[k])
            task = self.workers.submit(None, _call, *arguments)
            coming = asyncio.run_coroutine_threadsafe(self._gathered(task), loop)
            self._tasks[k] = task, coming
            self._waiting.popleft()

    async def _gathered(self, task):
        # if a worker is lost before its result has arrived, this waits for the repeated task
        return await self.client.gather(task, asynchronous=True)

    def _wait(self):
        """Wait until a task is done, and take its result."""
        from concurrent import futures

        numbers = {coming: k for k, (_, coming) in self._tasks.items()}
        with given_up():
            done, _ = futures.wait(numbers, CHECK_INTERVAL_SECONDS, futures.FIRST_COMPLETED)
        if not done:
            self._check_workers()
            return
        self._last_worker, cancelled = time.monotonic(), False
        self.workers.forget_paused()
        for k in sorted(numbers[coming] for coming in done):
            # a failure drops the tasks after it
            if k in self._tasks:
                cancelled |= not self._take(k)
        if cancelled:
            self._begin_anew()

    def _take(self, k):
        """Take the result or the exception of item k; return False if its task was cancelled."""
        from distributed import KilledWorker

        task, coming = self._tasks[k]
        try:
            outcome = coming.result()
        except Exception as error:
            if task.status != "error":
                # cancelled by another client, or with the connection
                return False
            outcome = error
            if isinstance(error, KilledWorker):
                outcome = LostCluster(
                    f"{error.allowed_failures + 1} workers that ran task {k + 1} of "
                    f"{len(self._items)} were lost, the last at {error.last_worker.address}: see "
                    "their logs. The usual cause is too little memory."
                )
        del self._tasks[k]
        self._arrived[k] = outcome
        if isinstance(outcome, Exception):
            # earlier items may fail as well: the first failure is raised
            self._waiting = deque(other for other in self._waiting if other < k)
            self._drop([other for other in self._tasks if other > k])
        else:
            self.on_done()
        # released here: in the future's finalizer Python would swallow a Ctrl-C
        task.release()
        return True

    def _drop(self, items):
        """Cancel some items on the scheduler, which also ends the waiting for them."""
        self._forget([self._tasks.pop(k)[0] for k in items])

    def _forget(self, tasks):
        # a lost scheduler has no tasks
        if tasks and self.client.status == "running" and not self.workers.given_up:
            self.client.cancel(tasks)

    def _begin_anew(self):
        """Submit the cancelled tasks again: the scheduler or all workers have restarted."""
        self._check_workers()
        self._losses += 1
        if self._losses > TOLERATED_LOSSES:
            raise LostCluster(
                f"the tasks were cancelled {self._losses} times on the cluster at "
                f'"{self.workers.address}": another client cancels them.'
            )
        again = sorted(self._tasks)
        self.cancel()
        self._waiting.extendleft(reversed(again))

    def _check_workers(self):
        """Raise if the scheduler is lost, or no worker has been working for some time."""
        info = self.workers.identity()
        if info["workers"]:
            self._last_worker = time.monotonic()
        elif time.monotonic() - self._last_worker > REPLACEMENT_SECONDS:
            raise LostCluster(f'all workers of the cluster at "{self.workers.address}" are lost.')
        paused = self.workers.paused(info)
        if len(paused) == len(info["workers"]):
            # as long as one works it takes the others' tasks
            self.workers.refuse_paused(paused[-1:])


def _packed(value):
    import cloudpickle

    # by value, with functions and rules that the caller has defined
    return cloudpickle.dumps(value)


def _call(version, process, call, item):
    """Return a task's result and its warnings, or its `GeomxpError`."""
    from distributed import get_worker

    from .._version import __version__

    worker = get_worker()
    if __version__ != version:
        return other_version(worker.name, worker.address, __version__, version)
    if process != _process:
        _collect_warnings()
    before = _warned.set([])
    try:
        function, common = pickle.loads(call)
        with pinned(max(1, usable_cores() // worker.state.nthreads)):
            return function(common, pickle.loads(item)), _warned.get()
    except GeomxpError as error:
        # if it were raised here, the worker would log it with a traceback
        return error.with_traceback(None)
    finally:
        _warned.reset(before)


@cache
def _collect_warnings():
    """Collect each task's warnings: `catch_warnings` does not separate threads."""
    show = warnings.showwarning

    def record(message, category, *where, **more):
        warned = _warned.get()
        if warned is not None and issubclass(category, GeomxpWarning):
            warned.append(str(message))
        else:
            show(message, category, *where, **more)

    warnings.showwarning = record
    warnings.simplefilter("always", GeomxpWarning)
