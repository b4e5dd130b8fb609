import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.generate import Generator

MODELS = {
    "plane": (gx.Matern(1.7, 0.2, 0.8, 0.1), "euclidean"),
    "without nugget": (gx.Matern(1.7, 0.2, 0.8), "euclidean"),
    "anisotropic": (gx.Matern(1.7, 0.2, 0.8, 0.1, gx.Anisotropy(30.0, 0.6)), "euclidean"),
    "smoother than any table": (gx.Matern(1.7, 0.01, 60.0, 0.1), "euclidean"),
    "arcs": (gx.Matern(1.7, 900.0, 0.4, 0.1), "great-circle"),
}


def evaluator_of(kind, reml, how=None, n=60):
    model, metric = MODELS[kind]
    plain = testing.observations(n)
    extent = 1.0 if metric == "euclidean" else 30.0
    seen = gx.Observations(extent * plain.locations, plain.values, metric=metric)
    design = np.column_stack((np.ones(n), seen.locations[:, 0]))
    return model, (how or gx.Exact()).prepare(seen, design, reml)


def definitions(model, evaluator):
    """P or Σ⁻¹, P, α and the derivatives of Σ, dense."""
    seen, x = evaluator.observations, evaluator.design
    whole, names = slice(0, len(seen)), tuple(model.parameters())
    generator = Generator(model, seen.metric, seen.locations)
    smooth = [name for name in names if name != "nugget"]
    changes = generator.derivatives(whole, whole, smooth) | {"nugget": np.eye(len(seen))}
    sigma = model(seen.locations, seen.locations, seen.metric) + model.nugget * np.eye(len(seen))
    inverse = np.linalg.inv(sigma)
    p = inverse - inverse @ x @ np.linalg.solve(x.T @ inverse @ x, x.T @ inverse)
    changes = [changes[name] for name in names]
    return (p if evaluator.reml else inverse), p, p @ seen.values, changes


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_score_and_information_are_their_definitions(kind, reml):
    model, evaluator = evaluator_of(kind, reml)
    q, p, alpha, changes = definitions(model, evaluator)
    names = tuple(model.parameters())
    found = evaluator.derivatives(model, names, curvature=True)
    score = [0.5 * (alpha @ d @ alpha - np.trace(q @ d)) for d in changes]
    average = [[0.5 * alpha @ d @ p @ e @ alpha for e in changes] for d in changes]
    expected = [[0.5 * np.sum((q @ d) * (q @ e).T) for e in changes] for d in changes]
    # inverse, products and sums of 60 places, and the condition number below 1e5
    scale = np.sqrt(np.diag(expected))
    sizes = np.outer(scale, scale)
    np.testing.assert_allclose(list(found.gradient().values()) / scale, score / scale, atol=1e-8)
    np.testing.assert_allclose(found.average / sizes, average / sizes, atol=1e-8)
    np.testing.assert_allclose(found.expected / sizes, expected / sizes, atol=1e-8)


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_observed_information_is_minus_the_slope_of_the_score(kind, reml):
    model, evaluator = evaluator_of(kind, reml)
    names, values = tuple(model.parameters()), model.parameters()
    found = evaluator.observed_information(model)
    rows = []
    for name in names:
        if values[name] == 0:
            rows.append(np.full(len(names), np.nan))
            continue
        step = 1e-4 * values[name]
        moved = [
            gx.Matern.from_parameters(values | {name: values[name] + k * step})
            for k in (1, -1, 2, -2)
        ]
        up, down, above, below = (
            np.array(list(evaluator.gradient(m, names).values())) for m in moved
        )
        rows.append(-(8 * (up - down) - (above - below)) / (12 * step))
    scale = np.sqrt(np.abs(np.diag(evaluator.expected_information(model))))
    ours, theirs = found / np.outer(scale, scale), np.array(rows) / np.outer(scale, scale)
    known = np.isfinite(theirs)
    # second derivatives of Σ are by differences too: their step squared
    np.testing.assert_allclose(ours[known], theirs[known], atol=3e-6)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("reml", [False, True])
def test_tiles_give_the_derivatives_of_the_whole(reml):
    names = tuple(MODELS["plane"][0].parameters())
    model, whole = evaluator_of("plane", reml)
    _, tiled = evaluator_of("plane", reml, gx.Exact(tile=16))
    ours = tiled.derivatives(model, names, curvature=True)
    theirs = whole.derivatives(model, names, curvature=True)
    scale = np.sqrt(np.diag(theirs.expected))
    sizes = np.outer(scale, scale)
    for field, size in {
        **{"quadratic": scale, "trace": scale},
        **{"average": sizes, "expected": sizes, "observed": sizes},
    }.items():
        # in units of the information: what is left of large terms may be small
        ours_, theirs_ = getattr(ours, field) / size, getattr(theirs, field) / size
        np.testing.assert_allclose(ours_, theirs_, rtol=1e-9, atol=1e-8)


def test_derivatives_and_evaluation_of_the_last_model_are_kept():
    model, evaluator = evaluator_of("plane", False)
    direct = evaluator(model)
    assert not evaluator.keeps(model)
    found = evaluator.derivatives(model, ("range", "nugget"))
    assert evaluator.keeps(model)
    assert evaluator.derivatives(model, ("nugget",)) is found
    assert evaluator(model).log_likelihood == direct.log_likelihood
    other = gx.Matern(1.7, 0.21, 0.8, 0.1)
    assert evaluator(other).log_likelihood != direct.log_likelihood


def test_information_in_one_parameter_is_a_part_of_the_whole():
    model, evaluator = evaluator_of("plane", False)
    whole = evaluator.expected_information(model)
    lone = evaluator_of("plane", False)[1].expected_information(model, ("range",))
    assert lone[0, 0] == pytest.approx(whole[1, 1], rel=1e-12)


def test_the_observed_information_of_isotropy_is_the_limit_of_anisotropy():
    _, evaluator = evaluator_of("plane", False)
    near, there = (
        evaluator.observed_information(gx.Matern(1.7, 0.2, 0.8, 0.1, (30.0, ratio)))
        for ratio in (1 - 2e-4, 1.0)
    )
    # extrapolated from two ratios on this side of 1: their distance squared
    far = evaluator.observed_information(gx.Matern(1.7, 0.2, 0.8, 0.1, (30.0, 1 - 4e-4)))
    scale = np.sqrt(np.abs(np.diag(near)))
    scale[4] = scale[5] / 100  # the angle means nothing at 1, where its information is 0
    sizes = np.outer(scale, scale)
    np.testing.assert_allclose(there / sizes, (2 * near - far) / sizes, atol=1e-5)
