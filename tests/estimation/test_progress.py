"""What stands on a terminal while something runs, and what Ctrl-C leaves of a fit."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from terminals import Run

import geomxp as gx
from geomxp.data import tables
from geomxp.estimation import fit, problem
from geomxp.estimation.problem import Interrupted
from geomxp.runtime import progress
from geomxp.runtime.progress import Line

TRUTH, START = gx.Matern(1.0, 0.1, 0.5, nugget=0.1), gx.Matern(2.0, 0.3, 0.5, nugget=0.5)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set; a list of its one number."""
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_a_search_shows_its_iteration_the_usual_ones_and_the_time_left(clock, monkeypatch):
    monkeypatch.setattr(problem, "time", progress.time)
    monitor = problem.Monitor(1000)
    monitor.closing, monitor.line.shown = 5, True
    texts = []
    for k in range(1, 18):
        clock[0] += 4.0
        monitor.record(TRUTH, -100.0 + k)
        texts.append(monitor.line.note.partition("  log-likelihood")[0])
    assert texts[0] == "iteration 1, usually 5-15"
    # ten are expected, and five for the standard errors
    assert texts[3] == "iteration 4, usually 5-15  4.0 s each  about 0:44 left"
    assert texts[13] == "iteration 14, usually 5-15  4.0 s each  about 0:24 left"
    assert texts[14] == "iteration 15, usually 5-15  4.0 s each  about 0:24 left"
    assert texts[16] == "iteration 17, usually 5-15, at most 1,000  4.0 s each"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "usual"),
    [
        ({}, problem.USUAL_SCORING_EVALUATIONS),
        ({"method": gx.Vecchia(10)}, problem.USUAL_VECCHIA_EVALUATIONS),
        ({"search": "bobyqa"}, problem.USUAL_NLOPT_EVALUATIONS),
    ],
)
def test_a_search_is_usually_as_long_as_it_says(options, usual, monkeypatch):
    monitors, monitor_of = [], problem.Monitor

    def watched(*about):
        monitors.append(monitor_of(*about))
        return monitors[-1]

    monkeypatch.setattr(fit, "Monitor", watched)
    locations = np.random.default_rng(0).random((500, 2))
    (values,) = gx.simulate(gx.Matern(1.0, 0.05, 1.0, 0.1), locations, seed=0)
    found = gx.fit(gx.Observations(locations, values), **options)
    (monitor,) = monitors
    assert monitor.usual == usual
    assert usual[0] <= found.evaluations <= usual[1]


def test_what_is_left_is_at_the_rate_of_what_is_done(clock):
    with Line("predicting") as line:
        line.expect(4000, "locations")
        line.advance(3000)
        clock[0] += 30
        assert str(line) == "predicting  3,000 of 4,000 locations  100/s  0:10 left"
        line.expect(8, "folds")
        line.advance()
        line.note = "refitted"
        clock[0] += 600
        text = "predicting  1 of 8 folds  600.0 s each  1:10:00 left  refitted"
        assert str(line) == text


def test_time_stands_where_nothing_is_counted(clock):
    with Line("drawing") as line:
        clock[0] += 75
        assert str(line) == "drawing  1:15"
        line.expect(3, "draws")
        assert str(line) == "drawing  0 of 3 draws  1:15"


def test_a_part_of_the_work_stands_beside_the_whole_until_it_is_done(clock):
    with Line("fitting") as line:
        line.note = "evaluation 3"
        line.hear(0, 55, "tiles")
        assert str(line) == "fitting  0:00  0 of 55 tiles  evaluation 3"
        line.hear(11, 55, "tiles")
        told = r"fitting  0:00  11 of 55 tiles  [0-9,.]+/s  0:00 left  evaluation 3"
        assert re.fullmatch(told, str(line))
        # another matrix
        line.hear(5, 55, "tiles")
        assert "  5 of 55 tiles  " in str(line)
        line.hear(55, 55, "tiles")
        assert str(line) == "fitting  0:00  evaluation 3"


def test_nothing_is_drawn_where_there_is_no_terminal(capsys):
    with Line("fitting") as line:
        assert not line.shown
    assert capsys.readouterr() == ("", "")


LINES = """
import os, time
from geomxp.runtime.progress import tell
from geomxp.runtime import progress
for quiet, shown in ((600, True), (0.1, False), (0.3, True)):
    progress.QUIET_SECONDS = quiet
    with progress.Line(f"quiet for {quiet} {shown}", 2, "things", shown) as line:
        line.advance()
        tell(30, 100, "tiles")
        print("result", flush=True)
        time.sleep(0.5)
        while quiet == 0.3 and not os.path.exists("seen"):
            time.sleep(0.05)
"""


def test_a_line_comes_late_stands_on_standard_error_and_goes(tmp_path):
    run = Run(["-c", LINES], tmp_path, terminal="stderr")
    run.read_until("left  30 of 100 tiles")
    (tmp_path / "seen").touch()
    status, shown = run.finish()
    assert status == 0, shown
    assert run.output == b"result\n" * 3
    assert "quiet for 0.3 True  1 of 2 things" in shown
    rate = r"([0-9,.]+/s|[0-9.]+ s each)  [0-9:]+ left"
    assert re.search(f"1 of 2 things  {rate}  30 of 100 tiles  {rate}", shown)
    assert "quiet for 600" not in shown
    assert "False" not in shown
    # erased
    assert shown.endswith("\x1b[2K")


PREDICT = """
import numpy as np, geomxp as gx
from geomxp.runtime import progress
progress.QUIET_SECONDS = 0.0
seen, model = gx.datasets.load("meuse"), gx.Matern(0.6, 220.0, 0.5, 0.06)
fit = gx.fit(seen, model, fixed=tuple(model.parameters()))
places = np.random.default_rng(0).uniform((178000, 329000), (182000, 334000), (300_000, 2))
gx.predict(fit, places)
print("quiet from here", flush=True)
gx.predict(fit, places[:200_000], progress=False)
"""


@pytest.mark.slow
def test_predictions_say_how_fast_they_are(tmp_path):
    run = Run(["-c", PREDICT], tmp_path, terminal="stderr")
    status, shown = run.finish()
    assert status == 0, shown
    assert run.output == b"quiet from here\n"
    assert "of 300,000 locations" in shown
    assert re.search(r" of 300,000 locations  [0-9,.]+/s  [0-9:]+ left", shown)
    assert "200,000 locations" not in shown


class Stopping(gx.Exact):
    """The exact likelihood, with Ctrl-C at the seventh call."""

    def prepare(self, *arguments):
        evaluator, count = super().prepare(*arguments), [0]
        call, derive = type(evaluator).__call__, type(evaluator).derivatives

        def counted(work):
            def run(self, *arguments, **options):
                count[0] += 1
                if count[0] > 6:
                    raise KeyboardInterrupt
                return work(self, *arguments, **options)

            return run

        kind = type("Evaluator", (type(evaluator),), {})
        kind.__call__, kind.derivatives = counted(call), counted(derive)
        evaluator.__class__ = kind
        return evaluator


@pytest.fixture(scope="module")
def field():
    places = np.random.default_rng(1).random((80, 2))
    return gx.Observations(places, gx.simulate(TRUTH, places, seed=1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("search", ["scoring", "bobyqa", "lbfgs"])
def test_an_interrupted_fit_hands_over_what_a_checkpoint_holds(field, tmp_path, search):
    about = {"fixed": {"smoothness": 0.5}, "trend": "zero", "search": search}
    with pytest.raises(Interrupted, match="interrupted after") as caught:
        gx.fit(field, START, Stopping(), **about)
    stopped = caught.value
    # and Python's own handling of Ctrl-C sees it
    assert isinstance(stopped, KeyboardInterrupt)
    assert stopped.checkpoint is None
    assert stopped.evaluations >= 1
    state, path = stopped.state, tmp_path / "state.json"
    tables.write_json(path, state)
    again = gx.fit(field, START, **about, checkpoint=path)
    assert again.evaluations > state["evaluations"]
    assert again.log_likelihood >= state["log_likelihood"]
    assert again.log_likelihood == pytest.approx(gx.fit(field, **about).log_likelihood, abs=1e-5)


def test_the_state_is_that_of_the_checkpoint(field, tmp_path):
    path = tmp_path / "state.json"
    with pytest.raises(Interrupted) as caught:
        gx.fit(field, START, Stopping(), trend="zero", search="bobyqa", checkpoint=path)
    state, kept = caught.value.state, tables.read_json(path)
    assert caught.value.checkpoint == path
    # evaluations that brought nothing better are counted all the same
    assert state.pop("evaluations") >= kept.pop("evaluations")
    del kept["checksum"]
    assert state == kept
