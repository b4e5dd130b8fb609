"""Casts on a GPU, and exponents that stay there: the exponents and bits of the CPU's casts.

Functions take views of CuPy arrays. The CPU must wait for the GPU to know an exponent. To leave it
on the GPU, let `Exponents` find it and pass the array that `Exponents.find` returns wherever an
exponent is expected:

    found = Exponents(1)
    exponent = found.find(0, array, FP16)
    round_into(values, array, FP16, exponent)
    alpha = factors(exponent, other_exponent, -1.0)

`products_gpu.multiply` takes such an alpha. `found.fetch()`, at the end, tells which arrays were
not finite.
"""

from functools import cache

import numpy as np

from ..cuda import module

THREADS = 256
"""Threads of a block, as in cuda/quantize.cu."""

SIDE = 32
"""Side of the squares in which an array is transposed, as in cuda/quantize.cu."""

MOST_DOWN = 65535
"""Blocks that CUDA allows in a grid's second dimension."""

SOURCES = {"float64": "fp64", "float32": "fp32"}


class Exponents:
    """Exponents of arrays, computed and kept on the current GPU; one transfer fetches all.

    Parameters
    ----------
    count : int
        How many arrays.
    more : int
        How many other 32-bit words are fetched with them.

    Attributes
    ----------
    on_gpu : (count, 2) cupy.ndarray of int32
        Of each array in its own format, and in the `wider` one (FP16 for FP8) if it has one.
    more : (more,) cupy.ndarray of int32
        Zeros at first.
    """

    def __init__(self, count, more=0):
        import cupy

        self._words = cupy.zeros(6 * count + more, np.int32)
        self._largest = self._words[: 4 * count].view(np.uint64).reshape(count, 2)
        self.on_gpu = self._words[4 * count : 6 * count].reshape(count, 2)
        self.more = self._words[6 * count :]

    def find(self, number, array, form, own=True, scale=True):
        """Find the exponent of an array; return it as a CuPy array.

        Parameters
        ----------
        number : int
            Number of the array; each is measured once.
        array : (m, n) FP32 or FP64 cupy.ndarray
            Copied if its columns are not contiguous.
        form : Format or None
            Without a format, or for one without exponents, only the largest magnitude is found.
        own : bool
            Whether the format is the array's own; otherwise it is that of its cast.
        scale : bool
            If False, the exponent is 0.

        Returns
        -------
        (2,) cupy.ndarray of int32
            A row of `on_gpu`.
        """
        import cupy

        row, largest = self.on_gpu[number], self._largest[number]
        top = 0 if form is None or not scale else form.top or 0
        shift = 0 if form is None else form.wider_shift
        with array.device:
            if not _by_columns(array):
                array = cupy.asfortranarray(array)
            about = np.int32(top), np.int32(own), np.int32(shift)
            _launch(f"exponent_{SOURCES[array.dtype.name]}", [array], about, (largest, row))
        return row

    def fetch(self):
        """Return the results; the CPU waits for the current stream.

        Returns
        -------
        (count,) ndarray of uint64
            The bits of the largest magnitudes; see `magnitude_of`.
        (count, 2) ndarray of int32
        (more,) ndarray of int32
        """
        words, count = self._words.get(), len(self.on_gpu)
        largest = words[: 4 * count].view(np.uint64)[::2]
        return largest, words[4 * count : 6 * count].reshape(count, 2), words[6 * count :]

    def forget(self, numbers):
        """Allow some arrays to be measured again, and set the other words to zero."""
        import cupy

        self.more[...] = 0
        if len(numbers):
            numbers = cupy.asarray(np.asarray(numbers))
            self._largest[numbers] = 0
            self.on_gpu[numbers] = 0


def magnitude_of(bits, dtype):
    """Return the number whose bits `Exponents.fetch` returns, for an FP32 or FP64 array."""
    dtype = np.dtype(dtype)
    return float(np.array(bits, f"u{dtype.itemsize}").view(dtype))


def magnitude(array):
    """Return max|a| of an FP32 or FP64 array: inf or NaN where the array holds one.

    Parameters
    ----------
    array : (m, n) cupy.ndarray
        Copied if its columns are not contiguous.

    Returns
    -------
    float
    """
    with array.device:
        found = Exponents(1)
        found.find(0, array, None)
        return magnitude_of(found.fetch()[0][0], array.dtype)


def factors(left, right, factor=1.0):
    """Return factor · 2^-(left + right), which scales the product of arrays with exponents.

    Parameters
    ----------
    left, right : (n,) cupy.ndarray of int32
        Of `Exponents`, contiguous.
    factor : float

    Returns
    -------
    (n,) cupy.ndarray of FP32
    """
    import cupy

    with left.device:
        alpha = cupy.empty(left.size, np.float32)
        if left.size:
            launch = module("quantize.cu").get_function("factors")
            grid = (-(-left.size // THREADS),)
            launch(grid, (THREADS,), (left, right, left.size, np.float32(factor), alpha))
    return alpha


def round_into(out, array, form, exponent):
    """Out <- the numbers of array·2^exponent in a format.

    Parameters
    ----------
    out : (m, n) cupy.ndarray of the format's dtype
        With contiguous columns; of FP8 also with contiguous rows, where the exponent is on the GPU.
    array : (m, n) FP32 or FP64 cupy.ndarray
        With contiguous columns.
    form : Format
    exponent : int or cupy.ndarray
        A number, or the first of an array of `Exponents`, which is 0 for formats without one.
    """
    kernel = f"{SOURCES[array.dtype.name]}_to_{form.name}"
    if _is_number(exponent) or form.top is None:
        exponent = exponent if _is_number(exponent) else 0
        _launch(kernel, [array, out], (array.dtype.type(2.0**exponent),))
    elif _by_columns(out):
        _launch(f"{kernel}_by_pointer", [array, out], (exponent,))
    else:
        _transpose_into(out, array, form, exponent)


def _transpose_into(out, array, form, exponent):
    """Out <- the numbers of array·2^exponent in FP8, out in C order."""
    (m, n), most = array.shape, _most_blocks(array.device.id)
    if not _by_columns(out.T) or form.name != "fp8":
        raise ValueError("only FP8 can be stored by rows")
    across = min(-(-m // SIDE), most)
    down = min(-(-n // SIDE), -(-most // across), MOST_DOWN)
    with array.device:
        launch = module("quantize.cu").get_function(f"{SOURCES[array.dtype.name]}_to_fp8_by_rows")
        about = array, m, n, _step(array), exponent, out, _step(out.T)
        launch((across, down), (THREADS,), about)


def widen_into(out, values, form, exponent):
    """Out <- numbers in a format times 2^-exponent.

    Parameters
    ----------
    out : (m, n) FP32 or FP64 cupy.ndarray
    values : (m, n) cupy.ndarray of the format's dtype
        Both with contiguous columns.
    form : Format
    exponent : int or cupy.ndarray
        See `round_into`.
    """
    source = SOURCES.get(values.dtype.name, form.name)
    kernel = f"{source}_to_{SOURCES[out.dtype.name]}"
    if not _is_number(exponent):
        _launch(f"{kernel}_by_pointer", [values, out], (exponent,))
        return
    # what is multiplied, FP32 or FP64, is multiplied as what it is
    real = values.dtype if values.dtype.name in SOURCES else out.dtype
    _launch(kernel, [values, out], (real.type(2.0**-exponent),))


def fp8_as_fp16_into(out, values):
    """Out <- 2^-8 times the numbers of FP8, as FP16; see `round_into`."""
    _launch("fp8_to_fp16", [values, out])


def _launch(kernel, arrays, scale=(), result=()):
    """Start a kernel over the entries of arrays of one shape, in the order of the columns.

    Its arguments are the first array, the scale, the other arrays, and the results.
    """
    (m, n), index = arrays[0].shape, arrays[0].device.id
    if not m * n:
        return
    steps = [_step(array) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        m, n, steps = m * n, 1, [m * n] * len(arrays)
    across = min(-(-m // THREADS), _most_blocks(index))
    down = min(n, -(-_most_blocks(index) // across), MOST_DOWN)
    source, *targets = zip(arrays, steps, strict=True)
    arguments = (source[0], m, n, source[1], *scale, *(x for pair in targets for x in pair))
    with arrays[0].device:
        launch = module("quantize.cu").get_function(kernel)
        launch((across, down), (THREADS,), (*arguments, *result))


def _is_number(exponent):
    """Return whether an exponent is known to the CPU."""
    return isinstance(exponent, (int, np.integer))


def _by_columns(array):
    """Return whether an array has contiguous columns."""
    return array.shape[0] <= 1 or array.strides[0] == array.itemsize


def _step(array):
    """Return the distance between columns, in entries."""
    if not _by_columns(array):
        raise ValueError("columns are not contiguous")
    return array.strides[1] // array.itemsize


@cache
def _most_blocks(index):
    """Return how many blocks fill a GPU: 2048 threads to each of its processors."""
    from cupy.cuda import runtime

    return (
        2048 // THREADS * runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, index)
    )
