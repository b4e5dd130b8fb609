"""Reports that lack nothing, however slow the machine is; and reports that are always quick."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from geomxp.reporting import findings, report


def stopped(*times):
    """Return a module `time` whose clock shows these times, one after the other; or always 0."""
    coming = iter(times)
    return SimpleNamespace(perf_counter=lambda: next(coming) if times else 0.0)


@contextmanager
def in_no_time():
    """Have a score take next to nothing, and what a report spends its time on nothing."""
    measure = findings.seconds_of_a_score
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "time", stopped())
        patch.setattr(
            findings,
            "seconds_of_a_score",
            lambda fit: min(measure(fit), findings.LEAST_SCORE_SECONDS),
        )
        yield


@contextmanager
def briefly():
    """Have all reports be quick ones."""

    def quick(fit, budget, progress, level, places):
        return findings.findings_of(fit, budget, progress, "quick", places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "findings_of", quick)
        yield
