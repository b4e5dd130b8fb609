"""Fits in mixed formats: these are kept, the score is in FP32, and their divergence is measured."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance import sums
from geomxp.likelihood import exact
from geomxp.likelihood.factors import dense_factor, tile_factor, tree_factor
from geomxp.likelihood.probes import (
    ENOUGH_DIVERGENCE,
    FormatDivergence,
    divergence_between,
    measure,
)
from geomxp.linalg import recursive
from geomxp.runtime.devices import Device

CPU = Device("cpu")

RULES = {
    "by norm": gx.by_tile_norm(1e-3),
    "divergence": gx.for_divergence(1e-2),
    "bands": gx.by_band(("fp32", 2), "fp16"),
    "uniform": gx.uniform("fp32"),
    "low rank": gx.for_divergence(1e-3, low_rank=True),
}


def simulated(model, n=400, seed=0):
    places = np.random.default_rng(seed).random((n, 2))
    return gx.Observations(places, gx.simulate(model, places, seed=seed)[0])


def method_of(rule, tile=64, **options):
    return gx.Exact(rule, tile, **options)


WAYS = {name: method_of(rule) for name, rule in RULES.items()}
WAYS["layers"] = gx.Exact(gx.layered("fp16", "fp32"), tile="whole")
WAYS["blocks"] = gx.Exact(gx.by_tile_norm(1e-2), tile="whole")


@pytest.mark.parametrize("way", WAYS)
def test_random_vectors_measure_the_divergence(way):
    model, method = gx.Matern(1.0, 0.08, 0.5, 0.01), WAYS[way]
    seen = simulated(model)
    if method.layers:
        factor = tree_factor(model, seen, method.precision, CPU)
    else:
        factor = tile_factor(model, seen, method.precision, method.tile)
    true = divergence_between(dense_factor(model, seen, CPU), factor)
    found = measure(factor, 64)
    # to second order in the errors
    assert abs(found.kl - true) <= 4 * found.standard_error + 0.1 * true


@pytest.mark.parametrize("way", WAYS)
def test_the_result_of_a_fit_has_the_divergence(way):
    model, method = gx.Matern(1.0, 0.08, 0.5, 0.01), WAYS[way]
    seen = simulated(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        fit = gx.fit(seen, model, method, fixed=tuple(model.parameters()), trend="zero")
    known = gx.kl_divergence(model, seen, method).kl
    found = fit.divergence
    assert (found.how, found.standard_error, found.probes) == ("exact", 0.0, 0)
    assert found.kl == pytest.approx(known, rel=0.01, abs=1e-12)
    assert found.target == method.precision.kl
    assert found.shift == pytest.approx(np.sqrt(2 * found.kl))
    assert str(found) in str(fit)
    assert fit.to_dict()["divergence"]["kl"] == found.kl
    assert gx.fit(seen, model, gx.Exact(), fixed=tuple(model.parameters())).divergence is None


def test_with_more_locations_it_comes_from_random_vectors(monkeypatch):
    monkeypatch.setattr(exact, "EXACT_DIVERGENCE_LOCATIONS", 100)
    model, method = gx.Matern(1.0, 0.08, 0.5, 0.01), method_of(gx.by_tile_norm(1e-5))
    fit = gx.fit(simulated(model), method=method, fixed={"smoothness": 0.5})
    known = gx.kl_divergence(fit.model, fit.observations, method).kl
    assert fit.divergence.probes == 16
    assert fit.divergence.kl == pytest.approx(known, abs=4 * fit.divergence.standard_error)


@pytest.mark.parametrize(
    "found",
    [
        FormatDivergence(2e-4, 1e-5, 16, target=1e-3),
        FormatDivergence(2e-3, target=1e-3),
        FormatDivergence(1e-7),
        FormatDivergence(float("nan"), reason="the memory is too small."),
    ],
    ids=["random", "missed", "exact", "unknown"],
)
def test_a_divergence_is_kept_in_the_file_of_a_fit(found, tmp_path):
    model = gx.Matern(1.0, 0.08, 0.5, 0.01)
    fit = gx.fit(simulated(model, 40), model, fixed=tuple(model.parameters()))
    object.__setattr__(fit, "divergence", found)
    fit.save(tmp_path / "fit.json")
    json.loads((tmp_path / "fit.json").read_text(), parse_constant=pytest.fail)
    again = gx.Fit.load(tmp_path / "fit.json").divergence
    assert str(again) == str(found)
    assert again.to_dict() == found.to_dict()


def test_a_target_is_met_up_to_two_standard_errors():
    assert FormatDivergence(1.1e-3, 1e-4, 16, target=1e-3).met
    assert FormatDivergence(1.3e-3, 1e-4, 16, target=1e-3).met is False
    assert FormatDivergence(1e-3).met is None
    assert FormatDivergence(float("nan"), target=1.0).met is None


@pytest.mark.parametrize("names", [("range",), ("variance", "range", "smoothness", "nugget")])
def test_errors_of_a_matrix_shift_no_estimate_by_more_than_the_bound_on_average(names):
    """The mean score at the truth is ½ tr(Σₐ⁻¹∂Σ Σₐ⁻¹(Σ - Σₐ)), and F⁻¹ times it the shift."""
    model, random = gx.Matern(1.0, 0.15, 0.8, 0.05), np.random.default_rng(0)
    places = gx.Inputs(random.random((80, 2)))
    sigma = model.matrix(places, places) + np.diag(model.noise(places).variances)
    slopes = []
    for name in names:
        step = 1e-5 * model.parameters()[name]
        ends = [model.replace(**{name: model.parameters()[name] + s}) for s in (step, -step)]
        there, back = (m.matrix(places, places) + m.nugget * np.eye(80) for m in ends)
        slopes.append((there - back) / (2 * step))
    largest = 0.0
    for k in range(40):
        error = random.standard_normal((80, 80))
        # errors along a derivative shift its parameter the most
        error = slopes[k % len(names)] if k < len(names) else error + error.T
        rough = sigma + 1e-5 * error / np.abs(error).max()
        inverse = np.linalg.inv(rough)
        whitened = [inverse @ slope for slope in slopes]
        fisher = 0.5 * np.array([[np.trace(a @ b) for b in whitened] for a in whitened])
        mean = 0.5 * np.array([np.trace(a @ inverse @ (sigma - rough)) for a in whitened])
        divergence = 0.5 * (
            np.trace(inverse @ sigma)
            - 80
            + np.linalg.slogdet(rough)[1]
            - np.linalg.slogdet(sigma)[1]
        )
        shift = np.linalg.solve(fisher, mean) / np.sqrt(np.diag(np.linalg.inv(fisher)))
        bound = FormatDivergence(divergence).shift
        assert np.abs(shift).max() <= bound * 1.01
        largest = max(largest, np.abs(shift).max() / bound)
    # errors along the derivative by the only parameter reach it
    assert largest > (0.9 if len(names) == 1 else 0.5)


# scores from an inverse in FP32

ILL_CONDITIONED = [
    (smoothness, length, nugget)
    for smoothness in (0.5, 1.5, 2.5)
    for length in (0.1, 0.3)
    for nugget in (1e-3, 1e-4, 1e-5, 1e-6)
]
NAMES = ("variance", "range", "smoothness", "nugget")


@pytest.mark.slow
def test_the_error_of_a_score_in_fp32_is_estimated_for_each_parameter(monkeypatch):
    """Among these matrices are some whose inverse in FP32 is useless."""
    largest, small = [], 0
    for k, (smoothness, length, nugget) in enumerate(ILL_CONDITIONED):
        model, n = gx.Matern(1.0, length, smoothness, nugget), 400
        seen = simulated(model, n, k)
        design = np.column_stack((np.ones(n), seen.locations)) if k % 2 else None
        # far tiles in FP32, so that the factor itself is nearly FP64's
        method = method_of(gx.by_band(("fp64", 5), "fp32"), keep_formats=True)
        evaluator = method.prepare(seen, design, reml=bool(k % 2))
        evaluator.freeze(model)
        monkeypatch.setattr(exact, "LARGEST_SCORE_ERROR", np.inf)
        monkeypatch.setattr(exact, "LARGEST_FP32_EXPONENT", 16)
        rough = evaluator.derivatives(model, NAMES)
        monkeypatch.setattr(exact, "LARGEST_FP32_EXPONENT", -1)
        fine = method.prepare(seen, design, reml=bool(k % 2)).derivatives(model, NAMES)
        assert fine.error is None
        errors = np.sqrt(np.diag(fine.information))
        for c in (1.0, 1.7):
            # at the best variance too
            wrong = np.abs(rough.score_of(c) - fine.score_of(c)) / errors
            assert wrong.max() <= 5 * rough.error.max() + 1e-5
        largest.append(rough.error.max())
        small += rough.error.max() < 1e-3
    assert small > 10
    assert max(largest) > 0.01


@pytest.mark.slow
def test_a_score_that_fp32_would_spoil_is_computed_in_fp64(monkeypatch):
    monkeypatch.setattr(exact, "LARGEST_SCORE_ERROR", 1e-3)
    model = gx.Matern(1.0, 0.3, 2.5, 1e-6)
    seen = simulated(model, 400, 23)
    method = method_of(gx.by_band(("fp64", 5), "fp32"), keep_formats=True)
    found = method.prepare(seen).derivatives(model, NAMES)
    assert found.error is None
    known = gx.Exact().prepare(seen).derivatives(model, NAMES)
    errors = np.sqrt(np.diag(known.information))
    assert (np.abs(found.score - known.score) / errors).max() < 0.2
    plain = method.prepare(seen).derivatives(model.replace(smoothness=0.5, nugget=0.01), NAMES)
    assert plain.error.max() < 1e-4


# fits

FITTED = {
    "by norm": gx.Exact(gx.by_tile_norm(1e-5), 64),
    "divergence": gx.Exact(gx.for_divergence(1e-4), 64),
    "layers": gx.Exact(gx.layered("fp32", "fp64"), tile="whole"),
    "blocks by norm": gx.Exact(gx.by_tile_norm(1e-5), "whole"),
    "blocks for a divergence": gx.Exact(gx.for_divergence(1e-4), "whole"),
    "uniform": gx.Exact(gx.uniform("fp32"), 64),
    "refined": gx.Exact(gx.by_tile_norm(1e-5), 64, refine="cg"),
}


@pytest.fixture(scope="module")
def fitted():
    seen = simulated(gx.Matern(1.0, 0.1, 0.8, 0.02), 500, 3)
    options = {
        "held": {"fixed": {"smoothness": 0.8}},
        "free": {"trend": "linear", "reml": True},
    }
    return seen, {name: (one, gx.fit(seen, **one)) for name, one in options.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["held", "free"])
@pytest.mark.parametrize("way", FITTED)
def test_a_fit_in_mixed_formats_is_that_in_fp64(fitted, way, kind):
    seen, known = fitted
    options, plain = known[kind]
    fit = gx.fit(seen, method=FITTED[way], **options)
    assert fit.outcome.ending == plain.outcome.ending == "CONVERGED"
    for name in plain.free:
        error = plain.standard_errors[name]
        assert abs(fit.model.parameters()[name] - plain.model.parameters()[name]) < 0.01 * error
        assert fit.standard_errors[name] == pytest.approx(error, rel=0.01)
    # a drop of ℓ by chance costs three
    assert fit.evaluations <= plain.evaluations + 3
    assert fit.divergence.kl < 1e-4


@pytest.mark.slow
def test_a_fit_chooses_its_formats_once(monkeypatch):
    chosen, plain = [], exact.ExactEvaluator._choose_formats

    def choose(self, model):
        if len(self.observations) == 500:
            chosen.append(model)
        return plain(self, model)

    monkeypatch.setattr(exact.ExactEvaluator, "_choose_formats", choose)
    seen = simulated(gx.Matern(1.0, 0.1, 0.8, 0.02), 500, 3)
    method, near = gx.Exact(gx.by_tile_norm(1e-5), 64), gx.Matern(0.9, 0.1, 0.8, 0.02)
    fit = gx.fit(seen, near, method, fixed=("smoothness",))
    assert len(chosen) == 1
    assert fit.outcome.ending == "CONVERGED"


@pytest.mark.parametrize("model", [gx.Matern(1.0, 0.3, 0.8, 0.02), gx.Matern(1.0, 0.1, 1.5, 1e-3)])
def test_a_search_that_ends_far_away_is_repeated_with_other_formats(model):
    far = gx.Matern(0.3, 0.01, 0.5, 0.5)
    method = gx.Exact(gx.by_tile_norm(1e-4), 64, keep_formats=True)
    evaluator = method.prepare(simulated(far, 500, 3))
    evaluator.freeze(far)
    coarse = evaluator.factorize(far).precision_map
    assert not evaluator.would_move(far)
    assert not evaluator.would_move(far.replace(range=0.0101))
    assert evaluator.would_move(model)
    evaluator.freeze(model)
    assert not evaluator.would_move(model)
    fine = evaluator.factorize(model).precision_map
    assert fine.bytes(evaluator.placement.layout(500, 64)) > coarse.bytes(
        evaluator.placement.layout(500, 64)
    )


@pytest.mark.slow
def test_formats_that_are_not_fine_enough_are_replaced_and_the_fit_says_so():
    model = gx.Matern(1.0, 0.25, 1.5, 1e-4)
    seen = simulated(model, 500, 1)
    plain = gx.fit(seen, fixed={"smoothness": 1.5})
    rough = gx.Exact(gx.by_tile_norm(1e-4), 64)
    with pytest.warns(gx.GeomxpWarning, match=r"The formats of gx.by_tile_norm\(0.0001\) are not"):
        fit = gx.fit(seen, method=rough, fixed={"smoothness": 1.5})
    assert "The fit uses those of" in fit.outcome.message
    assert fit.divergence.kl <= ENOUGH_DIVERGENCE
    for name in plain.free:
        apart = abs(fit.model.parameters()[name] - plain.model.parameters()[name])
        assert apart < 0.01 * plain.standard_errors[name]
    kept = gx.fit(
        seen,
        method=gx.Exact(gx.by_tile_norm(1e-4), 64, keep_formats=True),
        fixed={"smoothness": 1.5},
        raise_on_failure=False,
    )
    assert kept.divergence.kl > 10 * ENOUGH_DIVERGENCE
    assert "The fit uses" not in kept.outcome.message
    assert "The mean shift of estimates by the formats" in kept.outcome.message
    assert kept.to_dict()["method"]["keep_formats"] is True


def test_a_flag_that_is_none_is_refused():
    with pytest.raises(gx.InvalidInput, match="`keep_formats` must be True or False"):
        gx.Exact(keep_formats="yes")


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("stay", [True, False])
@pytest.mark.parametrize("way", ["tiles", "layers", "blocks"])
def test_scores_in_fp32_on_a_gpu_are_those_of_the_cpu(monkeypatch, way, stay):
    monkeypatch.setattr(recursive, "GPU_LEAF_ORDER", 64)
    monkeypatch.setattr(sums, "BLOCK_ORDER", 64)
    if not stay:
        monkeypatch.setattr(exact.ExactEvaluator, "_whitened_stay", lambda *_: False)
    model, n = gx.Matern(0.8, 0.1, 0.8, 0.05), 200
    seen = simulated(model, n, 5)
    design, found = np.column_stack((np.ones(n), seen.locations)), []
    method = {
        "tiles": gx.Exact(gx.by_band("fp32"), 50),
        "layers": gx.Exact(gx.uniform("fp32"), tile="whole"),
        "blocks": gx.Exact(gx.by_band("fp32"), tile="whole"),
    }[way]
    for on in ("cpu", "gpu"):
        evaluator = replace(method, on=on).prepare(seen, design, reml=True)
        found.append(evaluator.derivatives(model, NAMES, curvature=True))
    ours, theirs = found
    errors = np.sqrt(np.diag(ours.expected))
    assert max(ours.error.max(), theirs.error.max()) < 1e-4
    assert (np.abs(ours.score - theirs.score) / errors).max() < 1e-4
    for name in ("information", "expected", "observed"):
        a, b = (getattr(one, name) / np.outer(errors, errors) for one in found)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)
    # half of the memory of FP64
    index = evaluator._assembled_on(4)
    assert index == 0
    ((matrices, _), *_) = evaluator._matrices(4)
    assert matrices <= 3.0


def test_the_error_of_a_score_is_kept_beside_parameters_of_a_transformation(monkeypatch):
    model = gx.Matern(1.0, 0.1, 0.8, 0.05, transform=gx.BoxCox(0.5))
    places = np.random.default_rng(2).random((200, 2))
    values = np.exp(np.random.default_rng(3).standard_normal(200))
    seen = gx.Observations(places, values)
    method = method_of(gx.by_tile_norm(1e-5))
    names = ("variance", "boxcox_power", "range")
    found = method.prepare(seen).derivatives(model, names)
    assert found.error.shape == (3,)
    assert found.error[1] == 0.0
    assert (found.error[[0, 2]] > 0).all()
    # and it is obeyed
    monkeypatch.setattr(exact, "LARGEST_SCORE_ERROR", 0.0)
    assert method.prepare(seen).derivatives(model, names).error is None
