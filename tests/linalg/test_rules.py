import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomxp as gx
from geomxp.linalg.formats import FORMATS, FP8, FP16, FP32, FP64
from geomxp.linalg.precision import (
    count_finer,
    describe,
    described,
    frobenius,
    in_words,
    promised_error,
    shares,
)

CANDIDATES = (FP8, FP16, FP32, FP64)
RULES = (
    gx.uniform("fp16"),
    gx.by_band("fp32"),
    gx.by_band(("fp64", 1), ("fp32", 2), "fp8"),
    gx.by_tile_norm(1e-8),
    gx.by_tile_norm(1e-3, scale=False),
    gx.by_tile_norm(1e-7, formats=("fp64", "fp32")),
    gx.layered("fp8", "fp16", "fp32"),
    gx.for_divergence(1e-3),
)


@st.composite
def norms_of_tiles(draw, least=1, most=9):
    """Norms of a triangle of tiles that fall off the diagonal, over many orders of magnitude."""
    tiles = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    decay = draw(st.floats(0.0, 3.0))
    apart = np.subtract.outer(np.arange(tiles), np.arange(tiles))
    return np.tril(rng.uniform(0.1, 1.0, (tiles, tiles)) * 10.0 ** (-decay * apart.clip(0)))


@st.composite
def statistics(draw, least=1, most=8):
    """Norms, precisions and sizes, with a ragged last tile."""
    norms = draw(norms_of_tiles(least, most))
    tiles = len(norms)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = np.full(tiles, 8)
    sizes[-1] = draw(st.integers(1, 8))
    return norms, sizes * 10.0 ** rng.uniform(0, 3, tiles), sizes


accuracies = st.floats(-20, 1).map(lambda e: 10.0**e)
targets = st.floats(-12, 2).map(lambda e: 10.0**e)


def below(formats):
    return [(i, k) for i in range(len(formats)) for k in range(i)]


def cost_of(formats):
    return sum(formats[pair].cost for pair in below(formats))


def divergence_of(formats, *case):
    """Σ of the shares of all tiles below the diagonal."""
    return sum(shares(*case, formats[pair])[pair] for pair in below(formats))


@given(norms_of_tiles())
def test_frobenius_is_the_norm_of_the_whole_symmetric_matrix(norms):
    whole = norms + np.tril(norms, -1).T
    tolerance = norms.size * 2.0**-53
    assert frobenius(norms) == pytest.approx(np.linalg.norm(whole), rel=tolerance)


@given(norms_of_tiles(), accuracies)
def test_by_tile_norm_gives_the_coarsest_format_that_the_norm_allows(norms, accuracy):
    formats, whole, tiles = gx.by_tile_norm(accuracy)(norms), frobenius(norms), len(norms)
    assert all(formats[i, i] is FP64 for i in range(tiles))
    assert formats.accuracy == accuracy
    for i, k in below(formats):

        def allowed(form, norm=norms[i, k]):
            return tiles * norm / whole < accuracy / form.unit_roundoff

        form = formats[i, k]
        assert form in CANDIDATES
        if form is not FP64:
            assert allowed(form)
        assert not any(allowed(f) for f in CANDIDATES if f.unit_roundoff > form.unit_roundoff)


@given(
    norms_of_tiles(),
    accuracies,
    st.lists(st.sampled_from(sorted(FORMATS)), min_size=1, unique=True),
)
def test_by_tile_norm_of_some_formats_gives_the_coarsest_of_them_that_is_allowed(
    norms, accuracy, names
):
    formats = gx.by_tile_norm(accuracy, formats=names)(norms)
    whole, tiles = frobenius(norms), len(norms)
    for i, k in below(formats):
        limit = accuracy * whole
        suited = [
            FORMATS[name].unit_roundoff
            for name in names
            if tiles * norms[i, k] * FORMATS[name].unit_roundoff < limit
        ]
        assert formats[i, k].name in {*names, "fp64"}
        assert formats[i, k].unit_roundoff == max(suited, default=FP64.unit_roundoff)
    every = gx.by_tile_norm(accuracy, formats=("fp8", "fp64", "fp32", "fp16"))(norms)
    assert every == gx.by_tile_norm(accuracy)(norms)


@given(norms_of_tiles(), accuracies)
def test_by_tile_norm_keeps_its_promise(norms, accuracy):
    formats = gx.by_tile_norm(accuracy)(norms)
    squares = [
        (form.unit_roundoff * norms[i, k]) ** 2 * (1 if i == k else 2)
        for i, row in enumerate(formats.rows)
        for k, form in enumerate(row)
    ]
    tolerance = 1 + norms.size * 2.0**-53
    error = np.sqrt(sum(squares)) / frobenius(norms)
    assert formats.error == pytest.approx(error, rel=tolerance - 1)
    assert formats.error == promised_error(formats, norms)
    # FP64 itself is no better than its unit roundoff
    assert formats.error <= np.hypot(accuracy, FP64.unit_roundoff) * tolerance


@given(norms_of_tiles(), accuracies, accuracies)
def test_a_smaller_accuracy_coarsens_no_tile(norms, one, other):
    fine, coarse = (gx.by_tile_norm(e)(norms) for e in sorted((one, other)))
    assert count_finer(fine, coarse) == 0


@given(norms_of_tiles(), accuracies, st.integers(-40, 40))
def test_by_tile_norm_knows_no_unit_of_the_values(norms, accuracy, power):
    rule = gx.by_tile_norm(accuracy)
    assert rule(norms).rows == rule(norms * 2.0**power).rows


def test_by_tile_norm_at_its_ends_is_all_fp64_and_all_fp8():
    norms = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, (5, 5)))
    assert gx.by_tile_norm(1e-17)(norms).all_fp64
    assert gx.by_tile_norm(1.0)(norms).counts() == {"fp64": 5, "fp8": 10}


def test_tiles_of_zeros_are_fp8_and_a_matrix_of_zeros_promises_no_error():
    norms = np.diag([1.0, 1.0, 1.0])
    assert gx.by_tile_norm(1e-8)(norms).counts() == {"fp64": 3, "fp8": 3}
    assert gx.by_tile_norm(1e-8)(0 * norms).error == 0.0


def test_scale_is_asked_for_in_the_map():
    norms = np.ones((2, 2))
    assert gx.by_tile_norm(1e-8)(norms).scale
    assert not gx.by_tile_norm(1e-8, scale=False)(norms).scale
    assert not gx.by_tile_norm(1e-8, scale=False).finer()(norms).scale


@pytest.mark.parametrize("form", FORMATS.values(), ids=str)
def test_uniform_gives_one_format_and_a_diagonal_that_can_be_factored(form):
    formats = gx.uniform(form.name)(np.ones((4, 4)))
    assert {formats[pair] for pair in below(formats)} == {form}
    diagonal = FP64 if form is FP64 else FP32
    assert {formats[i, i] for i in range(4)} == {diagonal}
    assert gx.uniform(form) == gx.uniform(form.name)


def test_by_band_is_a_function_of_the_distance_from_the_diagonal():
    formats = gx.by_band(("fp32", 2), ("bf16", 1), "fp8")(np.ones((7, 7)))
    names = ["fp64", "fp32", "fp32", "bf16", "fp8", "fp8", "fp8"]
    for i, row in enumerate(formats.rows):
        assert [form.name for form in row] == names[i::-1]


@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize(
    "names", [("fp16",), ("fp8", "fp32"), ("fp8", "fp16", "fp32"), ("fp8", "fp8", "bf16", "fp32")]
)
def test_layers_are_nested_halves(tiles, names):
    """The largest off-diagonal block has the first format, and each half is layered by the rest."""

    def of(names, tiles):
        return gx.layered(*names)(np.ones((tiles, tiles)))

    formats, middle = of(names, tiles), (tiles + 1) // 2
    assert all(formats[i, i] is FP64 for i in range(tiles))
    for i in range(middle, tiles):
        assert {formats[i, k].name for k in range(middle)} == {names[0]}
    rest = names[1:] or names
    assert formats.rows[:middle] == of(rest, middle).rows
    if tiles > middle:
        second = tuple(row[middle:] for row in formats.rows[middle:])
        assert second == of(rest, tiles - middle).rows


def test_one_layer_is_one_band():
    norms = np.ones((6, 6))
    assert gx.layered("fp16")(norms) == gx.by_band("fp16")(norms)


@given(norms_of_tiles(least=2), st.sampled_from(RULES[:-1]))
def test_what_a_map_promises_is_the_error_of_its_formats(norms, rule):
    formats = rule(norms)
    assert formats.error == promised_error(formats, norms)
    assert len(formats) == len(norms)


@pytest.mark.slow
@given(statistics(), targets)
def test_predicted_divergence_is_the_sum_of_the_shares_and_meets_the_target(case, target):
    formats = gx.for_divergence(target)(*case)
    tolerance = case[0].size * 2.0**-53
    assert formats.divergence == pytest.approx(divergence_of(formats, *case), rel=tolerance)
    # FP64 is the best that there is
    whole = gx.uniform("fp64")(case[0])
    assert formats.divergence <= max(target, divergence_of(whole, *case) * (1 + tolerance))
    assert formats.error == promised_error(formats, case[0])


@pytest.mark.slow
@given(statistics(), targets, targets)
def test_a_smaller_target_is_never_cheaper_and_coarsens_no_tile(case, one, other):
    fine, coarse = (gx.for_divergence(target)(*case) for target in sorted((one, other)))
    assert cost_of(fine) >= cost_of(coarse)
    assert count_finer(fine, coarse) == 0
    assert fine.divergence <= coarse.divergence


def test_at_its_ends_for_divergence_is_all_fp64_and_all_fp8():
    rng = np.random.default_rng(0)
    case = np.tril(rng.uniform(0.1, 1.0, (5, 5))), 8.0 * rng.uniform(1, 100, 5), np.full(5, 8)
    assert gx.for_divergence(1e-40)(*case).all_fp64
    assert gx.for_divergence(1e40)(*case).counts() == {"fp64": 5, "fp8": 10}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("target", [1e-2, 1e-4, 1e-6, 1e-8])
def test_no_map_that_meets_the_target_costs_half_as_much(seed, target):
    """Against all maps of four block rows."""
    rng = np.random.default_rng(seed)
    apart = np.subtract.outer(np.arange(4), np.arange(4)).clip(0)
    norms = np.tril(rng.uniform(1.0, 8.0, (4, 4)) * 10.0 ** -(1.5 * apart))
    sizes = np.full(4, 8)
    case = norms, sizes * 10.0 ** rng.uniform(0, 2, 4), sizes
    choices = np.array(list(product(range(4), repeat=6)))
    places = np.tril_indices(4, -1)
    share = np.array([shares(*case, form) for form in CANDIDATES])
    divergence = share[choices, places[0], places[1]].sum(axis=1)
    costs = np.array([form.cost for form in CANDIDATES])[choices].sum(axis=1)
    formats = gx.for_divergence(target)(*case)
    assert cost_of(formats) <= 2 * costs[divergence <= target].min()


def test_a_share_that_no_target_would_miss_is_paid_in_the_fewest_bytes():
    """One tile needs FP32; the other's share in FP8 is a million millionth of the target."""
    norms = np.array([[8.0, 0, 0], [4.0, 8.0, 0], [1e-9, 1e-9, 8.0]])
    case = norms, np.full(3, 8.0), np.full(3, 8)
    target = 1e-9
    assert shares(*case, FP16)[1, 0] > target > 1e11 * shares(*case, FP8)[2, 0]
    formats = gx.for_divergence(target)(*case)
    assert formats[1, 0] is FP32
    assert formats[2, 0] is formats[2, 1] is FP8


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_rule_that_failed_has_a_finer_one(rule):
    rng = np.random.default_rng(1)
    apart = np.subtract.outer(np.arange(6), np.arange(6)).clip(0)
    norms = np.tril(rng.uniform(0.1, 1.0, (6, 6)) * 10.0**-apart)
    about = (8.0 * rng.uniform(1, 100, 6), np.full(6, 8)) if "kl" in vars(rule) else ()
    first, second = rule(norms, *about), rule.finer()(norms, *about)
    assert count_finer(second, first) == 0
    assert count_finer(first, second) > 0


def test_by_tile_norm_is_finer_by_ten():
    assert gx.by_tile_norm(1e-4).finer().accuracy == pytest.approx(1e-5, rel=2.0**-52)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_go_through_json_and_back(rule):
    assert described(json.loads(json.dumps(describe(rule)))) == rule


def test_a_function_of_the_callers_own_has_no_description():
    assert describe(lambda norms: None) is None


@pytest.mark.parametrize(
    "document",
    [None, {}, {"rule": "by_tile_norm"}, {"rule": "none", "arguments": []}, {"rule": "uniform"}],
)
def test_what_describes_no_rule_is_refused(document):
    with pytest.raises(gx.InvalidInput, match="the precision rule must be one of"):
        described(document)


@pytest.mark.parametrize("accuracy", [0, -1e-8, np.nan, np.inf, None, "much", 10**400])
def test_accuracies_that_are_none_are_refused(accuracy):
    with pytest.raises(gx.InvalidInput, match=r"`accuracy` must be a positive number.*Got"):
        gx.by_tile_norm(accuracy)


def test_a_choice_of_scales_that_is_none_is_refused():
    with pytest.raises(gx.InvalidInput, match="`scale` must be True or False"):
        gx.by_tile_norm(1e-8, np.ones(0))


@pytest.mark.parametrize("kl", [0, -1e-3, np.nan, np.inf, None, "much", 10**400])
def test_targets_that_are_none_are_refused(kl):
    with pytest.raises(gx.InvalidInput, match=r"`kl` must be a positive number of nats.*Got"):
        gx.for_divergence(kl)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gx.by_band(), "needs at least one format"),
        (lambda: gx.by_band("fp32", "fp16"), r"needs \(format, subdiagonals\) pairs.*Got 'fp32'"),
        (lambda: gx.by_band(("fp32", 0), "fp16"), r"pairs and a last format. Got \('fp32', 0\)"),
        (lambda: gx.by_band(("fp32", 1.5), "fp16"), r"Got \('fp32', 1.5\)"),
        (lambda: gx.by_band(("fp13", 1), "fp16"), "must be one of: fp64"),
        (lambda: gx.by_band(("fp32", 1)), "must be one of: fp64"),
        (lambda: gx.by_tile_norm(1e-6, formats=[]), "must name at least one format"),
        (lambda: gx.by_tile_norm(1e-6, formats="fp32"), "must be a list of formats.*Got 'fp32'"),
        (lambda: gx.by_tile_norm(1e-6, formats=32), "must be a list of formats.*Got 32"),
        (lambda: gx.by_tile_norm(1e-6, formats=["fp13"]), "must be one of: fp64"),
        (lambda: gx.layered(), "needs at least one format"),
        (lambda: gx.layered("fp13"), "must be one of: fp64"),
        (lambda: gx.uniform("fp13"), "must be one of: fp64"),
    ],
)
def test_rules_of_formats_that_are_none_are_refused(make, message):
    with pytest.raises(gx.InvalidInput, match=message):
        make()


@pytest.mark.parametrize("rule", [*RULES, gx.for_divergence(1e-3, low_rank=True)], ids=repr)
def test_the_text_of_a_rule_makes_it_again(rule):
    assert eval(in_words(rule), {"gx": gx}) == rule


def test_a_rule_is_tightened_to_one_that_text_makes_again():
    for rule in (gx.by_tile_norm(1e-5), gx.for_divergence(1e-3)):
        finer = rule.tightened(7.0)
        assert eval(in_words(finer), {"gx": gx}) == finer
        assert (finer.accuracy or finer.kl) < (rule.accuracy or rule.kl)
    # from the error that formats promise, where it is smaller than ε
    assert gx.by_tile_norm(1e-5).tightened(4.0, 6e-8) == gx.by_tile_norm(3e-8)
    assert gx.by_tile_norm(1e-5).tightened(4.0, 1e-3) == gx.by_tile_norm(5e-6)
