"""Where a cluster's scheduler is, and the one connection to it."""

import sys
import time
import traceback
import uuid
import warnings
from threading import Lock

from ..errors import InvalidInput, LostCluster, MissingDevice, NotEnoughMemory
from .devices import human_bytes
from .progress import tell

TIMEOUT = 15
"""Seconds to reach a scheduler."""

_clients = {}
_lock = Lock()


def is_cluster(on):
    """Return whether the caller names a cluster: by the address of its scheduler, or a client.

    Examples
    --------
    >>> is_cluster("tcp://127.0.0.1:8786"), is_cluster("cpu")
    (True, False)
    """
    return (isinstance(on, str) and "://" in on) or _is_client(on)


def _is_client(on):
    # who has a client has imported its library
    kind = getattr(sys.modules.get("distributed"), "Client", None)
    # none while another thread is importing the library
    return kind is not None and isinstance(on, kind)


def address_of(on):
    """Return the address of a cluster's scheduler; a client is remembered under it.

    Parameters
    ----------
    on : str or dask.distributed.Client

    Raises
    ------
    InvalidInput
        If it is a client for coroutines, or one that is closed.
    """
    if not _is_client(on):
        return on
    if on.asynchronous:
        raise InvalidInput("`on` must be a client that waits: Client(…, asynchronous=False).")
    if on.status != "running" or on.scheduler is None:
        raise InvalidInput(f"`on` must be a client with a scheduler. Got one that is {on.status}.")
    with _lock:
        _clients[on.scheduler.address] = on
    return on.scheduler.address


def connect(address):
    """Return a client of the scheduler at an address, the same one at every call.

    Parameters
    ----------
    address : str
        As "tcp://host:8786".

    Raises
    ------
    MissingDevice
        If Dask is not installed.
    InvalidInput
        If it is no address.
    LostCluster
        If nobody answers.
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
                # whatever a connection, or what is configured for it, dies of
                raise LostCluster(
                    f'no Dask scheduler answers at "{address}" ({in_one_line(error)}): check the '
                    "address, and that the scheduler runs."
                ) from None
            _clients[address] = client
        return client


def _check(address):
    """Raise `InvalidInput` where a client would raise, and then keep this process from ending.

    Dask closes one that cannot connect, but not one that is refused its address.
    """
    from distributed.comm import resolve_address
    from distributed.security import Security

    try:
        resolve_address(address)
        encrypted = address.startswith(("tls://", "wss://"))
        if encrypted and Security().get_connection_args("client").get("ssl_context") is None:
            raise ValueError("Dask's configuration names no certificates for TLS")
    except Exception as error:
        # whatever the parts of an address, or what is configured for it, die of
        raise InvalidInput(
            f'"{address}" is no address of a Dask scheduler ({in_one_line(error)}): write it as '
            '"tcp://host:8786".'
        ) from None


def in_one_line(error):
    """Return what an error says, for the end of one of our own lines."""
    return " ".join(str(error).split())[:200] or type(error).__name__


# Workers of a Dask cluster that wait for memory, and will not have it.
#
# Dask pauses a worker whose process is near its memory limit: it finishes what it computes and
# begins nothing more, in the hope that memory becomes free. What no task holds does not.


PATIENCE = 60.0
"""Seconds after which a worker that Dask has paused, and that computes nothing, is given up."""


def paused(info, before):
    """Return since when workers are paused with nothing left to do, by their address.

    Parameters
    ----------
    info : dict
        What the scheduler says of itself.
    before : dict of str to float
        What this function has returned before.
    """
    now = time.monotonic()
    return {
        at: before.get(at, now)
        for at, found in info["workers"].items()
        if found["status"] == "paused" and not found["metrics"]["task_counts"].get("executing")
    }


def refuse_paused(since, among):
    """Raise `NotEnoughMemory` if one of some workers is paused for too long; see `paused`."""
    now = time.monotonic()
    for at in among:
        if now - since.get(at, now) > PATIENCE:
            raise NotEnoughMemory(
                f"worker {at} has been paused by Dask for {PATIENCE:.0f} s: its process holds "
                "nearly all of its memory limit. Use workers with more memory, or more of them."
            )


# A Dask cluster as the place of a computation: who its workers are, and which of them are lost.
#
# A task is bound to one worker, so that what it reads is there already; Dask would let another
# one steal it otherwise, which moves more than it gains. What a lost worker held is therefore
# computed anew by us, from the same recipes: the same bits.


GLANCE = 1.0
"""Seconds without news after which we look whether all workers are there."""

GRACE = 15.0
"""Seconds in which a lost worker may be replaced by a new one, before others take its rows."""

SETTLING = 2.0
"""Seconds after which memory that was given up is free."""

AT_ONCE = 32
"""Futures that are waited for at one time: they end about in their order, and each costs."""

LOSSES = 10
"""How many times in one computation workers may be lost, and twice as many times as there are."""


class WorkerLost(Exception):
    """What a computation needs was on a worker that is gone."""


def _about_worker():
    """Return a function that says what a worker is; it travels by value: geomxp may not be there.

    A function of a module would travel by its name.
    """

    def about(dask_worker):
        import psutil

        memory = dask_worker.memory_manager
        room = None
        if memory.memory_limit and memory.memory_pause_fraction:
            # above this a worker takes no more tasks
            most = memory.memory_limit * memory.memory_pause_fraction
            room = most - psutil.Process().memory_info().rss
        found = {"name": str(dask_worker.name), "host": dask_worker.ip, "room": room}
        found["threads"] = dask_worker.state.nthreads
        found["gpu"] = bool(dask_worker.state.total_resources.get("GPU"))
        try:
            from .._version import __version__
            from ..errors import GeomxpError
            from ..linalg.mixed import splits
            from .devices import free_memory, resolve
        except ImportError as error:
            return found | {"geomxp": None, "error": str(error)}
        found |= {"geomxp": __version__, "units": splits()}
        if not found["gpu"]:
            return found | {"free": free_memory()}
        try:
            # its first one: what starts workers for GPUs shows each another one first
            return found | {"free": resolve("gpu").free_memory(), "room": None}
        except GeomxpError as error:
            return found | {"refused": str(error)}

    return about


def other_version(name, at, has, wanted):
    """Return the error of a worker, of this name and address, that has not the wanted geomxp."""
    has = f"geomxp {has}" if has else "no geomxp"
    return InvalidInput(
        f"worker {name} ({at}) has {has}, this process {wanted}: install one version on all "
        "workers."
    )


class Crew:
    """The workers of one computation, each in a slot: block row i belongs to slot i mod p.

    Parameters
    ----------
    address : str
        Of the scheduler.

    Attributes
    ----------
    slots : list of str
        The workers' addresses.
    losses : int
        How many times workers were lost.
    gpu : bool
        Whether tiles live on the workers' GPUs: whoever started the workers gave each the
        resource GPU, as `dask cuda worker --resources GPU=1` does. Not yet run on real GPUs.

    Raises
    ------
    LostCluster
        If the cluster cannot be reached, or has no workers.
    InvalidInput
        If a worker has no geomxp or another version of it, or not all have matrix units, or GPUs.
    MissingDevice
        If a worker with the resource GPU can use none.
    """

    def __init__(self, address):
        self.address, self.client = address, connect(address)
        self.about = self._ask()
        if not self.about:
            raise LostCluster(f'the cluster at "{address}" has no workers: start some.')
        self.slots = sorted(self.about)
        self.gpu = self.about[self.slots[0]]["gpu"]
        self.losses, self._paused = 0, {}

    def __len__(self):
        return len(self.slots)

    def _ask(self):
        """Return what each worker is, by its address; refuse those that would compute otherwise."""
        from .._version import __version__

        about = self.answer(lambda: self.client.run(_about_worker(), on_error="return"))
        about = {at: found for at, found in about.items() if not isinstance(found, OSError)}
        for at, found in about.items():
            if isinstance(found, Exception):
                raise LostCluster(f"worker {at} does not answer: {in_one_line(found)}.")
            if found["geomxp"] != __version__:
                raise other_version(found["name"], at, found["geomxp"], __version__)
            if "refused" in found:
                raise MissingDevice(
                    f"worker {found['name']} ({at}) was started with a resource GPU: "
                    f"{found['refused']}"
                )
        gpus = {found["gpu"]: at for at, found in about.items()}
        if len(gpus) > 1:
            raise InvalidInput(
                f"worker {gpus[True]} has a resource GPU and worker {gpus[False]} has none: they "
                "compute differently. Use workers of one kind."
            )
        kinds = {found["units"]: at for at, found in about.items()}
        if len(kinds) > 1 and not gpus.get(True):
            raise InvalidInput(
                f"worker {kinds[True]} has matrix units for FP16 and worker {kinds[False]} has "
                "none (or no MKL): tiles of one cannot be read by the other. Use workers of one "
                "kind."
            )
        return about

    def answer(self, ask):
        """Return what the scheduler answers, or raise `LostCluster`."""
        try:
            if self.client.status == "running":
                return ask()
            reason = f"the connection is {self.client.status}"
        except Exception as error:
            # whatever a connection dies of
            reason = in_one_line(error)
        raise LostCluster(
            f'the Dask scheduler at "{self.address}" is lost ({reason}): start it again, and what '
            "ran there; a fit with a checkpoint then goes on from it."
        )

    def identity(self):
        """Return what the scheduler says of itself and its workers, or raise `LostCluster`.

        `Client.scheduler_info` returns its last known state, without workers, where the scheduler
        cannot be reached.
        """
        return self.answer(lambda: self.client.sync(self.client.scheduler.identity, n_workers=-1))

    def check_memory(self, share, beside=0):
        """Raise `NotEnoughMemory`, naming a worker, if it has not the room for its slots.

        Parameters
        ----------
        share : sequence of int
            Bytes that each slot needs.
        beside : int
            Bytes that each thread needs while it computes.
        """
        if self._too_small(share, beside):
            # what was given up a moment ago is perhaps not free yet
            time.sleep(SETTLING)
            self.about = self._ask()
            if problem := self._too_small(share, beside):
                raise NotEnoughMemory(problem)

    def has_room(self, share, beside):
        """Return whether `check_memory` would let this pass."""
        return self._too_small(share, beside) is None

    @property
    def threads(self):
        """Tasks that all workers together work on at one time."""
        return sum(self.about[at]["threads"] for at in set(self.slots) & set(self.about))

    def _too_small(self, share, beside):
        """Say which worker has too little memory; None if none has."""
        hosts = [found["host"] for found in self.about.values()]
        for at in sorted(set(self.slots) & set(self.about)):
            found = self.about[at]
            room = found["free"] / (1 if self.gpu else hosts.count(found["host"]))
            room = room if found["room"] is None else min(room, found["room"])
            needed = sum(b for slot, b in zip(self.slots, share, strict=True) if slot == at)
            needed += beside * found["threads"]
            if needed > room:
                return (
                    f"worker {found['name']} ({at}) needs {human_bytes(needed)} for its part, "
                    f"{human_bytes(max(room, 0))} free: use more workers, workers with more "
                    "memory, or for tiles ask for less accuracy."
                )
        return None

    def submit(self, slot, function, *args, priority=0):
        """Return the future of function(*args) on the worker in a slot (of any number, mod p).

        Of the tasks that can begin a worker takes the one of the highest priority.
        """
        self.answer(lambda: None)
        key = f"geomxp-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        with warnings.catch_warnings():
            # that a task is large: what it carries would travel in any case
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            at = [self.slots[slot % len(self)]]
            return self.client.submit(
                *(function, *args), key=key, workers=at, pure=False, priority=priority
            )

    def wait(self, futures, most=0, held=tuple, watch=lambda done: None):
        """Wait until all futures but `most` are finished.

        Parameters
        ----------
        futures : sequence of Future
            In an order in which the first failure is the reason of those after it.
        most : int
        held : callable
            Returns futures that they read, perhaps: without them they would never be finished.
        watch : callable
            Is told how many of the futures are finished, each time that some are.

        Raises
        ------
        WorkerLost
            If some of what was computed is gone; see `replace`.
        LostCluster
        Exception
            What a task has raised.
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
                # told by the next check
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
        """Raise `WorkerLost` or `LostCluster` if not all are there, or one is paused for good."""
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
            If one is lost on the way: Dask itself would wait for its worker for ever.
        LostCluster
        """
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
                # Ctrl-C
                coming.cancel()
                raise

    async def _gathered(self, futures):
        return await self.client.gather(futures, asynchronous=True)

    def collect(self, submit, mend=lambda: None, held=tuple, things="tasks"):
        """Return the results of some tasks, submitted anew where workers were lost.

        Parameters
        ----------
        submit : callable
            Returns the futures, in order.
        mend : callable
            Computes again what was lost of what the tasks read.
        held : callable
            See `wait`.
        things : str
            What the tasks are called on a progress line.
        """
        while True:
            try:
                futures = submit()
                total = len(futures)
                self.wait(futures, 0, held, lambda done, total=total: tell(done, total, things))
                return self.gather(futures)
            except WorkerLost:
                self.replace()
                mend()

    def replace(self):
        """Give the slots of lost workers to new ones, or to those that are left.

        Raises
        ------
        LostCluster
            If nobody is left, or workers are lost again and again.
        """
        self.losses += 1
        if self.losses > LOSSES + 2 * len(self):
            raise LostCluster(
                f"workers were lost {self.losses} times in one computation: see their logs; mostly "
                "they have too little memory."
            )
        deadline = time.monotonic() + GRACE
        while True:
            self.about = self._ask()
            free = sorted(set(self.about) - set(self.slots))
            gone = [s for s, at in enumerate(self.slots) if at not in self.about]
            if len(free) >= len(gone) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if not self.about:
            raise LostCluster(f'all workers of the cluster at "{self.address}" are lost.')
        others = free or sorted(self.about)
        for turn, slot in enumerate(gone):
            self.slots[slot] = others[turn % len(others)]


def _let_go(error):
    """Part an exception, which Dask's own frames keep, from the frames of its callers.

    What these name, tiles too, would live until Python looks for cycles.
    """
    traceback.clear_frames(error.__traceback__)
    error.with_traceback(None)
