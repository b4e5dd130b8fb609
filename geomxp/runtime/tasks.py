"""One function of many inputs, none of which waits for another: here, or on a cluster's workers.

A task belongs to no worker, so Dask itself runs it again where its worker is lost. What travels is
pickled by us, in one piece: arrays that Dask unpacks lie at any address and may not be written to,
and a task shall find what it would find here. It comes to the same bits, whoever runs it.
"""

import asyncio
import pickle
import time
import uuid
import warnings
from collections import deque
from concurrent import futures
from contextvars import ContextVar
from functools import cache

from ..errors import GeomxpError, GeomxpWarning, InvalidInput, LostCluster
from ..tiles.dask_store import pinned
from .dask import (
    GLANCE,
    GRACE,
    LOSSES,
    Crew,
    address_of,
    is_cluster,
    other_version,
    paused,
    refuse_paused,
)
from .devices import usable_cores

AHEAD = 100
"""Tasks that the scheduler is given before they are done, or two for each thread of the cluster:
it keeps what they carry."""

_process = uuid.uuid4().hex
"""Tells this process from others."""

_said = ContextVar("said", default=None)
"""What the task of a thread has warned of so far."""


class Tasks:
    """Where independent computations take place: in this process, or on a cluster.

    Parameters
    ----------
    on : str or dask.distributed.Client
        "cpu": this process, one after the other. Or a Dask cluster: the address of its scheduler,
        as "tcp://host:8786", or a client of it.
    method : likelihood, optional
        What each of them computes with.
    option : str
        The caller's name for `on`.

    Raises
    ------
    InvalidInput
        If `on` is something else, a worker has another geomxp, or `method` has a cluster or a
        scratch directory of its own.
    LostCluster
        If the cluster cannot be reached, or has no workers.
    MissingDevice
        If Dask is not installed.

    Examples
    --------
    >>> list(Tasks("cpu").over(pow, 2, [1, 2, 3]))
    [2, 4, 8]
    """

    def __init__(self, on="cpu", method=None, option="on"):
        self.crew = None
        if isinstance(on, str) and on == "cpu":
            return
        if not is_cluster(on):
            raise InvalidInput(
                f'`{option}` must be "cpu" (this process) or a Dask cluster, by its scheduler\'s '
                f'address, as "tcp://host:8786", or a client. Got {on!r}.'
            )
        if is_cluster(method.on if method is not None else None):
            raise InvalidInput(
                f"`{option}` shares out what can be computed apart, and here each computation has "
                f'a cluster of its own: leave `{option}` out, or use a method with on="cpu".'
            )
        if method is not None and method.scratch is not None:
            raise InvalidInput(
                f"`scratch` keeps the tiles of one computation, and `{option}` runs several at one "
                "time: leave one of them out."
            )
        self.crew = Crew(address_of(on))

    @property
    def threads(self):
        """Tasks that are computed at one time."""
        return self.crew.threads if self.crew else 1

    def over(self, function, common, items, took=lambda: None):
        """Yield function(common, item) of all items, in their order.

        Parameters
        ----------
        function : callable
            Of a module, so that workers find it by its name. Equal arguments, equal bits.
        common : object
            What all of them read: sent to each worker once.
        items : sequence
        took : callable
            Called each time that one is done, in whatever order.

        Raises
        ------
        LostCluster
            If the scheduler is lost, no worker is left, or one item's workers are lost each time.
        Exception
            What the function has raised of the first item, in their order, that it fails for.
        """
        if self.crew is None:
            for item in items:
                result = function(common, item)
                took()
                yield result
            return
        run = _Run(self.crew, function, common, items, took)
        try:
            for k in range(len(items)):
                yield run.result(k)
        finally:
            # also where the caller is interrupted
            run.cancel()


class _Run:
    """The tasks of one call: those on the cluster, and results that wait for their turn."""

    def __init__(self, crew, function, common, items, took):
        self.crew, self.client, self.took = crew, crew.client, took
        self._about, self._items = _packed((function, common)), items
        self._waiting = deque(range(len(items)))
        threads = sum(found["threads"] for found in crew.about.values())
        self._ahead = max(AHEAD, 2 * threads)
        self._common, self._tasks, self._arrived = None, {}, {}
        self._losses, self._seen, self._paused = 0, time.monotonic(), {}

    def result(self, k):
        """Return the result of item k, when it is there, or raise what it ended in."""
        while k not in self._arrived:
            self._send()
            self._wait()
        found = self._arrived.pop(k)
        if isinstance(found, Exception):
            raise found
        result, said = found
        for message in said:
            # of who has called the verb that asks for the results
            warnings.warn(message, GeomxpWarning, stacklevel=4)
        return result

    def cancel(self):
        """Have nothing more computed, and nothing kept."""
        self._drop(list(self._tasks))
        if self._common is not None:
            self._forget([self._common])
            self._common = None

    def _send(self):
        """Give the scheduler as many items as it is to have, the next in their order."""
        from .._version import __version__

        if self._common is None:
            # a task, not scattered data: where its worker is lost Dask computes it again
            self._common = self._submit(_itself, self._about)
        loop = self.client.loop.asyncio_loop
        while self._waiting and len(self._tasks) < self._ahead:
            k = self._waiting[0]
            about = __version__, _process, self._common, _packed(self._items[k])
            task = self._submit(_call, *about)
            coming = asyncio.run_coroutine_threadsafe(self._gathered(task), loop)
            self._tasks[k] = task, coming
            self._waiting.popleft()

    async def _gathered(self, task):
        # where a worker is lost before its result is here, this waits for that of the next
        return await self.client.gather(task, asynchronous=True)

    def _submit(self, function, *args):
        self.crew.answer(lambda: None)
        key = f"geomxp-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        with warnings.catch_warnings():
            # that a task is large: what it carries would travel in any case
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self.client.submit(function, *args, key=key, pure=False)

    def _wait(self):
        """Wait until something has come, and take it in."""
        numbers = {coming: k for k, (_, coming) in self._tasks.items()}
        done, _ = futures.wait(numbers, GLANCE, futures.FIRST_COMPLETED)
        if not done:
            self._look()
            return
        self._seen, self._paused, cancelled = time.monotonic(), {}, False
        for k in sorted(numbers[coming] for coming in done):
            # one that has failed drops those after it
            if k in self._tasks:
                cancelled |= not self._take(k)
        if cancelled:
            self._begin_anew()

    def _take(self, k):
        """Take in what item k has come to; return False where it was cancelled."""
        from distributed import KilledWorker

        task, coming = self._tasks[k]
        try:
            found = coming.result()
        except Exception as error:
            if task.status != "error":
                # by others, or with the connection
                return False
            found = error
            if isinstance(error, KilledWorker):
                found = LostCluster(
                    f"{error.allowed_failures + 1} workers that had task {k + 1} of "
                    f"{len(self._items)} were lost, the last at {error.last_worker.address}: see "
                    "their logs; mostly they have too little memory."
                )
        del self._tasks[k]
        self._arrived[k] = found
        if isinstance(found, Exception):
            # those before it may fail as well, and would then be the first
            self._waiting = deque(other for other in self._waiting if other < k)
            self._drop([other for other in self._tasks if other > k])
        else:
            self.took()
        # not left to its end, in which Python would swallow a Ctrl-C
        task.release()
        return True

    def _drop(self, items):
        """Have the scheduler forget some items, which ends the waiting for them too."""
        self._forget([self._tasks.pop(k)[0] for k in items])

    def _forget(self, tasks):
        # a scheduler that is lost has forgotten all
        if tasks and self.client.status == "running":
            self.client.cancel(tasks)

    def _begin_anew(self):
        """Give the scheduler once more what it has forgotten: it, or all workers, began anew."""
        self._look()
        self._losses += 1
        if self._losses > LOSSES:
            raise LostCluster(
                f"the tasks were cancelled {self._losses} times on the cluster at "
                f'"{self.crew.address}": somebody else stops them.'
            )
        again = sorted(self._tasks)
        self.cancel()
        self._waiting.extendleft(reversed(again))

    def _look(self):
        """Raise if the scheduler is gone, or has had no workers that work for some time."""
        info = self.crew.identity()
        if info["workers"]:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > GRACE:
            raise LostCluster(f'all workers of the cluster at "{self.crew.address}" are lost.')
        self._paused = paused(info, self._paused)
        if set(self._paused) == set(info["workers"]):
            # others would take the tasks of one
            refuse_paused(self._paused, sorted(self._paused, key=self._paused.get)[-1:])


def _packed(thing):
    import cloudpickle

    # a rule or a function of the caller's own goes with it
    return cloudpickle.dumps(thing)


def _itself(value):
    return value


def _call(version, process, about, item):
    """Return what a task comes to and what it warns of; or the `GeomxpError` that ends it."""
    from distributed import get_worker

    from .._version import __version__

    worker = get_worker()
    if __version__ != version:
        return other_version(worker.name, worker.address, __version__, version)
    if process != _process:
        _listen()
    before = _said.set([])
    try:
        function, common = pickle.loads(about)
        with pinned(max(1, usable_cores() // worker.state.nthreads)):
            return function(common, pickle.loads(item)), _said.get()
    except GeomxpError as error:
        # raised here it would stand in the worker's log, with a traceback
        return error.with_traceback(None)
    finally:
        _said.reset(before)


@cache
def _listen():
    """Have a task's warnings kept with it: `catch_warnings` tells no thread from another."""
    show = warnings.showwarning

    def hear(message, category, *where, **more):
        said = _said.get()
        if said is not None and issubclass(category, GeomxpWarning):
            said.append(str(message))
        else:
            show(message, category, *where, **more)

    warnings.showwarning = hear
    warnings.simplefilter("always", GeomxpWarning)
