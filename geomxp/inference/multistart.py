"""Searches from several starts: one after the other, or as tasks on a cluster."""

from .maximize import INITIAL_STEP
from .progress import Monitor
from .starts import approach

NEAR = 0.1
"""First step of a search without derivatives from near a maximum."""


def searched(problem, candidates, evaluations, tasks):
    """Yield what a search from each start has come to: (log-likelihood, model or None, limited).

    Parameters
    ----------
    problem : Problem
        Its monitor takes note of all evaluations, in the order of the starts.
    candidates : list of Matern
    evaluations : int
        Limit for each.
    tasks : Tasks
    """
    if tasks.crew is None:
        for candidate in candidates:
            yield _from(problem, candidate, min(evaluations, problem.monitor.left))
        return
    about = problem.observations, problem.design, problem.reml, problem.how, problem.space
    common = type(problem), about, (problem.tolerance, problem.choice), evaluations
    line = problem.monitor.line
    line.expect(len(candidates), "starts")
    for found, *seen, complaint in tasks.over(_alone, common, candidates, line.advance):
        problem.monitor.join(*seen)
        problem.complaint = complaint or problem.complaint
        yield found
    line.expect(None, "")


def _from(problem, candidate, evaluations):
    """Search from one start, or from Vecchia's maximum near it."""
    model, near = approach(problem, candidate)
    problem.ends = True
    step = NEAR if near else INITIAL_STEP
    found = problem.search(problem.space, model, step=step, evaluations=evaluations)
    problem.ends = False
    return found


def _alone(common, candidate):
    """Return what a search from one start has come to, what it has seen, and what it complains of.

    A problem of its own, in the process that it runs in.
    """
    kind, about, settings, evaluations = common
    monitor = Monitor(evaluations, lambda *pair: pair, None, "", False)
    problem = kind(*about, monitor, *settings)
    found = _from(problem, candidate, evaluations)
    return found, monitor.count, monitor.rises, problem.complaint
