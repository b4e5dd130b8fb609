import numpy as np
import pytest
from patterns import dense

import geomxp as gx
from geomxp.errors import NotPositiveDefinite
from geomxp.vecchia.blocks import Blocks
from geomxp.vecchia.factor import Graph
from geomxp.vecchia.incomplete import IncompleteFactor, Pattern

MODEL = gx.Matern(1.3, 0.2, 0.5)


def problem(n=40, m=5, seed=0, model=MODEL):
    """Return the pattern, the columns of U, and positive W."""
    random = np.random.default_rng(seed)
    inputs = gx.Inputs(random.random((n, 2)))
    graph = Graph.of(inputs.points, "maximin", m)
    weights, variances = Blocks(model, inputs[graph.tree.order]).weights(graph.neighbours)
    columns = np.column_stack((-weights, np.ones(n))) / np.sqrt(variances)[:, None]
    columns[:, :-1][graph.neighbours < 0] = 0.0
    return Pattern.of(graph), columns, random.gamma(1.0, 1.0, n)


def test_columns_are_those_of_the_precision_matrix():
    pattern, columns, _ = problem(m=39)
    u = dense(pattern, columns)
    inputs = gx.Inputs(np.random.default_rng(0).random((40, 2)))
    places = inputs.locations[Graph.of(inputs.points, "maximin", 39).tree.order]
    np.testing.assert_allclose(u @ u.T, np.linalg.inv(MODEL(places, places)), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("m", [1, 5, 39])
def test_products_are_those_on_the_pattern(m):
    pattern, columns, w = problem(m=m)
    u = dense(pattern, columns)
    q, found = u @ u.T, dense(pattern, pattern.product(columns))
    inside = dense(pattern, np.where(columns == 0, 0.0, 1.0)) != 0
    np.testing.assert_allclose(found[inside], q[inside], rtol=1e-12, atol=1e-12)
    factor = IncompleteFactor(pattern, pattern.product(columns), w)
    p = dense(pattern, factor.columns)
    # PP' is Q + W on the pattern
    np.testing.assert_allclose((p @ p.T)[inside], (q + np.diag(w))[inside], rtol=1e-11, atol=1e-11)
    assert factor.log_determinant() == pytest.approx(np.linalg.slogdet(p @ p.T)[1], rel=1e-12)
    y = np.random.default_rng(1).standard_normal(len(w))
    np.testing.assert_allclose(factor.solve(y), np.linalg.solve(p @ p.T, y), rtol=1e-9)
    np.testing.assert_allclose(factor.half_solve(y), np.linalg.solve(p, y), rtol=1e-9, atol=1e-12)
    found = factor.solve_transposed(y)
    np.testing.assert_allclose(found, np.linalg.solve(p.T, y), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(pattern.times(columns, y), q @ y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(pattern.matrix(columns).toarray(), u)
    # eight vectors at a time
    several = np.random.default_rng(2).standard_normal((len(w), 8))
    for solve in (factor.half_solve, factor.solve_transposed, lambda y: pattern.times(columns, y)):
        each = np.column_stack([solve(column) for column in several.T])
        np.testing.assert_allclose(solve(several), each, rtol=1e-9, atol=1e-11)


def test_a_pattern_in_the_order_of_elimination_gives_the_same():
    random = np.random.default_rng(0)
    graph = Graph.of(random.random((60, 2)), "maximin", 6)
    pattern, w = Pattern.of(graph), random.gamma(1.0, 1.0, 60)
    columns = np.where(graph.neighbours >= 0, 0.1, 0.0)
    columns = np.column_stack((columns, np.ones(60)))
    order, moved = Pattern.eliminated(graph)
    assert sorted(order) == list(range(60))
    positions = np.argsort(order)
    for k, row in enumerate(graph.neighbours):
        # each location comes before its neighbours
        assert all(positions[k] < positions[i] for i in row if i >= 0)
    given = IncompleteFactor(pattern, pattern.product(columns), w)
    found = IncompleteFactor(moved, moved.product(columns[order]), w[order])
    np.testing.assert_allclose(found.columns, given.columns[order], rtol=1e-13)


def test_with_all_predecessors_nothing_is_left_out():
    pattern, columns, w = problem(m=39)
    u = dense(pattern, columns)
    exact = u @ u.T + np.diag(w)
    factor = IncompleteFactor(pattern, pattern.product(columns), w)
    assert factor.log_determinant() == pytest.approx(np.linalg.slogdet(exact)[1], rel=1e-12)
    # then the gradient by w is the diagonal of the inverse
    np.testing.assert_allclose(factor.gradient()[:, -1], np.linalg.inv(exact).diagonal(), rtol=1e-9)


@pytest.mark.parametrize("m", [1, 5, 39])
def test_the_gradient_is_that_of_the_log_determinant(m):
    pattern, columns, w = problem(m=m)
    random, h = np.random.default_rng(2), 1e-5

    def value(columns, w):
        return IncompleteFactor(pattern, pattern.product(columns), w).log_determinant()

    gradient = IncompleteFactor(pattern, pattern.product(columns), w).gradient()
    by_columns = pattern.pulled(columns, gradient)
    inside = columns != 0
    assert not by_columns[~inside].any()
    for _ in range(5):
        move = random.standard_normal(columns.shape) * inside
        ends = [value(columns + k * h * move, w) for k in (-2, -1, 1, 2)]
        slope = (8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12 * h)
        assert np.vdot(by_columns, move) == pytest.approx(slope, rel=1e-7, abs=1e-7)
        move = random.standard_normal(len(w))
        ends = [value(columns, w + k * h * move) for k in (-2, -1, 1, 2)]
        slope = (8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12 * h)
        assert gradient[:, -1] @ move == pytest.approx(slope, rel=1e-7, abs=1e-7)


def test_a_pivot_that_is_not_positive_is_an_error():
    pattern, columns, w = problem()
    w[7] = -1e6
    with pytest.raises(NotPositiveDefinite, match="pivot") as raised:
        IncompleteFactor(pattern, pattern.product(columns), w)
    assert raised.value.order >= 0


def test_squares_are_those_of_dense_solves():
    pattern, columns, w = problem(n=300, m=6)
    factor = IncompleteFactor(pattern, pattern.product(columns), w)
    random = np.random.default_rng(3)
    near = np.array([random.choice(300, 5, replace=False) for _ in range(21)], dtype=np.int32)
    weights = random.standard_normal(near.shape)
    near[:4, 3] = -1
    vectors = np.zeros((300, 21))
    for k, (at, values) in enumerate(zip(near, weights, strict=True)):
        vectors[at[at >= 0], k] = values[at >= 0]
    solved = np.linalg.solve(dense(pattern, factor.columns), vectors)
    np.testing.assert_allclose(factor.squares(near, weights), (solved**2).sum(axis=0), rtol=1e-10)
