"""Number formats, and tiles whose values are stored in one.

All facts about a format are in one table, `FORMATS`. To add a format, create a `Format` and pass
it to `register`: rules, tiles, maps and pictures then take it by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import frexp, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidInput
from .backend import backend_of

if TYPE_CHECKING:
    from .._typing import DTypeLike

__all__ = ["FORMATS", "Format", "Tile", "coarser", "named", "quantize", "register"]

LARGEST_EXPONENT = 120
"""Values are scaled by at most 2^±120, which FP32 holds."""


@dataclass(frozen=True, eq=False)
class Format:
    """A number format: its storage, its rounding error and its arithmetic.

    Parameters
    ----------
    name : str
        Lower case, as the command line spells it.
    dtype : numpy.dtype
        Type of a stored number; unsigned integers hold the bits where NumPy has no such float.
    unit_roundoff : float
        Unit roundoff u of `products`: half the distance from 1 to the next number.
    largest, smallest : float
        The largest finite and the smallest positive number.
    letter : str
        Drawn for a tile in a printed `PrecisionMap`.
    color : str
        Drawn for a tile in a picture.
    top : int or None
        Values are scaled by a power of two so that their largest magnitude lies in
        [2^(top-1), 2^top); None where the range is wide enough without a scale.
    finer : Format, optional
        What a tile in this format is promoted to; the format itself if None.
    wider : Format, optional
        A format that holds 2^-`wider_shift` times each number exactly, and in which numbers are
        multiplied where the hardware does not multiply this format.
    wider_shift : int
    products : Format, optional
        What the operands of products are rounded to; the format itself if None.
    encode, decode : callable or str, optional
        ``encode(x, scale, out)`` writes x·scale in the format, ``decode(x, scale, out)`` writes
        stored numbers times scale, for 1-D arrays; or the name of a loop of `linalg.loops`. NumPy
        converts by `dtype` where one is None.
    rounded : callable or str, optional
        As `encode`, but writes the rounded numbers as FP32. Used where the format is
        multiplied in FP32; if None, numbers are encoded and then decoded.
    step : int
        Exponents of a panel without a known bound are multiples of this, so that most neighbouring
        pieces agree.
    cost : float or None
        Time of a product relative to FP16's on matrix units. Rules that minimize the work choose
        among the formats with a cost.
    rounding : float or None
        Root mean square error of a stored tile in units of u ‖A‖_F; rather too large.
    mkl : (str, str), optional
        MKL's routine that multiplies the format with FP32 sums, and the CPU feature it needs.
    avx512 : str, optional
        The CPU feature with which `products_cpu` multiplies the format.
    cuda_type : int, optional
        The format's number in cuBLAS's `cudaDataType_t`.
    cuda_compute : int
        cuBLAS's `cublasComputeType_t` of products; 68 is FP32.
    cuda_since : int
        Compute capability, times ten, of the first GPUs with matrix units for the format.
    columns : int
        Columns that are summed at once, for FP32 `in_planes`; 0 for other formats.
    """

    name: str
    dtype: np.dtype
    unit_roundoff: float
    largest: float
    smallest: float
    letter: str
    color: str
    top: int | None = None
    finer: Format | None = None
    wider: Format | None = None
    wider_shift: int = 0
    products: Format | None = None
    encode: Callable | str | None = None
    decode: Callable | str | None = None
    rounded: Callable | str | None = None
    step: int = 1
    cost: float | None = None
    rounding: float | None = None
    mkl: tuple[str, str] | None = None
    avx512: str | None = None
    cuda_type: int | None = None
    cuda_compute: int = 68
    cuda_since: int = 0
    columns: int = 0

    def __post_init__(self) -> None:
        for name in ("finer", "products"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self)

    @property
    def bytes(self) -> int:
        """Bytes of one stored number."""
        return self.dtype.itemsize

    @property
    def coarse(self) -> bool:
        """Whether the format is coarser than FP32, in which it is then multiplied and summed."""
        return self.unit_roundoff > 2.0**-24

    def coarser_than(self, dtype: DTypeLike) -> bool:
        """Return whether a block in this format is rounded beside numbers of FP64 or FP32.

        Its products are then those of the format, summed in FP32.

        Examples
        --------
        >>> FP32.coarser_than(np.float64), FP32.coarser_than(np.float32)
        (True, False)
        """
        # sums in FP32 would lose digits of formats between FP32 and FP64
        return self.coarse or (self.unit_roundoff == 2.0**-24 and np.dtype(dtype).itemsize == 8)

    @property
    def narrow(self) -> bool:
        """Whether the range is too small for one scale of all columns of a panel."""
        return log2(self.largest) - log2(self.smallest) < 24

    def exponent_for(self, largest: float) -> int:
        """Return the e for which largest·2^e is at the top of the range, as high as is exact.

        Examples
        --------
        >>> FP16.exponent_for(1.0), FP8.exponent_for(3.0), FP64.exponent_for(3.0)
        (14, 6, 0)
        """
        if self.top is None or not 0 < largest < np.inf:
            return 0
        exponent = self.top - frexp(largest)[1]
        return max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, exponent))

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        # formats are compared by identity, in other processes too
        return named, (self.name,)


FP64 = Format(
    "fp64",
    np.dtype(np.float64),
    unit_roundoff=2.0**-53,
    largest=float(np.finfo(np.float64).max),
    smallest=2.0**-1074,
    letter="D",
    color="#08306b",
    cost=8.0,
    rounding=5.0,
)
FP32 = Format(
    "fp32",
    np.dtype(np.float32),
    unit_roundoff=2.0**-24,
    largest=float(np.finfo(np.float32).max),
    smallest=2.0**-149,
    letter="S",
    color="#3f8fc5",
    finer=FP64,
    cost=3.0,
    rounding=5.0,
    cuda_type=0,
)
TF32 = Format(
    "tf32",
    np.dtype(np.float32),
    unit_roundoff=2.0**-11,
    largest=(2 - 2.0**-10) * 2.0**127,
    smallest=2.0**-136,
    letter="T",
    color="#7fbf7b",
    finer=FP32,
    encode="to_tf32",
    cuda_type=0,
    cuda_compute=77,
    cuda_since=80,
)
BF16 = Format(
    "bf16",
    np.dtype(np.uint16),
    unit_roundoff=2.0**-8,
    largest=(2 - 2.0**-7) * 2.0**127,
    smallest=2.0**-133,
    letter="B",
    color="#d9ef8b",
    finer=FP32,
    encode="to_bf16",
    decode="from_bf16",
    rounded="as_bf16",
    mkl=("cblas_gemm_bf16bf16f32", "amx-bf16"),
    avx512="avx512bf16",
    cuda_type=14,
    cuda_since=80,
)
FP16 = Format(
    "fp16",
    np.dtype(np.float16),
    unit_roundoff=2.0**-11,
    largest=65504.0,
    smallest=2.0**-24,
    letter="H",
    color="#fdb863",
    top=15,
    finer=FP32,
    encode="to_fp16",
    decode="from_fp16",
    rounded="as_fp16",
    # 40 binades less 8 and those of the rounding
    step=8,
    cost=1.0,
    rounding=0.6,
    mkl=("cblas_gemm_f16f16f32", "amx-fp16"),
    cuda_type=2,
    cuda_since=70,
)
FP16_IN_FP32 = Format(
    "fp32-fp16",
    np.dtype(np.float32),
    unit_roundoff=FP16.unit_roundoff,
    largest=FP32.largest,
    smallest=FP32.smallest,
    letter="M",
    color="#c994c7",
    finer=FP32,
    products=FP16,
    cuda_type=0,
)
"""Stored in FP32, rounded to FP16 for products: Abdelfattah, Tomov & Dongarra (2020), section 4."""
FP8 = Format(
    "fp8",
    np.dtype(np.uint8),
    unit_roundoff=2.0**-4,
    largest=448.0,
    smallest=2.0**-9,
    letter="Q",
    color="#f7e3b5",
    top=8,
    finer=FP16,
    wider=FP16,
    wider_shift=8,
    encode="to_fp8",
    decode="from_fp8",
    # it is read as fast as FP16 and takes fewer bytes
    cost=0.9,
    rounding=0.9,
    cuda_type=28,
    cuda_since=89,
)


@cache
def in_planes(columns: int) -> Format:
    """Return FP32 as two FP16 planes, high and low: a format of panels on a GPU.

    It is multiplied in three products of FP16, whose units sum `columns` columns at once.
    """
    return Format(
        "fp32 in planes",
        FP16.dtype,
        unit_roundoff=2.0**-22,
        largest=FP16.largest,
        smallest=FP16.smallest,
        letter=FP32.letter,
        color=FP32.color,
        top=FP16.top,
        finer=FP32,
        cuda_type=FP16.cuda_type,
        columns=columns,
    )


FORMATS = {form.name: form for form in (FP64, FP32, FP16_IN_FP32, TF32, BF16, FP16, FP8)}
"""All formats, by name."""


def register(form: Format) -> Format:
    """Make a format known by its name, in this process, and return it.

    Raises InvalidInput if another format has the name.
    """
    if FORMATS.setdefault(form.name, form) is not form:
        raise InvalidInput(f"a format named {form.name!r} exists already: choose another name.")
    return form


def named(name: str | Format) -> Format:
    """Return the format called `name`, or raise InvalidInput."""
    if isinstance(name, Format):
        return name
    try:
        return FORMATS[str(name).lower()]
    except KeyError:
        known = ", ".join(FORMATS)
        raise InvalidInput(f"`format` must be one of: {known}. Got {name!r}.") from None


def coarser(a: Format, b: Format) -> Format:
    """Return the format with the larger unit roundoff, of equals the one of fewer bytes.

    Of two with equal bytes, the one whose products have fewer.

    Examples
    --------
    >>> coarser(FP64, FP16)
    fp16
    """
    return max(a, b, key=lambda form: (form.unit_roundoff, -form.bytes, -form.products.bytes))


@dataclass(frozen=True)
class Tile:
    """A ≈ values · 2^-exponent, with `values` in a format.

    A tile that is small enough for a coarse format lies in that format's subnormal range or below
    it; times a power of two, which is exact, it does not.

    Parameters
    ----------
    form : Format
    values : (m, n) NumPy or CuPy array, Fortran order
        Numbers of the format, or their bits. FP32 may be stored as two FP16 planes, high and low,
        (m, n, 2): as many bytes, and matrix units multiply them. On a GPU, FP8 may be in C order,
        as its matrix units need it.
    exponent : int or (2,) cupy.ndarray of int32
        A GPU may know it before the CPU does; see `gpu.Exponents`.
    casts : dict of Format to Tile
        The same numbers in coarser formats, as long as they are read.
    """

    form: Format
    values: Any
    exponent: int = 0
    casts: dict[Format, Tile] = field(default_factory=dict, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """(m, n)."""
        return self.values.shape[:2]

    @property
    def split(self) -> bool:
        """Whether an FP32 tile is stored as two FP16 planes."""
        return self.values.ndim == 3

    @property
    def nbytes(self) -> int:
        """Bytes of the values and of the casts."""
        return self.values.nbytes + sum(cast.nbytes for cast in self.casts.values())

    def __sizeof__(self) -> int:
        # Dask counts memory by this
        return object.__sizeof__(self) + self.nbytes

    def __reduce__(self):
        # a tile travels as it is stored; its readers make the casts
        return _arrived, (self.form, self.values, self.exponent)

    def plane(self, number: int) -> Tile:
        """Return the high (0) or the low (1) half of a split FP32 tile, as an FP16 tile."""
        return Tile(FP16, self.values[:, :, number], self.exponent)

    def part(self, rows: slice, columns: slice) -> Tile:
        """Return some rows and columns of a tile without casts, as a view."""
        return Tile(self.form, self.values[rows, columns], self.exponent)

    def in_wider(self) -> Tile:
        """Return the same numbers in the format's `wider` one, exactly and in the same order."""
        values, exponent, form = self.values, self.exponent, self.form
        wide = backend_of(values).as_wider(values, form)
        known = isinstance(exponent, (int, np.integer))
        # on a GPU the second word is the exponent in the wider format
        return Tile(form.wider, wide, exponent - form.wider_shift if known else exponent[1:])

    def widen(self, dtype: DTypeLike = np.float64, out: Any = None) -> Any:
        """Return the values as FP64 or FP32, (m, n) in Fortran order.

        They are the tile's own if they have that type already. They are written into `out`, a NumPy
        array in Fortran order, if it is given.
        """
        values, exponent = self.values, self.exponent
        # an exponent that is on a GPU belongs to a format of another type
        if out is None and values.dtype == dtype and not exponent:
            return values
        backend = backend_of(values)
        out = backend.empty(self.shape, dtype, values) if out is None else out
        if self.split:
            backend.join_into(out, values, exponent)
        else:
            backend.widen_into(out, backend.as_columns(values), self.form, exponent)
        return out


def _arrived(form, values, exponent):
    """Return a tile from another process, whose numbers may be at odd addresses."""
    return Tile(form, aligned(values), exponent)


def aligned(array):
    """Return an array with the same numbers at addresses that BLAS accepts."""
    return array if backend_of(array).on_gpu or array.flags.aligned else array.copy(order="K")


def check_largest(largest, form):
    """Raise `InvalidInput` unless a format can represent an array with this largest magnitude."""
    if not np.isfinite(largest) or (form is not FP64 and largest > FP32.largest):
        raise InvalidInput(f"a tile holds {largest:g}, which {form.name} cannot represent.")


def quantize(array: Any, form: Format | str, *, scale: bool = True, split: bool = False) -> Tile:
    """Return an FP32 or FP64 array in Fortran order as a tile in a format.

    For a CuPy array the CPU waits until the GPU knows the largest magnitude.

    Parameters
    ----------
    scale : bool
        Multiply by the power of two that uses the format's range best. Without a scale, numbers
        that are too small for the format are lost; for comparisons only.
    split : bool
        Store FP32 as two FP16 planes.

    Raises
    ------
    InvalidInput
        If the array holds a NaN or an infinity.

    Examples
    --------
    >>> small = np.full((2, 2), 3e-9, order="F")
    >>> float(abs(quantize(small, "fp8").widen() / small - 1).max()) < 2**-4
    True
    >>> float(quantize(small, "fp8", scale=False).widen().max())
    0.0
    """
    form, backend = named(form), backend_of(array)
    largest = backend.largest(array)
    check_largest(largest, form)
    split = split and form is FP32
    exponent = (FP16 if split else form).exponent_for(largest) if scale or split else 0
    return cast(array, form, exponent, split)


def cast(array, form, exponent=0, split=False):
    """Return array·2^exponent as a tile in a format, in one pass; see `quantize`.

    The exponent is an int, or the first of an array of `gpu.Exponents`.
    """
    backend = backend_of(array)
    array = backend.as_columns(array)
    if split:
        values = backend.split(array, exponent)
    else:
        values = backend.empty(array.shape, form.dtype, array)
        if not backend.on_gpu and form.top is not None and exponent in (0, -LARGEST_EXPONENT):
            # not scaled to the format's range: a GPU's kernels saturate, the compiled loops do not
            array = np.clip(array, -form.largest, form.largest)
        backend.round_into(values, array, form, exponent)
    return Tile(form, values, exponent)
