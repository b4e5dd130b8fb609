"""Client of a Dask cluster: connection, workers, tasks bound to a worker, recovery from losses."""

import time
import traceback
import uuid
import warnings
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from ..errors import InvalidInput, LostCluster, MissingDevice, NotEnoughMemory, one_line
from .devices import human_bytes, is_client, pinned
from .progress import notice, tell
from .turns import given_up

WORKER_PROBES = {}
"""What all workers must have in common: name -> (module of geomxp, function, message).

A worker calls the function, which takes no arguments, and reports its result. Where results differ
`DaskBackend` raises `InvalidInput` with the message, which names two workers, {one} and {other}:
the function is true on the first and false on the second. A module whose arithmetic depends on the
hardware adds its own entry.
"""

CONNECTION_TIMEOUT_SECONDS = 15
"""Seconds to reach a scheduler."""

_clients = {}
_lock = Lock()


def address_of(on):
    """Return the address of a scheduler; an open, synchronous client is remembered under it."""
    if not is_client(on):
        return on
    if on.asynchronous:
        raise InvalidInput("`on` must be a synchronous client: Client(…, asynchronous=False).")
    if on.status != "running" or on.scheduler is None:
        raise InvalidInput(f"`on` must be a connected client. Got status {on.status!r}.")
    with _lock:
        _clients[on.scheduler.address] = on
    return on.scheduler.address


def connect(address):
    """Return the client of the scheduler at an address, the same one at every call."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingDevice(
            f'on="{address}" needs Dask, which is not installed: pip install "geomxp[cluster]".'
        ) from None
    with _lock:
        client = _clients.get(address)
        if client is None or client.status != "running":
            _check_address(address)
            try:
                client = Client(address, timeout=CONNECTION_TIMEOUT_SECONDS, set_as_default=False)
            except Exception as error:
                # any error of the connection or of its configuration
                raise LostCluster(
                    f'no Dask scheduler answers at "{address}" ({one_line(error)}): check the '
                    "address, and that the scheduler runs."
                ) from None
            _clients[address] = client
        return client


def _check_address(address):
    """Refuse an address before Dask does, which would leave a client open and Python running."""
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
            f'"{address}" is not the address of a Dask scheduler ({one_line(error)}): write it '
            'as "tcp://host:8786".'
        ) from None


# Tasks bound to a worker.
#
# A task runs on the worker that holds its operands. Dask would let another worker steal it, which
# moves more bytes than it saves time. What a lost worker held is therefore computed again here, by
# the same functions: the same bits.

CHECK_INTERVAL_SECONDS = 1.0
"""Seconds without a result after which the workers are checked."""

SILENCE_SECONDS = 30.0
"""Seconds after which a scheduler or worker that does not answer is reported."""

GIVE_UP_KEY = "geomxp.give-up-after"
"""Key of Dask's configuration: the silence after which a computation ends; without it, it waits."""

PAUSED_WORKER_SECONDS = 60.0
"""Seconds after which an idle worker that Dask has paused for lack of memory is given up."""

REPLACEMENT_SECONDS = 15.0
"""Seconds in which a new worker may replace a lost one, before the others take its work."""

MEMORY_RELEASE_SECONDS = 2.0
"""Seconds after which released memory is free."""

FUTURES_PER_WAIT = 32
"""Futures in one call of Dask's `wait`: they end roughly in order, and each one costs time."""

TOLERATED_LOSSES = 10
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
        worker = {
            "name": str(dask_worker.name),
            "host": dask_worker.ip,
            "threads": dask_worker.state.nthreads,
            "gpu": bool(dask_worker.state.total_resources.get("GPU")),
            "room": room,
        }
        try:
            from .._version import __version__
            from ..errors import GeomxpError
            from .devices import free_memory, resolve
        except ImportError as error:
            return worker | {"geomxp": None, "error": str(error)}
        worker["geomxp"] = __version__
        worker["probes"] = {
            name: getattr(import_module(module), function)()
            for name, (module, function, _) in probes.items()
        }
        if not worker["gpu"]:
            return worker | {"free": free_memory()}
        try:
            # the first one: tools that start workers for GPUs number each worker's own first
            return worker | {"free": resolve("gpu").free_memory(), "room": None}
        except GeomxpError as error:
            return worker | {"refused": str(error)}

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

    `slots` lists the addresses of the workers, `workers` describes each worker by its address,
    `losses` counts the times that workers were lost. `gpu` is true if the workers compute on GPUs:
    each was started with the resource GPU, as by `dask cuda worker --resources GPU=1` (not yet run
    on real GPUs). Workers are refused if they lack this version of geomxp, or differ in
    `WORKER_PROBES` or in GPUs.
    """

    def __init__(self, address):
        self.address, self.client = address, connect(address)
        # who has been reported as silent; heartbeats of workers with the time of the last change
        self._reported, self._heard, self.given_up = set(), {}, False
        self.workers = self._describe()
        if not self.workers:
            raise LostCluster(f'the cluster at "{address}" has no workers: start some.')
        self.slots = sorted(self.workers)
        self.gpu = self.workers[self.slots[0]]["gpu"]
        self.losses, self._paused_since = 0, {}

    def __len__(self):
        return len(self.slots)

    def _describe(self):
        """Return the description of each worker; refuse workers that would compute differently."""
        from .._version import __version__

        describe = _describe_worker(dict(WORKER_PROBES))
        workers = self.reach(lambda: self.client.run(describe, on_error="return"))
        workers = {at: worker for at, worker in workers.items() if not isinstance(worker, OSError)}
        for at, worker in workers.items():
            if isinstance(worker, Exception):
                raise LostCluster(f"worker {at} does not answer: {one_line(worker)}.")
            if worker["geomxp"] != __version__:
                raise other_version(worker["name"], at, worker["geomxp"], __version__)
            if "refused" in worker:
                raise MissingDevice(
                    f"worker {worker['name']} ({at}) was started with a resource GPU: "
                    f"{worker['refused']}"
                )
        gpus = {worker["gpu"]: at for at, worker in workers.items()}
        if len(gpus) > 1:
            raise InvalidInput(
                f"worker {gpus[True]} has a resource GPU and worker {gpus[False]} has none: they "
                "compute differently. Use workers of one kind."
            )
        for name, (*_, message) in WORKER_PROBES.items():
            kinds = {worker["probes"][name]: at for at, worker in workers.items()}
            if len(kinds) > 1 and not gpus.get(True):
                raise InvalidInput(message.format(one=kinds[True], other=kinds[False]))
        return workers

    def reach(self, call):
        """Return call(), or raise `LostCluster` if the connection fails.

        A scheduler whose process is stopped keeps its connections, and no call ends. It is reported
        after `SILENCE_SECONDS`, and given up as the user wants; see `_report_silence`.
        """
        if self.client.status != "running":
            return self.check_running()
        answers, began = SimpleQueue(), time.monotonic()
        # a thread that does not end must not keep the process from ending
        Thread(target=_answer, args=(call, answers), name="geomxp-reach", daemon=True).start()
        who = f'the Dask cluster at "{self.address}"'
        while True:
            try:
                with given_up():
                    value, error = answers.get(timeout=CHECK_INTERVAL_SECONDS)
                break
            except Empty:
                self.check_running()
                self._report_silence(who, time.monotonic() - began)
        self._report_answer(who)
        if time.monotonic() - began > 2 * CHECK_INTERVAL_SECONDS:
            # a scheduler that was stopped has heard no heartbeats
            self._heard = {}
        if error is not None:
            self.check_running(error)
        return value

    def _report_silence(self, who, seconds):
        """Report somebody who does not answer, or raise `LostCluster` if the user has given up."""
        limit = _patience()
        if limit is not None and seconds > limit:
            self.given_up = True
            raise LostCluster(
                f"{who} has not answered for {seconds:.0f} s, the limit {GIVE_UP_KEY} is "
                f"{limit:g} s: continue the stopped process (kill -CONT) or start the cluster "
                "again, and repeat the command; a fit with a checkpoint continues from it."
            )
        if seconds > SILENCE_SECONDS and who not in self._reported:
            self._reported.add(who)
            until = "until it answers" if limit is None else f"up to {limit:g} s"
            notice(
                f"{who} has not answered for {SILENCE_SECONDS:.0f} s: a process may be stopped, "
                f"or a machine unreachable. Waiting {until}; to give up sooner set "
                "DASK_GEOMXP__GIVE_UP_AFTER=60s."
            )

    def _report_answer(self, who):
        if who in self._reported:
            self._reported.discard(who)
            notice(f"{who} answers again.")

    def _check_heartbeats(self, info):
        """Report workers whose heartbeats have stopped; Dask removes them after its worker-ttl."""
        now = time.monotonic()
        self._heard = {
            at: self._heard[at]
            if at in self._heard and self._heard[at][0] == worker["last_seen"]
            else (worker["last_seen"], now)
            for at, worker in info["workers"].items()
        }
        for at in sorted(set(self.slots) & set(self._heard)):
            since = now - self._heard[at][1]
            if since:
                self._report_silence(f"worker {at}", since)
            else:
                self._report_answer(f"worker {at}")

    def check_running(self, error=None):
        """Raise `LostCluster` if the connection is lost, or for the error of a call."""
        try:
            if error is not None:
                raise error
            if self.client.status == "running":
                return
            reason = f"the connection is {self.client.status}"
        except Exception as error:
            # any error of the connection
            reason = one_line(error)
        raise LostCluster(
            f'the Dask scheduler at "{self.address}" is lost ({reason}): start it again and repeat '
            "the command; a fit with a checkpoint continues from it."
        )

    def identity(self):
        """Return the scheduler's identity with its workers, or raise `LostCluster`.

        `Client.scheduler_info` would return the last known state of an unreachable scheduler.
        """
        info = self.reach(lambda: self.client.sync(self.client.scheduler.identity, n_workers=-1))
        self._check_heartbeats(info)
        return info

    def check_memory(self, share, beside=0):
        """Raise `NotEnoughMemory`, naming a worker, if its memory is too small for its slots.

        `share` holds the bytes of each slot, `beside` further bytes of each computing thread.
        """
        if self._too_small(share, beside):
            # recently released memory may not be free yet
            time.sleep(MEMORY_RELEASE_SECONDS)
            self.workers = self._describe()
            if problem := self._too_small(share, beside):
                raise NotEnoughMemory(problem)

    def has_room(self, share, beside):
        """Whether `check_memory` would pass."""
        return self._too_small(share, beside) is None

    @property
    def threads(self):
        """Tasks that all workers together run at the same time."""
        return sum(self.workers[at]["threads"] for at in set(self.slots) & set(self.workers))

    def _too_small(self, share, beside):
        """Return a message naming a worker with too little memory, or None."""
        hosts = [worker["host"] for worker in self.workers.values()]
        for at in sorted(set(self.slots) & set(self.workers)):
            worker = self.workers[at]
            room = worker["free"] / (1 if self.gpu else hosts.count(worker["host"]))
            room = room if worker["room"] is None else min(room, worker["room"])
            needed = sum(b for slot, b in zip(self.slots, share, strict=True) if slot == at)
            needed += beside * worker["threads"]
            if needed > room:
                return (
                    f"worker {worker['name']} ({at}) needs {human_bytes(needed)} for its part, "
                    f"{human_bytes(max(room, 0))} free: use more workers, workers with more "
                    "memory, for tiles coarser formats (--kl 1e-3, gx.for_divergence(1e-3)), or "
                    "Vecchia's approximation (--method vecchia, gx.Vecchia(30))."
                )
        return None

    def submit(self, slot, function, *args, priority=0):
        """Return the future of function(*args) on the worker of a slot (mod p), or on any if None.

        Of the tasks that are ready a worker takes the one of the highest priority.
        """
        workers = None if slot is None else [self.slots[slot % len(self)]]
        options = {"workers": workers, "priority": priority, "pure": False}
        self.check_running()
        key = f"geomxp-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        with warnings.catch_warnings():
            # the warning that a task is large: its arguments have to travel in any case
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self.client.submit(function, *args, key=key, **options)

    def wait(self, futures, most=0, held=tuple, watch=lambda done: None):
        """Wait until all futures except `most` are finished; the first failure is raised.

        Futures come in an order in which the first failure causes those after it. held() returns
        the futures that the tasks may read: if one is lost they never finish. watch(done) is called
        whenever more are finished. Lost results raise `WorkerLost`; see `replace`.
        """
        from distributed import CancelledError, wait

        pending = futures
        self.forget_paused()
        while len(pending := [f for f in pending if f.status != "finished"]) > most:
            watch(len(futures) - len(pending))
            self._check_futures(pending)
            try:
                with self.client.as_current(), given_up():
                    wait(
                        pending[:FUTURES_PER_WAIT],
                        timeout=CHECK_INTERVAL_SECONDS,
                        return_when="FIRST_COMPLETED",
                    )
            except TimeoutError as error:
                _detach(error)
                self.check_workers()
                self._check_futures(held())
            except CancelledError as error:
                # the next check raises the error
                _detach(error)
                continue
            except Exception:
                self.check_workers()
                raise
        watch(len(futures) - len(pending))

    def _check_futures(self, futures):
        for future in futures:
            status = future.status
            if status == "error":
                raise self._reason(future)
            if status in ("lost", "cancelled"):
                self.check_workers()
                raise WorkerLost

    def _reason(self, future):
        from distributed import KilledWorker

        error = self.reach(future.exception)
        return WorkerLost() if error is None or isinstance(error, KilledWorker) else error

    def check_workers(self):
        """Raise `WorkerLost` or `LostCluster` if workers are missing or paused for too long."""
        info = self.identity()
        if not set(self.slots) <= set(info["workers"]):
            raise WorkerLost
        self.paused(info)
        self.refuse_paused(self.slots)

    def paused(self, info):
        """Return the workers that are idle and paused, the last one last.

        Dask pauses a worker whose process is near its memory limit: it finishes its running tasks
        and starts no other until memory becomes free. Memory that no task holds never does.
        """
        now = time.monotonic()
        self._paused_since = {
            at: self._paused_since.get(at, now)
            for at, worker in info["workers"].items()
            if worker["status"] == "paused"
            and not worker["metrics"]["task_counts"].get("executing")
        }
        return sorted(self._paused_since, key=self._paused_since.get)

    def refuse_paused(self, among):
        """Raise `NotEnoughMemory` if one of the workers `among` has been paused for too long."""
        now = time.monotonic()
        for at in among:
            if now - self._paused_since.get(at, now) > PAUSED_WORKER_SECONDS:
                raise NotEnoughMemory(
                    f"worker {at} has been paused by Dask for {PAUSED_WORKER_SECONDS:.0f} s: its "
                    "process holds nearly all of its memory limit. Use workers with more memory, "
                    "or more of them."
                )

    def forget_paused(self):
        """Count pauses from now on."""
        self._paused_since = {}

    def gather(self, futures):
        """Return the results of finished futures; raise `WorkerLost` if one is lost on the way."""
        # imported here, because it takes long and only clusters need it
        import asyncio

        from distributed import CancelledError

        coming = asyncio.run_coroutine_threadsafe(
            self._gathered(futures), self.client.loop.asyncio_loop
        )
        try:
            while True:
                try:
                    with given_up():
                        return coming.result(CHECK_INTERVAL_SECONDS)
                except TimeoutError:
                    # Dask itself would wait forever for a lost result
                    self.check_workers()
                    self._check_futures(futures)
        except CancelledError:
            self.check_workers()
            raise WorkerLost from None
        finally:
            # also when the caller is interrupted
            coming.cancel()

    async def _gathered(self, futures):
        return await self.client.gather(futures, asynchronous=True)

    def collect(self, submit, restore=lambda: None, held=tuple, things="tasks"):
        """Return the results of the futures from submit(); submit again after losses of workers.

        restore() computes lost operands of the tasks again. For `held` see `wait`; `things` is the
        plural noun for the progress line.
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
        """Give the slots of lost workers to new workers, or to the remaining ones."""
        self.losses += 1
        if self.losses > TOLERATED_LOSSES + 2 * len(self):
            raise LostCluster(
                f"workers were lost {self.losses} times in one computation: see their logs. The "
                "usual cause is too little memory."
            )
        deadline = time.monotonic() + REPLACEMENT_SECONDS
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


def _answer(call, answers):
    """Put the value and the error of a call into a queue."""
    try:
        answers.put((call(), None))
    except Exception as error:
        answers.put((None, error))


def _patience():
    """Return the seconds of silence after which the user gives a cluster up, or None."""
    import dask

    given = dask.config.get(GIVE_UP_KEY, None)
    if given is None:
        return None
    try:
        seconds = float(dask.utils.parse_timedelta(given))
    except (ValueError, TypeError, KeyError, AttributeError):
        seconds = 0.0
    if not seconds > 0:
        raise InvalidInput(
            f'{GIVE_UP_KEY} in Dask\'s configuration must be a time such as "5 minutes". '
            f"Got {given!r}."
        )
    return seconds


def _detach(error):
    """Detach an exception, which Dask's own frames keep, from the frames of its callers.

    Tiles in these frames would stay alive until Python collects cycles.
    """
    traceback.clear_frames(error.__traceback__)
    error.with_traceback(None)


# Parts of one data set that stay on the workers, and functions that run on each part.

LOST_WORKER_CHECKS = 5
"""Checks after which the scheduler knows that a worker is lost."""


def _alone(function, *args):
    with pinned():
        return function(*args)


def itself(value):
    """Return the argument: a task that puts a value on a worker."""
    return value


class Parts:
    """Parts of one data set on the workers of a cluster; part s belongs to slot s mod p.

    A part is made in three steps: find(common, *range) runs on a worker and returns what the worker
    keeps of the part; needs(kept) returns which data of other parts it needs; this process sends
    supply(range, needed) and nothing else. Both results stay on the worker. A part that is lost
    with its worker is made again in the same way, with the same bits. `common` is sent to the
    workers only while parts are made.
    """

    def __init__(self, backend, ranges, common, find, needs, supply):
        self.backend, self.ranges, self._common = backend, list(ranges), common
        self._find, self._needs, self._supply = find, needs, supply
        self._kept, self._sent = [None] * len(self.ranges), [None] * len(self.ranges)
        self._make_all()

    def __len__(self):
        return len(self.ranges)

    def over(self, function, *args):
        """Return [function(kept, sent, *args)] of all parts, in order."""
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

        parts = enumerate(zip(self._kept, self._sent, strict=True))
        return [s for s, futures in parts if not all(map(finished, futures))]

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
            return backend.reach(
                lambda: backend.client.scatter([data], workers=[at], hash=False)[0]
            )
        except Exception as error:
            # any error of the connection; the scheduler may not know of the loss yet
            for _ in range(LOST_WORKER_CHECKS):
                backend.check_workers()
                time.sleep(CHECK_INTERVAL_SECONDS)
            raise LostCluster(
                f"worker {at} cannot receive its part ({one_line(error)}): see its log. The "
                "usual cause is too little memory."
            ) from error
