from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geomxp as gx
from geomxp.linalg import blas, nested
from geomxp.linalg.backend import NUMPY
from geomxp.linalg.formats import BF16, FORMATS, FP8, FP16, FP32, FP64, TF32
from geomxp.linalg.recursive import Panel, add_product

EVERY = slice(0, None)
COARSE = [
    form for form in FORMATS.values() if form.coarser_than(np.float64) and form.products is form
]
LEAST = {FP16: 2.0**-25, FP8: 2.0**-10, BF16: 0.0, TF32: 0.0, FP32: 0.0}
"""The largest error of a number that is subnormal in a format, after scaling."""


def random(shape, dtype=np.float64, seed=0, order="F"):
    return np.array(np.random.default_rng(seed).standard_normal(shape), dtype, order=order)


def in_pieces(form, numbers, cuts):
    """A panel of numbers, cast piece by piece."""
    panel = Panel(form, numbers.shape, numbers)
    for first, stop in pairwise(cuts):
        panel.put(slice(first, stop), numbers[:, first:stop])
    return panel


def widened(panel):
    """All numbers of a panel in FP64."""
    out = np.empty(panel.shape, order="F" if panel.values.flags.f_contiguous else "C")
    panel.widen(slice(0, panel.shape[0]), slice(0, panel.shape[1]), out)
    return out


def powers(panel, columns=None):
    columns = columns or slice(0, panel.shape[1])
    return [((run.start, run.stop), exponent) for run, exponent in panel.runs(columns)]


form_of_a_panel = pytest.mark.parametrize("form", COARSE, ids=str)
in_each_order = pytest.mark.parametrize("order", ["C", "F"])
of_each_type = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["fp64", "fp32"])


@pytest.mark.slow
@form_of_a_panel
@in_each_order
@of_each_type
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (13, 20), (600, 3)])
@pytest.mark.parametrize("size", [1.0, 1e-15, 1e15])
def test_widening_undoes_a_cast_to_the_formats_roundoff(form, order, dtype, shape, size):
    numbers = size * random(shape, dtype, order=order)
    panel = in_pieces(form, numbers, (0, shape[1] // 2, shape[1]) if shape[1] > 1 else (0, 1))
    out = np.empty_like(numbers)
    panel.widen(slice(0, shape[0]), slice(0, shape[1]), out)
    for run, exponent in panel.runs(slice(0, shape[1])):
        part = numbers[:, run].astype(float)
        # FP64 is rounded to FP32 first
        u = form.unit_roundoff + FP32.unit_roundoff
        allowed = u * abs(part) + LEAST[form] * 2.0**-exponent
        assert (abs(out[:, run] - part) <= allowed).all()
    stored = panel.stored()
    assert stored.values.dtype == form.dtype
    assert stored.nbytes == numbers.size * form.bytes
    np.testing.assert_array_equal(widened(stored), widened(panel))


@pytest.mark.slow
@form_of_a_panel
@in_each_order
@of_each_type
def test_products_of_stored_numbers_and_of_the_same_ones_in_fp32_have_the_same_bits(
    form, order, dtype, monkeypatch
):
    monkeypatch.setattr(blas, "has_unit", lambda form: False)
    left, right = (in_pieces(form, random((m, 300), dtype, m, order), (0, 300)) for m in (400, 500))
    assert {panel.values.dtype for panel in (left, right)} == {np.dtype(np.float32)}
    c = random((400, 500), dtype, order=order)
    found = []
    for a, b in product((left, left.stored()), (right, right.stored())):
        found.append(c.copy(order=order))
        add_product(found[-1], a, EVERY, b, EVERY, -0.5)
        np.testing.assert_array_equal(found[-1], found[0])
    expected = c - 0.5 * widened(left) @ widened(right).T
    np.testing.assert_allclose(found[0], expected, atol=1e-4)


@form_of_a_panel
@in_each_order
@of_each_type
@pytest.mark.parametrize("exponent", [0, 3, 40])
def test_numbers_held_in_fp32_are_those_that_the_format_stores(form, order, dtype, exponent):
    numbers = random((70, 41), dtype, 3, order)
    numbers *= 2.0**-exponent
    # ties, subnormal numbers, the ends of the range, and both zeros
    edges = [1.0, -1.0, form.largest, form.smallest, 1.5 * form.smallest, 0.5 * form.smallest]
    edges += [s * (1 + k * form.unit_roundoff) for k in range(8) for s in (1.0, -1.0)]
    numbers[: len(edges), 0] = np.array(edges) * 2.0**-exponent
    numbers[:, 1], numbers[:, 2] = 0.0, -0.0
    held, widened = (np.empty(numbers.shape, np.float32, order) for _ in range(2))
    stored = np.empty(numbers.shape, form.dtype, order)
    NUMPY.round_into(held, numbers, form, exponent)
    NUMPY.round_into(stored, numbers, form, exponent)
    NUMPY.widen_into(widened, stored, form, 0)
    np.testing.assert_array_equal(held.view(np.int32), widened.view(np.int32))
    assert (held != numbers * 2.0**exponent).any() or form is FP32


@form_of_a_panel
@in_each_order
def test_numbers_of_a_format_are_kept_exactly_and_any_part_of_them_is_read(form, order):
    numbers = random((11, 12), order=order)
    exact = widened(in_pieces(form, numbers, (0, 12)))
    panel = in_pieces(form, exact, (0, 3, 7, 12))
    np.testing.assert_array_equal(widened(panel), exact)
    out = np.empty((4, 6), order=order)
    panel.widen(slice(2, 6), slice(1, 7), out)
    np.testing.assert_array_equal(out, exact[2:6, 1:7])


@form_of_a_panel
def test_pieces_of_very_different_magnitude_each_keep_their_accuracy(form):
    sizes = 10.0 ** np.array([0, -30, 30, -15, 15, 0])
    numbers = random((8, 30)) * np.repeat(sizes, 5)
    panel = in_pieces(form, numbers, range(0, 35, 5))
    for first in range(0, 30, 5):
        part, found = numbers[:, first : first + 5], widened(panel)[:, first : first + 5]
        # a range of FP8 or FP16 below the piece's largest number, less the step of the powers
        least = LEAST[form] * abs(part).max() / (2.0**6 if form is FP16 else 2.0**7)
        assert (abs(found - part) <= 1.001 * form.unit_roundoff * abs(part) + least).all()


@form_of_a_panel
@of_each_type
@pytest.mark.parametrize("size", [2.0**20, 2.0**40])
def test_neighbours_of_equal_powers_are_one_run(form, dtype, size):
    numbers = np.ones((3, 20), dtype, order="F")
    numbers[:, 10:15] = size
    panel = in_pieces(form, numbers, (0, 5, 10, 15, 20))
    runs = [columns for columns, _ in powers(panel)]
    # formats with FP32's range need a power for FP64 numbers far from 1
    scaled = form in (FP8, FP16) or (dtype is np.float64 and size == 2.0**40)
    assert runs == ([(0, 10), (10, 15), (15, 20)] if scaled else [(0, 20)])
    inside = [columns for columns, _ in powers(panel, slice(7, 13))]
    assert inside == ([(7, 10), (10, 13)] if scaled else [(7, 13)])
    assert powers(panel, slice(5, 5)) == []


@settings(deadline=None)
@given(
    st.sampled_from(COARSE),
    st.lists(st.tuples(st.integers(1, 6), st.integers(-60, 60)), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_runs_cover_a_range_once_and_neighbouring_runs_differ(form, pieces, shuffle, data):
    cuts = np.cumsum([0, *(width for width, _ in pieces)])
    n = int(cuts[-1])
    panel = Panel(form, (2, n), np.empty((2, n), order="F"))
    order = list(range(len(pieces)))
    shuffle.shuffle(order)
    for j in order:
        size = np.full((2, pieces[j][0]), 2.0 ** pieces[j][1], order="F")
        panel.put(slice(int(cuts[j]), int(cuts[j + 1])), size)
    first, stop = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    runs = powers(panel, slice(first, stop))
    covered = [column for (start, end), _ in runs for column in range(start, end)]
    assert covered == list(range(first, stop))
    assert all(one[1] != other[1] for one, other in pairwise(runs))
    expected = np.repeat([2.0**power for _, power in pieces], np.diff(cuts))
    np.testing.assert_array_equal(widened(panel), np.tile(expected, (2, 1)))


@settings(deadline=None)
@given(st.floats(1e-15, 1e15))
def test_fp16s_powers_are_multiples_that_leave_room_below(largest):
    panel = in_pieces(FP16, np.full((1, 1), largest), (0, 1))
    ((_, exponent),) = powers(panel)
    assert exponent % FP16.step == 0
    assert 2.0 ** (14 - FP16.step) <= largest * 2.0**exponent < 2.0**15


@form_of_a_panel
@of_each_type
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_no_format_has_is_named(form, dtype, number):
    numbers = random((4, 4), dtype)
    numbers[2, 1] = number
    panel = Panel(form, (4, 8), numbers)
    with pytest.raises(gx.InvalidInput, match=f"holds or reaches {abs(number)}"):
        panel.put(slice(2, 6), numbers)


@pytest.mark.slow
@form_of_a_panel
@pytest.mark.parametrize("target", [np.float64, np.float32], ids=["fp64", "fp32"])
@pytest.mark.parametrize("orders", ["CCC", "CFF", "FCF", "FFF", "FCC", "CFC"])
@pytest.mark.parametrize("alpha", [-1.0, 2.5])
def test_products_are_those_of_the_numbers_in_the_format(way, form, target, orders, alpha):
    """Pieces of the two sides need not be cut at the same columns, nor have the same powers."""
    m, n, k = 17, 9, 40
    sizes = np.repeat(2.0 ** np.array([0, 10, -10, 20]), 10)
    a, b = random((m + 4, k), order=orders[0]) * sizes, random((n + 3, k), seed=1, order=orders[1])
    left, right = in_pieces(form, a, (0, 10, 20, 30, 40)), in_pieces(form, b / sizes, (0, 15, 40))
    c = random((m, n), target, 2, orders[2])
    before, rows, others = c.astype(float), slice(2, m + 2), slice(1, n + 1)
    add_product(c, left, rows, right, others, alpha)
    x, y = widened(left)[rows], widened(right)[others]
    allowed = 2 * (k + 9) * FP32.unit_roundoff * (abs(before) + abs(alpha) * abs(x) @ abs(y).T)
    assert (abs(c - before - alpha * x @ y.T) <= allowed).all()


@pytest.mark.slow
@form_of_a_panel
@of_each_type
@pytest.mark.parametrize(
    "sizes",
    [
        *((1e-30, 1e30), (1e-15, 1e-18), (1e-18, 1e-18), (1e15, 1e18)),
        *((1e-30, 1e-30), (1e30, 1e30), (1e-35, 1.0), (1.0, 1e35)),
    ],
)
def test_products_of_numbers_far_from_one_are_those_of_the_numbers_in_the_format(
    way, form, sizes, dtype
):
    k, single = 40, dtype is np.float32
    if single and not 1e-40 < sizes[0] * sizes[1] < 1e38:
        pytest.skip("FP32 does not hold the products")
    numbers = (dtype(size) * random((7, k), dtype, seed) for seed, size in enumerate(sizes))
    left, right = (in_pieces(form, x, (0, k)) for x in numbers)
    x, y = widened(left), widened(right)
    size = abs(x) @ abs(y).T
    c = np.zeros((7, 7), dtype, order="F")
    add_product(c, left, slice(0, 7), right, slice(0, 7), 1.0)
    allowed = 2 * (k + 3) * FP32.unit_roundoff * size
    # numbers below FP32's normal ones may be zero
    assert (abs(c - x @ y.T) <= allowed + (2.0**-126 if single else 0.0)).all()


@form_of_a_panel
def test_fp64_numbers_that_no_power_brings_into_the_range_are_refused(form):
    with pytest.raises(gx.InvalidInput, match=f"reaches 1e.300, which {form} cannot represent"):
        in_pieces(form, np.full((2, 2), 1e300, order="F"), (0, 2))


@of_each_type
def test_all_products_of_two_fp8_numbers_are_exact(way, dtype):
    bits = np.arange(256, dtype=np.uint8)
    bits = bits[(bits & 0x7F) != 0x7F]
    panel = Panel(FP8, (len(bits), 1), np.empty((1, 1)))
    panel.values[:, 0] = bits
    panel.exponents[0, 1] = 0
    numbers = widened(panel)[:, 0]
    c = np.zeros((len(bits), len(bits)), dtype, order="F")
    add_product(c, panel, slice(0, len(bits)), panel, slice(0, len(bits)), -1.0)
    np.testing.assert_array_equal(c, -np.outer(numbers, numbers))


@form_of_a_panel
@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_products_with_nothing_in_them_change_nothing(way, form, shape):
    m, n, k = shape
    c = random((m, n), np.float32)
    before = c.copy()
    left, right = Panel(form, (m, k), c), Panel(form, (n, k), c)
    add_product(c, left, slice(0, m), right, slice(0, n), 1.0)
    np.testing.assert_array_equal(c, before)


@in_each_order
@of_each_type
def test_the_magnitude_is_the_largest_of_a_part_or_tells_of_a_nan(order, dtype):
    whole = random((12, 9), dtype, order=order)
    whole[0, 0] = whole[11, 8] = np.nan
    part = whole[1:-1, 1:-1]
    assert NUMPY.largest(part) == abs(part).max()
    assert np.isnan(NUMPY.largest(whole))
    part[3, 4] = -np.inf
    assert NUMPY.largest(part) == np.inf
    assert NUMPY.largest(part[:0]) == NUMPY.largest(part[:, :0]) == 0.0


@in_each_order
@of_each_type
@pytest.mark.parametrize("step", [1, 2])
def test_only_the_lower_triangle_is_checked(order, dtype, step):
    whole = random((14, 14), dtype, order=order)
    a = whole[::step, ::step]
    a[np.triu_indices(len(a), 1)] = np.nan
    nested.check_finite(a)
    for where in ((0, 0), (5, 2), (len(a) - 1, len(a) - 1)):
        for number in (np.nan, np.inf, -np.inf):
            wrong = a.copy(order=order)
            wrong[where] = number
            with pytest.raises(gx.InvalidInput, match=f"holds {abs(number)}: a factor needs"):
                nested.check_finite(wrong)
    nested.check_finite(a[:0, :0])


@in_each_order
@pytest.mark.parametrize("beta", [1.0, 0.0, -0.5])
def test_scaling_leaves_the_upper_triangle_alone_and_zero_makes_zeros(order, beta):
    start = random((9, 9), order=order)
    start[np.triu_indices(9, 1)] = np.nan
    if beta == 0.0:
        start[3, 2] = np.nan
    c = start.copy(order=order)
    NUMPY.scale_lower(c, beta)
    expected = np.zeros((9, 9)) if beta == 0.0 else beta * start
    lower = np.tril_indices(9)
    np.testing.assert_array_equal(c[lower], expected[lower])
    assert np.isnan(c[np.triu_indices(9, 1)]).all()


@in_each_order
@pytest.mark.parametrize("other", ["C", "F"])
@pytest.mark.parametrize("n", [1, 63, 65, 600])
def test_a_lower_triangle_is_copied_with_its_powers_and_no_more(order, other, n):
    source = random((n, n), order=order)
    upper = np.triu_indices(n, 1)
    source[upper] = np.nan
    for rows in (np.ones(n), 2.0 ** (np.arange(n) % 7 - 3)):
        columns = rows[::-1].copy()
        out = np.full((n, n), 5.0, order=other)
        NUMPY.copy_lower(out, source, rows, columns)
        assert (out[upper] == 5.0).all()
        expected = rows[:, None] * source * columns
        lower = np.tril_indices(n)
        np.testing.assert_array_equal(out[lower], expected[lower])


@in_each_order
@of_each_type
@pytest.mark.parametrize("form", [FP64, FP32], ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_an_array_is_worked_on_where_it_stands_or_written_back(order, dtype, form, step):
    array = random((6, 8), dtype, order=order)[::step, ::step]
    before = array.copy()
    with nested.one_array(array, form) as work:
        assert (work is array) == (step == 1 and dtype == form.dtype)
        assert work.dtype == form.dtype
        np.testing.assert_array_equal(work, before.astype(form.dtype))
        work *= 2.0
    np.testing.assert_array_equal(array, 2.0 * before.astype(form.dtype))
    with nested.one_array(array, form, write=False) as work:
        np.testing.assert_array_equal(work, array.astype(form.dtype))


@in_each_order
def test_a_matrix_to_be_factored_has_a_diagonal_near_one(order):
    d = 10.0 ** np.linspace(-30, 30, 20)
    a = np.array((np.eye(20) + 0.1) * d * d[:, None], order=order)
    before = a.copy()
    with nested.one_matrix(a, (FP16, FP32)) as (work, bound):
        assert work.dtype == np.float32
        assert (work.diagonal() >= 0.5).all()
        assert (work.diagonal() <= 4.0).all()
        assert bound == pytest.approx(np.sqrt(work.diagonal().max()))
    powers = np.log2((a / before)[np.tril_indices(20)])
    assert (abs(powers - np.round(powers)) <= 4 * FP32.unit_roundoff).all()
    np.testing.assert_array_equal(np.triu(a, 1), np.triu(before, 1))
    with nested.one_matrix(a, (FP64,)) as (work, _):
        assert work is a
