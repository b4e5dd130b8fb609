"""The report as its reader has it: opened from a file in a browser, pointed at, printed."""

import json
import re

import numpy as np
import pytest
from browser import Browser, Tab, executable
from reports import in_no_time
from waiting import wait_until

import geomxp as gx

NASTY = "<script>hacked = 1</script><img src=x onerror='hacked = 1'>\"&" + "w" * 90
EVERYTHING = ("variance", "range", "smoothness", "nugget")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = executable()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    running = Browser(path, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def fit():
    return gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5}, progress=False)


@pytest.fixture(scope="module")
def address(browser, fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "meuse.html"
    with in_no_time():
        gx.report(fit, path, command="geomxp fit meuse")
    return path.as_uri()


@pytest.fixture(scope="module")
def nasty(browser, tmp_path_factory):
    """The report of names that strangers might choose."""
    random = np.random.default_rng(0)
    seen = gx.Observations(
        random.random((30, 2)),
        random.standard_normal(30),
        location_names=(NASTY, "y"),
        value_name=NASTY,
        source={"path": NASTY, "sha256": "0" * 64},
    )
    fit = gx.fit(seen, gx.Matern(1.0, 0.3, 0.5), fixed=EVERYTHING)
    path = tmp_path_factory.mktemp("nasty") / "r.html"
    with in_no_time():
        gx.report(fit, path, command=NASTY)
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    tab = Tab(browser, address)
    yield tab
    tab.close()


@pytest.fixture
def opened(browser, address):
    """Open the report in some way; closed at the end."""
    tabs = []

    def open_tab(*screen, where=address, **method):
        tabs.append(Tab(browser, where, *screen, **method))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.close()


def box(tab, selector):
    """Return left, top, width and height of an element on the screen, having scrolled to it."""
    tab.ask(
        f"document.querySelector('{selector}').scrollIntoView({{behavior: 'instant', "
        "block: 'center'})"
    )
    return tab.ask(
        f"(() => {{ const r = document.querySelector('{selector}').getBoundingClientRect();"
        "return [r.x, r.y, r.width, r.height]; })()"
    )


def numbers(tab):
    return json.loads(tab.ask("document.getElementById('numbers').textContent"))


def at(tab, key, x, y):
    """Return where a place of the plane is on the screen, the whole map being shown."""
    left, top, width, height = box(tab, f"#map-{key} .ground")
    west, east, south, north = numbers(tab)["frame"]["box"]
    return (
        left + (x - west) / (east - west) * width,
        top + (north - y) / (north - south) * height,
    )


def tip(tab, key):
    """Return what the map says under the pointer, as a dict; None where it says nothing."""
    found = tab.ask(
        f"(() => {{ const tip = document.querySelector('#map-{key}').parentElement"
        ".querySelector('.tip'); return tip.hidden ? null : [tip.querySelector(':scope > b')"
        "?.textContent, [...tip.querySelectorAll('div')].map((row) => "
        "[row.firstChild.textContent, row.lastChild.textContent])]; })()"
    )
    return None if found is None else dict(found[1]) | {"title": found[0]}


def view(tab):
    """Return magnification and shift of all maps, which are the same."""
    said = tab.ask(
        "[...document.querySelectorAll('.scene')].map((s) => s.getAttribute('transform'))"
    )
    assert len(set(said)) == 1
    if said[0] is None:
        return 1.0, 0.0, 0.0
    x, y, k = map(float, re.findall(r"-?[\d.]+(?:e-?\d+)?", said[0]))
    return k, x, y


def labels(tab):
    """Return the numbers along the maps, and where they stand."""
    found = tab.ask(
        "[...document.querySelectorAll('.along text, .down text')].map((t) => "
        "[t.textContent, Number(t.getAttribute('x')), Number(t.getAttribute('y'))])"
    )
    return [text for text, *_ in found], np.array([at for _, *at in found])


def shades(tab, selector):
    """Return the contrast of an element's letters and the page, as WCAG 2.2 counts it."""
    colours = tab.ask(
        f"[getComputedStyle(document.querySelector('{selector}')).color, "
        "getComputedStyle(document.body).backgroundColor]"
    )
    light = []
    for colour in colours:
        channels = np.array([int(c) for c in re.findall(r"\d+", colour)[:3]]) / 255
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        light.append(float(linear @ (0.2126, 0.7152, 0.0722)))
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.slow
def test_report_opens_from_a_file_without_a_complaint_or_a_request(page, address):
    assert page.complaints() == []
    first, *others = page.requests()
    assert first == address
    assert all(other.startswith("data:image/png;base64,") for other in others)


@pytest.mark.slow
def test_all_pictures_are_visible(page):
    sizes = page.ask(
        "[...document.querySelectorAll('main svg')].map((svg) => "
        "{ const r = svg.getBoundingClientRect(), b = svg.getBBox(); "
        "return [r.width, r.height, b.width, b.height]; })"
    )
    assert len(sizes) == 13
    assert np.array(sizes).min() > 150
    drawn = page.ask(
        "Promise.all([...document.querySelectorAll('svg image')].map(async (image) => "
        "{ const copy = new Image(); copy.src = image.href.baseVal; await copy.decode(); "
        "return copy.naturalWidth; }))"
    )
    assert len(drawn) == 2
    assert min(drawn) > 100


@pytest.mark.slow
def test_dots_are_drawn_in_the_colours_of_their_numbers(page, tmp_path):
    from PIL import Image

    places = numbers(page)["places"]
    row = int(np.argmax(places["columns"][0][1]))
    x, y = at(page, "values", places["x"][row], places["y"][row])
    page.screenshot(tmp_path / "screen.png", whole=False)
    with Image.open(tmp_path / "screen.png") as image:
        red, green, blue = image.convert("RGB").getpixel((round(x), round(y)))
    # the yellow end of viridis
    assert red > 200
    assert green > 200
    assert blue < 80


@pytest.mark.slow
def test_pointing_at_an_observation_tells_its_numbers(page, fit):
    places, left_out = numbers(page)["places"], gx.leave_one_out(fit, progress=False)
    for row in (3, 80, 154):
        page.mouse("mouseMoved", *at(page, "values", places["x"][row], places["y"][row]))
        said = tip(page, "values")
        assert said["title"] == f"observation {row + 1}"
        assert float(said["log_zinc"]) == pytest.approx(fit.observations.values[row], rel=5e-5)
        assert float(said["x"]) == fit.observations.locations[row, 0]
        z = float(said["standardised error"].replace("−", "-"))
        assert z == pytest.approx(left_out.standardised_errors[row], rel=5e-3)
    page.mouse("mouseMoved", 2, 2)
    assert tip(page, "values") is None


@pytest.mark.slow
def test_pointing_at_a_prediction_tells_mean_and_error_of_the_cell(page, fit):
    raster = gx.predict_raster(fit, cells=80, progress=False)
    for i, j in ((5, 9), (40, 30), (70, 50)):
        x, y = raster.coordinates[i, j]
        for key in ("mean", "error"):
            page.mouse("mouseMoved", *at(page, key, x, y))
            said = tip(page, key)
            assert float(said["log_zinc, predicted"]) == pytest.approx(raster.mean[i, j], rel=5e-4)
            error = raster.standard_error[i, j]
            assert float(said["standard error"]) == pytest.approx(error, rel=5e-3)
            marks = (
                "[...document.querySelectorAll('.mark:not(.under)')].map(m => m.getAttribute('d'))"
            )
            assert len(set(page.ask(marks))) == 1


@pytest.mark.slow
def test_zooming_moves_all_maps_and_the_way_back_leads_to_where_it_began(page):
    before = labels(page)
    x, y, width, height = box(page, "figure .zoom button")
    page.mouse("mousePressed", x + width / 2, y + height / 2, button="left", clickCount=1)
    page.mouse("mouseReleased", x + width / 2, y + height / 2, button="left", clickCount=1)
    k, across, down = view(page)
    assert k == pytest.approx(1.6)
    # about the middle
    width, height = numbers(page)["frame"]["size"]
    assert (across, down) == pytest.approx(((1 - k) * width / 2, (1 - k) * height / 2))
    assert labels(page)[0] != before[0]
    page.ask("document.querySelectorAll('figure .zoom button')[2].click()")
    assert view(page) == (1.0, 0.0, 0.0)
    # the numbers that the script writes are those that the page came with
    words, places = labels(page)
    assert words == before[0]
    # to the two decimals of the page
    np.testing.assert_allclose(places, before[1], atol=0.006)


@pytest.mark.slow
def test_the_wheel_zooms_with_ctrl_about_the_pointer_and_else_scrolls(page):
    west, east, south, north = numbers(page)["frame"]["box"]
    place = west + 0.3 * (east - west), south + 0.6 * (north - south)
    x, y = at(page, "mean", *place)
    before = page.ask("scrollY")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    wait_until(lambda: page.ask("scrollY") != before)
    assert view(page) == (1.0, 0.0, 0.0)
    x, y = at(page, "mean", *place)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240, modifiers=2)
    k, across, down = view(page)
    assert k > 1.5
    width, height = numbers(page)["frame"]["size"]
    # the place under the pointer has stayed there, but for what rounding to pixels moves
    assert 0.3 * width * k + across == pytest.approx(0.3 * width, abs=1.5 * k)
    assert 0.4 * height * k + down == pytest.approx(0.4 * height, abs=1.5 * k)


@pytest.mark.slow
def test_dots_keep_their_size_however_near_one_is(page, fit, tmp_path):
    from PIL import Image

    places = fit.observations.locations
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(len(places))
    # in the picture that it has for itself
    x, y = at(page, "values", *places[np.argmax(apart.min(axis=1))])

    def size():
        page.mouse("mouseMoved", 2, 2)
        page.screenshot(tmp_path / "screen.png", whole=False)
        with Image.open(tmp_path / "screen.png") as image:
            here = (round(x) - 12, round(y) - 12, round(x) + 12, round(y) + 12)
            pixels = np.asarray(image.convert("RGB").crop(here), dtype=int)
        return int((np.abs(pixels - pixels[0, 0]).sum(axis=2) > 60).sum())

    before = size()
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600, modifiers=2)
    assert view(page)[0] > 7
    assert size() == pytest.approx(before, rel=0.25)
    assert 30 < before < 200


def test_dragging_moves_a_map_that_is_near_and_no_farther_than_its_edge(page):
    x, y, width, height = box(page, "#map-mean .ground")
    middle = x + width / 2, y + height / 2
    page.ask("document.querySelector('figure .zoom button').click()")
    before = view(page)
    page.mouse("mousePressed", *middle, button="left", clickCount=1)
    page.mouse("mouseMoved", middle[0] + 20, middle[1], button="left", buttons=1)
    moved = view(page)
    scale = width / numbers(page)["frame"]["size"][0]
    assert moved[1] - before[1] == pytest.approx(20 / scale, abs=0.5)
    page.mouse("mouseMoved", middle[0] + 9e3, middle[1] + 9e3, button="left", buttons=1)
    page.mouse("mouseReleased", *middle, button="left", clickCount=1)
    assert view(page)[1:] == (0.0, 0.0)


def test_fingers_zoom_and_tap(opened):
    phone = opened(375, 740, touch=True)
    places = numbers(phone)["places"]
    x, y = at(phone, "values", places["x"][0], places["y"][0])
    phone.touch("touchStart", (x, y))
    phone.touch("touchEnd")
    assert tip(phone, "values")["title"] == "observation 1"
    x, y, width, height = box(phone, "#map-values .ground")
    x, y = x + width / 2, y + height / 2
    phone.touch("touchStart", (x - 20, y), (x + 20, y))
    phone.touch("touchMove", (x - 40, y), (x + 40, y))
    phone.touch("touchMove", (x - 60, y), (x + 60, y))
    phone.touch("touchEnd")
    assert view(phone)[0] == pytest.approx(3.0, rel=0.05)


def test_keys_zoom_and_walk(page):
    page.ask("document.getElementById('map-mean').focus({focusVisible: true})")
    page.key("+", "Equal")
    page.key("+", "Equal")
    assert view(page)[0] == pytest.approx(1.6**2)
    page.key("ArrowRight")
    first = tip(page, "mean")
    page.key("ArrowRight")
    second = tip(page, "mean")
    assert float(second["x"]) > float(first["x"])
    assert second["y"] == first["y"]
    for _ in range(30):
        page.key("ArrowRight")
    # the view follows the cursor
    assert view(page)[1] < (1 - 1.6**2) * numbers(page)["frame"]["size"][0] / 2
    page.key("0", "Digit0")
    assert view(page) == (1.0, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 375, 768, 1400])
@pytest.mark.parametrize("which", ["address", "nasty"])
def test_nothing_is_wider_than_the_screen(opened, request, which, width):
    tab = opened(width, 740, where=request.getfixturevalue(which), touch=width < 500)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    # nor hidden in a box that scrolls
    wide = tab.ask(
        "[...document.querySelectorAll('main *')].filter((e) => e.scrollWidth > e.clientWidth + 1 "
        "&& e.clientWidth > 0 && getComputedStyle(e).overflowX !== 'visible' "
        "&& !e.closest('svg') && !e.closest('thead')).map((e) => e.tagName)"
    )
    assert wide == []


@pytest.mark.slow
def test_letters_on_a_phone_can_be_read(opened):
    phone = opened(375, 740, touch=True)
    sizes = phone.ask(
        "[...document.querySelectorAll('main svg text')].map((t) => "
        "parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a * "
        "(t.getScreenCTM().a ? 1 : 0) || null).filter((s) => s)"
    )
    assert len(sizes) > 100
    assert min(sizes) > 7


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_letters_stand_out_by_day_and_by_night(opened, dark):
    tab = opened(dark=dark)
    assert (sum(map(int, re.findall(r"\d+", tab.ask(
        "getComputedStyle(document.body).backgroundColor")))) < 200) == dark  # fmt: skip
    # the levels AAA and AA of WCAG 2.2
    assert shades(tab, "h1") > 7
    for selector in (".fine", "figcaption", "nav a", "thead th", ".map text", ".remark"):
        assert shades(tab, selector) > 4.5


@pytest.mark.slow
def test_names_from_strangers_run_nothing(opened, nasty):
    tab = opened(where=nasty)
    assert tab.complaints() == []
    assert tab.ask("typeof hacked") == "undefined"
    assert tab.ask("document.querySelectorAll('img').length") == 0
    places = numbers(tab)["places"]
    tab.mouse("mouseMoved", *at(tab, "values", places["x"][0], places["y"][0]))
    assert tip(tab, "values")["title"] == "observation 1"
    assert tab.ask("document.querySelectorAll('.tip img, .tip script').length") == 0


@pytest.mark.slow
def test_without_scripts_all_pictures_are_there(opened):
    tab = opened(scripts=False)
    shot = tab("DOM.getDocument", depth=-1)["root"]
    found = tab("DOM.querySelectorAll", nodeId=shot["nodeId"], selector="main svg")["nodeIds"]
    assert len(found) >= 9
    for node in found:
        model = tab("DOM.getBoxModel", nodeId=node)["model"]
        assert min(model["width"], model["height"]) > 150
    buttons = tab("DOM.querySelectorAll", nodeId=shot["nodeId"], selector=".zoom button")
    assert buttons["nodeIds"] == []


@pytest.mark.slow
def test_paper_has_the_whole_map_and_all_that_was_folded(page, tmp_path):
    page.ask("document.querySelector('figure .zoom button').click()")
    assert view(page)[0] > 1
    page.pdf(tmp_path / "report.pdf")
    data = (tmp_path / "report.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", data)) >= 3
    assert view(page) == (1.0, 0.0, 0.0)
    assert page.ask("[...document.querySelectorAll('details')].every((d) => d.open)")


@pytest.fixture(scope="module")
def explored(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "zinc.html"
    gx.report(gx.explore(gx.datasets.load("meuse", values="zinc")), path, command="geomxp explore")
    return path.as_uri()


@pytest.mark.slow
def test_an_exploration_opens_from_a_file_without_a_complaint_or_a_request(opened, explored):
    tab = opened(where=explored)
    assert tab.complaints() == []
    assert tab.requests() == [explored]
    places = numbers(tab)["places"]
    tab.mouse("mouseMoved", *at(tab, "values", places["x"][7], places["y"][7]))
    assert tip(tab, "values")["title"] == "observation 8"


@pytest.mark.slow
def test_pictures_of_an_exploration_are_visible(opened, explored):
    sizes = opened(where=explored).ask(
        "[...document.querySelectorAll('main svg')].map((svg) => "
        "{ const r = svg.getBoundingClientRect(); return [r.width, r.height]; })"
    )
    assert len(sizes) == 5
    assert np.array(sizes).min() > 150


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_an_exploration_is_as_wide_as_the_screen(opened, explored, width):
    tab = opened(width, 800, where=explored, touch=width < 500)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    sizes = tab.ask(
        "[...document.querySelectorAll('main svg text')].map((t) => "
        "parseFloat(getComputedStyle(t).fontSize) * (t.getScreenCTM().a || 0) || null)"
        ".filter((s) => s)"
    )
    assert min(sizes) > 7


@pytest.mark.slow
def test_names_from_strangers_run_nothing_in_an_exploration(opened, browser, tmp_path):
    random = np.random.default_rng(0)
    seen = gx.Observations(
        random.random((30, 2)),
        random.lognormal(size=30),
        location_names=(NASTY, "y"),
        value_name=NASTY,
        source={"path": NASTY},
    )
    gx.report(gx.explore(seen), tmp_path / "r.html", command=NASTY)
    tab = opened(where=(tmp_path / "r.html").as_uri())
    assert tab.complaints() == []
    assert tab.ask("typeof hacked") == "undefined"
    assert tab.ask("document.querySelectorAll('img').length") == 0


@pytest.fixture(scope="module")
def hours():
    """A fit of 20 stations at four times, all at different hours."""
    random = np.random.default_rng(1)
    places, times = np.repeat(random.random((20, 2)), 4, axis=0), np.tile(np.arange(4.0), 20)
    model = gx.Separable(1.0, 0.3, 2.0, 0.5, 0.5, 0.1)
    values = gx.simulate(model, places, time=times, seed=1)[0]
    seen = gx.Observations(places, values, time=times, time_unit="hour")
    return gx.fit(seen, model, fixed=tuple(model.parameters()))


@pytest.fixture(scope="module")
def film(browser, hours, tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "hours.html"
    with in_no_time():
        gx.report(hours, path)
    return path.as_uri()


KEYS = ("values", "mean", "error", "misses")


def time_of(tab):
    """Return the number of the time that all maps, their headings and the slider show."""
    headings = tab.ask("[...document.querySelectorAll('.when')].map((e) => e.textContent)")
    said = tab.ask("document.querySelector('.player output').textContent")
    spoken = tab.ask("document.querySelector('.player input').getAttribute('aria-valuetext')")
    assert {*headings, said} == {spoken}
    k = numbers(tab)["times"].index(spoken)
    assert tab.ask("document.querySelector('.player input').value") == str(k)
    for key in KEYS:
        shown = f"document.querySelector('#map-{key} use.still').getAttribute('href')"
        assert tab.ask(shown) == f"#still-{key}-{k}"
        assert spoken in tab.ask(f"document.getElementById('map-{key}').getAttribute('aria-label')")
    return k


@pytest.mark.slow
def test_a_film_opens_without_a_complaint_or_a_request(opened, film):
    tab = opened(where=film)
    assert tab.complaints() == []
    first, *others = tab.requests()
    assert first == film
    assert all(other.startswith("data:image/png;base64,") for other in others)
    assert time_of(tab) == 0
    drawn = tab.ask(
        "Promise.all([...document.querySelectorAll('svg image')].map(async (image) => "
        "{ const copy = new Image(); copy.src = image.href.baseVal; await copy.decode(); "
        "return copy.naturalWidth; }))"
    )
    assert len(drawn) == 8
    assert min(drawn) > 100


@pytest.mark.slow
def test_the_slider_and_its_keys_choose_the_time_of_all_maps(opened, film):
    tab = opened(where=film)
    tab.ask("document.querySelector('.player input').focus()")
    for k in (1, 2, 3, 3):
        tab.key("ArrowRight")
        assert time_of(tab) == k
    tab.key("Home")
    assert time_of(tab) == 0
    # a click in its middle
    x, y, width, height = box(tab, ".player input")
    at = x + 0.64 * width, y + height / 2
    tab.mouse("mousePressed", *at, button="left", clickCount=1)
    tab.mouse("mouseReleased", *at, button="left", clickCount=1)
    assert time_of(tab) == 2


@pytest.mark.slow
def test_a_button_plays_all_times_and_stops(opened, film):
    tab = opened(where=film)
    button = "document.querySelector('.player button')"
    assert "Play" in tab.ask(f"{button}.textContent")
    tab.ask(f"{button}.focus()")
    tab.key(" ", "Space")
    assert "Pause" in tab.ask(f"{button}.textContent")
    times = set()

    def seen_all():
        times.add(tab.ask("document.querySelector('.player output').textContent"))
        return len(times) == 4

    wait_until(seen_all)
    tab.ask(f"{button}.click()")
    assert "Play" in tab.ask(f"{button}.textContent")
    assert time_of(tab) in range(4)


@pytest.mark.slow
def test_pointing_tells_the_numbers_of_the_time_shown(opened, film, hours):
    tab, seen = opened(where=film), hours.observations
    series = gx.predict_raster(hours, cells=48, time=np.unique(seen.time), progress=False)
    station = seen.locations[8]
    for k in (0, 3):
        tab.ask(
            f"(() => {{ const s = document.querySelector('.player input'); s.value = {k}; "
            "s.dispatchEvent(new Event('input')); })()"
        )
        tab.mouse("mouseMoved", *at(tab, "values", *station))
        said = tip(tab, "values")
        row = 8 + k
        assert said["title"] == f"observation {row + 1}, time {k} (hour)"
        assert float(said["value"].replace("−", "-")) == pytest.approx(seen.values[row], rel=5e-5)
        tab.mouse("mouseMoved", *at(tab, "mean", *series[k].coordinates[20, 10]))
        said = tip(tab, "mean")["value, predicted"].replace("−", "-")
        assert float(said) == pytest.approx(series[k].mean[20, 10], rel=5e-4)


@pytest.mark.slow
def test_an_exploration_of_several_times_is_played_too(opened, hours, tmp_path):
    gx.report(gx.explore(hours.observations), tmp_path / "hours.html")
    tab = opened(where=(tmp_path / "hours.html").as_uri())
    assert tab.complaints() == []
    tab.ask("document.querySelector('.player input').focus()")
    tab.key("End")
    assert tab.ask("document.querySelector('.when').textContent") == "time 3 (hour)"
    tab.mouse("mouseMoved", *at(tab, "values", *hours.observations.locations[8]))
    assert tip(tab, "values")["title"] == "observation 12, time 3 (hour)"


@pytest.mark.slow
def test_small_maps_of_all_times_are_on_paper_and_where_scripts_do_not_run(opened, film):
    count = (
        "[...document.querySelectorAll('.small')]"
        ".filter((e) => e.getBoundingClientRect().width > 40).length"
    )
    tab = opened(where=film)
    assert tab.ask(count) == 0
    tab("Emulation.setEmulatedMedia", media="print")
    assert tab.ask(count) == 16
    assert tab.ask("getComputedStyle(document.querySelector('.player')).display") == "none"
    tab = opened(where=film, scripts=False)
    root = tab("DOM.getDocument", depth=-1)["root"]
    for selector, number in (("main .small", 16), ("main svg.map", 4), (".player button", 0)):
        nodes = tab("DOM.querySelectorAll", nodeId=root["nodeId"], selector=selector)["nodeIds"]
        assert len(nodes) == number
        for node in nodes:
            model = tab("DOM.getBoxModel", nodeId=node)["model"]
            assert min(model["width"], model["height"]) > 40


@pytest.mark.slow
def test_dots_of_the_time_shown_have_its_colours(opened, film, hours, tmp_path):
    from PIL import Image

    tab, seen = opened(where=film), hours.observations
    row = int(np.argmax(seen.values))
    k, dark = int(seen.time[row]), {}
    for now in range(4):
        tab.ask(
            f"(() => {{ const s = document.querySelector('.player input'); s.value = {now}; "
            "s.dispatchEvent(new Event('input')); })()"
        )
        x, y = at(tab, "values", *seen.locations[row])
        tab.mouse("mouseMoved", 2, 2)
        tab.screenshot(tmp_path / "screen.png", whole=False)
        with Image.open(tmp_path / "screen.png") as image:
            dark[now] = image.convert("RGB").getpixel((round(x), round(y)))
    red, green, blue = dark[k]
    assert red > 200 > 80 > blue
    assert green > 200
    assert len(set(dark.values())) > 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 375, 1400])
def test_a_film_is_not_wider_than_the_screen(opened, film, width):
    tab = opened(width, 740, where=film, touch=width < 500)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    # the button and the slider stay in sight above the maps
    tab.ask("document.getElementById('map-misses').scrollIntoView({behavior: 'instant'})")
    top = tab.ask("document.querySelector('.player').getBoundingClientRect().top")
    assert 0 <= top < 20
    for part in ("button", "input"):
        size = f"document.querySelector('.player {part}').getBoundingClientRect()"
        assert tab.ask(f"{size}.height") >= 32
        assert tab.ask(f"{size}.width") >= 60
