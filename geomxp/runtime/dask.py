"""Client of a Dask cluster: connection, workers, tasks bound to a worker, recovery from losses."""

import time
import traceback
import uuid
import warnings
from threading import Lock

from ..errors import InvalidInput, LostCluster, MissingDevice, NotEnoughMemory
from .devices import human_bytes, is_cluster, pinned
from .progress import tell

PROBES = {}
"""What all workers must have in common: name -> (module of geomxp, function, message).

A worker calls the function, which takes no arguments, and reports its result. Where results differ
`DaskBackend` raises `InvalidInput` with the message, which names two workers, {one} and {other}:
the function is true on the first and false on the second. A module whose arithmetic depends on the
hardware adds its own entry.
"""

TIMEOUT = 15
"""Seconds to reach a scheduler."""

_clients = {}
_lock = Lock()


def address_of(on):
    """Return the address of a cluster's scheduler, and remember the client of it.

    Parameters
    ----------
    on : str or dask.distributed.Client

    Returns
    -------
    str

    Raises
    ------
    InvalidInput
        If the client is asynchronous or closed.
    """
    if isinstance(on, str) or not is_cluster(on):
        return on
    if on.asynchronous:
        raise InvalidInput("`on` must be a synchronous client: Client(…, asynchronous=False).")
    if on.status != "running" or on.scheduler is None:
        raise InvalidInput(f"`on` must be a connected client. Got status {on.status!r}.")
    with _lock:
        _clients[on.scheduler.address] = on
    return on.scheduler.address


def connect(address):
    """Return the client of the scheduler at an address, the same one at every call.

    Parameters
    ----------
    address : str
        Such as "tcp://host:8786".

    Raises
    ------
    MissingDevice
        If Dask is not installed.
    InvalidInput
        If the address is not valid.
    LostCluster
        If no scheduler answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise MissingDevice(
            f'on="{address}" needs Dask, which is not installed: pip install "geomxp[cluster]".'
        ) from None
    with _lock:
        client = _clients.get(address)
        if client is None or client.status != "running":
            _check(address)
            try:
                client = Client(address, timeout=TIMEOUT, set_as_default=False)
            except Exception as error:
                # any error of the connection or of its configuration
                raise LostCluster(
                    f'no Dask scheduler answers at "{address}" ({in_one_line(error)}): check the '
                    "address, and that the scheduler runs."
                ) from None
            _clients[address] = client
        return client


def _check(address):
    """Raise `InvalidInput` for an address that a client would refuse.

    Dask does not close a client whose address it refuses; that client keeps the process from
    ending.
    """
    from distributed.comm import resolve_address
    from distributed.security import Security

    try:
        resolve_address(address)
        encrypted = address.startswith(("tls://", "wss://"))
        if encrypted and Security().get_connection_args("client").get("ssl_context") is None:
            raise ValueError("Dask's configuration names no certificates for TLS")
    except Exception as error:
        # any error of the address or of its configuration
        raise InvalidInput(
            f'"{address}" is not the address of a Dask scheduler ({in_one_line(error)}): write it '
            'as "tcp://host:8786".'
        ) from None


def in_one_line(error):
    """Return an error's message on one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


# Workers that are paused for lack of memory.
#
# Dask pauses a worker whose process is near its memory limit: it finishes its running tasks and
# starts no other until memory becomes free. Memory that no task holds never does.

PATIENCE = 60.0
"""Seconds after which an idle worker that Dask has paused is given up."""


def paused(info, before):
    """Return since when workers are paused and idle.

    Parameters
    ----------
    info : dict
        The scheduler's identity.
    before : dict of str to float
        Result of the previous call.

    Returns
    -------
    dict of str to float
        Seconds of the monotonic clock, by the worker's address.
    """
    now = time.monotonic()
    return {
        at: before.get(at, now)
        for at, found in info["workers"].items()
        if found["status"] == "paused" and not found["metrics"]["task_counts"].get("executing")
    }


def refuse_paused(since, among):
    """Raise `NotEnoughMemory` if one of the workers `among` has been paused for too long."""
    now = time.monotonic()
    for at in among:
        if now - since.get(at, now) > PATIENCE:
            raise NotEnoughMemory(
                f"worker {at} has been paused by Dask for {PATIENCE:.0f} s: its process holds "
                "nearly all of its memory limit. Use workers with more memory, or more of them."
            )


# Tasks bound to a worker.
#
# A task runs on the worker that holds its operands. Dask would let another worker steal it, which
# moves more bytes than it saves time. What a lost worker held is therefore computed again here, by
# the same functions: the same bits.

GLANCE = 1.0
"""Seconds without a result after which the workers are checked."""

GRACE = 15.0
"""Seconds in which a new worker may replace a lost one, before the others take its work."""

SETTLING = 2.0
"""Seconds after which released memory is free."""

AT_ONCE = 32
"""Futures in one call of Dask's `wait`: they end roughly in order, and each one costs time."""

LOSSES = 10
"""Losses of workers that one computation survives, beside two for each worker."""


class WorkerLost(Exception):
    """A result was on a worker that is lost."""


def _describe_worker(probes):
    """Return a function that describes a worker.

    It travels by value, because a worker may lack geomxp: a module's function would travel by name.
    """

    def describe(dask_worker):
        from importlib import import_module

        import psutil

        memory = dask_worker.memory_manager
        room = None
        if memory.memory_limit and memory.memory_pause_fraction:
            # above this Dask pauses the worker
            most = memory.memory_limit * memory.memory_pause_fraction
            room = most - psutil.Process().memory_info().rss
        about = {"name": str(dask_worker.name), "host": dask_worker.ip, "room": room}
        about["threads"] = dask_worker.state.nthreads
        about["gpu"] = bool(dask_worker.state.total_resources.get("GPU"))
        try:
            from .._version import __version__
            from ..errors import GeomxpError
            from .devices import free_memory, resolve
        except ImportError as error:
            return about | {"geomxp": None, "error": str(error)}
        about["geomxp"] = __version__
        about["probes"] = {
            name: getattr(import_module(module), function)()
            for name, (module, function, _) in probes.items()
        }
        if not about["gpu"]:
            return about | {"free": free_memory()}
        try:
            # the first one: tools that start workers for GPUs number each worker's own first
            return about | {"free": resolve("gpu").free_memory(), "room": None}
        except GeomxpError as error:
            return about | {"refused": str(error)}

    return describe


def other_version(name, at, has, wanted):
    """Return the error for the worker `name` at address `at`, whose geomxp is not `wanted`."""
    has = f"geomxp {has}" if has else "no geomxp"
    return InvalidInput(
        f"worker {name} ({at}) has {has}, this process {wanted}: install one version on all "
        "workers."
    )


class DaskBackend:
    """Workers of a Dask cluster, each in a slot: block row i belongs to slot i mod p.

    Parameters
    ----------
    address : str
        Address of the scheduler.

    Attributes
    ----------
    slots : list of str
        Addresses of the workers.
    workers : dict of str to dict
        Description of each worker by its address.
    losses : int
        Times that workers were lost.
    gpu : bool
        Whether the workers compute on GPUs: each was started with the resource GPU, as by
        `dask cuda worker --resources GPU=1`. Not yet run on real GPUs.

    Raises
    ------
    LostCluster
        If the cluster cannot be reached or has no workers.
    InvalidInput
        If a worker lacks this version of geomxp, or workers differ in `PROBES` or in GPUs.
    MissingDevice
        If a worker with the resource GPU cannot use one.
    """

    def __init__(self, address):
        self.address, self.client = address, connect(address)
        self.workers = self._describe()
        if not self.workers:
            raise LostCluster(f'the cluster at "{address}" has no workers: start some.')
        self.slots = sorted(self.workers)
        self.gpu = self.workers[self.slots[0]]["gpu"]
        self.losses, self._paused = 0, {}

    def __len__(self):
        return len(self.slots)

    def _describe(self):
        """Return the description of each worker; refuse workers that would compute differently."""
        from .._version import __version__

        describe = _describe_worker(dict(PROBES))
        workers = self.answer(lambda: self.client.run(describe, on_error="return"))
        workers = {at: about for at, about in workers.items() if not isinstance(about, OSError)}
        for at, about in workers.items():
            if isinstance(about, Exception):
                raise LostCluster(f"worker {at} does not answer: {in_one_line(about)}.")
            if about["geomxp"] != __version__:
                raise other_version(about["name"], at, about["geomxp"], __version__)
            if "refused" in about:
                raise MissingDevice(
                    f"worker {about['name']} ({at}) was started with a resource GPU: "
                    f"{about['refused']}"
                )
        gpus = {about["gpu"]: at for at, about in workers.items()}
        if len(gpus) > 1:
            raise InvalidInput(
                f"worker {gpus[True]} has a resource GPU and worker {gpus[False]} has none: they "
                "compute differently. Use workers of one kind."
            )
        for name, (*_, message) in PROBES.items():
            kinds = {about["probes"][name]: at for at, about in workers.items()}
            if len(kinds) > 1 and not gpus.get(True):
                raise InvalidInput(message.format(one=kinds[True], other=kinds[False]))
        return workers

    def answer(self, ask):
        """Return ask(), or raise `LostCluster` if the connection fails."""
        try:
            if self.client.status == "running":
                return ask()
            reason = f"the connection is {self.client.status}"
        except Exception as error:
            # any error of the connection
            reason = in_one_line(error)
        raise LostCluster(
            f'the Dask scheduler at "{self.address}" is lost ({reason}): start it again and repeat '
            "the command; a fit with a checkpoint continues from it."
        )

    def identity(self):
        """Return the scheduler's identity with its workers, or raise `LostCluster`.

        `Client.scheduler_info` would return the last known state of an unreachable scheduler.
        """
        return self.answer(lambda: self.client.sync(self.client.scheduler.identity, n_workers=-1))

    def check_memory(self, share, beside=0):
        """Raise `NotEnoughMemory`, naming a worker, if its memory is too small for its slots.

        Parameters
        ----------
        share : sequence of int
            Bytes that each slot needs.
        beside : int
            Further bytes that each thread needs while it computes.
        """
        if self._too_small(share, beside):
            # recently released memory may not be free yet
            time.sleep(SETTLING)
            self.workers = self._describe()
            if problem := self._too_small(share, beside):
                raise NotEnoughMemory(problem)

    def has_room(self, share, beside):
        """Return whether `check_memory` would pass."""
        return self._too_small(share, beside) is None

    @property
    def threads(self):
        """Tasks that all workers together run at the same time."""
        return sum(self.workers[at]["threads"] for at in set(self.slots) & set(self.workers))

    def _too_small(self, share, beside):
        """Return a message naming a worker with too little memory, or None."""
        hosts = [about["host"] for about in self.workers.values()]
        for at in sorted(set(self.slots) & set(self.workers)):
            about = self.workers[at]
            room = about["free"] / (1 if self.gpu else hosts.count(about["host"]))
            room = room if about["room"] is None else min(room, about["room"])
            needed = sum(b for slot, b in zip(self.slots, share, strict=True) if slot == at)
            needed += beside * about["threads"]
            if needed > room:
                return (
                    f"worker {about['name']} ({at}) needs {human_bytes(needed)} for its part, "
                    f"{human_bytes(max(room, 0))} free: use more workers, workers with more "
                    "memory, or for tiles ask for less accuracy."
                )
        return None

    def submit(self, slot, function, *args, priority=0):
        """Return the future of function(*args) on the worker of a slot (any number, mod p).

        Of the tasks that are ready a worker takes the one of the highest priority.
        """
        workers = [self.slots[slot % len(self)]]
        return self.submit_anywhere(function, *args, workers=workers, priority=priority)

    def submit_anywhere(self, function, *args, **options):
        """Return the future of function(*args); options are those of `Client.submit`."""
        self.answer(lambda: None)
        key = f"geomxp-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        with warnings.catch_warnings():
            # the warning that a task is large: its arguments have to travel in any case
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self.client.submit(function, *args, key=key, pure=False, **options)

    def wait(self, futures, most=0, held=tuple, watch=lambda done: None):
        """Wait until all futures except `most` are finished.

        Parameters
        ----------
        futures : sequence of Future
            In an order in which the first failure causes those after it.
        most : int
        held : callable
            Returns the futures that the tasks may read: if one is lost they never finish.
        watch : callable
            watch(done) is called whenever more futures are finished.

        Raises
        ------
        WorkerLost
            If results are lost; see `replace`.
        LostCluster
        Exception
            The exception of a task.
        """
        from distributed import CancelledError, wait

        pending, self._paused = futures, {}
        while len(pending := [f for f in pending if f.status != "finished"]) > most:
            watch(len(futures) - len(pending))
            self._check(pending)
            try:
                with self.client.as_current():
                    wait(pending[:AT_ONCE], timeout=GLANCE, return_when="FIRST_COMPLETED")
            except TimeoutError as error:
                _let_go(error)
                self.look()
                self._check(held())
            except CancelledError as error:
                # the next check raises the error
                _let_go(error)
                continue
            except Exception:
                self.look()
                raise
        watch(len(futures) - len(pending))

    def _check(self, futures):
        for future in futures:
            status = future.status
            if status == "error":
                raise self._reason(future)
            if status in ("lost", "cancelled"):
                self.look()
                raise WorkerLost

    def _reason(self, future):
        from distributed import KilledWorker

        error = self.answer(future.exception)
        return WorkerLost() if error is None or isinstance(error, KilledWorker) else error

    def look(self):
        """Raise `WorkerLost` or `LostCluster` if workers are missing or paused for too long."""
        info = self.identity()
        if not set(self.slots) <= set(info["workers"]):
            raise WorkerLost
        self._paused = paused(info, self._paused)
        refuse_paused(self._paused, self.slots)

    def gather(self, futures):
        """Return the results of finished futures.

        Raises
        ------
        WorkerLost
            If one is lost during the transfer: Dask itself would wait forever.
        LostCluster
        """
        # imported here, because it takes long and only clusters need it
        import asyncio

        from distributed import CancelledError

        coming = asyncio.run_coroutine_threadsafe(
            self._gathered(futures), self.client.loop.asyncio_loop
        )
        while True:
            try:
                return coming.result(GLANCE)
            except TimeoutError:
                try:
                    self.look()
                    self._check(futures)
                except BaseException:
                    coming.cancel()
                    raise
            except CancelledError:
                self.look()
                raise WorkerLost from None
            except BaseException:
                # an interruption by Ctrl-C
                coming.cancel()
                raise

    async def _gathered(self, futures):
        return await self.client.gather(futures, asynchronous=True)

    def collect(self, submit, restore=lambda: None, held=tuple, things="tasks"):
        """Return the results of tasks; submit them again whenever workers are lost.

        Parameters
        ----------
        submit : callable
            Submits the tasks and returns their futures in order.
        restore : callable
            Computes lost operands of the tasks again.
        held : callable
            See `wait`.
        things : str
            Plural noun for the progress line.
        """
        while True:
            try:
                futures = submit()
                total = len(futures)
                self.wait(futures, 0, held, lambda done, total=total: tell(done, total, things))
                return self.gather(futures)
            except WorkerLost:
                self.replace()
                restore()

    def replace(self):
        """Give the slots of lost workers to new workers, or to the remaining ones.

        Raises
        ------
        LostCluster
            If no worker remains, or workers are lost too often.
        """
        self.losses += 1
        if self.losses > LOSSES + 2 * len(self):
            raise LostCluster(
                f"workers were lost {self.losses} times in one computation: see their logs. The "
                "usual cause is too little memory."
            )
        deadline = time.monotonic() + GRACE
        while True:
            self.workers = self._describe()
            free = sorted(set(self.workers) - set(self.slots))
            gone = [s for s, at in enumerate(self.slots) if at not in self.workers]
            if len(free) >= len(gone) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if not self.workers:
            raise LostCluster(f'all workers of the cluster at "{self.address}" are lost.')
        others = free or sorted(self.workers)
        for turn, slot in enumerate(gone):
            self.slots[slot] = others[turn % len(others)]


def _let_go(error):
    """Detach an exception, which Dask's own frames keep, from the frames of its callers.

    Tiles in these frames would stay alive until Python collects cycles.
    """
    traceback.clear_frames(error.__traceback__)
    error.with_traceback(None)


# Parts of one data set that stay on the workers, and functions that run on each part.

NOTICED = 5
"""Checks after which the scheduler knows that a worker is lost."""


def _alone(function, *args):
    with pinned():
        return function(*args)


def itself(value):
    """Return the argument: a task that puts a value on a worker."""
    return value


class Parts:
    """Parts of one data set on the workers of a cluster; part s belongs to slot s mod p.

    A part is made in three steps: a task finds which data of other parts it needs, this process
    sends these data and nothing else, and both stay on the worker. A part that is lost with its
    worker is made again in the same way, with the same bits.

    Parameters
    ----------
    backend : DaskBackend
    ranges : sequence of tuple
        Arguments that define each part.
    common : object
        Sent to the workers only while parts are made.
    find : callable
        find(common, *range) returns what a worker keeps of a part.
    needs : callable
        needs(kept) returns which data the part needs from this process.
    supply : callable
        supply(range, needed) returns these data, in this process.
    """

    def __init__(self, backend, ranges, common, find, needs, supply):
        self.backend, self.ranges, self._common = backend, list(ranges), common
        self._find, self._needs, self._supply = find, needs, supply
        self._kept, self._sent = [None] * len(self.ranges), [None] * len(self.ranges)
        self._make_all()

    def __len__(self):
        return len(self.ranges)

    def over(self, function, *args):
        """Return [function(kept, sent, *args)] of all parts, in order.

        Raises
        ------
        LostCluster
        Exception
            The exception of the function.
        """
        return self._collect(range(len(self)), function, args)

    def at(self, s, function, *args):
        """Return function(kept, sent, *args) of part s."""
        return self._collect([s], function, args)[0]

    def _collect(self, parts, function, args):
        def submit():
            operands = ((s, self._kept[s], self._sent[s]) for s in parts)
            return [self._submit(s, function, kept, sent, *args) for s, kept, sent in operands]

        return self.backend.collect(submit, self._make_all, self._held)

    def _submit(self, s, function, *args):
        return self.backend.submit(s, _alone, function, *args)

    def _held(self):
        return [future for future in (*self._kept, *self._sent) if future is not None]

    def _missing(self):
        def finished(future):
            return future is not None and future.status == "finished"

        return [
            s for s in range(len(self)) if not (finished(self._kept[s]) and finished(self._sent[s]))
        ]

    def _make_all(self):
        """Make the missing parts."""
        while missing := self._missing():
            try:
                self._make(missing)
            except WorkerLost:
                self.backend.replace()

    def _make(self, missing):
        p = len(self.backend)
        common = self._everywhere({s % p for s in missing})
        for s in missing:
            self._sent[s] = None
            self._kept[s] = self._submit(s, self._find, common[s % p], *self.ranges[s])
        needed = [self._submit(s, self._needs, self._kept[s]) for s in missing]
        # one part per worker at a time, so that this process holds few of the data that it sends
        for first in range(0, len(missing), p):
            group = slice(first, first + p)
            self.backend.wait(needed[group], held=self._held)
            for s, need in zip(missing[group], self.backend.gather(needed[group]), strict=True):
                self._sent[s] = self._send(s, self._supply(self.ranges[s], need))

    def _everywhere(self, slots):
        """Return the futures of the common data by slot; sent once, then from worker to worker."""
        first, *others = sorted(slots)
        futures = {first: self._send(first, self._common)}
        # each copy under its own name: of copies under one name Dask would keep any one
        return futures | {
            slot: self.backend.submit(slot, itself, futures[first]) for slot in others
        }

    def _send(self, slot, data):
        """Return the future of data sent to the worker of a slot."""
        backend = self.backend
        at = backend.slots[slot % len(backend)]
        try:
            return backend.client.scatter([data], workers=[at], hash=False)[0]
        except Exception as error:
            # any error of the connection; the scheduler may not know of the loss yet
            for _ in range(NOTICED):
                backend.look()
                time.sleep(GLANCE)
            raise LostCluster(
                f"worker {at} cannot receive its part ({in_one_line(error)}): see its log. The "
                "usual cause is too little memory."
            ) from error
