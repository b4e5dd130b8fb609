"""Parts of one data set on the workers of a cluster, and functions that run over all of them.

Part s belongs to the worker in slot s mod p. It is made in three steps: a task finds out what the
part needs to know of the others, this process sends that and no more, and both stay there. A part
that is lost with its worker is made again in the same way: the same bits.
"""

import time

from ..errors import LostCluster
from ..runtime.dask import GLANCE, WorkerLost, in_one_line
from .dask_store import pinned

NOTICED = 5
"""Looks after which the scheduler knows of a worker that is gone."""


def _alone(function, *args):
    with pinned():
        return function(*args)


def _itself(value):
    return value


class Parts:
    """What is known of each part where it is, and how it is made.

    Parameters
    ----------
    crew : Crew
    ranges : sequence of tuple
        What tells a part from the others.
    common : object
        What all parts are made from; on the workers only while some are made.
    find : callable
        find(common, *range) -> what is kept of a part, on its worker.
    needs : callable
        needs(kept) -> what the part needs from this process, on its worker.
    supply : callable
        supply(range, needed) -> what it is sent, here.
    """

    def __init__(self, crew, ranges, common, find, needs, supply):
        self.crew, self.ranges, self._common = crew, list(ranges), common
        self._find, self._needs, self._supply = find, needs, supply
        self._kept, self._sent = [None] * len(self.ranges), [None] * len(self.ranges)
        self._make_all()

    def __len__(self):
        return len(self.ranges)

    def over(self, function, *args):
        """Return [function(kept, sent, *args)] of all parts, in their order.

        Raises
        ------
        LostCluster
        Exception
            What the function has raised.
        """
        return self._collect(range(len(self)), function, args)

    def at(self, s, function, *args):
        """Return function(kept, sent, *args) of part s."""
        return self._collect([s], function, args)[0]

    def _collect(self, parts, function, args):
        def submit():
            about = ((s, self._kept[s], self._sent[s]) for s in parts)
            return [self._submit(s, function, kept, sent, *args) for s, kept, sent in about]

        return self.crew.collect(submit, self._make_all, self._held)

    def _submit(self, s, function, *args):
        return self.crew.submit(s, _alone, function, *args)

    def _held(self):
        return [future for future in (*self._kept, *self._sent) if future is not None]

    def _lost(self):
        return [
            s for s in range(len(self)) if not (_there(self._kept[s]) and _there(self._sent[s]))
        ]

    def _make_all(self):
        """Make the parts that are not there."""
        while missing := self._lost():
            try:
                self._make(missing)
            except WorkerLost:
                self.crew.replace()

    def _make(self, missing):
        common = self._everywhere({s % len(self.crew) for s in missing})
        for s in missing:
            there = common[s % len(self.crew)]
            self._sent[s] = None
            self._kept[s] = self._submit(s, self._find, there, *self.ranges[s])
        needed = [self._submit(s, self._needs, self._kept[s]) for s in missing]
        # one of each worker at a time: what travels through this process is not kept here
        for first in range(0, len(missing), len(self.crew)):
            part = slice(first, first + len(self.crew))
            self.crew.wait(needed[part], held=self._held)
            for s, need in zip(missing[part], self.crew.gather(needed[part]), strict=True):
                self._sent[s] = self._send(s, self._supply(self.ranges[s], need))

    def _everywhere(self, slots):
        """Return the futures of what is common, by slot: sent once, then from worker to worker."""
        first, *others = sorted(slots)
        there = {first: self._send(first, self._common)}
        # under a name of their own: of copies under one name Dask would keep any
        return there | {slot: self.crew.submit(slot, _itself, there[first]) for slot in others}

    def _send(self, slot, data):
        """Return the future of data sent to the worker in a slot."""
        crew = self.crew
        at = crew.slots[slot % len(crew)]
        try:
            return crew.client.scatter([data], workers=[at], hash=False)[0]
        except Exception as error:
            # whatever a connection dies of: the scheduler may not know yet that the worker is gone
            for _ in range(NOTICED):
                crew.look()
                time.sleep(GLANCE)
            raise LostCluster(
                f"worker {at} cannot be sent its part ({in_one_line(error)}): see its log; mostly "
                "it has too little memory."
            ) from error


def _there(future):
    return future is not None and future.status == "finished"
