import re
from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.prediction import supports
from geomxp.prediction.kriging import prediction_covariance
from geomxp.prediction.supports import blocks_of

STATED = 1e-8
"""Of σ²: what exact integrals promise."""

ANISOTROPIC = gx.Matern(1.7, 0.3, 0.5, 0.0, (30.0, 0.4))
MODELS = {"plane": testing.MODEL, "anisotropic": ANISOTROPIC}


def held(seen, model=testing.MODEL, trend="linear", method=None):
    return gx.fit(seen, model, method, fixed=tuple(model.parameters()), trend=trend)


def joint(fit, points, metric="euclidean"):
    """Mean and covariance matrix of the field at points, by dense formulas."""
    seen, model = fit.observations, fit.model
    sigma = model(seen.locations, seen.locations, metric) + model.nugget * np.eye(len(seen))
    k = model(seen.locations, points, metric)
    x, x0 = (fit.trend.design(places) for places in (seen.locations, points))
    solve = np.linalg.solve
    spread = np.linalg.inv(x.T @ solve(sigma, x))
    beta = spread @ x.T @ solve(sigma, seen.values)
    apart = x0 - k.T @ solve(sigma, x)
    mean = x0 @ beta + k.T @ solve(sigma, seen.values - x @ beta)
    return mean, model(points, points, metric) - k.T @ solve(sigma, k) + apart @ spread @ apart.T


@pytest.mark.parametrize("name", MODELS)
def test_a_block_of_points_is_the_average_of_jointly_kriged_points(name):
    fit = held(testing.observations(), MODELS[name])
    block = testing.places(21, seed=9).reshape(3, 7, 2)
    found = gx.predict(fit, block=block)
    for b, points in enumerate(block):
        mean, covariance = joint(fit, points)
        assert found.mean[b] == pytest.approx(mean.mean(), rel=1e-10)
        assert found.variance[b] == pytest.approx(covariance.mean(), rel=1e-9)
        # Jensen: an average is known no worse than its points are on average
        assert found.variance[b] <= np.diag(covariance).mean()
    np.testing.assert_allclose(found.locations, block.mean(axis=1), rtol=1e-15)


@pytest.mark.parametrize("block", [(0.1, 0.2), 0.15])
@pytest.mark.parametrize("name", MODELS)
def test_sums_over_points_come_to_the_exact_integrals(name, block):
    fit, there = held(testing.observations(), MODELS[name]), testing.places(8, seed=5)
    exact = gx.predict(fit, there, block=block)
    errors = []
    for count in (8, 32):
        sums = gx.predict(fit, there, block=block, discretisation=count)
        errors.append(np.abs(sums.variance - exact.variance).max())
        assert np.abs(sums.mean - exact.mean).max() < 0.5 / count**1.5
    # of order h^(1 + 2ν) or better, for ν ≥ ½
    assert errors[1] < errors[0] / 8
    assert errors[1] < 2e-3


@pytest.mark.parametrize("name", MODELS)
def test_integrals_are_exact_to_what_is_stated(name):
    """Block covariances against the same with 100 × 100 points, extrapolated."""
    model, seen = MODELS[name], testing.observations()
    there = seen.locations[:1] + np.array([[0.03, 0.01]])
    fit = held(seen, model)
    blocks = blocks_of(fit, (0.2, 0.1), there)[0]
    k = blocks.covariances(model, seen.locations, "euclidean")[:, 0]
    far = np.linalg.norm(model.isotropic(seen.locations - there), axis=1) > 0.5
    fine = blocks_of(fit, (0.2, 0.1), there, discretisation=200)[0]
    coarse = blocks_of(fit, (0.2, 0.1), there, discretisation=100)[0]
    a, b = (
        each.covariances(model, seen.locations[far], "euclidean")[:, 0] for each in (coarse, fine)
    )
    # away from the kink the sums err by h², and the next term is h⁴
    np.testing.assert_allclose(k[far], (4 * b - a) / 3, rtol=0, atol=STATED)


def test_a_block_that_shrinks_is_a_point():
    for model in MODELS.values():
        fit, there = held(testing.observations(), model), testing.places(6, seed=5)
        point, block = gx.predict(fit, there), gx.predict(fit, there, block=1e-9)
        # 1 - ρ at the block's size, of order (1e-9/a)^min(2ν, 2)
        np.testing.assert_allclose(block.mean, point.mean, rtol=0, atol=1e-7)
        np.testing.assert_allclose(block.variance, point.variance, rtol=0, atol=1e-7)


def corners(places, width, height):
    return [
        p + np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * (width / 2, height / 2) for p in places
    ]


@pytest.mark.parametrize("name", MODELS)
def test_polygons_are_the_rectangles_that_they_are(name):
    fit, there = held(testing.observations(), MODELS[name]), testing.places(4, seed=5)
    rectangles = gx.predict(fit, there, block=(0.1, 0.2))
    polygons = corners(there, 0.1, 0.2)
    one = gx.predict(fit, block=polygons[0])
    assert one.mean[0] == pytest.approx(rectangles.mean[0], abs=STATED)
    for block in (
        polygons,
        [ring[::-1] for ring in polygons],
        [ring.tolist() for ring in polygons],
    ):
        found = gx.predict(fit, block=block)
        np.testing.assert_allclose(found.mean, rectangles.mean, rtol=0, atol=STATED)
        np.testing.assert_allclose(found.variance, rectangles.variance, rtol=0, atol=STATED)
        np.testing.assert_allclose(found.locations, there, rtol=1e-14)


def test_a_polygon_with_a_hole_is_the_whole_less_the_hole():
    shapely = pytest.importorskip("shapely")
    fit = held(testing.observations())
    whole, hole = shapely.box(0.2, 0.2, 0.8, 0.6), shapely.box(0.3, 0.3, 0.5, 0.5)
    ring = whole - hole
    parts = shapely.MultiPolygon([shapely.box(0.1, 0.1, 0.2, 0.3), shapely.box(0.7, 0.7, 0.9, 0.8)])
    found = gx.predict(fit, block=[whole, hole, ring, parts, *parts.geoms])
    assert 0.24 * found.mean[0] == pytest.approx(
        0.04 * found.mean[1] + 0.2 * found.mean[2], rel=1e-10
    )
    assert found.mean[3] == pytest.approx(found.mean[4:].mean(), rel=1e-10)
    assert found.variance[3] < found.variance[4:].max()


def test_frames_of_polygons_come_back_with_their_predictions():
    geopandas = pytest.importorskip("geopandas")
    shapely = pytest.importorskip("shapely")
    seen = testing.observations()
    fit = held(
        gx.Observations(seen.locations * 1000 + 180_000, seen.values, crs="EPSG:28992"),
        gx.Matern(1.7, 200.0, 0.8, 0.1),
    )
    shapes = [
        shapely.box(180_100, 180_100, 180_300, 180_200),
        shapely.box(180_500, 180_400, 180_600, 180_900),
    ]
    frame = geopandas.GeoDataFrame({"name": ["a", "b"]}, geometry=shapes, crs="EPSG:28992")
    plain = gx.predict(fit, block=shapes)
    found = gx.predict(fit, block=frame).to_frame()
    assert list(found.columns) == ["name", "geometry", "mean", "variance", "lower", "upper"]
    np.testing.assert_array_equal(found["mean"], plain.mean)
    # there and back again through longitude and latitude, to a tenth of a millimetre
    turned = gx.predict(fit, block=frame.to_crs("EPSG:4326"))
    np.testing.assert_allclose(turned.mean, plain.mean, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(gx.predict(fit, block=frame.geometry).mean, plain.mean)
    assert gx.predict(fit, block=shapes[0]).mean[0] == pytest.approx(plain.mean[0], rel=1e-12)
    with pytest.raises(gx.InvalidInput, match="the observations have no coordinate reference"):
        gx.predict(held(seen), block=frame)


def test_the_trend_is_averaged_too():
    seen = testing.observations()
    far = [[40.0, -30.0]]
    # so far away that only the trend is left
    linear = held(seen, trend="linear")
    np.testing.assert_allclose(
        gx.predict(linear, far, block=(2.0, 1.0)).mean, gx.predict(linear, far).mean, rtol=1e-12
    )
    square = held(seen, trend="I(x**2)")
    found = gx.predict(square, far, block=(2.0, 1.0))
    # the mean of x² over (39, 41) is 40² + 1/3
    expected = square.coefficients @ [1.0, 1600 + 1 / 3]
    assert found.mean[0] == pytest.approx(expected, rel=1e-12)
    triangle = [[[39.0, 0.0], [41.0, 0.0], [40.0, 1.0]]]
    expected = square.coefficients @ [1.0, 1600 + 1 / 6]
    assert gx.predict(square, block=triangle).mean[0] == pytest.approx(expected, rel=1e-12)


def test_covariates_of_blocks_are_their_averages():
    seen = testing.observations()
    seen = gx.Observations(seen.locations, seen.values, np.arange(60.0), covariate_names=("c",))
    fit, there = held(seen, trend="covariates"), [[40.0, 0.0], [50.0, 9.0]]
    found = gx.predict(fit, there, [[3.0], [5.0]], block=1.0)
    np.testing.assert_allclose(found.mean, gx.predict(fit, there, [[3.0], [5.0]]).mean, rtol=1e-12)
    named = gx.predict(fit, there, {"c": [3.0, 5.0]}, block=1.0)
    np.testing.assert_array_equal(named.mean, found.mean)
    with pytest.raises(gx.InvalidInput, match="one row for each of the 2 blocks"):
        gx.predict(fit, there, [[3.0]], block=1.0)
    with pytest.raises(gx.InvalidInput, match="the trend needs 1 covariates"):
        gx.predict(fit, there, block=1.0)


@pytest.mark.parametrize("metric", ["chordal", "great-circle"])
def test_blocks_on_the_sphere_are_points_of_equal_areas(metric):
    random = np.random.default_rng(3)
    places = np.column_stack((170 + 20 * random.random(40), 40 + 20 * random.random(40)))
    seen = gx.Observations(places, random.standard_normal(40), metric=metric)
    fit = held(seen, gx.Matern(2.0, 900.0, 0.4, 0.1), "constant")
    found = gx.predict(fit, [[180.0, 50.0]], block=(4.0, 6.0), discretisation=3)
    sines = np.sin(np.radians([47.0, 53.0]))
    latitudes = np.degrees(np.arcsin(sines[0] + (np.arange(3) + 0.5) / 3 * np.ptp(sines)))
    points = np.array(
        [[lon, lat] for lon in 180 + 4 * np.array([-1, 0, 1]) / 3 for lat in latitudes]
    )
    mean, covariance = joint(fit, points, metric)
    assert found.mean[0] == pytest.approx(mean.mean(), rel=1e-9)
    assert found.variance[0] == pytest.approx(covariance.mean(), rel=1e-9)
    # a polygon of degrees is laid out in the same way
    ring = [[178.0, 47.0], [182.0, 47.0], [182.0, 53.0], [178.0, 53.0]]
    polygon = gx.predict(fit, block=[ring], discretisation=6)
    assert polygon.mean[0] == pytest.approx(found.mean[0], abs=0.01)
    with pytest.raises(gx.InvalidInput, match="reaches over a pole"):
        gx.predict(fit, [[180.0, 89.0]], block=(4.0, 6.0))


@pytest.mark.parametrize("dimensions", [1, 3])
def test_blocks_of_one_and_three_dimensions(dimensions):
    seen = testing.observations(d=dimensions)
    model = gx.Matern(1.7, 0.2, 0.8, 0.1)
    fit, there = held(seen, model, "constant"), testing.places(3, dimensions, seed=9)
    exact = gx.predict(fit, there, block=0.2)
    fine = gx.predict(fit, there, block=0.2, discretisation=200 if dimensions == 1 else 10)
    allowed = 1e-4 if dimensions == 1 else 2e-2
    np.testing.assert_allclose(exact.mean, fine.mean, rtol=0, atol=allowed)
    np.testing.assert_allclose(exact.variance, fine.variance, rtol=0, atol=allowed)


@pytest.mark.parametrize("local_trend", [False, True])
def test_blocks_from_all_observations_as_neighbours_are_blocks(local_trend):
    for name, model in MODELS.items():
        fit, there = held(testing.observations(), model), testing.places(5, seed=5)
        for block in (0.1, corners(there, 0.1, 0.2), testing.places(20, seed=8).reshape(5, 4, 2)):
            whole = gx.predict(fit, there, block=block)
            local = gx.predict(fit, there, block=block, neighbours=60, local_trend=local_trend)
            np.testing.assert_allclose(local.mean, whole.mean, rtol=1e-9, err_msg=name)
            np.testing.assert_allclose(local.variance, whole.variance, rtol=0, atol=1e-11)


def test_blocks_of_a_fit_by_vecchia_are_those_of_its_nearest():
    fit = held(testing.observations())
    ours = replace(fit, method=gx.Vecchia(20))
    there = testing.places(5, seed=5)
    exact, near = (gx.predict(f, there, block=0.1) for f in (fit, ours))
    assert np.abs(near.mean - exact.mean).max() < 0.05
    assert (near.variance > exact.variance * (1 - 1e-6)).all()


@pytest.mark.parametrize("entries", [1, 3000])
def test_chunks_of_nodes_change_nothing(monkeypatch, entries):
    fit, there = held(testing.observations()), testing.places(9, seed=3)
    whole = gx.predict(fit, there, block=0.1)
    monkeypatch.setattr(supports, "CHUNK_ENTRIES", entries)
    pieces = gx.predict(fit, there, block=0.1)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-12)


def test_polygons_of_many_nodes_come_in_pieces(monkeypatch):
    fit = held(testing.observations())
    block = corners(testing.places(3, seed=3), 0.1, 0.2)
    whole = gx.predict(fit, block=block)
    monkeypatch.setattr(supports, "CHUNK_ENTRIES", 700)
    monkeypatch.setattr(supports, "CHUNK_NODES", 50)
    pieces = gx.predict(fit, block=block)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-12)


def test_blocks_may_be_shown_at_other_places():
    fit, block = held(testing.observations()), corners(testing.places(2, seed=3), 0.1, 0.2)
    plain, shown = (
        gx.predict(fit, block=block),
        gx.predict(fit, [[9.0, 9.0], [0.0, 50.0]], block=block),
    )
    np.testing.assert_array_equal(shown.locations, [[9.0, 9.0], [0.0, 50.0]])
    np.testing.assert_allclose(shown.mean, plain.mean, rtol=0, atol=STATED)
    np.testing.assert_allclose(shown.variance, plain.variance, rtol=0, atol=STATED)


@pytest.mark.parametrize(
    ("method", "allowed"),
    [
        (gx.Exact(tile=16), 1e-12),
        (gx.Exact(gx.by_tile_norm(1e-9), tile=16), 1e-6),
        (gx.Exact(gx.by_tile_norm(1e-4), tile=16, refine="gmres"), 1e-10),
    ],
)
def test_blocks_are_the_same_however_they_are_computed(method, allowed):
    fit, there = held(testing.observations()), testing.places(5, seed=3)
    plain, other = (gx.predict(f, there, block=0.1) for f in (fit, replace(fit, method=method)))
    np.testing.assert_allclose(other.mean, plain.mean, rtol=0, atol=allowed)
    np.testing.assert_allclose(other.variance, plain.variance, rtol=0, atol=allowed)


def test_blocks_have_no_new_observations():
    found = gx.predict(held(testing.observations()), [[0.5, 0.5]], block=0.1)
    assert list(found.to_frame().columns) == ["mean", "variance", "lower", "upper"]
    with pytest.raises(gx.InvalidInput, match="a block has no new observation"):
        found.interval(of="observation")


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": 0.1}, "need `new_locations`, their centres"),
        ({}, "`new_locations` are missing"),
        ({"new_locations": [[0, 0]], "discretisation": 3}, "`block` is missing"),
        ({"new_locations": [[0, 0]], "block": (1, 2, 3)}, r"must be 2 side\(s\)"),
        ({"new_locations": [[0, 0]], "block": (1, 0)}, "must be greater than 0"),
        ({"new_locations": [[0, 0]], "block": (1, np.nan)}, "must be greater than 0"),
        ({"new_locations": [[0, 0]], "block": (1, 1e300)}, "must be at most 1e\\+150"),
        (
            {"new_locations": [[0, 0]], "block": (1, 9e-5)},
            "too thin to integrate over .* `discretisation`",
        ),
        ({"new_locations": [[0, 0]], "block": (1e140, 1)}, "too thin to integrate over"),
        ({"block": [SQUARE, [[0, 0], [1, 0], [1, 1e-4]]]}, "block 2 is too thin"),
        (
            {"new_locations": [[0, 0]], "block": 1, "discretisation": 0},
            "`discretisation` must be a whole",
        ),
        (
            {"new_locations": [[0, 0], [1, 1]], "block": [SQUARE]},
            "one location for each of the 1 blocks",
        ),
        ({"block": []}, "must be the sides of a rectangle"),
        ({"block": "meuse"}, "block 1 must be a polygon"),
        ({"block": True, "new_locations": [[0, 0]]}, "must be the sides of a rectangle"),
        ({"block": [[[0, 0], [1, 1]]]}, "at least 3 corners"),
        ({"block": [[[0, 0], [1, 1], [2, 2]]]}, "not on one line"),
        (
            {"block": [SQUARE, [[0, 0], [2, 1], [2, 0], [0, 2]]]},
            "block 2: the polygon is not valid .*intersection",
        ),
        ({"block": [[[0, 0], [1, np.inf], [1, 1]]]}, "must be finite numbers"),
        ({"block": [SQUARE], "discretisation": 1.5}, "`discretisation` must be"),
        ({"block": np.zeros((2, 3, 3))}, r"must have the shape \(blocks, points, 2\)"),
        ({"block": np.zeros((2, 0, 2))}, r"must have the shape \(blocks, points, 2\)"),
        ({"block": np.full((2, 1, 2), np.nan)}, "must be finite numbers"),
        ({"block": np.zeros((2, 3, 2)), "discretisation": 2}, "for blocks that are sets of points"),
    ],
)
def test_wrong_blocks_are_named(arguments, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.predict(held(testing.observations()), **arguments)


def test_shapes_that_are_no_polygons_are_named():
    shapely = pytest.importorskip("shapely")
    fit = held(testing.observations())
    bow = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    for shape, message in (
        (shapely.Point(0, 0), "Got a Point"),
        (shapely.Polygon(), "Got an empty geometry"),
        (bow, "make_valid"),
    ):
        with pytest.raises(gx.InvalidInput, match=message):
            gx.predict(fit, block=[shape])
    line = held(testing.observations(d=1), trend="constant")
    with pytest.raises(gx.InvalidInput, match="need locations in the plane"):
        gx.predict(line, block=[SQUARE])


def test_neighbours_of_points_about_the_date_line_are_there():
    random = np.random.default_rng(0)
    places = np.column_stack((random.uniform(170, 190, 40), random.uniform(-10, 10, 40)))
    seen = gx.Observations(places, random.standard_normal(40), metric="chordal")
    fit = held(seen, gx.Matern(1.0, 500.0, 0.5, 0.1), trend="constant")
    across, plain = np.array([[[179.5, 0.0], [-179.5, 0.0]]]), [[[179.5, 0.0], [180.5, 0.0]]]
    ours, theirs = (gx.predict(fit, block=np.array(b), neighbours=8) for b in (across, plain))
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-9)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-9)


def test_a_thin_polygon_that_no_point_hits_is_named():
    sliver = [[[0, 0], [1, 0.45], [0.9, 0.5]]]
    with pytest.raises(gx.InvalidInput, match="block 1: no point of a grid of 2 lies inside"):
        gx.predict(held(testing.observations()), block=sliver, discretisation=2)


def test_blocks_of_more_points_than_memory_holds_are_an_error_first(monkeypatch):
    fit = held(testing.observations())
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    sets = np.random.default_rng(0).random((1, 1000, 2))
    for block in (0.1, [square]):
        with pytest.raises(gx.NotEnoughMemory, match=r"along a block needs .* use fewer points"):
            gx.predict(fit, [[0.5, 0.5]], block=block, discretisation=10**8)
    monkeypatch.setattr(supports, "free_memory", lambda: 2 * 10**7)
    for block in (0.1, [square]):
        words = r"a block of 1,600 points needs .* use at most (\d+) along it \(--discretisation"
        with pytest.raises(gx.NotEnoughMemory, match=words) as caught:
            gx.predict(fit, [[0.5, 0.5]], block=block, discretisation=40)
        fitting = int(re.search(words, str(caught.value))[1])
        assert np.isfinite(
            gx.predict(fit, [[0.5, 0.5]], block=block, discretisation=fitting).mean
        ).all()
    with pytest.raises(gx.NotEnoughMemory, match="use at most 912 points for a block"):
        gx.predict(fit, block=sets)
    assert np.isfinite(gx.predict(fit, block=sets[:, :912]).mean).all()


def coordinates(n, d=2, seed=3):
    random = np.random.default_rng(seed)
    return random.random((n, d)), random.integers(0, 4, n) / 3, random.integers(0, 2, n)


def family(name, *, anisotropy=None, **changes):
    """A model of a family with values that all families accept."""
    kind = gx.family_of(name)
    values = {p.name: p.value for p in kind.declared_for(2)}
    values |= {
        n: {"range": 0.3, "time_range": 0.5, "smoothness": 0.5, "nugget": 0.1}[n.split("_")[0]]
        for n in values
        if n.split("_")[0] in ("range", "smoothness", "nugget")
    }
    values |= {n: x for n, x in changes.items() if n in values}
    values |= {"time_range": 0.5} if "time_range" in values else {}
    values |= {"correlation_12": 0.5} if "correlation_12" in values else {}
    values |= {"range_2": 0.1} if "range_2" in values else {}
    values |= {"loading_21": 0.6} if "loading_21" in values else {}
    return replace(kind.from_parameters(values), anisotropy=anisotropy)


def seen_by(model, n=60, d=2, trend="constant", method=None):
    """A fit of a model to observations with the inputs that it needs, and those inputs."""
    places, time, variable = coordinates(n, d)
    own = {"time": time, "variable": variable}
    own = {name: own[name] for name in model.uses}
    names = ("zinc", "lead") if "variable" in own else ()
    values = np.random.default_rng(1).standard_normal(n)
    seen = gx.Observations(places, values, **own, variable_names=names)
    return held(seen, model, trend, method)


def at(model, time=0.4, variable=1):
    both = {"time": time, "variable": variable}
    return {name: both[name] for name in model.uses}


DEPENDENT = {
    "gneiting": family("gneiting"),
    "separable": family("separable"),
    "turned": family("gneiting", anisotropy=(30.0, 0.4)),
    "coordinate": family("matern-space-time"),
    "spherical": family("metric-spherical"),
    "parsimonious": family("parsimonious-matern", smoothness_2=0.9),
    "nuggets": replace(family("parsimonious-matern"), nugget_covariance=(0.05,)),
    "coregionalization": family("coregionalization"),
    "combined": family("gneiting-coregionalization-cauchy"),
    "axes": family("metric-coregionalization-spherical", anisotropy=gx.AxisRatios(0.5)),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_blocks_of_points_at_a_time_and_of_a_variable_are_averages_of_points(name):
    model = DEPENDENT[name]
    fit, points = seen_by(model, trend="linear"), coordinates(7, seed=9)[0]
    found = gx.predict(fit, block=points[None], **at(model))
    alone = gx.predict(fit, points, **at(model))
    errors = prediction_covariance(fit, points, **at(model))
    assert found.mean[0] == pytest.approx(alone.mean.mean(), rel=1e-10)
    assert found.variance[0] == pytest.approx(errors.mean(), rel=1e-9)
    near = gx.predict(fit, block=points[None], neighbours=60, **at(model))
    assert near.mean[0] == pytest.approx(found.mean[0], rel=1e-8)
    assert near.variance[0] == pytest.approx(found.variance[0], rel=1e-8)


def parts_of(there, sides, count):
    """Centres of count × count equal parts of a rectangle."""
    g = (np.arange(count) + 0.5) / count - 0.5
    mesh = np.stack(np.meshgrid(*[g] * len(there), indexing="ij"), axis=-1)
    return there + mesh.reshape(-1, len(there)) * sides


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", DEPENDENT)
def test_a_block_at_a_time_and_of_a_variable_is_the_mean_of_its_parts(name, d):
    model = DEPENDENT[name]
    if d == 1:
        model = replace(model, anisotropy=None)
    fit = seen_by(model, d=d)
    sides, there = np.array([0.3, 0.2])[:d], fit.observations.locations[0] + 0.02
    # most parts are integrated by nodes, the whole over its boundary
    parts, whole = parts_of(there, sides, 16), there[None]
    for time in (0.0, 0.01, 0.4):
        given = at(model, time)
        ours = gx.predict(fit, whole, block=tuple(sides), **given)
        theirs = gx.predict(fit, parts, block=tuple(sides / 16), **given)
        allowed = 10 * STATED
        assert ours.mean[0] == pytest.approx(theirs.mean.mean(), abs=allowed)
        square = [there + np.array(x) * sides / 2 for x in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        if d == 2:
            polygon = gx.predict(fit, block=[square], **given)
            assert polygon.mean[0] == pytest.approx(ours.mean[0], abs=STATED)
            assert polygon.variance[0] == pytest.approx(ours.variance[0], abs=STATED)
        sums = gx.predict(fit, whole, block=tuple(sides), discretisation=40, **given)
        assert sums.mean[0] == pytest.approx(ours.mean[0], abs=0.01)
        assert sums.variance[0] == pytest.approx(ours.variance[0], abs=0.01)
        near = gx.predict(fit, whole, block=tuple(sides), neighbours=60, **given)
        assert near.mean[0] == pytest.approx(ours.mean[0], abs=1e-9)
        assert near.variance[0] == pytest.approx(ours.variance[0], abs=1e-9)


def test_the_variance_of_a_block_is_that_of_its_field_at_one_time():
    far, sides = [[500.0, 500.0]], (0.3, 0.2)
    plain = gx.predict(
        held(testing.observations(), gx.Matern(1.0, 0.3, 0.5), "zero"), far, block=sides
    )
    for name in ("gneiting", "separable", "coordinate"):
        fit = seen_by(DEPENDENT[name], trend="zero")
        found = gx.predict(fit, far, block=sides, time=0.4)
        assert found.variance[0] == pytest.approx(plain.variance[0], abs=STATED)
    model = DEPENDENT["coregionalization"]
    fit = seen_by(model, trend="zero")
    second = gx.predict(
        held(testing.observations(), gx.Matern(1.0, 0.1, 0.5), "zero"), far, block=sides
    )
    found = gx.predict(fit, far, block=sides)
    expected = [plain.variance[0], 0.36 * plain.variance[0] + second.variance[0]]
    np.testing.assert_allclose(found.variance, expected, rtol=0, atol=2 * STATED)
    assert list(found.variable) == ["zinc", "lead"]


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_small_block_at_a_time_and_of_a_variable_is_a_point(name):
    model, there = DEPENDENT[name], coordinates(6, seed=5)[0]
    fit = seen_by(model)
    point = gx.predict(fit, there, **at(model))
    block = gx.predict(fit, there, block=1e-9, **at(model))
    np.testing.assert_allclose(block.mean, point.mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(block.variance, point.variance, rtol=0, atol=1e-7)


@pytest.mark.parametrize("sides", [(1e-3, 1e-3), (1e-3, 2e-6), (0.05, 5e-5)])
def test_small_and_thin_blocks_at_a_lag_do_not_cancel(sides):
    model = DEPENDENT["spherical"]
    fit, there = seen_by(model), coordinates(6, seed=5)[0]
    point = gx.predict(fit, there, time=0.1)
    block = gx.predict(fit, there, block=sides, time=0.1)
    sums = gx.predict(fit, there, block=sides, discretisation=30, time=0.1)
    np.testing.assert_allclose(block.mean, sums.mean, rtol=0, atol=1e-4 * max(sides) / 0.05)
    assert np.abs(block.mean - point.mean).max() < 0.1 * max(sides) / 0.05


def test_each_block_may_have_its_own_time_and_variable():
    model = DEPENDENT["combined"]
    fit, there = seen_by(model), coordinates(3, seed=5)[0]
    time, variable = [0.0, 0.4, 2.0], ["lead", "zinc", "lead"]
    for block in (0.1, corners(there, 0.1, 0.2), testing.places(12, seed=8).reshape(3, 4, 2)):
        places = there if np.ndim(block) == 0 else None
        found = gx.predict(fit, places, block=block, time=time, variable=variable)
        alone = [
            gx.predict(
                fit,
                None if places is None else places[k : k + 1],
                block=block if places is not None else block[k : k + 1],
                time=time[k],
                variable=variable[k],
            )
            for k in range(3)
        ]
        np.testing.assert_allclose(found.mean, [one.mean[0] for one in alone], rtol=1e-10)
        np.testing.assert_allclose(found.variance, [one.variance[0] for one in alone], rtol=1e-10)
        assert found.variable.tolist() == variable
        frame = found.to_frame()
        assert list(frame) == ["variable", "mean", "variance", "lower", "upper"]
        lead = found.of_variable("lead")
        np.testing.assert_array_equal(lead.mean, found.mean[[0, 2]])
        every = gx.predict(fit, places, block=block, time=0.4)
        assert every.variable.tolist() == ["zinc", "lead"] * 3
        assert every.mean[2] == pytest.approx(found.mean[1], rel=1e-10)
        assert repr(every).startswith("<Prediction at 6 blocks and variables (zinc")
        assert str(every).startswith("Averages of zinc, lead over blocks, in 6 rows")
        pairs = gx.predict(fit, places, block=block, time=0.4, variable=("lead", "zinc"))
        np.testing.assert_allclose(pairs.of_variable("zinc").mean, every.mean[::2], rtol=1e-12)


def test_blocks_at_times_of_a_fit_by_vecchia_are_near_those_from_all():
    model = DEPENDENT["combined"]
    fit, there = seen_by(model), coordinates(4, seed=5)[0]
    ours = replace(fit, method=gx.Vecchia(25))
    exact, near = (gx.predict(f, there, block=0.1, **at(model)) for f in (fit, ours))
    assert np.abs(near.mean - exact.mean).max() < 0.05
    assert (near.variance > exact.variance * (1 - 1e-6)).all()
    local = gx.predict(fit, there, block=0.1, neighbours=60, local_trend=True, **at(model))
    np.testing.assert_allclose(local.mean, exact.mean, rtol=1e-7)


def test_the_trend_of_each_variable_is_averaged():
    fit = seen_by(DEPENDENT["coregionalization"], trend="I(x**2)")
    found = gx.predict(fit, [[500.0, 500.0]], block=(2.0, 1.0))
    beta = np.array(fit.coefficients).reshape(2, 2)
    np.testing.assert_allclose(found.mean, beta @ [1.0, 500**2 + 1 / 3], rtol=1e-10)


@pytest.mark.parametrize("metric", ["chordal", "great-circle"])
def test_blocks_on_the_sphere_have_times_and_variables(metric):
    random = np.random.default_rng(3)
    places = np.column_stack((170 + 20 * random.random(40), 40 + 20 * random.random(40)))
    _, time, _ = coordinates(40)
    model = gx.Separable(1.0, 900.0, 0.5, 0.4, 0.5, 0.1)
    seen = gx.Observations(places, random.standard_normal(40), metric=metric, time=time)
    fit = held(seen, model, "constant")
    points = np.array([[[179.0, 50.0], [181.0, 52.0], [-178.0, 51.0]]])
    found = gx.predict(fit, block=points, time=0.3)
    errors = prediction_covariance(fit, points[0], time=0.3)
    assert found.mean[0] == pytest.approx(gx.predict(fit, points[0], time=0.3).mean.mean())
    assert found.variance[0] == pytest.approx(errors.mean(), rel=1e-9)
    assert np.isfinite(gx.predict(fit, [[180.0, 50.0]], block=(4.0, 6.0), time=0.3).mean).all()


def test_transformed_variables_are_averaged_by_draws():
    model = replace(family("parsimonious-matern"), transform=("log", None))
    places, _, variable = coordinates(60)
    normal = np.random.default_rng(1).standard_normal(60)
    values = np.where(variable == 0, np.exp(normal), normal)
    seen = gx.Observations(places, values, variable=variable, variable_names=("zinc", "lead"))
    fit = held(seen, model, "constant")
    plain = held(replace(seen, values=normal), replace(model, transform=None), "constant")
    found = gx.predict(fit, [[0.5, 0.5], [0.2, 0.8]], block=0.1, draws=2000)
    expected = gx.predict(plain, [[0.5, 0.5], [0.2, 0.8]], block=0.1)
    assert found.variable.tolist() == ["zinc", "lead"] * 2
    lead, gaussian = found.of_variable("lead"), expected.of_variable("lead")
    error = 5 * np.sqrt(gaussian.variance / 2000)
    assert (np.abs(lead.mean - gaussian.mean) < error).all()
    zinc, logs = found.of_variable("zinc"), expected.of_variable("zinc")
    assert (zinc.samples > 0).all()
    np.testing.assert_allclose(np.log(zinc.median), logs.mean, atol=0.3)
    assert list(found.to_frame())[:3] == ["variable", "mean", "variance"]


def test_frames_of_polygons_may_say_times_and_variables():
    geopandas = pytest.importorskip("geopandas")
    shapely = pytest.importorskip("shapely")
    fit = seen_by(DEPENDENT["combined"])
    shapes = [shapely.box(0.1, 0.1, 0.3, 0.4), shapely.box(0.5, 0.5, 0.8, 0.6)]
    columns = {"time": [0.0, 0.4], "variable": ["lead", "zinc"]}
    frame = geopandas.GeoDataFrame(columns, geometry=shapes)
    found, plain = gx.predict(fit, block=frame), gx.predict(fit, block=shapes, **columns)
    np.testing.assert_array_equal(found.mean, plain.mean)
    assert list(found.to_frame())[:4] == ["time", "variable", "geometry", "mean"]
    with pytest.raises(gx.InvalidInput, match="leave `variable`"):
        gx.predict(fit, block=frame, variable="zinc")
    every = gx.predict(fit, block=frame[["geometry"]], time=0.4).to_frame()
    assert every["variable"].tolist() == ["zinc", "lead"] * 2
    assert every.geometry.iloc[1].equals(shapes[0])


def test_rasters_of_blocks_have_a_time_and_a_variable():
    fit = seen_by(DEPENDENT["combined"])
    raster = gx.predict_raster(fit, cells=4, block=True, time=[0.0, 0.4], variable="lead")
    one = raster[1]
    left, right, bottom, top = one.extent
    sides = (right - left) / one.mean.shape[1], (top - bottom) / one.mean.shape[0]
    found = gx.predict(fit, one.coordinates.reshape(-1, 2), block=sides, time=0.4, variable="lead")
    np.testing.assert_allclose(one.mean.ravel(), found.mean, rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs the time of each location: give `time`"),
        ({"time": [0.0, 1.0]}, "`time`"),
        ({"time": 0.0, "variable": ["zinc", "zinc"]}, "different variables"),
        ({"time": 0.0, "variable": "gold"}, "gold"),
        ({"time": 0.0, "error_variance": 0.1}, "blocks have no `error_variance`"),
    ],
)
def test_wrong_times_and_variables_of_blocks_are_named(given, message):
    fit = seen_by(DEPENDENT["combined"])
    for where in ({"new_locations": [[0.5, 0.5]] * 3, "block": 0.1}, {"block": [SQUARE] * 3}):
        with pytest.raises(gx.InvalidInput, match=message):
            gx.predict(fit, **where, **given)
