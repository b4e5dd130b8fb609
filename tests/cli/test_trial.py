"""A new user's trial: three messy tables, each from the file to a report with three commands."""

import json
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import trial

import geomxp as gx
from geomxp.cli.main import main


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(line):
        status = main(shlex.split(line)[1:])
        captured = capsys.readouterr()
        assert status == 0, captured.err
        return captured.out

    return run


@pytest.mark.slow
@pytest.mark.parametrize("messy", trial.TABLES, ids=lambda messy: messy.name)
def test_three_commands_lead_from_a_messy_table_to_a_report(run, messy, record_property):
    field = messy.write(Path())
    started, commands = time.perf_counter(), []

    commands.append(f"geomxp explore {messy.name}.csv {shlex.join(messy.asked)}")
    text = run(commands[-1])
    following = re.search(r"Run next:\n  (geomxp fit .*)\n", text)[1]
    # a finding may advise an option that needs a decision of the user
    advised = re.search(r"\((--error-variance '[^']*')\)", " ".join(text.split()))
    commands.append(f"{following} {advised[1]}" if advised else following)
    for option in messy.options:
        assert option in commands[-1]
    # profiles and maps of one table, which has errors and replicates, are enough
    level = "full" if messy.transform else "quick"
    run(f"{commands[-1]} --report-level {level}")
    commands.append(
        f"geomxp predict {messy.name}-fit.json {messy.name}-new.csv --output predictions.csv"
    )
    run(commands[-1])
    record_property("commands", len(commands))
    record_property("seconds", time.perf_counter() - started)
    assert len(commands) <= 3

    fit = json.loads(Path(f"{messy.name}-fit.json").read_text())
    assert fit["outcome"] in ("CONVERGED", "AT_LIMIT")
    trend = fit["trend"]
    assert set(trend["names"]) == set(messy.coefficients)
    for name, estimate, error in zip(
        trend["names"], trend["coefficients"], trend["table"]["standard_error"], strict=True
    ):
        assert abs(estimate - messy.coefficients[name]) < 3 * error < 10
    report = Path(f"{messy.name}-fit.html").read_text()
    assert "<svg" in report
    assert messy.asked[1] in report

    loaded = gx.Fit.load(f"{messy.name}-fit.json")
    assert getattr(loaded.model.transform, "name", None) == messy.transform
    # the loss of log-likelihood at the true parameters is half a chi-squared variable
    truth = gx.log_likelihood(
        loaded.observations,
        replace(messy.truth, transform=loaded.model.transform),
        trend=loaded.trend.text,
    )
    assert 0 <= loaded.log_likelihood - truth.log_likelihood < 10

    found = pd.read_csv("predictions.csv")
    assert len(found) == len(field)
    inside = (found["lower"] < field) & (field < found["upper"])
    assert inside.mean() > 0.85
    centre = found["median"] if messy.transform else found["mean"]
    assert np.corrcoef(centre, field)[0, 1] > 0.6
