import json
from dataclasses import replace
from math import asin, atan2, cos, degrees, radians, sin, sqrt

import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.distance import EARTH_RADIUS
from geomxp.prediction.variogram import (
    SAMPLE_LOCATIONS,
    check_squares,
    lags_of,
    lags_of_variables,
    least_squares,
    semivariance_between,
)

U = 2.0**-53


def field(n=70, d=2, seed=0):
    rng = np.random.default_rng(seed)
    places = rng.random((n, d)) * ([3.0, 1.0, 2.0][:d])
    return gx.Observations(places, np.sin(4 * places[:, 0]) + rng.standard_normal(n))


def on_earth(n=60):
    rng = np.random.default_rng(1)
    places = np.column_stack((170 + 25 * rng.random(n), 40 + 20 * rng.random(n)))
    places[:, 0] = (places[:, 0] + 180) % 360 - 180
    return gx.Observations(places, rng.standard_normal(n), metric="great-circle")


def distance(seen, i, j):
    a, b = seen.locations[i], seen.locations[j]
    if seen.metric == "euclidean":
        return sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))
    (lon, lat), (lon2, lat2) = np.radians(a), np.radians(b)
    half = sin((lat2 - lat) / 2) ** 2 + cos(lat) * cos(lat2) * sin((lon2 - lon) / 2) ** 2
    return 2 * EARTH_RADIUS * asin(sqrt(half))


def direction(seen, i, j):
    dx, dy = seen.locations[j] - seen.locations[i]
    if seen.geographic:
        dx = (dx + 180) % 360 - 180
        dx *= cos(radians((seen.locations[i, 1] + seen.locations[j, 1]) / 2))
    return degrees(atan2(dy, dx)) % 180


def counted(seen, r, found):
    """Pairs, mean distance and both estimates in the bins of a variogram, by a double loop."""
    rows = []
    centres = found.lower * 0 if found.direction is None else found.direction
    for low, high, centre in zip(found.lower, found.upper, centres, strict=True):
        h, d = [], []
        for i in range(len(seen)):
            for j in range(i + 1, len(seen)):
                length = distance(seen, i, j)
                inside = low < length <= high or (low == 0 and length == 0)
                if inside and found.direction is not None:
                    apart = [
                        abs((direction(seen, i, j) - a + 90) % 180 - 90) for a in found.directions
                    ]
                    nearest = found.directions[int(np.argmin(apart))]
                    inside = length > 0 and nearest == centre and min(apart) <= found.tolerance
                if inside:
                    h.append(length)
                    d.append(abs(r[i] - r[j]))
        n, d = len(d), np.array(d)
        roots = np.sqrt(d).mean() ** 4 / (0.457 + 0.494 / n + 0.045 / n**2) / 2
        rows.append((n, np.mean(h), np.mean(d**2) / 2, roots))
    return np.array(rows).T


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seen", "about"),
    [
        (field(), {}),
        (field(), {"bins": 6}),
        (field(), {"bins": 4, "cutoff": 0.5}),
        (field(d=1), {"bins": 5}),
        (field(d=3), {"bins": 5}),
        (on_earth(), {"bins": 6}),
        (field(), {"bins": 5, "directions": 4}),
        (field(), {"directions": [30, 120], "tolerance": 20}),
        (field(), {"directions": [100]}),
        (on_earth(), {"bins": 4, "directions": 3}),
        (field(), {"bins": 6, "trend": "linear"}),
        (field(), {"bins": 6, "trend": "x + I(x**2)"}),
    ],
)
def test_a_variogram_is_what_a_double_loop_counts(seen, about):
    found = gx.variogram(seen, **about)
    r = seen.values
    if about.get("trend"):
        x = seen.locations[:, :1]
        columns = x**2 if "I" in about["trend"] else seen.locations[:, 1:]
        design = np.column_stack((np.ones(len(seen)), x, columns))
        r = r - design @ np.linalg.solve(design.T @ design, design.T @ r)
    pairs, distances, classical, robust = counted(seen, r, found)
    np.testing.assert_array_equal(found.pairs, pairs)
    np.testing.assert_allclose(found.distance, distances, rtol=1e-12)
    np.testing.assert_allclose(found.semivariance, classical, rtol=1e-12)
    np.testing.assert_allclose(found.robust, robust, rtol=1e-12)


def in_space_and_time(stations=9, times=8, random=False, seed=5):
    rng = np.random.default_rng(seed)
    places = np.repeat(rng.random((stations, 2)), times, axis=0)
    when = np.tile([0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 3.5, 4.0][:times], stations)
    if random:
        places, when = rng.random((len(when), 2)), 4 * rng.random(len(when))
    return gx.Observations(places, rng.standard_normal(len(when)), time=when)


@pytest.mark.parametrize("about", [{}, {"time_lags": 3}, {"time_lags": [0.0, 1.0, 3.0]}])
@pytest.mark.parametrize("random", [False, True])
def test_a_variogram_in_space_and_time_is_what_a_double_loop_counts(random, about):
    seen = in_space_and_time(random=random)
    found = gx.variogram(seen, bins=4, trend="zero", **about)
    if isinstance(about.get("time_lags"), list):
        # the median step of the regular times is ½
        lags, within = about["time_lags"], 0.5 if random else 0.25
    else:
        count = about.get("time_lags", 5)
        step = np.ptp(seen.time) / (2 * count - 1) if random else 0.5
        lags, within = [k * step for k in range(count)], step / 2
    rows, mean_lag = {}, {}
    for i in range(len(seen)):
        for j in range(i + 1, len(seen)):
            u, h = abs(seen.time[i] - seen.time[j]), distance(seen, i, j)
            k = int(np.argmin([abs(u - lag) for lag in lags]))
            if abs(u - lags[k]) <= within * (1 + 1e-9) and h <= found.upper.max():
                b = 0 if h == 0 else int(np.argmax(h <= np.unique(found.upper)))
                b += random and h > 0  # no two random locations are the same
                rows.setdefault((k, b), []).append((h, seen.values[i] - seen.values[j]))
                mean_lag.setdefault(k, []).append(u)
    assert len(rows) == len(found)
    for one, (k, b) in enumerate(sorted(rows)):
        h, d = np.array(rows[k, b]).T
        assert (b == 0) == (found.upper[one] == 0)
        assert found.pairs[one] == len(h)
        np.testing.assert_allclose(found.distance[one], h.mean(), rtol=1e-12)
        np.testing.assert_allclose(found.semivariance[one], np.mean(d**2) / 2, rtol=1e-12)
        np.testing.assert_allclose(found.lag[one], np.mean(mean_lag[k]), rtol=1e-12, atol=1e-15)
    whole = sum(len(found.of_lag(lag)) for lag in found.lags)
    assert whole == len(found)
    assert (found.to_frame()["lag"] == found.lag).all()


def test_observations_at_one_time_have_the_variogram_of_space():
    seen = field(60)
    still = replace(seen, time=np.full(60, 7.0))
    twice = gx.Observations(
        np.vstack((seen.locations,) * 2), np.tile(seen.values, 2), time=np.repeat([0.0, 900.0], 60)
    )
    spatial, one, first = (gx.variogram(each, bins=6) for each in (seen, still, twice))
    assert one.lags == ()
    assert first.lags[0] == 0
    np.testing.assert_array_equal(one.semivariance, spatial.semivariance)
    first = first.of_lag(0.0)
    np.testing.assert_array_equal(first.pairs, 2 * spatial.pairs)
    np.testing.assert_allclose(first.semivariance, spatial.semivariance, rtol=1e-12)
    around = [gx.variogram(each, bins=6, directions=4) for each in (seen, twice)]
    np.testing.assert_array_equal(around[1].pairs, 2 * around[0].pairs)
    np.testing.assert_allclose(around[1].semivariance, around[0].semivariance, rtol=1e-12)


def test_the_mean_of_a_models_semivariances_is_that_of_simulated_fields():
    model = gx.Gneiting(2.0, 0.4, 1.5, 0.5, 0.9, 0.6, 0.4, 0.3)
    seen = in_space_and_time(20, 6)
    lags = lags_of(seen, bins=4)
    expected = lags.semivariances_of(model, seen.inputs)
    draws = gx.simulate(model, seen.locations, time=seen.time, draws=4000, seed=1)
    got = lags.semivariances(draws.T)
    error = got.std(axis=1) / np.sqrt(4000)
    assert (np.abs(got.mean(axis=1) - expected) < 4.5 * error).all()


def test_usual_bins_have_at_least_thirty_pairs_each():
    for n in (5, 12, 40, 300):
        found = gx.variogram(field(n))
        assert len(found) == 1 or found.pairs.min() >= 30
        assert len(found) <= 15
        # no pair is lost between two bins
        np.testing.assert_array_equal(found.lower[1:], found.upper[:-1])
        assert found.lower[0] == 0


def test_equally_spaced_directions_share_all_pairs_of_different_locations():
    seen = field(60)
    for metric in (seen, on_earth()):
        whole = gx.variogram(metric, bins=7)
        for count in (2, 3, 4, 7):
            around = gx.variogram(metric, bins=7, directions=count)
            frame = around.to_frame().groupby("upper").agg({"pairs": "sum"})
            np.testing.assert_array_equal(frame["pairs"], whole.pairs)
            # the mean over the directions is that of all pairs
            sums = np.bincount(
                np.searchsorted(whole.upper, around.upper), around.pairs * around.semivariance
            )
            np.testing.assert_allclose(sums / whole.pairs, whole.semivariance, rtol=1e-12)


def test_pairs_on_the_border_of_two_directions_belong_to_one():
    # a square grid has pairs at 45 degrees, half-way between 0 and 90
    x, y = np.meshgrid(np.arange(6.0), np.arange(6.0))
    seen = gx.Observations(np.column_stack((x.ravel(), y.ravel())), np.arange(36.0) % 7)
    whole = gx.variogram(seen, bins=3)
    assert gx.variogram(seen, bins=3, directions=2).pairs.sum() == whole.pairs.sum()


def test_pairs_at_one_location_are_in_the_first_bin_and_in_no_direction():
    seen = field(40)
    twice = gx.Observations(
        np.vstack((seen.locations, seen.locations[:5])), np.r_[seen.values, seen.values[:5] + 1]
    )
    before, after = (gx.variogram(one, bins=6) for one in (seen, twice))
    rows = np.abs(twice.locations[:, None] - twice.locations[None]).max(axis=2) == 0
    assert rows[np.triu_indices(45, 1)].sum() == 5
    around = gx.variogram(twice, bins=6, directions=4)
    assert after.pairs.sum() - around.pairs.sum() == 5
    assert before.pairs[0] < after.pairs[0]


def test_a_direction_is_counter_clockwise_from_the_first_axis_as_that_of_anisotropy():
    angle = 35.0
    rng = np.random.default_rng(3)
    places = rng.random((500, 2))
    c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    # constant along the angle
    seen = gx.Observations(places, np.sin(12 * (c * places[:, 1] - s * places[:, 0])))
    found = gx.variogram(seen, directions=[angle, angle + 90], tolerance=5, cutoff=0.2)
    along, across = (found.of_direction(one) for one in found.directions)
    assert along.semivariance.mean() < 0.05 * across.semivariance.mean()


def test_a_linear_field_has_no_variogram_after_a_linear_trend():
    # coordinates as large as those of national grids
    places = 300 * np.random.default_rng(0).random((50, 2)) + [180000, 5200000]
    seen = gx.Observations(places, places @ [2.0, -1.0] + 7)
    flat = gx.variogram(seen, trend="linear", bins=5)
    scale = np.abs(seen.values).max()
    assert (flat.semivariance <= (100 * U * scale) ** 2).all()
    assert gx.variogram(seen, bins=5).semivariance.min() > 1


def test_residuals_of_least_squares_are_orthogonal_to_the_trend():
    seen = field()
    r = least_squares(seen, "linear")(seen.values)
    design = np.column_stack((np.ones(len(seen)), seen.locations))
    assert (np.abs(design.T @ r) <= 100 * U * np.abs(design).T @ np.abs(seen.values)).all()


def test_an_outlier_changes_the_robust_estimate_less():
    seen = field(200)
    values = seen.values.copy()
    values[17] += 50
    clean, dirty = (
        gx.variogram(gx.Observations(seen.locations, z), bins=8) for z in (seen.values, values)
    )
    assert (dirty.semivariance / clean.semivariance).max() > 5
    assert (dirty.robust / clean.robust).max() < 1.5


def test_both_estimates_agree_for_independent_normal_values():
    rng = np.random.default_rng(8)
    places = rng.random((1500, 2))
    found = gx.variogram(gx.Observations(places, 3 * rng.standard_normal(1500)), bins=5)
    np.testing.assert_allclose(found.semivariance, 9, rtol=0.1)
    np.testing.assert_allclose(found.robust, 9, rtol=0.1)


@pytest.mark.slow
def test_many_locations_are_a_sample_that_the_variogram_admits():
    seen = field(SAMPLE_LOCATIONS + 300)
    first, again, other = (gx.variogram(seen, bins=5, seed=seed) for seed in (4, 4, 5))
    assert (first.locations, first.total) == (SAMPLE_LOCATIONS, SAMPLE_LOCATIONS + 300)
    assert f"{SAMPLE_LOCATIONS:,} of {SAMPLE_LOCATIONS + 300:,} locations, at random" in str(first)
    np.testing.assert_array_equal(first.semivariance, again.semivariance)
    assert not np.array_equal(first.semivariance, other.semivariance)
    few = gx.variogram(seen, bins=5, sample=50)
    assert few.locations == 50
    assert few.pairs.sum() <= 50 * 49 / 2
    whole = gx.variogram(seen, bins=5, sample=len(seen))
    assert "at random" not in str(whole)


def test_a_variogram_is_a_frame_and_json_and_text():
    found = gx.variogram(gx.datasets.load("meuse"), bins=5, directions=2, trend="sqrt_dist")
    frame = found.to_frame()
    assert list(frame.columns) == [
        *("direction", "lower", "upper", "distance", "pairs", "semivariance", "robust")
    ]
    assert len(frame) == len(found)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["semivariance"] == found.semivariance.tolist()
    assert document["trend"] == "sqrt_dist"
    assert (document["unit"], document["value_name"]) == ("m", "log_zinc")
    assert "direction" not in gx.variogram(gx.datasets.load("meuse")).to_frame()
    text = str(found)
    assert "trend sqrt_dist, distances in m" in text
    assert len(text.splitlines()) == len(found) + 3
    assert found._repr_html_().count("<tr") == len(found) + 1
    assert found.of_direction(90.0).to_frame()["pairs"].tolist() == (
        frame.loc[frame["direction"] == 90, "pairs"].tolist()
    )


def test_units_are_those_of_the_metric():
    found = gx.variogram(gx.datasets.load("ozone"))
    assert found.unit == "km"
    # the stations lie within 1,200 km
    assert 100 < found.upper.max() < 1200


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"bins": 0}, r"`bins` must be a whole number of at least 1. Got 0."),
        ({"bins": 2.5}, r"`bins` must be a whole number"),
        ({"cutoff": -1.0}, r"`cutoff` must be a distance greater than 0. Got -1.0."),
        ({"cutoff": np.inf}, r"`cutoff` must be a distance"),
        ({"cutoff": "far"}, r"`cutoff` must be a distance greater than 0. Got 'far'."),
        ({"cutoff": 1e-9}, r"no two locations are closer than `cutoff`. Got 1e-09: give at least"),
        ({"directions": 1}, r"`directions` must be a number from 2 to 36.*Got 1."),
        ({"directions": 99}, r"`directions` must be a number from 2 to 36"),
        ({"directions": []}, r"`directions` must be .* different angles"),
        ({"directions": [0, 180]}, r"different angles in degrees, such as \[0, 90\]"),
        ({"directions": [0, np.nan]}, r"different angles"),
        ({"directions": "north"}, r"different angles.*Got 'north'."),
        ({"directions": True}, r"different angles"),
        ({"directions": 4, "tolerance": 0}, r"`tolerance` must be degrees.*Got 0."),
        ({"directions": 4, "tolerance": 100}, r"at most 90. Got 100."),
        ({"tolerance": 10}, r"`tolerance` is of directions: give `directions` too."),
        ({"sample": 1}, r"`sample` must be a whole number of at least 2. Got 1."),
        ({"seed": -1}, r"`seed` must be a whole number"),
        ({"trend": "cubic"}, r"`trend` must be one of: zero.*Got 'cubic'."),
        ({"trend": "covariates"}, r"needs covariates"),
    ],
)
def test_invalid_arguments_are_named_with_the_value(about, words):
    with pytest.raises(gx.InvalidInput, match=words):
        gx.variogram(field(20), **about)


def test_observations_that_have_no_variogram_are_refused():
    with pytest.raises(gx.InvalidInput, match=r"must be Observations. Got list."):
        gx.variogram([1, 2, 3])
    with pytest.raises(gx.InvalidInput, match="all locations are the same"):
        gx.variogram(gx.Observations(np.zeros((4, 2)), np.arange(4.0)))
    with pytest.raises(gx.InvalidInput, match=r"two dimensions. Got 1"):
        gx.variogram(field(20, d=1), directions=2)
    with pytest.raises(gx.InvalidInput, match=r"two dimensions. Got 3"):
        gx.variogram(field(20, d=3), directions=2)
    seen = field(20)
    several = gx.Observations(seen.locations, seen.values, time=np.arange(20.0))
    with pytest.raises(gx.InvalidInput, match="`time_lags` need observations of several times"):
        gx.variogram(seen, time_lags=3)
    with pytest.raises(gx.InvalidInput, match=r"so far apart in time.*Got 50, 51 ± 0.5"):
        gx.variogram(several, time_lags=[50, 51])
    with pytest.raises(gx.InvalidInput, match=r"`lag` must be one of: .*Got 45"):
        gx.variogram(several).of_lag(45)
    for wrong in (0, 99, True, [-1, 2], [1, 1], [[1]], [np.nan], "week", []):
        with pytest.raises(gx.InvalidInput, match="`time_lags` must be a number from 1 to 36"):
            gx.variogram(several, time_lags=wrong)
    with pytest.raises(gx.InvalidInput, match="`pair` is for several variables"):
        gx.plots.variogram(seen, pair="zinc")
    line = gx.Observations([[0, 0], [1, 0], [2, 0], [4, 0]], [1.0, 2.0, 3.0, 1.0])
    with pytest.raises(gx.InvalidInput, match="no pair of locations lies in a direction"):
        gx.variogram(line, directions=[90], tolerance=5)
    with pytest.raises(gx.InvalidInput, match=r"must be one of: 0, 90. Got 45"):
        gx.variogram(seen, directions=2).of_direction(45)


def test_lags_of_days_do_not_take_other_days_and_durations_are_days():
    seen = in_space_and_time()
    daily = replace(seen, time=2 * seen.time, time_unit="day")
    found = gx.variogram(daily, time_lags=[0, 3])
    assert found.lags == (0.0, 3.0)
    hours = [np.timedelta64(0, "h"), np.timedelta64(72, "h")]
    again = gx.variogram(daily, time_lags=hours)
    np.testing.assert_array_equal(again.semivariance, found.semivariance)
    with pytest.raises(gx.InvalidInput, match="durations need times with a unit"):
        gx.variogram(seen, time_lags=hours)


def of_metals(n=90, seed=8, trend=False):
    """Three variables; of the third few values at places of the others."""
    rng = np.random.default_rng(seed)
    places = rng.random((n, 2)) * (3.0, 1.0)
    rows = np.concatenate((np.arange(n), np.arange(10, n), np.arange(4), np.arange(3)))
    kinds = np.repeat([0, 1, 2, 0], [n, n - 10, 4, 3])
    values = rng.standard_normal(len(rows)) + np.sin(3 * places[rows, 0])
    order = rng.permutation(len(rows))
    about = {"variable": kinds[order], "variable_names": ("zinc", "lead", "tin")}
    return gx.Observations(places[rows][order], values[order] * (1 + kinds[order]), **about)


@pytest.mark.parametrize("trend", ["zero", "linear"])
def test_cross_variograms_are_what_a_double_loop_counts(trend):
    seen = of_metals()
    found = gx.variogram(seen, bins=5, trend=trend)
    assert found.variable_pairs == ("zinc", "lead", "zinc × lead")
    r = seen.values.copy()
    for k in range(3) if trend == "linear" else ():
        own = seen.variable == k
        design = np.column_stack((np.ones(own.sum()), seen.locations[own]))
        r[own] -= design @ np.linalg.lstsq(design, r[own], rcond=None)[0]
    for k, name in enumerate(("zinc", "lead")):
        one, own = found.of_pair(name), np.flatnonzero(seen.variable == k)
        alone = gx.Observations(seen.locations[own], r[own])
        pairs, distances, classical, robust = counted(alone, r[own], one)
        np.testing.assert_array_equal(one.pairs, pairs)
        np.testing.assert_allclose(one.distance, distances, rtol=1e-12)
        np.testing.assert_allclose(one.semivariance, classical, rtol=1e-10)
        np.testing.assert_allclose(one.robust, robust, rtol=1e-10)
    # the first value of each variable at a location
    at = {}
    for row, (place, kind) in enumerate(
        zip(map(tuple, seen.locations), seen.variable, strict=True)
    ):
        at.setdefault(place, {}).setdefault(kind, row)
    both = [rows for rows in at.values() if {0, 1} <= rows.keys()]
    cross = found.of_pair("lead", "zinc")
    assert (cross.locations, cross.total, cross.cross) == (len(both), len(both), True)
    sums = {}
    for p, one in enumerate(both):
        for other in both[p + 1 :]:
            h = distance(seen, one[0], other[0])
            product = (r[one[0]] - r[other[0]]) * (r[one[1]] - r[other[1]]) / 2
            if h <= cross.upper.max():
                sums.setdefault(int(np.argmax(h <= cross.upper)), []).append((h, product))
    for k in range(len(cross)):
        h, products = np.array(sums[k]).T
        assert cross.pairs[k] == len(h)
        assert cross.distance[k] == pytest.approx(h.mean(), rel=1e-12)
        assert cross.semivariance[k] == pytest.approx(products.mean(), rel=1e-10, abs=1e-12)


def test_models_of_several_variables_have_cross_variograms():
    seen = of_metals()
    model = gx.FlexibleMatern((1.0, 2.0, 0.5), (0.3, 0.2, 0.1), (0.5, 1.0, 0.7), 0.4, 0.1)
    for i, j, total, lags in lags_of_variables(seen, bins=4):
        if lags is None:
            assert total < 10
            continue
        rows, others = lags.rows, lags.rows if lags.others is None else lags.others
        own = model.matrix(seen.inputs, seen.inputs)
        own[np.diag_indices(len(own))] += 0.1
        means = []
        for end, count in zip(lags.ends, lags.pairs, strict=True):
            some = slice(end - count, end)
            a, b = rows[lags.first[some]], rows[lags.second[some]]
            c, d = others[lags.first[some]], others[lags.second[some]]
            # ½ E(z_a - z_b)(z_c - z_d)
            means.append((own[a, c] - own[a, d] - own[b, c] + own[b, d]).mean() / 2)
        np.testing.assert_allclose(lags.semivariances_of(model, seen.inputs), means, rtol=1e-9)
        h = np.array([0.05, 0.4])
        ends = gx.Inputs(np.array([[0.0, 0.0]] + [[x, 0.0] for x in h]), variable=np.full(3, i))
        other = replace(ends, variable=np.full(3, j))
        covariance = model.matrix(ends, other)[0]
        expected = covariance[0] - covariance[1:] + 0.1 * (i == j)
        np.testing.assert_allclose(semivariance_between(model, h, i, j), expected, rtol=1e-9)


def test_cross_variograms_are_frames_and_json_and_text():
    found = gx.variogram(of_metals(), bins=4)
    frame = found.to_frame()
    assert list(frame.columns[:3]) == ["pair", "lower", "upper"]
    assert list(dict.fromkeys(frame.pair)) == list(found.variable_pairs)
    assert frame.robust.isna().equals(frame.pair == "zinc × lead")
    assert "robust" not in found.of_pair("zinc × lead").to_frame()
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["counts"]["zinc × tin"] == [0, 4]
    text = str(found)
    assert "cross-variogram of zinc × lead, 80 locations" in text
    assert "zinc × tin: none, 4 locations are too few" in text
    with pytest.raises(gx.InvalidInput, match=r"Fewer than 10 locations: tin 4.*Got 'lead × tin'"):
        found.of_pair("lead", "tin")
    few = gx.Observations(np.eye(3), np.arange(3.0), variable=[0, 0, 1])
    with pytest.raises(gx.InvalidInput, match="at least 10 values of a variable"):
        gx.variogram(few, trend="zero")


@pytest.mark.parametrize(("inside", "beyond"), [(1.5e-145, 0.75e-145), (0.7e145, 1.4e145)])
def test_values_whose_squares_are_numbers_of_fp64_have_variograms(inside, beyond):
    check_squares(np.array([-0.5, 0.5]) * inside)
    with pytest.raises(gx.InvalidInput, match="overflows or underflows"):
        check_squares(np.array([-0.5, 0.5]) * beyond)
