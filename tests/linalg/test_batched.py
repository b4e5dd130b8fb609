"""Small factorizations in batches: the laws of a Cholesky factor, in every variant and layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

import geomxp as gx
from geomxp.linalg import batched, batched_programs
from geomxp.linalg.batched import LOOKING, Variant

TYPES = [np.float64, np.float32]
SIZES = [1, 2, 5, 8, 9, 16, 17, 31, 33, 64, 128]
# each order up to 16 is compiled for itself and for each type, which takes longest for the largest
CASES = [(n, dtype) for n in SIZES for dtype in TYPES if n != 16 or dtype == np.float32]


def positive_definite(batch, n, dtype=np.float64, seed=0):
    x = np.random.default_rng([seed, n]).standard_normal((batch, n, n))
    return (x @ x.transpose(0, 2, 1) + n * np.eye(n)).astype(dtype)


def unit(dtype):
    return np.finfo(dtype).eps / 2


def assert_factors(lower, a):
    """A = L L' within (n + 1) u |L||L'| (Higham 2002, theorem 10.3), and nothing above."""
    wide = lower.astype(np.float64)
    bound = 2 * (a.shape[1] + 1) * unit(a.dtype) * (abs(wide) @ abs(wide).transpose(0, 2, 1))
    assert lower.dtype == a.dtype
    assert (abs(wide @ wide.transpose(0, 2, 1) - a) <= bound).all()
    assert not np.triu(lower, 1).any()


@given(
    n=st.integers(1, 128),
    batch=st.one_of(st.integers(0, 5), st.integers(6, 40)),
    dtype=st.sampled_from(TYPES),
)
@settings(max_examples=25, deadline=None)
def test_factors_of_any_order_and_number_multiply_to_their_matrices(n, batch, dtype):
    # one variant: others are compiled for each order below 9
    a = positive_definite(batch, n, dtype)
    before = a.copy()
    assert_factors(batched.potrf(a, variant=Variant()), a)
    np.testing.assert_array_equal(a, before)


@pytest.mark.parametrize(("n", "dtype"), CASES)
def test_factors_are_lapacks(n, dtype):
    a = positive_definite(37 if n < 64 else 17, n, dtype)
    lower = batched.potrf(a)
    assert_factors(lower, a)
    expected = np.linalg.cholesky(a)
    largest = abs(expected).max()
    # their condition is below 10
    assert abs(lower - expected).max() <= 10 * (n + 1) * unit(dtype) * largest


VARIANTS = [
    *(Variant("top", 2), Variant("left", 3), Variant("right", 2)),
    *(Variant("left", 4, 3), Variant("top", 4, 2)),
    *(Variant(looking, 3, 2, unroll=True) for looking in LOOKING),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_variant_gives_the_same_bits(variant):
    for n in (7,) if variant.unroll else (1, 6, 7, 23):
        a = positive_definite(29, n)
        expected = batched.potrf(a, variant=Variant())
        np.testing.assert_array_equal(batched.potrf(a, variant=variant), expected)


@pytest.mark.slow
def test_layouts_in_place_and_past_the_cache_give_the_same_bits():
    for n, batch in ((5, 50), (17, 9000), (24, 50)):
        a = positive_definite(50, n)
        a = np.ascontiguousarray(np.resize(a, (batch, n, n)))
        expected = np.resize(batched.potrf(a[:50]), a.shape)
        np.testing.assert_array_equal(batched.potrf(a), expected)
        for lanes in (batched.lanes_of(a.dtype), 3 * batched.lanes_of(a.dtype), "batch"):
            chunks = batched.interleave(a, lanes)
            assert not batched.potrf_interleaved(chunks).any()
            np.testing.assert_array_equal(batched.separate(chunks, batch), expected)
        work = a.copy()
        assert np.shares_memory(batched.potrf(work, overwrite=True), work)
        np.testing.assert_array_equal(work, expected)


def test_a_matrix_with_a_known_factor_is_factored_exactly():
    # t_ij = 2^-|i-j| scaled so that all numbers are short: L = D T with entries of few bits
    for n in (5, 9, 40):
        lower = np.tril(np.ones((n, n))) * np.arange(1, n + 1)[:, None]
        a = np.stack([lower @ lower.T, 4 * lower @ lower.T])
        np.testing.assert_allclose(
            batched.potrf(a), [lower, 2 * lower], rtol=4 * n * unit(np.float64)
        )
    identity = np.stack([4.0 ** (k - 20) * np.eye(5) for k in range(40)])
    np.testing.assert_array_equal(batched.potrf(identity), np.sqrt(identity))


@pytest.mark.parametrize("dtype", TYPES)
def test_scaling_by_a_power_of_four_scales_factors_exactly(dtype):
    a = positive_definite(11, 13, dtype)
    e = np.arange(-5, 6)[:, None, None]
    scaled = np.ldexp(a, 2 * e).astype(dtype)
    np.testing.assert_array_equal(batched.potrf(scaled), np.ldexp(batched.potrf(a), e))


@pytest.mark.parametrize(("batch", "n"), [(3, 5), (21, 5), (21, 17), (64, 30)])
def test_a_matrix_without_a_factor_is_named_and_spoils_no_other(batch, n):
    a = positive_definite(batch, n)
    whole = batched.potrf(a)
    a[1, 2, 2], a[batch - 1, n - 1, n - 1] = -1.0, 0.0
    a[batch - 1, n - 1, :-1] = 0.0
    lower, info = batched.potrf(a, check=False)
    assert info[1] == 3
    assert info[-1] == n
    assert np.flatnonzero(info).tolist() == [1, batch - 1]
    good = info == 0
    np.testing.assert_array_equal(lower[good], whole[good])
    assert (np.isnan(lower[~good]) == np.tril(np.ones((n, n), bool))).all()
    with pytest.raises(gx.NotPositiveDefinite, match=r"matrix 1 of the batch.*order 3") as caught:
        batched.potrf(a)
    assert caught.value.order == 3
    assert caught.value.members.tolist() == [1, batch - 1]
    np.testing.assert_array_equal(caught.value.lower[good], whole[good])
    info = batched.potrf_interleaved(batched.interleave(a))
    assert np.flatnonzero(info).tolist() == [1, batch - 1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_number_that_is_none_is_named_with_its_matrix(value, dtype):
    a = positive_definite(20, 9, dtype)
    for at in ((5, 3, 1), (5, 3, 3), (19, 5, 5), (19, 5, 0)):
        broken = a.copy()
        broken[at] = value
        message = f"matrix {at[0]} of the batch holds a NaN or an infinity in row {at[1]}"
        with pytest.raises(gx.InvalidInput, match=message):
            batched.potrf(broken)
        lower, info = batched.potrf(broken, check=False)
        assert info[at[0]] == -at[1] - 1
        good = info == 0
        assert good.sum() == 19
        np.testing.assert_array_equal(lower[good], batched.potrf(a)[good])
    # above the diagonal nothing is looked at
    a[:, 0, 1:] = value
    assert_factors(batched.potrf(a), np.tril(a) + np.tril(a, -1).transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 5, 13, 50])
def test_substitutions_solve_their_equations(n, dtype):
    a = positive_definite(19, n, dtype)
    lower = batched.potrf(a)
    rng = np.random.default_rng(n)
    for shape in ((19, n), (19, n, 1), (19, n, 6), (19, n, 0)):
        b = rng.standard_normal(shape).astype(dtype)
        full = b.reshape(19, n, -1) if b.size else b
        for solve, matrix in (
            (batched.forward, lower),
            (batched.backward, lower.transpose(0, 2, 1)),
            (batched.solve, a),
        ):
            x = solve(lower, b)
            assert x.shape == b.shape
            assert x.dtype == dtype
            if not b.size:
                continue
            x = x.reshape(full.shape).astype(np.float64)
            bound = 4 * (n + 1) * unit(dtype) * (abs(matrix).astype(np.float64) @ abs(x))
            if solve is batched.solve:
                bound = (
                    8
                    * (n + 1)
                    * unit(dtype)
                    * (abs(lower).astype(float) @ (abs(lower).transpose(0, 2, 1) @ abs(x)))
                )
            assert (abs(matrix @ x - full) <= bound).all()


def interleaved(a, lanes, columns=2):
    """Chunks of some matrices, and right-hand sides: as NumPy has them, and beside the chunks."""
    b = np.random.default_rng(columns).standard_normal((*a.shape[:2], columns)).astype(a.dtype)
    chunks = batched.interleave(a, lanes)
    return chunks, b, batched.interleave_vectors(b, chunks)


WAYS = (
    (batched.forward, batched.forward_interleaved),
    (batched.backward, batched.backward_interleaved),
    (batched.solve, batched.solve_interleaved),
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("lanes", [None, 1, 5, "batch"], ids=str)
def test_interleaved_solutions_have_the_bits_of_canonical_ones(lanes, dtype):
    lanes = lanes * batched.lanes_of(dtype) if isinstance(lanes, int) else lanes
    for n, batch, columns in ((1, 3, 1), (7, 37, 5), (20, 90, 1), (50, 17, 4)):
        a = positive_definite(batch, n, dtype)
        chunks, b, x = interleaved(a, lanes, columns)
        assert (len(chunks) == 1) or lanes != "batch"
        lower, given = batched.potrf(a), chunks.copy()
        assert not batched.potrf_interleaved(chunks).any()
        np.testing.assert_array_equal(batched.separate(chunks, batch), lower)
        for canonical, in_place in WAYS:
            found = x.copy()
            assert in_place(chunks, found) is found
            found = batched.separate_vectors(found, batch)
            np.testing.assert_array_equal(found, canonical(lower, b))
        assert not batched.posv_interleaved(given, x).any()
        np.testing.assert_array_equal(batched.separate(given, batch), lower)
        np.testing.assert_array_equal(batched.separate_vectors(x, batch), batched.solve(lower, b))


@given(n=st.integers(1, 100), batch=st.integers(1, 40), dtype=st.sampled_from(TYPES))
@settings(max_examples=15, deadline=None)
def test_complete_solutions_have_residuals_within_c_n_u(n, batch, dtype):
    a = positive_definite(batch, n, dtype)
    chunks, b, x = interleaved(a, None, 1)
    batched.posv_interleaved(chunks, x, variant=Variant())
    lower, x = abs(batched.separate(chunks, batch)).astype(np.float64), x.astype(np.float64)
    x = batched.separate_vectors(x, batch)
    # Higham 2002, theorem 10.4
    bound = 3 * (n + 1) * unit(dtype) * (lower @ (lower.transpose(0, 2, 1) @ abs(x)))
    assert (abs(a @ x - b) <= 2 * bound).all()


@pytest.mark.parametrize("variant", [*VARIANTS[:5], Variant(chunk="batch")])
def test_variants_of_a_complete_solution_give_the_same_bits(variant):
    a = positive_definite(29, 11)
    chunks, b, x = interleaved(a, "batch")
    batched.posv_interleaved(chunks, x, variant=variant)
    expected = batched.solve(batched.potrf(a), b)
    np.testing.assert_array_equal(batched.separate_vectors(x, 29), expected)
    np.testing.assert_array_equal(batched.potrf(a, variant=variant), batched.potrf(a))


@pytest.mark.parametrize("lanes", [16, "batch"])
def test_a_matrix_without_a_factor_has_no_solution_and_spoils_no_other(lanes):
    a = positive_definite(40, 6)
    expected, b, x = interleaved(a, lanes)
    batched.posv_interleaved(expected, x)
    a[5, 3, 3], a[33, 0, 0], a[39, 5, 1] = -1.0, 0.0, np.nan
    chunks, b, found = interleaved(a, lanes)
    info = batched.posv_interleaved(chunks, found)
    assert {int(k): int(info[k]) for k in np.flatnonzero(info)} == {5: 4, 33: 1, 39: 6}
    found, good = batched.separate_vectors(found, 40), info[:40] == 0
    assert np.isnan(found[~good]).all()
    np.testing.assert_array_equal(found[good], batched.separate_vectors(x, 40)[good])
    # a factor without an inverse is named, and b is unchanged from there on
    before = batched.interleave_vectors(b, chunks)
    for _, solve in WAYS:
        x = before.copy()
        with pytest.raises(gx.InvalidInput, match="diagonal of factor 5 holds"):
            solve(chunks, x)
        x, same = (batched.separate_vectors(y, 40)[5:] for y in (x, before))
        np.testing.assert_array_equal(x, same)


def test_batches_without_matrices_rows_or_columns_have_empty_solutions():
    for shape in ((0, 4, 4), (3, 0, 0)):
        chunks = batched.interleave(np.zeros(shape))
        x = batched.interleave_vectors(np.zeros((*shape[:2], 2)), chunks)
        assert batched.solve_interleaved(chunks, x).size == 0
        assert not batched.posv_interleaved(chunks, x).any()
        assert batched.separate_vectors(x, shape[0]).shape == (*shape[:2], 2)
    chunks, _, x = interleaved(positive_definite(3, 4), None, 0)
    assert batched.solve_interleaved(chunks, x).size == 0


def test_one_right_hand_side_has_the_bits_that_it_has_among_many():
    lower = batched.potrf(positive_definite(10, 11))
    b = np.random.default_rng(1).standard_normal((10, 11, 7))
    x = batched.solve(lower, b)
    for c in range(7):
        np.testing.assert_array_equal(batched.solve(lower, b[:, :, c]), x[:, :, c])


@pytest.mark.slow
def test_chunks_are_factored_and_solved_from_compiled_functions():
    @njit(nogil=True)
    def last_rows(chunk, x, n):
        batched.factor_chunk(chunk, n)
        x[:] = 0
        x[n - 1] = 1
        batched.backward_chunk(chunk, x, n)

    lanes = 2 * batched.lanes_of(np.float64)
    a = positive_definite(lanes, 9)
    # a chunk may have room for more rows than are used
    chunk = np.full((12, 10, lanes), np.nan)
    chunk[:9, :9] = batched.interleave(a, lanes)[0]
    x = np.full((9, 1, lanes), np.nan)
    last_rows(chunk, x, 9)
    lower = np.tril(chunk[:9, :9].transpose(2, 0, 1))
    np.testing.assert_array_equal(lower, batched.potrf(a))
    expected = batched.backward(lower, np.broadcast_to(np.eye(9)[8], (lanes, 9)))
    np.testing.assert_array_equal(x[:, 0].T, expected)
    with pytest.raises(ValueError, match="whole registers"):
        batched.factor_chunk(np.zeros((4, 4, lanes + 1)), 4)
    with pytest.raises(ValueError, match="chunk must be"):
        batched.factor_chunk(chunk, 11)


def test_other_inputs_become_what_a_user_expects():
    a = positive_definite(5, 5)
    whole = np.round(4 * a).astype(np.int64)
    expected = batched.potrf(whole.astype(float))
    np.testing.assert_array_equal(batched.potrf(whole), expected)
    np.testing.assert_array_equal(batched.potrf(whole.tolist()), expected)
    np.testing.assert_array_equal(batched.potrf(a.astype(">f8")), batched.potrf(a))
    np.testing.assert_array_equal(batched.potrf(np.asfortranarray(a)), batched.potrf(a))
    np.testing.assert_array_equal(batched.potrf(a[::2]), batched.potrf(a)[::2])
    assert batched.potrf(np.zeros((0, 4, 4))).shape == (0, 4, 4)
    assert batched.potrf(np.zeros((3, 0, 0), np.float32)).dtype == np.float32
    assert batched.solve(np.zeros((3, 0, 0)), np.zeros((3, 0))).shape == (3, 0)
    assert batched.solve(batched.potrf(a.astype(np.float32)), np.ones((5, 5))).dtype == np.float64


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (np.eye(3), r"must be \(batch, n, n\). Got \(3, 3\). Try a\[None\]"),
        (np.zeros((2, 3, 4)), r"Got \(2, 3, 4\)"),
        (np.zeros((1, 129, 129)), "order 128 or less. Got 129"),
        (np.zeros((1, 2, 2), complex), "FP32 or FP64. Got complex128"),
        (np.zeros((1, 2, 2), np.float16), "Got float16"),
        (np.array([[["a"]]]), "FP32 or FP64"),
    ],
)
def test_what_is_no_batch_is_refused(a, words):
    with pytest.raises(gx.InvalidInput, match=words):
        batched.potrf(a)


def test_right_hand_sides_and_factors_that_do_not_fit_are_refused():
    lower = batched.potrf(positive_definite(3, 5))
    with pytest.raises(gx.InvalidInput, match=r"b must be \(batch, n\)"):
        batched.solve(lower, np.zeros((3, 6)))
    with pytest.raises(gx.InvalidInput, match=r"b must be \(batch, n\)"):
        batched.solve(lower, np.zeros(5))
    lower[1, 2, 2] = 0.0
    with pytest.raises(gx.InvalidInput, match="diagonal of factor 1"):
        batched.solve(lower, np.zeros((3, 5)))
    width = batched.lanes_of(np.float64)
    for lanes in (width + 1, 0, -width, float(width), "chunk"):
        with pytest.raises(gx.InvalidInput, match="lanes must be a multiple"):
            batched.interleave(positive_definite(3, 5), lanes)


def test_interleaved_right_hand_sides_that_do_not_fit_are_refused_and_left_alone():
    width = batched.lanes_of(np.float64)
    chunks, b, x = interleaved(positive_definite(3, 5), width)
    wrong = (
        b,
        x[0],
        x.astype(np.float32),
        np.zeros((2, 5, 2, width)),
        np.zeros((1, 6, 2, width)),
        np.zeros((1, 5, 2, 2 * width)),
        np.asfortranarray(x),
        [[1.0]],
    )
    for function in (*(solve for _, solve in WAYS), batched.posv_interleaved):
        before = chunks.copy()
        for each in wrong:
            with pytest.raises(gx.InvalidInput, match=rf"b must be \(1, 5, k, {width}\).* Got"):
                function(chunks, each)
        with pytest.raises(gx.InvalidInput, match="must not share memory"):
            function(chunks, chunks.reshape(-1)[: x.size].reshape(x.shape))
        np.testing.assert_array_equal(chunks, before)
    for wrong in (-1, width + 1, 2.0):
        for separate, chunk in ((batched.separate, chunks), (batched.separate_vectors, x)):
            with pytest.raises(gx.InvalidInput, match=f"at most the {width} of the chunks"):
                separate(chunk, wrong)
    with pytest.raises(gx.InvalidInput, match=r"b must be \(chunks, n, k, lanes\)"):
        batched.separate_vectors(b, 3)
    for each in (b[:, :4], b[:0], np.resize(b, (2 * width, 5)), b[0], b + 1j, [["a"] * 5] * 3):
        with pytest.raises(gx.InvalidInput, match=r"b must be \(batch, 5\) or \(batch, 5, k\)"):
            batched.interleave_vectors(each, chunks)


@pytest.mark.parametrize(
    "chunks",
    [
        np.zeros((3, 3, 3, batched.lanes_of(np.float32) // 2), np.float32),
        np.zeros((2, 4, 4, batched.lanes_of(np.float64) + 1)),
        np.zeros((1, 4, 6, batched.lanes_of(np.float64))),
        np.zeros((4, 4, batched.lanes_of(np.float64))),
        np.zeros((1, 4, 4, batched.lanes_of(np.float32)), np.float16),
        np.zeros((1, 4, 4, 2 * batched.lanes_of(np.float64)))[..., ::2],
        np.zeros((1, 129, 129, batched.lanes_of(np.float64))),
        np.zeros((1, 4, 4, 0)),
    ],
    ids=[
        *("half a register", "one lane more", "no squares", "one chunk", "FP16", "strided"),
        *("too large", "no lanes"),
    ],
)
def test_chunks_that_are_none_are_refused_and_left_alone(chunks):
    before = chunks.copy()
    with pytest.raises(gx.InvalidInput, match=r"chunks must be \(chunks, n, n, lanes\).* Got"):
        batched.potrf_interleaved(chunks)
    with pytest.raises(gx.InvalidInput, match=r"chunks must be \(chunks, n, n, lanes\).* Got"):
        batched.solve_interleaved(chunks, np.zeros(chunks.shape))
    np.testing.assert_array_equal(chunks, before)
    program = batched_programs.factorization()
    if chunks.ndim != 4 or chunks.dtype == np.float16 or not chunks.flags.c_contiguous:
        return
    if chunks.shape[1] != chunks.shape[2] or chunks.shape[3] % batched.lanes_of(chunks.dtype):
        with pytest.raises(ValueError, match="lanes of whole registers"):
            program.factor_chunks(chunks, np.zeros(chunks.shape[0] * chunks.shape[3], np.int64))
