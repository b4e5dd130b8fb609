"""The time that a report may take: a part that would take more than is left is left out, aloud."""

import time
from dataclasses import dataclass, field

from ..errors import GeomxpError
from ..inference.progress import Line


@dataclass
class Ledger:
    """Time that is left, and sentences on what was left out.

    Parameters
    ----------
    left : float
        Seconds.
    line : Line
        On the terminal.
    notes : list of str
    """

    left: float
    line: Line
    notes: list = field(default_factory=list)

    def spend(self, what, seconds, work, instead=""):
        """Do some work if there is time for it; None if not, or if it cannot be done.

        Parameters
        ----------
        what : str
            What it makes, as the subject of a sentence.
        seconds : float
            What it is expected to take.
        work : callable
        instead : str
            How to get it where it is left out.
        """
        if seconds > max(self.left, 0.0):
            more = f" {instead}" if instead else ""
            self.notes.append(
                f"{what}: left out, it would take about {duration(seconds)} and the report’s "
                f"time is bounded.{more}"
            )
            return None
        self.line.about = what[0].lower() + what[1:]
        start = time.perf_counter()
        try:
            return work()
        except GeomxpError as error:
            self.notes.append(f"{what}: left out, {error}")
            return None
        finally:
            self.left -= time.perf_counter() - start


def duration(seconds):
    """Return a time in words.

    Examples
    --------
    >>> duration(0.1), duration(3.2), duration(250.0), duration(9000.0)
    ('a second', '3 seconds', '4 minutes', '2.5 hours')
    """
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.3g} hours"
