import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import geomxp as gx
from geomxp import plots, report
from geomxp.report import report_html, write_report

EVERYTHING = ("variance", "range", "smoothness", "nugget")
NASTY = "<script>alert(1)</script>\"'&"
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """What a browser would find: text, attributes, and whether every element is closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def images(self):
        return [value for tag, name, value in self.attributes if (tag, name) == ("img", "src")]


@pytest.fixture(scope="module")
def fit():
    return gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5})


@pytest.fixture(scope="module")
def html(fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "meuse.html"
    write_report(fit, path, command="geomxp fit meuse --report 'a & b.html'")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def nasty():
    """A fit to columns with names that strangers might choose; nothing is estimated."""
    random = np.random.default_rng(0)
    seen = gx.Observations(
        random.random((30, 2)),
        random.standard_normal(30),
        random.standard_normal(30),
        location_names=(NASTY, "y"),
        value_name=NASTY,
        covariate_names=(NASTY,),
        source={"path": NASTY + "\udcff", "sha256": "0" * 64},
    )
    model = gx.Matern(1.0, 0.3, 0.5)
    return gx.fit(seen, model, fixed=EVERYTHING, trend="covariates")


def test_report_says_every_number(fit, html):
    text = Page(html).text
    for name, value in fit.model.parameters().items():
        assert f"{name} {value:.6g}" in text
    for error in filter(None, fit.standard_errors.values()):
        assert f"{error:.4g}" in text
    for value in (*fit.coefficients, fit.model.effective_range()):
        assert f"{value:.6g}" in text
    for value in (fit.aic, fit.bic):
        assert f"{value:.4f}" in text
    assert f"{fit.log_likelihood:.6f}" in text
    assert fit.outcome.message in text


def test_report_says_where_it_comes_from(fit, html):
    text = Page(html).text
    assert fit.observations.source["sha256"] in text
    assert fit.observations.source["path"] in text
    assert f"geomxp {gx.__version__}" in text
    assert "geomxp fit meuse --report 'a & b.html'" in text
    assert "K" in text
    assert "smoothness ν" in text


def test_report_asks_the_network_for_nothing(html):
    page = Page(html)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    for _, name, value in page.attributes:
        if name in ("src", "href", "srcset", "action", "data", "style"):
            assert value.startswith("data:image/png;base64,")
    assert not re.search(r"https?:|url\(|@import|//", re.sub(r'"data:[^"]*"', "", html))
    policy = [value for _, name, value in page.attributes if name == "content"]
    assert any(value.startswith("default-src 'none'; img-src data:") for value in policy)


def test_report_is_for_small_screens(html):
    page = Page(html)
    assert ("meta", "name", "viewport") in page.attributes
    assert re.search(r"img\s*\{[^}]*max-width: 100%", html)
    assert len(html) < 2e6


def test_pictures_are_pictures(fit, html):
    from PIL import Image

    images = Page(html).images()
    # values, residuals, kriging mean and error, semivariogram, and the profiles
    assert len(images) == 5 + len(fit.free)
    for image in images:
        data = base64.b64decode(image.removeprefix("data:image/png;base64,"), validate=True)
        with Image.open(io.BytesIO(data)) as picture:
            picture.verify()
            assert picture.format == "PNG"
            assert min(picture.size) > 300
    assert len(set(images)) == len(images)


def test_names_from_strangers_stay_text(nasty):
    html = report_html(nasty, command=NASTY)
    assert "<script" not in html
    page = Page(html)
    assert "script" not in page.tags
    assert f"Matérn model of {NASTY}" in page.text
    assert page.text.count(NASTY) >= 6
    assert "?" in page.text


def test_report_says_what_is_left_out_and_why(nasty):
    page = Page(report_html(nasty))
    assert "No profiles of the log-likelihood: no parameter was estimated." in page.text
    assert "No maps of predictions: a map of predictions needs the covariates" in page.text
    assert len(page.images()) == 3


@pytest.mark.parametrize("seconds", [0.01, 1e6])
def test_profiles_stay_within_their_budget(fit, seconds, monkeypatch):
    asked = []

    def profile(fit, name, *, ax=None, points=9):
        asked.append((name, points))
        return plots.new_figure().add_subplot()

    monkeypatch.setattr("geomxp.plots.profile", profile)
    # 5 points for each parameter of a fit with 1 s an evaluation take longer than the budget
    page = Page(report_html(replace(fit, seconds=seconds, evaluations=100)))
    if seconds < 1:
        assert asked == [(name, 9) for name in fit.free]
    else:
        assert asked == []
        assert "No profiles of the log-likelihood: with as few as 5 points each" in page.text


def test_profiles_of_five_points_are_announced(fit, monkeypatch):
    monkeypatch.setattr("geomxp.plots.profile", lambda fit, name, points: points_only(points))
    seconds = report.BUDGET / (report.PER_POINT * 5 * len(fit.free))
    page = Page(report_html(replace(fit, seconds=seconds, evaluations=1)))
    assert "The profiles have 5 points in place of 9" in page.text


def points_only(points):
    assert points == 5
    return plots.new_figure().add_subplot()


def test_report_warns_of_what_is_no_estimate(nasty):
    outcome = gx.Outcome(gx.Ending.NO_FINITE_MAXIMUM, "it rises for ever")
    text = Page(report_html(replace(nasty, outcome=outcome))).text
    assert "NO_FINITE_MAXIMUM" in text
    assert "not an estimate to rely on" in text
    assert "not an estimate" not in Page(report_html(nasty)).text


def test_report_of_arrays_says_that_there_is_no_table(nasty):
    bare = replace(nasty, observations=nasty.observations.subset(np.arange(30)))
    assert "arrays given in Python" in Page(report_html(bare)).text


def test_report_is_refused_before_work_where_it_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("geomxp.report.report_html", lambda *_, **__: pytest.fail("worked"))
    with pytest.raises(gx.InvalidInput, match="does not exist"):
        write_report(None, tmp_path / "no" / "report.html")
