"""Loss of efficiency and misspecification against their definitions and ExaGeoStat's numbers."""

from dataclasses import replace

import numpy as np
import pytest
from oracles import reference

import geomxp as gx
from geomxp import testing

EXAGEOSTAT = reference("exageostat_16")
TRUE = gx.Matern(1.0, 0.2, 0.8, 0.1)
WRONG = gx.Matern(1.4, 0.1, 1.3, 0.05)


def sigma(model, places):
    return model(places, places) + model.nugget * np.eye(len(places))


def by_definition(true, wrong, places, targets):
    """E_t, E_a and E_ta as the papers write them."""
    k_t, k_a = true(places, targets), wrong(places, targets)
    w_t = np.linalg.solve(sigma(true, places), k_t)
    w_a = np.linalg.solve(sigma(wrong, places), k_a)
    cross = true.variance - 2 * np.einsum("ij,ij->j", w_a, k_t)
    return (
        true.variance - np.einsum("ij,ij->j", k_t, w_t),
        wrong.variance - np.einsum("ij,ij->j", k_a, w_a),
        cross + np.einsum("ij,ij->j", w_a, sigma(true, places) @ w_a),
    )


@pytest.mark.parametrize("neighbours", [None, 16])
def test_exageostats_published_numbers_come_out(neighbours):
    case = EXAGEOSTAT["mloe_mmom"]
    found = gx.mloe_mmom(
        gx.Matern(**case["truth"]),
        gx.Matern(**case["approx"]),
        EXAGEOSTAT["locations"],
        case["test"],
        neighbours=neighbours,
    )
    # 16 places of condition number below 1e3
    assert found.mloe == pytest.approx(case["mloe"], rel=1e-12)
    assert found.mmom == pytest.approx(case["mmom"], rel=1e-12)
    assert (f"{found.mloe:.7f}", f"{found.mmom:.6f}") == ("0.0529825", "-0.408526")


def test_errors_are_what_the_definition_says():
    places, targets = testing.places(80), testing.places(9, seed=4)
    best, claimed, actual = by_definition(TRUE, WRONG, places, targets)
    found = gx.mloe_mmom(TRUE, WRONG, places, targets)
    np.testing.assert_allclose(found.error_of_true, best, rtol=1e-11)
    np.testing.assert_allclose(found.claimed, claimed, rtol=1e-11)
    np.testing.assert_allclose(found.error_of_approximated, actual, rtol=1e-11)
    np.testing.assert_allclose(found.loss_of_efficiency, actual / best - 1, atol=1e-10)
    np.testing.assert_allclose(found.misspecification, claimed / actual - 1, atol=1e-10)
    assert found.mloe == pytest.approx((actual / best - 1).mean(), abs=1e-10)
    assert found.rmom == pytest.approx(np.sqrt(np.mean((claimed / actual - 1) ** 2)), abs=1e-10)


def test_new_observations_have_the_nuggets_besides():
    places, targets = testing.places(40), testing.places(5, seed=4)
    field = gx.mloe_mmom(TRUE, WRONG, places, targets)
    found = gx.mloe_mmom(TRUE, WRONG, places, targets, of="observation")
    np.testing.assert_allclose(found.error_of_true, field.error_of_true + 0.1, rtol=1e-14)
    np.testing.assert_allclose(found.claimed, field.claimed + 0.05, rtol=1e-14)
    np.testing.assert_array_equal(found.excess, field.excess)


def test_the_true_model_loses_nothing():
    places, targets = testing.places(80), testing.places(9, seed=4)
    found = gx.mloe_mmom(TRUE, TRUE, places, targets)
    assert found.mloe == 0.0
    assert found.mmom == pytest.approx(0.0, abs=1e-15)


def test_a_small_loss_keeps_its_digits():
    """The loss is quadratic in how wrong the model is: to 1e-12 of what two errors leave apart."""
    places, targets = testing.places(80), testing.places(9, seed=4)

    def loss(step):
        return gx.mloe_mmom(TRUE, replace(TRUE, range=TRUE.range + step), places, targets).mloe

    # the cubic term is of relative size step/range
    assert loss(2e-6) / loss(1e-6) == pytest.approx(4.0, rel=1e-4)
    assert loss(1e-6) < 1e-11


def test_a_multiple_of_both_variances_changes_only_what_is_claimed():
    places, targets = testing.places(60), testing.places(5, seed=4)
    other = replace(TRUE, variance=3.0, nugget=0.3)
    found = gx.mloe_mmom(TRUE, other, places, targets)
    assert found.mloe < 1e-20
    np.testing.assert_allclose(found.misspecification, 2.0, rtol=1e-12)


@pytest.mark.slow
def test_all_places_for_neighbours_are_all_places_and_few_are_near_it():
    places, targets = testing.places(300), testing.places(20, seed=4)
    whole = gx.mloe_mmom(TRUE, WRONG, places, targets)
    every = gx.mloe_mmom(TRUE, WRONG, places, targets, neighbours=1000)
    some = gx.mloe_mmom(TRUE, WRONG, places, targets, neighbours=60)
    np.testing.assert_allclose(every.excess, whole.excess, rtol=1e-9)
    np.testing.assert_allclose(every.claimed, whole.claimed, rtol=1e-10)
    # fewer data never make the best predictor better
    assert (some.error_of_true >= whole.error_of_true * (1 - 1e-12)).all()
    assert some.mmom == pytest.approx(whole.mmom, abs=0.02)


def test_panels_of_targets_change_nothing(monkeypatch):
    from geomxp.prediction import misspecification

    places, targets = testing.places(70), testing.places(20, seed=4)
    whole = gx.mloe_mmom(TRUE, WRONG, places, targets)
    monkeypatch.setattr(misspecification, "CHUNK_LOCATIONS", 7)
    pieces = gx.mloe_mmom(TRUE, WRONG, places, targets)
    np.testing.assert_allclose(pieces.excess, whole.excess, rtol=1e-11)
    np.testing.assert_allclose(pieces.claimed, whole.claimed, rtol=1e-11)


def test_observations_bring_their_metric():
    random = np.random.default_rng(3)
    places = np.column_stack((10 * random.random(40), 50 + 10 * random.random(40)))
    seen = gx.Observations(places, np.zeros(40), metric="chordal")
    true, wrong = gx.Matern(1.0, 300.0, 0.5), gx.Matern(1.0, 500.0, 0.5)
    found = gx.mloe_mmom(true, wrong, seen, places[:3] + 0.1)
    again = gx.mloe_mmom(true, wrong, places, places[:3] + 0.1, metric="chordal")
    np.testing.assert_array_equal(found.excess, again.excess)
    assert str(found).startswith("MLOE ")
    assert found.to_dict() == {"n": 3, "mloe": found.mloe, "mmom": found.mmom, "rmom": found.rmom}


PLACES = testing.places(10)
BARE = gx.Matern(1.0, 0.2, 0.5)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((BARE, BARE, PLACES, PLACES[3:4]), {}, "target 1 has no error to compare"),
        ((BARE, WRONG, PLACES, np.vstack(([[0.5, 0.5]], PLACES[:1]))), {}, "target 2 has no error"),
        ((BARE, 3, PLACES, PLACES), {}, "`approximated` must be a covariance model"),
        (("a", BARE, PLACES, PLACES), {}, "`true` must be a covariance model"),
        ((BARE, BARE, PLACES, [[1.0]]), {}, "`new_locations` must have 2 columns"),
        (
            (BARE, BARE, PLACES, np.zeros((0, 2))),
            {},
            "`new_locations` must hold at least one location",
        ),
        ((BARE, BARE, PLACES, PLACES + 0.01), {"of": "mean"}, "`of` must be"),
        ((BARE, BARE, PLACES, PLACES + 0.01), {"neighbours": 0}, "`neighbours` must be a whole"),
        ((BARE, BARE, PLACES, PLACES + 0.01), {"method": gx.Vecchia()}, "`method` must be Exact"),
        ((BARE, BARE, PLACES, PLACES + 0.01), {"metric": "km"}, "metric"),
    ],
)
def test_what_cannot_be_compared_is_named(arguments, options, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.mloe_mmom(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "rows 1 and 11 are at the same location"),
        ({"neighbours": 11}, "nearest to target 1 is"),
    ],
)
def test_two_observations_at_one_place_need_a_nugget(options, message):
    twins = np.vstack((PLACES, PLACES[:1]))
    with pytest.raises(gx.NotPositiveDefinite, match=message):
        gx.mloe_mmom(BARE, BARE, twins, PLACES[:2] + 0.01, **options)
    assert gx.mloe_mmom(TRUE, WRONG, twins, PLACES[:2], **options).mloe > 0
