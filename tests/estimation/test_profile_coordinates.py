"""Coordinates of profiles where the bound of one shape depends on another one (Wendland)."""

import numpy as np
import pytest
import scipy

import geomxp as gx
from geomxp.estimation import profile
from geomxp.estimation.profile import Path

QUIETLY = {"progress": False, "raise_on_failure": False}


def fitted(truth, seed):
    places = np.random.default_rng(seed).random((25, 2))
    seen = gx.Observations(places, gx.simulate(truth, places, seed=seed)[0])
    return gx.fit(seen, truth, fixed=("nugget",), trend="zero", **QUIETLY)


@pytest.fixture(scope="module")
def bound():
    """A fit whose shape is at its smallest value."""
    return fitted(gx.Wendland(1.0, 0.7, 1.0, 4.0), 3)


@pytest.fixture(scope="module")
def inside():
    """A fit in the interior of the valid shapes."""
    return fitted(gx.Wendland(1.0, 0.7, 0.5, 3.0, 0.05), 4)


def test_a_limit_may_be_missed_by_rounding():
    least = 1.5 + 10.0
    model = gx.Wendland(1.0, 1.0, smoothness=10.0, shape=np.exp(np.log(least)))
    assert model.shape < least
    model.check_valid_on("euclidean", 2)
    with pytest.raises(gx.InvalidInput, match=r"shape at least 11.5. Got shape=11.49"):
        model.replace(shape=least - 1e-3).check_valid_on("euclidean", 2)


def test_a_fit_on_a_bound_that_follows_another_shape_ends():
    """With smoothness 10, the largest of a search, rounding misses the bound of the shape."""
    places = np.random.default_rng(1).random((36, 2))
    truth = gx.Wendland(1.0, 0.7, 1.0, 4.0)
    seen = gx.Observations(places, gx.simulate(truth, places, seed=1)[0])
    fit = gx.fit(seen, family="wendland", fixed={"nugget": 0.0, "smoothness": 10.0}, **QUIETLY)
    assert fit.model.shape == pytest.approx(11.5, rel=1e-12)
    assert fit.confidence_intervals(method="profile")["shape"][0] == 11.5


@pytest.mark.slow
@pytest.mark.parametrize("held", [(), ("shape",), ("smoothness",), ("smoothness", "shape")])
@pytest.mark.parametrize("which", ["bound", "inside"])
def test_scores_are_derivatives_in_the_coordinates(request, which, held):
    path = Path(request.getfixturevalue(which), held)
    assert (path.share is None) == (len(held) == 2)
    # away from the edges of the box, where differences would leave it
    room = np.minimum(path.upper - path.lower, 1.0)
    x = np.clip(path.start.point, path.lower + 0.05 * room, path.upper - 0.05 * room)
    if path.share is None:
        # a valid shape: without a share the bound of the shape is not an edge of the box
        x[path.names.index("shape")] += 0.2
    score = path.at(x).score
    for k, step in enumerate(1e-5 * np.eye(len(x))):
        change = path.at(x + step).value - path.at(x - step).value
        assert score[k] == pytest.approx(change / 2e-5, rel=1e-5, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("held", [(), ("shape",)])
def test_every_point_of_the_box_is_a_valid_model(bound, held):
    path = Path(bound, held)
    rng = np.random.default_rng(0)
    low, high = np.maximum(path.lower, -50), np.minimum(path.upper, 50)
    corners = [low + (high - low) * rng.integers(0, 2, len(low)) for _ in range(40)]
    points = [low + (high - low) * rng.random(len(low)) for _ in range(40)]
    for x in [*corners, *points]:
        model = path.model(x)
        assert path.problem.table.valid(model)
        again = path.model(path.point(model)).parameters()
        assert again == pytest.approx(model.parameters(), rel=1e-9, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["bound", "inside"])
def test_ends_are_where_a_fit_that_holds_them_has_lost_a_half_chi_square(request, which):
    fit = request.getfixturevalue(which)
    seen, nugget, lost = fit.observations, fit.model.nugget, scipy.stats.chi2.ppf(0.95, 1) / 2
    intervals = fit.confidence_intervals(method="profile")
    known = [(name, x) for name, ends in intervals.items() for x in ends if 0 < x < 100]
    assert {"variance", "range", "shape"} <= {name for name, _ in known}
    about, searched = {"trend": "zero", **QUIETLY}, set()
    for name, x in known:
        if name == "shape" and x == 1.5:
            continue
        near = fit.model.replace(**{name: x})
        near = near.replace(smoothness=min(near.smoothness, near.shape - 1.5))
        near = gx.fit(seen, near, fixed=("nugget", name), **about)
        best = near.log_likelihood
        if name not in searched and name != "variance":
            # at one end of each interval also from elsewhere
            searched.add(name)
            held = {"nugget": nugget, name: x}
            anywhere = gx.fit(seen, family="wendland", fixed=held, **about)
            best = max(best, anywhere.log_likelihood)
        fall = fit.log_likelihood - best
        assert fall == pytest.approx(lost, abs=2e-3), (name, x)


@pytest.mark.slow
def test_an_open_end_of_a_shape_is_that_for_any_value_of_the_other():
    """The shape may fall to 3/2, together with the smoothness."""
    fit = fitted(gx.Wendland(1.0, 0.7, 1.0, 4.0), 0)
    ends = profile.profile_intervals(fit, ["shape", "smoothness"], 1.92)
    assert ends == {"shape": (1.5, 1000.0), "smoothness": (0.0, 100.0)}


def test_steps_in_a_box_are_the_best():
    rng = np.random.default_rng(1)
    for _ in range(50):
        k = int(rng.integers(1, 6))
        root = rng.standard_normal((k, k)) * 10.0 ** rng.uniform(-1, 1, k)
        information, score = root @ root.T + 1e-3 * np.eye(k), rng.standard_normal(k)
        least, most = -rng.random(k), np.where(rng.random(k) < 0.5, rng.random(k), np.inf)
        step = profile._top_of_parabola(score, information, least, most)
        assert ((least <= step) & (step <= most)).all()
        # the conditions of Karush, Kuhn and Tucker
        slope = score - information @ step
        scale = 1e-6 * (abs(score) + abs(information) @ abs(step))
        assert ((step > least + 1e-9) <= (slope >= -scale)).all()
        assert ((step < most - 1e-9) <= (slope <= scale)).all()
