"""Reports of fits of several variables."""

import json
import re

import numpy as np
import pytest

import geomxp as gx
from geomxp.reporting.report import report_html

NAMES = ("zinc", "lead", "<tin>")
MODELS = {
    "flexible": gx.FlexibleMatern((1.0, 4.0, 0.5), (0.3, 0.2, 0.3), (0.5, 1.0, 0.5), 0.4, 0.1),
    "coregionalization": gx.Coregionalization(
        (1.0, 0.5, 2.0, 0.3, 0.1, 0.6), (0.3, 0.2, 0.3), 0.5, 0.1
    ),
    "independent": gx.Independent((1.0, 4.0, 0.5), 0.3, 0.5, (0.1, 0.2, 0.1)),
}


def observations(d=2, n=40):
    random = np.random.default_rng(5)
    places = random.random((n, d))
    rows, kinds = np.tile(np.arange(n), 3), np.repeat([0, 1, 2], n)
    keep = (kinds < 2) | (rows < 25)
    rows, kinds = rows[keep], kinds[keep]
    values = gx.simulate(MODELS["flexible"], places[rows], variable=kinds, seed=3)[0]
    return gx.Observations(places[rows], values, variable=kinds, variable_names=NAMES)


@pytest.fixture(scope="module")
def pages():
    """A page of each model, of which few parameters are free."""
    found = {}
    for name, model in MODELS.items():
        free = {"loading_21", "correlation_12", "variance_3"}
        held = tuple(p for p in model.parameters() if p not in free)
        fit = gx.fit(observations(), model, fixed=held, trend="linear")
        # maps of predictions and profiles of one of them are enough
        level = "full" if name == "flexible" else "quick"
        found[name] = fit, report_html(fit, level=level)
    return found


def data_of(page):
    return json.loads(re.search(r'id="numbers">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.slow
def test_tables_have_names_and_units_of_the_variables(pages):
    page = pages["flexible"][1]
    assert "Flexible Matérn model of zinc, lead and &lt;tin&gt;" in page
    assert "<tin>" not in re.sub(r'<script type="application/json".*?</script>', "", page)
    for words in (
        "correlation of zinc and lead",
        "nugget of &lt;tin&gt;",
        "squared units of lead",
        "trend: zinc: x",
        "units of zinc per unit of x",
    ):
        assert words in page, words
    assert "variance 1" not in page
    assert "loading of lead on field 1" in pages["coregionalization"][1]
    assert "range of field 2" in pages["coregionalization"][1]


@pytest.mark.slow
def test_correlations_and_scores_are_those_of_the_fit(pages):
    for name, (fit, page) in pages.items():
        table, left_out = fit.correlation_table(), gx.leave_one_out(fit)
        text = re.sub(r"<[^>]*>", " ", page)
        for row in table.itertuples():
            value = f"{row.estimate:.4g}".replace("-", "−")
            first, second = (one.replace("<", "&lt;").replace(">", "&gt;") for one in row[1:3])
            assert re.search(rf"{first} and {second}\s+{value}", text), (name, row)
        rmse = [left_out.of_variable(k).scores()["rmse"] for k in range(3)]
        for value, of in zip(rmse, ("zinc", "lead", "&lt;tin&gt;"), strict=True):
            assert re.search(rf"{value:.3g}\S*\s+leave-one-out RMSE of {of}", text), (name, of)


@pytest.mark.slow
def test_each_variable_has_maps_and_each_two_a_cross_variogram(pages):
    fit, page = pages["flexible"]
    keys = re.findall(r'<svg class="map" id="map-(\S+?)"', page)
    kinds = ("values", "mean", "error", "misses")
    assert keys == [f"{kind}-{k}" for k in range(3) for kind in kinds]
    for k in range(6):
        assert f"variogram-{k}" in page or page.count("Cross-variogram of") == 3
    assert page.count("Semivariogram of ") == 3
    data = data_of(page)
    assert len(data["places"]["x"]) == 40
    columns = dict(data["places"]["columns"])
    seen = fit.observations.of_variable("<tin>")
    assert sum(value is not None for value in columns["<tin>"]) == 25
    for x, value in zip(data["places"]["x"], columns["<tin>"], strict=True):
        near = np.abs(seen.locations[:, 0] - x) < 1e-4
        if value is not None:
            assert value == pytest.approx(float(seen.values[near][0]), rel=1e-4)
    assert [name for name, _ in data["cells"]["columns"]][:2] == [
        "zinc, predicted", "zinc: standard error"
    ]  # fmt: skip


@pytest.mark.slow
def test_a_line_and_a_quick_report_and_vecchia_have_reports(pages, tmp_path):
    model = MODELS["flexible"]
    line = gx.fit(observations(1), model, fixed=tuple(model.parameters()))
    page = report_html(line, level="quick")
    assert page.count("lead against x") >= 1
    assert "&lt;tin&gt; against x" in page
    near = gx.fit(observations(), model, gx.Vecchia(5), fixed=tuple(model.parameters()))
    gx.report(near, tmp_path / "fit.html", level="quick")
    assert 'id="map-neighbours"' in (tmp_path / "fit.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_table_of_places_gives_maps_of_each_variable(pages):
    import pandas as pd

    fit = pages["flexible"][0]
    x, y = np.meshgrid(np.linspace(0.1, 0.9, 5), np.linspace(0.1, 0.9, 4))
    places = pd.DataFrame({"x": x.ravel(), "y": y.ravel()})
    data = data_of(report_html(fit, level="quick", places=places))
    assert data["cells"]["shape"] == [4, 5]
    expected = gx.predict(fit, places, variable="lead").mean
    found = dict(data["cells"]["columns"])["lead, predicted"]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
