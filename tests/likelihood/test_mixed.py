import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from cases import by_pairs

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.factors import tile_factor
from geomxp.linalg.precision import count_finer
from geomxp.prediction.simulate import lay_out
from geomxp.tiles.assemble import Originals

U = 2.0**-53
MODEL = gx.Matern(1.0, 0.2, 0.5, 0.01)
RANGES = {"weak": 0.02627, "medium": 0.078809, "strong": 0.210158}
RULES = [
    gx.uniform("fp64"),
    gx.uniform("fp8"),
    gx.by_tile_norm(1e-8),
    gx.by_tile_norm(1e-4),
    gx.layered("fp16", "fp32"),
    gx.for_divergence(1e-3),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def mixed(rule, tile=32):
    return gx.Exact(rule, tile=tile)


def sigma_of(seen, model):
    return model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))


def tolerance_of(seen, model, unit_roundoff=U):
    """c·n·u·κ, relative to the log-likelihood's parts."""
    return 10 * len(seen) * unit_roundoff * testing.condition_number(model, seen)


def assert_close(found, expected, tolerance):
    for name in ("log_likelihood", "log_determinant", "quadratic_form"):
        a, b = getattr(found, name), getattr(expected, name)
        assert abs(a - b) <= tolerance * max(1.0, abs(b)), (name, a, b)


# laws


@pytest.mark.parametrize("law", testing.LAWS, ids=lambda law: law.__name__)
def test_fp64_tiles_obey(law):
    testing.check_likelihood(mixed(gx.uniform("fp64"), tile=16), laws=[law])


@pytest.mark.parametrize("law", testing.LAWS, ids=lambda law: law.__name__)
def test_tiles_by_norm_obey_to_the_accuracy_asked_for(law):
    testing.check_likelihood(mixed(gx.by_tile_norm(1e-8), tile=16), unit_roundoff=1e-8, laws=[law])


@pytest.mark.parametrize("accuracy", [1e-4, 1e-6, 1e-8, 1e-10])
def test_the_likelihood_is_as_accurate_as_the_norms_promise(accuracy):
    seen = testing.observations(200)
    found = gx.log_likelihood(seen, MODEL, mixed(gx.by_tile_norm(accuracy)))
    assert_close(found, gx.log_likelihood(seen, MODEL), tolerance_of(seen, MODEL, accuracy))
    assert found.precision_map.accuracy == accuracy
    assert found.promotions == 0


# hostile cases


@every_rule
def test_one_observation_is_too_few_and_one_place_is_exact(rule):
    with pytest.raises(gx.InvalidInput, match=r"at least 3 locations are needed\. Got 1"):
        gx.Observations([[0.3, 0.4]], [1.0])
    for method in (mixed(rule, None), mixed(rule, 1)):
        found = gx.kl_divergence(MODEL, [[0.3, 0.4]], method)
        # a single tile on the diagonal: FP64, or FP32 where `uniform` says so
        unit = 2.0**-24 if rule == gx.uniform("fp8") else U
        assert abs(found.kl) <= 4 * unit
        assert found.n == 1
        assert sum(found.formats.counts().values()) == 1


@every_rule
def test_a_tile_larger_than_the_matrix_is_refused_and_none_given_fits(rule):
    seen = testing.observations(5)
    message = (
        r"^`tile` must be an integer between 1 and the number of locations\. "
        r"Got tile=64 for 5 locations\.$"
    )
    for ask in (
        lambda method: gx.log_likelihood(seen, MODEL, method),
        lambda method: method.prepare(seen),
        lambda method: gx.kl_divergence(MODEL, seen.locations, method),
        lambda method: gx.simulate(MODEL, seen.locations, method=method),
        lambda method: gx.fit(seen, MODEL, method=method, trend="zero"),
    ):
        with pytest.raises(gx.InvalidInput, match=message):
            ask(mixed(rule, 64))
    found = gx.log_likelihood(seen, MODEL, mixed(rule, None))
    unit = 2.0**-22 if rule == gx.uniform("fp8") else U
    assert_close(found, gx.log_likelihood(seen, MODEL), tolerance_of(seen, MODEL, unit))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "tile"), [(31, 1), (101, 7), (101, 16), (101, 100), (101, 101)])
def test_a_prime_number_of_places_in_tiles_of_any_size(n, tile):
    seen = testing.observations(n)
    expected = gx.log_likelihood(seen, MODEL)
    exact = gx.log_likelihood(seen, MODEL, mixed(gx.uniform("fp64"), tile))
    assert_close(exact, expected, tolerance_of(seen, MODEL))
    found = gx.log_likelihood(seen, MODEL, mixed(gx.by_tile_norm(1e-8), tile))
    assert_close(found, expected, tolerance_of(seen, MODEL, 1e-8))
    tiles = -(-n // tile)
    assert sum(found.precision_map.counts().values()) == tiles * (tiles + 1) // 2


def twins(seed):
    """Rows 11 and 71 at one place, and rows 12 and 72 at another."""
    rng = np.random.default_rng(seed)
    places = rng.random((100, 2))
    places[70:72] = places[10:12]
    return gx.Observations(places, rng.standard_normal(100))


@every_rule
@pytest.mark.parametrize("tile", [7, 16, 32])
@pytest.mark.parametrize(("range", "smoothness"), [(0.05, 0.5), (0.2, 1.5)])
def test_places_that_coincide_without_a_nugget_are_named(rule, tile, range, smoothness):
    """Whichever way rounding falls: the error of coarse tiles is no nugget."""
    for seed in (0, 1, 2):
        with pytest.raises(gx.NotPositiveDefinite, match=r"rows 1[12] and 7[12] are at the same"):
            gx.log_likelihood(twins(seed), gx.Matern(1.0, range, smoothness), mixed(rule, tile))


def test_places_that_coincide_are_an_error_of_their_own_kind():
    with pytest.raises(gx.errors.DuplicateLocations, match="Estimate a nugget, or drop one"):
        gx.log_likelihood(twins(0), gx.Matern(1.0, 0.2, 1.5), mixed(gx.by_tile_norm(1e-8)))


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("tile", [7, 32])
def test_places_that_coincide_with_a_nugget_are_observations_like_others(rule, tile):
    seen, model = twins(0), gx.Matern(1.0, 0.05, 0.5, 0.1)
    found = gx.log_likelihood(seen, model, mixed(rule, tile))
    error = found.precision_map.error
    # FP32 sums, where there are any
    unit = max(error, 0.0 if found.precision_map.all_fp64 else 2.0**-24)
    assert_close(found, gx.log_likelihood(seen, model), tolerance_of(seen, model, max(unit, U)))


@every_rule
@pytest.mark.parametrize("range", [0.5, 1.0])
def test_a_matrix_that_only_fp64_can_factor_is_factored_in_fp64(rule, range):
    """All tiles promoted, no shift: the answer is that of FP64 tiles, bit for bit."""
    seen, model = testing.observations(200), gx.Matern(1.0, range, 2.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        found = gx.log_likelihood(seen, model, mixed(rule))
        expected = gx.log_likelihood(seen, model, mixed(gx.uniform("fp64")))
    assert found.precision_map.counts() == {"fp64": 28}
    assert found.log_likelihood == expected.log_likelihood
    assert found.quadratic_form == expected.quadratic_form


@every_rule
def test_promotions_are_those_between_the_rules_map_and_the_last(rule):
    seen, model = testing.observations(200), gx.Matern(1.0, 0.3, 1.5, 1e-5)
    factor = tile_factor(model, seen, rule, 32)
    if rule != gx.for_divergence(1e-3):
        first = rule(factor.store.originals.norms())
        assert factor.promotions == count_finer(first, factor.precision_map)
    lower = factor.dense()
    assert (lower.diagonal() > 0).all()
    sigma = sigma_of(seen, model)[np.ix_(factor.order, factor.order)]
    error = np.linalg.norm(sigma - lower @ lower.T) / np.linalg.norm(sigma)
    assert error <= 10 * max(factor.precision_map.error or 0.0, 2.0**-24)


@pytest.fixture
def measured(monkeypatch):
    """The tiles whose norms were computed; each is generated for it."""
    tiles, squares = [], Originals.squares

    def noted(originals, pairs):
        tiles.extend(pairs)
        return squares(originals, pairs)

    monkeypatch.setattr(Originals, "squares", noted)
    return tiles


ONE_FORMAT = [gx.uniform("fp64"), gx.uniform("fp32"), gx.layered("fp64"), gx.by_band("fp64")]
SEVERAL = [gx.uniform("fp16"), gx.layered("fp16", "fp32"), *RULES[2:4], RULES[5]]


@pytest.mark.parametrize("rule", ONE_FORMAT, ids=repr)
def test_no_norms_are_computed_for_tiles_in_one_format(rule, measured):
    seen = testing.observations(100)
    factor = tile_factor(MODEL, seen, rule, 25)
    assert measured == []
    assert factor.precision_map == rule(factor.store.originals.norms())
    (form,) = {form for row in factor.precision_map.rows for form in row}
    assert factor.precision_map.error == form.unit_roundoff


OWN = pytest.param(lambda norms: gx.uniform("fp64")(norms), id="a function of one's own")


@pytest.mark.parametrize("rule", [*(pytest.param(rule, id=repr(rule)) for rule in SEVERAL), OWN])
def test_norms_are_computed_once_for_rules_that_depend_on_them(rule, measured):
    tile_factor(MODEL, testing.observations(100), rule, 25)
    assert sorted(measured) == [(i, k) for i in range(4) for k in range(i + 1)]


def test_formats_that_are_frozen_need_no_norms(measured):
    evaluator = mixed(gx.by_tile_norm(1e-6), 25).prepare(testing.observations(100))
    evaluator.freeze(MODEL)
    frozen = evaluator(gx.Matern(1.0, 0.25, 0.5, 0.01))
    assert len(measured) == 10
    assert frozen.precision_map.error > 0


@every_rule
def test_a_field_too_smooth_for_fp64_is_an_error_that_names_the_closest_places(rule):
    seen, model = testing.observations(200), gx.Matern(1.0, 50.0, 2.5)
    with pytest.raises(
        gx.NotPositiveDefinite,
        match=r"not positive definite in FP64 .leading minor \d+ of 200.; the closest locations "
        r"are rows \d+ and \d+: give the model a nugget",
    ):
        gx.log_likelihood(seen, model, mixed(rule))
    evaluation = mixed(rule).prepare(seen)(model)
    assert evaluation.log_likelihood == -np.inf
    assert evaluation.outcome.ending == "NOT_POSITIVE_DEFINITE"


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("c", [2.0**498, 2.0**-498, 1e150, 1e-150])
def test_the_unit_of_the_values_moves_the_likelihood_by_its_logarithm(rule, c):
    seen = testing.observations(200)
    plain = gx.log_likelihood(seen, MODEL, mixed(rule))
    model = gx.Matern(c * c, MODEL.range, MODEL.smoothness, MODEL.nugget * c * c)
    scaled = gx.Observations(seen.locations, seen.values * c)
    found = gx.log_likelihood(scaled, model, mixed(rule))
    moved = 200 * np.log(c)
    tolerance = 200 * U * (abs(plain.log_likelihood) + abs(moved))
    if np.log2(c).is_integer():
        # the same bits in every tile
        assert found.precision_map == plain.precision_map
        assert abs(found.quadratic_form - plain.quadratic_form) <= tolerance
    else:
        # other digits: the rounding of the formats
        tolerance += tolerance_of(seen, MODEL, max(plain.precision_map.error, U)) * abs(
            plain.log_likelihood
        )
    assert abs(found.log_likelihood - (plain.log_likelihood - moved)) <= tolerance


@pytest.mark.parametrize("accuracy", [1e-17, 1e-300, 5e-324])
def test_an_accuracy_beyond_fp64_is_fp64(accuracy):
    seen = testing.observations(200)
    found = gx.log_likelihood(seen, MODEL, mixed(gx.by_tile_norm(accuracy)))
    assert found.precision_map.all_fp64
    tiles = gx.log_likelihood(seen, MODEL, mixed(gx.uniform("fp64")))
    assert found.log_likelihood == tiles.log_likelihood
    assert_close(found, gx.log_likelihood(seen, MODEL), tolerance_of(seen, MODEL))


@pytest.mark.parametrize("accuracy", [1.0, 1e300])
def test_no_accuracy_is_fp8_everywhere_and_an_honest_likelihood_of_another_matrix(accuracy):
    """ℓ is that of N(0, LL'), to FP64's accuracy: nothing but the tiles is coarse."""
    seen, rule = testing.observations(200), gx.by_tile_norm(accuracy)
    found = gx.log_likelihood(seen, MODEL, mixed(rule))
    assert set(found.precision_map.counts()) == {"fp64", "fp8"}
    factor = tile_factor(MODEL, seen, rule, 32)
    lower, z = factor.dense(), seen.values[factor.order]
    white = scipy.linalg.solve_triangular(lower, z, lower=True)
    tolerance = 10 * 200 * U * np.linalg.cond(lower) ** 2
    assert abs(found.quadratic_form - white @ white) <= tolerance * found.quadratic_form
    expected = 2 * np.log(lower.diagonal()).sum()
    assert abs(found.log_determinant - expected) <= 200 * U * abs(expected)


# prediction and estimation


def test_predictions_are_those_of_fp64_to_the_accuracy_asked_for():
    seen, there = testing.observations(150), testing.places(20, seed=9)
    model, free = testing.MODEL, tuple(testing.MODEL.parameters())
    exact, coarse = (
        gx.predict(gx.fit(seen, model, method, fixed=free, trend="constant"), there)
        for method in (gx.Exact(), mixed(gx.by_tile_norm(1e-8)))
    )
    tolerance = tolerance_of(seen, model, 1e-8)
    np.testing.assert_allclose(coarse.mean, exact.mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(coarse.variance, exact.variance, rtol=tolerance)


@pytest.fixture(scope="module")
def field():
    places = lay_out(144, "jittered", 3)
    truth = gx.Matern(2.0, 0.15, 0.5, 0.2)
    return gx.Observations(places, gx.simulate(truth, places, seed=4)[0])


@pytest.mark.slow
def test_estimates_are_those_of_fp64_as_far_as_the_likelihood_can_tell(field):
    exact = gx.fit(field, fixed={"smoothness": 0.5}, trend="zero")
    method = mixed(gx.by_tile_norm(1e-8))
    found = gx.fit(field, method=method, fixed={"smoothness": 0.5}, trend="zero")
    assert found.outcome.ending == exact.outcome.ending == "CONVERGED"
    noise = tolerance_of(field, exact.model, 1e-8) * abs(exact.log_likelihood)
    reached = gx.log_likelihood(field, found.model).log_likelihood
    assert exact.log_likelihood - noise <= reached <= exact.log_likelihood + noise
    assert abs(found.log_likelihood - reached) <= noise
    for name in ("variance", "range", "nugget"):
        error = exact.standard_errors[name]
        # a loss of δ in ℓ is a distance of √(2δ) standard errors
        apart = abs(found.model.parameters()[name] - exact.model.parameters()[name])
        assert apart <= np.sqrt(4 * noise) * error
        assert found.standard_errors[name] == pytest.approx(error, rel=np.sqrt(4 * noise))


def test_a_fit_says_in_which_formats_it_was_made(field):
    method = mixed(gx.by_tile_norm(1e-6))
    free = tuple(MODEL.parameters())
    fit = gx.fit(field, MODEL, method, fixed=free, trend="zero")
    document = fit.to_dict()["method"]
    assert document["precision"] == {"rule": "by_tile_norm", "arguments": [1e-6, True]}
    assert document["formats"] == gx.log_likelihood(field, MODEL, method).precision_map.counts()
    assert document["promotions"] == 0


def test_simulations_have_the_covariance_of_the_tiles():
    """Draws are L times white noise: whitened again they are the noise of FP64's draws."""
    places = testing.places(100)
    exact = gx.simulate(MODEL, places, draws=3, seed=1)
    assert exact.shape == (3, 100)
    one, other = (
        gx.simulate(MODEL, places, draws=3, seed=1, method=mixed(rule))
        for rule in (gx.uniform("fp64"), gx.by_tile_norm(1e-8))
    )
    seen = gx.Observations(places, np.zeros(100))
    tolerance = tolerance_of(seen, MODEL, 1e-8)
    assert np.linalg.norm(one - other) <= tolerance * np.linalg.norm(one)


def test_anything_but_a_rule_is_refused():
    with pytest.raises(gx.InvalidInput, match=r"`precision` must be a rule.*Got 'fp16'"):
        gx.Exact("fp16")


# divergence


def dense_divergence(model, places, rule, tile):
    """½(tr(Σₐ⁻¹Σ₀) - n + log|Σₐ| - log|Σ₀|) from whole matrices, and Σₐ."""
    seen = gx.Observations(places, np.zeros(len(places)))
    # `kl_divergence` factors the places in the order of the tiles, whatever order they come in
    factor = tile_factor(model, seen, rule, tile)
    lower = factor.dense()
    sigma = sigma_of(seen, model)[np.ix_(factor.order, factor.order)]
    white = scipy.linalg.solve_triangular(
        lower, scipy.linalg.cholesky(sigma, lower=True), lower=True
    )
    values = scipy.linalg.svdvals(white) ** 2
    # Σ(λ - 1 - log λ) loses nothing to cancellation
    return 0.5 * np.sum(values - 1 - np.log(values)), lower @ lower.T


@pytest.mark.slow
@every_rule
@pytest.mark.parametrize("smoothness", [0.5, 1.5])
def test_divergence_is_that_of_the_whole_matrices(rule, smoothness):
    places = testing.places(150)
    model = gx.Matern(1.3, 0.1, smoothness, 0.01)
    seen = gx.Observations(places, np.zeros(150))
    found = gx.kl_divergence(model, places, mixed(rule))
    expected, _ = dense_divergence(model, places, rule, 32)
    tolerance = tolerance_of(seen, model)
    assert abs(found.kl - expected) <= tolerance * max(1.0, expected)
    assert found.kl >= -tolerance
    assert found.kl_log_determinant == 0.5 * found.log_determinant_error
    assert found.quadratic_form_error is None
    assert found.bytes == found.formats.bytes(tile_factor(model, seen, rule, 32).store.layout)


def test_divergence_of_observations_compares_their_likelihoods():
    seen, rule = testing.observations(150), gx.by_tile_norm(1e-4)
    found = gx.kl_divergence(MODEL, seen, mixed(rule), trend="constant")
    exact = gx.log_likelihood(seen, MODEL, trend="constant")
    coarse = gx.log_likelihood(seen, MODEL, mixed(rule), trend="constant")
    tolerance = tolerance_of(seen, MODEL)
    difference = coarse.log_determinant - exact.log_determinant
    assert abs(found.log_determinant_error - difference) <= tolerance
    difference = coarse.quadratic_form - exact.quadratic_form
    assert abs(found.quadratic_form_error - difference) <= tolerance * exact.quadratic_form
    assert found.reference["log_determinant"] == pytest.approx(exact.log_determinant, abs=tolerance)


@pytest.mark.parametrize("tile", [16, 50, 150])
def test_fp64_tiles_diverge_by_nothing_but_rounding(tile):
    seen = testing.observations(150)
    found = gx.kl_divergence(MODEL, seen.locations, mixed(gx.uniform("fp64"), tile))
    tolerance = tolerance_of(seen, MODEL)
    assert abs(found.kl) <= tolerance
    assert abs(found.log_determinant_error) <= tolerance
    assert found.promotions == 0


@pytest.mark.slow
@pytest.mark.parametrize("correlation", RANGES)
def test_divergence_grows_with_the_accuracy_that_is_given_up(correlation):
    places = testing.places(300)
    model = gx.Matern(1.0, RANGES[correlation], 0.5, 0.01)
    ways = [mixed(gx.by_tile_norm(accuracy)) for accuracy in (1e-6, 1e-4, 1e-2, 1.0)]
    found = [gx.kl_divergence(model, places, method).kl for method in ways]
    seen = gx.Observations(places, np.zeros(300))
    assert all(a < b for a, b in pairwise(found))
    assert found[0] >= -tolerance_of(seen, model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("correlation", "smoothness", "nugget"), by_pairs([*RANGES], [0.5, 1.5], [0.0, 0.01])
)
def test_for_divergence_meets_its_target_and_saves_tiles(correlation, smoothness, nugget):
    places = testing.places(300)
    model = gx.Matern(1.0, RANGES[correlation], smoothness, nugget)
    seen = gx.Observations(places, np.zeros(300))
    bytes_before = np.inf
    for target in (1e-6, 1e-3, 1e-1):
        found = gx.kl_divergence(model, places, mixed(gx.for_divergence(target)))
        assert found.kl <= target + tolerance_of(seen, model)
        assert found.formats.divergence <= target
        assert found.promotions == 0
        assert found.bytes <= bytes_before
        bytes_before = found.bytes
    assert not found.formats.all_fp64


@pytest.mark.slow
def test_for_divergence_works_for_any_number_of_places(monkeypatch):
    """Also where only some places are looked at, and the last tile has a single row."""
    monkeypatch.setattr("geomxp.tiles.assemble.MOST_PRECISION_LOCATIONS", 20)
    for n, tile in ((27, 1), (66, 3), (66, 5), (66, 13), (66, 65)):
        places = testing.places(n)
        found = gx.kl_divergence(MODEL, places, mixed(gx.for_divergence(1e-3), tile))
        assert np.isfinite(found.kl)
        assert found.formats.divergence <= 1e-3


@pytest.mark.parametrize("scale", [1e145, 1e-145])
def test_for_divergence_does_not_depend_on_the_unit_of_length(scale):
    places, z = testing.places(40), np.sin(np.arange(40.0))
    method = gx.Exact(gx.for_divergence(1e-3), tile=8)
    model = gx.Matern(1.0, 0.2, 0.5, 0.1)
    here = gx.log_likelihood(gx.Observations(places, z), model, method)
    far = gx.log_likelihood(
        gx.Observations(places * scale, z), model.replace(range=0.2 * scale), method
    )
    assert far.formats == here.formats
    assert far.log_likelihood == pytest.approx(here.log_likelihood, abs=1e-3)


def test_wrong_arguments_of_divergences_are_refused_in_one_short_line():
    places, model = testing.places(200), gx.Matern(1.0, 0.1, 0.5)
    for given in ((model, 3, gx.Exact()), (3, places, gx.Exact()), (model, 3, places)):
        with pytest.raises(gx.InvalidInput) as refused:
            gx.kl_divergence(*given)
        assert len(str(refused.value)) < 200
    for given in ((model, 3), (3, model)):
        with pytest.raises(gx.InvalidInput, match="must be a covariance model"):
            gx.kl_between(*given, places)
    with pytest.raises(gx.InvalidInput, match="`methods` must be a list"):
        gx.compare(model, places, 3)


def test_a_divergence_beyond_all_numbers_is_an_error():
    with pytest.raises(gx.InvalidInput, match="overflows FP64"):
        gx.kl_between(gx.Matern(1.0, 1.0, 0.5), gx.Matern(1e-320, 1.0, 0.5), testing.places(9))
    with pytest.raises(gx.InvalidInput, match="at least one location"):
        gx.kl_between(gx.Matern(1.0, 1.0, 0.5), gx.Matern(2.0, 1.0, 0.5), np.ones(0))


def clumped(n, share, width, seed):
    """Locations of which a share lies in one clump."""
    random = np.random.default_rng(seed)
    places, count = random.random((n, 2)), int(share * n)
    places[:count] = 0.5 + width * random.standard_normal((count, 2))
    return places


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "width", "nugget"),
    by_pairs([0.1, 0.5], [1e-5, 1e-4, 1e-3], [0.0, 1e-4, 1e-2]),
)
def test_for_divergence_meets_its_target_where_locations_are_clumped(share, width, nugget):
    """Coarse tiles round their partners: with those of the clump this missed by up to 1e3."""
    for seed in range(4):
        places = clumped(200, share, width, seed)
        model = gx.Matern(1.0, (0.05, 0.1, 0.2, 0.4)[seed], 0.5, nugget)
        exact = tile_factor(model, gx.Observations(places, np.zeros(200)), gx.uniform("fp64"), 32)
        for target in (1e-2, 1e-4):
            seen = gx.Observations(places, np.zeros(200))
            factor = tile_factor(model, seen, gx.for_divergence(target), 32)
            white = factor.half_solve(exact.multiply(np.eye(200, order="F")))
            logs = factor.log_determinant() - exact.log_determinant()
            assert 0.5 * (np.sum(white**2) - 200 + logs) <= target
            # most of Σ holds spread locations only, or distant pairs
            assert share > 0.1 or not factor.precision_map.all_fp64


@pytest.mark.slow
def test_a_fit_measures_the_divergence_at_its_estimate():
    places, model = np.random.default_rng(227).random((200, 2)), gx.Matern(1.0, 0.0412, 2.5, 1e-4)
    seen = gx.Observations(places, gx.simulate(model, places, seed=0)[0])
    fixed = tuple(model.parameters())
    target = 1e-2
    method = gx.Exact(gx.for_divergence(target), 32)
    measured = gx.kl_divergence(model, seen, method)
    # the predicted divergence is too small here
    assert measured.formats.divergence <= target < measured.kl
    kept = gx.Exact(gx.for_divergence(target), 32, keep_formats=True)
    with pytest.warns(gx.GeomxpWarning, match="times the target 0.01. Fit with method="):
        fit = gx.fit(seen, model, kept, fixed=fixed)
    assert f"The divergence at the estimate is {measured.kl:.2g} nats" in fit.outcome.message
    with pytest.warns(gx.GeomxpWarning, match="The fit uses those of"):
        fit = gx.fit(seen, model, method, fixed=fixed)
    assert fit.divergence.met
    finer = gx.fit(seen, model, gx.Exact(gx.for_divergence(1e-4), 32), fixed=fixed)
    assert "divergence" not in finer.outcome.message


@pytest.mark.parametrize("rule", [float, lambda norms: norms.no_such_method()])
def test_a_rule_that_fails_is_an_error_with_a_remedy(rule):
    places = np.random.default_rng(0).random((30, 2))
    seen = gx.Observations(places, places[:, 0])
    with pytest.raises(gx.InvalidInput, match=r"precision rule failed .* use a rule such as"):
        gx.log_likelihood(seen, gx.Matern(1.0, 0.1, 0.5), gx.Exact(rule, tile=10))
