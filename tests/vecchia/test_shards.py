"""Shards of Vecchia's blocks give the bits of the whole."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geomxp as gx
from geomxp.vecchia import shards
from geomxp.vecchia.blocks import SLICE_LOCATIONS, LocalPasses, wanted_for
from geomxp.vecchia.factor import Graph

N = 3 * SLICE_LOCATIONS + 137
PLAIN = gx.Matern(1.0, 0.1, 0.8, 0.05)
TURNED = gx.Matern(1.0, 0.1, 1.3, 0.05, anisotropy=gx.Anisotropy(0.4, 0.3))
FAR = gx.Matern(1.0, 500.0, 0.5, 0.05)
SEVERAL = gx.Coregionalization((1.0, 0.5, 0.8), (0.1, 0.2), (0.8, 1.3), (0.05, 0.1))
MOVING = gx.Gneiting(1.0, 0.1, 2.0, 0.8, 0.5, 0.5, 0.5, 0.05)


def cut(passes, inputs, columns, ranges, count):
    """Return the shards of the passes' tree, and their data."""
    tree, parts = passes.tree, []
    ordered = inputs[tree.order]
    for first, last in ranges:
        shard = shards.find(tree, first, last, count)
        rows = np.concatenate((np.arange(first, last), shard.halo))
        parts.append((shard, shards.Data(ordered[rows], columns[:, rows], inputs.box)))
    return parts


def places(metric, n=N):
    random = np.random.default_rng(0)
    if metric == "euclidean":
        return random.random((n, 2))
    return np.column_stack((random.uniform(-5, 25, n), random.uniform(40, 60, n)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "metric"),
    [
        *((PLAIN, "euclidean"), (TURNED, "euclidean"), (MOVING, "euclidean")),
        *((SEVERAL, "euclidean"), (SEVERAL, "chordal")),
        *((FAR, "great-circle"), (FAR, "chordal")),
    ],
)
@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("errors", [False, True])
def test_shards_have_the_bits_of_the_whole(model, metric, parts, errors):
    errors = np.random.default_rng(2).random(N) if errors else None
    random = np.random.default_rng(3)
    time = random.random(N) * 9 if "time" in model.uses else None
    variable = random.integers(0, 2, N) if "variable" in model.uses else None
    inputs = gx.Inputs(places(metric), metric, time, variable, error_variance=errors)
    points = model.neighbour_points(inputs, model.neighbour_key(inputs)) if model.uses else None
    passes = LocalPasses(inputs, "maximin", 12, points)
    columns = np.random.default_rng(1).standard_normal((2, N))
    passes.know(columns)
    ranges = shards.ranges(N, parts)
    assert len(ranges) == parts
    cuts = cut(passes, inputs, columns, ranges, 12)
    wanted = ~wanted_for(model, (), model.noise(inputs))
    sums = np.concatenate([shards.reduce(*part, model, wanted)[0] for part in cuts])
    whole, failed = passes.reduce(model, wanted)
    assert failed is None
    np.testing.assert_array_equal(sums.sum(axis=0), whole)
    weights, variances = zip(*(shards.weights(*part, model) for part in cuts), strict=True)
    for part, all_of_it in zip((weights, variances), passes.weights(model), strict=True):
        np.testing.assert_array_equal(np.concatenate(part), all_of_it)
    near = np.concatenate([shards.neighbours(*part) for part in cuts])
    np.testing.assert_array_equal(near, passes.graph.neighbours)


def test_a_shard_has_only_the_places_of_its_halo_besides_its_own():
    graph = Graph.of(places("euclidean"), "maximin", 12)
    for first, last in shards.ranges(N, 4):
        shard = shards.find(graph.tree, first, last, 12)
        near = graph.neighbours[first:last]
        outside = near[(near >= 0) & ((near < first) | (near >= last))]
        assert set(shard.halo) == set(outside)
        # near each other in space: most of what they read is their own
        assert len(shard.halo) < last - first


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 60), count=st.integers(0, 10), seed=st.integers(0, 99))
def test_few_places_are_one_shard_without_a_halo(n, count, seed):
    x = np.random.default_rng(seed).random((n, 2))
    graph = Graph.of(x, "morton", count)
    ((first, last),) = shards.ranges(n, 8)
    shard = shards.find(graph.tree, first, last, min(count, n - 1))
    assert (first, last) == (0, n)
    assert not len(shard.halo)
    np.testing.assert_array_equal(shards.neighbours(shard, None), graph.neighbours)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 10**6), parts=st.integers(1, 500))
def test_ranges_cover_all_places_once_and_cut_no_slice(n, parts):
    ranges = shards.ranges(n, parts)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    for (_, last), (first, _) in pairwise(ranges):
        assert last == first
        assert first % SLICE_LOCATIONS == 0
    assert len(ranges) <= parts or len(ranges) == 1


def test_a_shards_failure_is_its_own_first_place():
    x = places("euclidean", 2 * SLICE_LOCATIONS)
    second = Graph.of(x, "maximin", 5).tree.order[SLICE_LOCATIONS + 7]
    # a twin of a place of the second shard
    x = np.vstack((x, x[second]))
    inputs = gx.Inputs(x)
    passes = LocalPasses(inputs, "maximin", 5)
    columns = np.ones((1, len(x)))
    model = gx.Matern(1.0, 0.1, 0.8)
    passes.know(columns)
    none = wanted_for(model, (), model.noise(inputs))
    _, whole = passes.reduce(model, none)
    ranges, failed = shards.ranges(len(x), 3), []
    cuts = cut(passes, inputs, columns, ranges, 5)
    for (first, _), part in zip(ranges, cuts, strict=True):
        _, k = shards.reduce(*part, model, none)
        failed += [] if k is None else [first + k]
    assert whole is not None
    assert min(failed) == whole
