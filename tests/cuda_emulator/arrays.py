"""CuPy's array and its functions, over an emulated device's memory.

Shapes, types, strides and views are those of a NumPy array on the device's memory, known at once;
numbers are read and written only by operations in the queues of `machine`. As in CuPy, results of
universal functions and reductions are C-ordered, kernels run on the current device and refuse
arrays of another one, and no array becomes a NumPy array implicitly.
"""

import operator
from functools import cache

import numpy as np

from . import machine
from .machine import Memory

WEAK = (bool, int, float, complex)
"""Python's own number types; such a number takes the type of the array operand."""


class MemoryPointer:
    """An address in an emulated device's memory; it keeps that memory alive.

    Parameters
    ----------
    memory : Memory
    offset : int
    """

    def __init__(self, memory, offset=0):
        self.mem, self.offset = memory, offset

    @property
    def ptr(self):
        """The address."""
        return self.mem.allocation.address + self.offset

    @property
    def device_id(self):
        """The number of the device."""
        return self.mem.device

    @property
    def device(self):
        """The device."""
        from cupy.cuda import Device

        return Device(self.mem.device)

    def __add__(self, nbytes):
        """Return the address `nbytes` further on."""
        return MemoryPointer(self.mem, self.offset + int(nbytes))


@cache
def _kind_of_device():
    from cupy.cuda import Device

    return Device


def quiet(function, *arguments, **options):
    """Call NumPy without warnings: a GPU does not report overflow or NaN."""
    with np.errstate(all="ignore"):
        return function(*arguments, **options)


def _order_of(a, order):
    """Return "C" or "F" for the order of a contiguous result of an array."""
    if order in ("C", "F"):
        return order
    return "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"


def _like(a, dtype, order):
    """Return an uninitialized array of another one's shape; order "K" keeps that of its strides."""
    if order == "K":
        strides = np.empty_like(a._a, dtype, order="K", shape=a.shape).strides
        return ndarray(a.shape, dtype, strides=strides)
    return ndarray(a.shape, dtype, order=_order_of(a, order))


class ndarray:  # noqa: N801 (CuPy's name)
    """An array in an emulated device's memory."""

    __array_priority__ = 100
    __hash__ = None

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(map(int, shape))
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        pointer = MemoryPointer(Memory(nbytes)) if memptr is None else memptr
        allocation = pointer.mem.allocation
        if pointer.offset + nbytes > allocation.nbytes:
            machine.fault(
                f"illegal address: an array of {nbytes} bytes reaches beyond {allocation}"
            )
        order = "F" if order == "F" else "C"
        buffer = allocation.memory if nbytes else np.empty(0, np.uint8)
        self._memory = pointer.mem
        self._a = np.ndarray(shape, dtype, buffer, pointer.offset if nbytes else 0, strides, order)

    def _view(self, a):
        other = object.__new__(ndarray)
        other._a, other._memory = a, self._memory
        return other

    # conversions to NumPy, and calls by it

    def __array__(self, *_, **__):
        """Refuse, as CuPy does."""
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct "
            "a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """Enqueue a universal function."""
        if method != "__call__":
            return NotImplemented
        return universal(ufunc, *inputs, **options)

    def __array_function__(self, function, types, arguments, options):
        """Call CuPy's function of a NumPy function's name, if there is one."""
        import cupy

        found = getattr(cupy, function.__name__, None)
        if found is None or np.ndarray in types:
            return NotImplemented
        return found(*arguments, **options)

    def __reduce__(self):
        return array, (self.get(order="A"),)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.data.ptr, False),
            "strides": self.strides,
            "version": 3,
        }

    # attributes that are known without waiting for the device

    shape = property(lambda self: self._a.shape)
    dtype = property(lambda self: self._a.dtype)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    nbytes = property(lambda self: self._a.nbytes)
    itemsize = property(lambda self: self._a.itemsize)
    strides = property(lambda self: self._a.strides)
    flags = property(lambda self: self._a.flags)
    _f_contiguous = property(lambda self: self._a.flags.f_contiguous)
    _c_contiguous = property(lambda self: self._a.flags.c_contiguous)
    T = property(lambda self: self._view(self._a.T))
    base = property(lambda self: None if self._a.base is None else self)

    @property
    def device(self):
        """The device that holds it."""
        return _kind_of_device()(self._memory.device)

    @property
    def address(self):
        """Its address, as a number."""
        if not self._a.size:
            return self._memory.allocation.address
        return self._a.__array_interface__["data"][0]

    @property
    def data(self):
        """Its address."""
        return MemoryPointer(self._memory, self.address - self._memory.allocation.address)

    def __len__(self):
        return len(self._a)

    def __repr__(self):
        return f"<{self.shape} {self.dtype} on {self.device}>"

    def view(self, dtype=None):
        """Return a view, of another type if given."""
        return self._view(self._a.view() if dtype is None else self._a.view(dtype))

    def transpose(self, *axes):
        """Return a view with other axes."""
        return self._view(self._a.transpose(*axes))

    def diagonal(self, offset=0, axis1=0, axis2=1):
        """Return a view of the diagonal of two axes."""
        a = np.moveaxis(self._a, (axis1, axis2), (-2, -1))
        a = a[..., max(-offset, 0) :, max(offset, 0) :]
        (*others, row, column), length = a.strides, min(a.shape[-2:])
        shape, strides = (*a.shape[:-2], length), (*others, row + column)
        return self._view(np.lib.stride_tricks.as_strided(a, shape, strides))

    def reshape(self, *shape, order="C"):
        """Return a view of another shape; a copy if the strides allow no view."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        order = _order_of(self, order)
        try:
            return self._view(np.reshape(self._a, shape, order=order, copy=False))
        except ValueError:
            copy = self.astype(self.dtype, order=order)
            return copy._view(np.reshape(copy._a, shape, order=order, copy=False))

    def ravel(self, order="C"):
        """Return it in one dimension."""
        return self.reshape(-1, order=order)

    def squeeze(self, axis=None):
        """Return a view without axes of length 1."""
        return self._view(self._a.squeeze(axis))

    def __getitem__(self, key):
        if _is_basic(key):
            a = self._a[(*key, ...) if isinstance(key, tuple) and Ellipsis not in key else key]
            if not isinstance(a, np.ndarray):
                a = self._a[(key, ...)]
            return self._view(a)
        # an array of integers or a mask: a copy
        shape = np.broadcast_to(np.empty((), self.dtype), self.shape)[_host_index(key)].shape
        out, source, parts = ndarray(shape, self.dtype), self._a, _deferred_index(key)
        launch("take", lambda: out._a.__setitem__(..., source[parts()]), out, self)
        return out

    # operations on the device

    def __setitem__(self, key, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError(f"Unsupported type {type(value)}")
        if isinstance(value, (list, tuple)):
            raise TypeError(f"Unsupported type {type(value)}")
        target, source = self._a, value._a if isinstance(value, ndarray) else value
        if _is_basic(key):
            np.broadcast_shapes(np.shape(source), target[key].shape)
            parts = lambda: key  # noqa: E731
        else:
            parts = _deferred_index(key)
        launch("assignment", lambda: target.__setitem__(parts(), source), self, value)

    def fill(self, value):
        """Set all entries to a number."""
        target = self._a
        launch("fill", lambda: target.fill(value), self)

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        """Return a copy in another type, on the current device."""
        dtype = np.dtype(dtype)
        same_order = (
            order in "KA"
            or (order == "F" and self.flags.f_contiguous)
            or (order == "C" and self.flags.c_contiguous)
        )
        if not copy and dtype == self.dtype and same_order:
            return self
        out = _like(self, dtype, order)
        source, target = self._a, out._a
        launch("cast", lambda: target.__setitem__(..., source.astype(dtype)), out, self)
        return out

    def copy(self, order="C"):
        """Return a copy, on the current device, as CuPy does."""
        if self._memory.device == machine.current_device():
            return self.astype(self.dtype, order=order)
        from cupy.cuda import Device

        with Device(self._memory.device):
            whole = self.astype(self.dtype, order=order, copy=False)
        out = _like(whole, self.dtype, order)
        source, target = whole._a, out._a
        machine.count("copies between devices")
        machine.enqueue(
            "copy from another device",
            lambda: target.__setitem__(..., source),
            (whole._memory.allocation, out._memory.allocation),
        )
        return out

    def get(self, stream=None, order="C", out=None, blocking=True):
        """Return a NumPy array of the numbers."""
        device = self._memory.device
        source = self._a
        target = np.empty(self.shape, self.dtype, _order_of(self, order)) if out is None else out
        queue = machine.current_queue(device) if stream is None else stream._queue
        contiguous = source.flags.c_contiguous or source.flags.f_contiguous
        if not contiguous:
            machine.count("launches")
            machine.note("function", "copy", [source], queue=queue)
        machine.count("bytes to host", self.nbytes)
        machine.count("copies")
        machine.note("to host", "get", [source], self.nbytes, queue)
        machine.enqueue(
            "copy to the host",
            lambda: target.__setitem__(..., source),
            (self._memory.allocation,),
            queue,
        )
        if blocking:
            machine.synchronize([queue.end])
        return target

    def set(self, array, stream=None):
        """Copy a NumPy array here."""
        queue = machine.current_queue(self._memory.device) if stream is None else stream._queue
        _put(self, np.array(array, self.dtype).reshape(self.shape), queue)

    def item(self, *arguments):
        """Return the only number."""
        return self.get().item(*arguments)

    def tolist(self):
        """Return the numbers."""
        return self.get().tolist()

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        return operator.index(self.item())

    def __bool__(self):
        return bool(self.item())

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def dot(self, other):
        """Return the product with another array."""
        return matmul(self, other)

    def __matmul__(self, other):
        return matmul(self, other)


def _is_basic(key):
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (int, slice, np.integer))
        for part in parts
    )


def _host_index(key):
    """Return an index with NumPy arrays for CuPy's, to find the shape of a result."""
    parts = key if isinstance(key, tuple) else (key,)
    found = tuple(part.get() if isinstance(part, ndarray) else part for part in parts)
    return found if isinstance(key, tuple) else found[0]


def _deferred_index(key):
    parts = key if isinstance(key, tuple) else (key,)
    arrays = tuple(part._a if isinstance(part, ndarray) else part for part in parts)
    return lambda: arrays if isinstance(key, tuple) else arrays[0]


def launch(label, work, *operands):
    """Enqueue a kernel on the current stream, over arrays that must be on the current device."""
    allocations = []
    for x in operands:
        if not isinstance(x, ndarray):
            continue
        if x._memory.device != machine.current_device():
            raise ValueError(
                "Array device must be same as the current device: array device = "
                f"{x._memory.device} while current = {machine.current_device()}"
            )
        allocations.append(x._memory.allocation)
    machine.count("launches")
    machine.note("function", label, [x._a for x in operands if isinstance(x, ndarray)])
    machine.enqueue(label, lambda: quiet(work), allocations)


def _put(array, values, queue):
    """Copy numbers of the host, as they are now, to the device."""
    target = array._a
    machine.count("bytes to device", array.nbytes)
    machine.count("copies")
    machine.note("to device", "set", [target], array.nbytes, queue)
    machine.enqueue(
        "copy to the device",
        lambda: target.__setitem__(..., values),
        (array._memory.allocation,),
        queue,
    )


def _operand(x):
    """Return an operand for NumPy, and the type that decides the type of the result."""
    if isinstance(x, ndarray):
        return x._a, x.dtype
    if isinstance(x, np.generic):
        return x, x.dtype
    if isinstance(x, WEAK):
        return x, np.dtype(bool) if isinstance(x, bool) else type(x)
    raise TypeError(f"Unsupported type {type(x)}")


def universal(ufunc, *inputs, out=None, dtype=None, casting="same_kind", where=True):
    """Enqueue a universal function of NumPy; return its result."""
    if where is not True:
        raise TypeError("the emulator's universal functions have no `where`")
    operands, types = zip(*map(_operand, inputs), strict=True)
    if ufunc.nout != 1:
        raise TypeError(f"the emulator has no {ufunc.__name__}")
    shape = np.broadcast_shapes(*(np.shape(x) for x in operands))
    found = ufunc.resolve_dtypes((*types, None))[-1] if dtype is None else np.dtype(dtype)
    target = out[0] if isinstance(out, tuple) else out
    if target is None:
        target = ndarray(shape, found)
    elif not np.can_cast(found, target.dtype, casting):
        raise TypeError(f"output ({found}) cannot be cast to {target.dtype} by rule '{casting}'")
    elif np.broadcast_shapes(shape, target.shape) != target.shape:
        raise ValueError(f"operands of shape {shape} do not fit an output of {target.shape}")
    result = target._a
    launch(
        ufunc.__name__,
        lambda: ufunc(*operands, out=result, casting="unsafe"),
        target,
        *inputs,
    )
    return target


def _binary(ufunc):
    return (
        lambda self, other: universal(ufunc, self, other),
        lambda self, other: universal(ufunc, other, self),
        lambda self, other: universal(ufunc, self, other, out=self),
    )


for _name, _ufunc in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "pow": np.power,
    "mod": np.remainder,
    "floordiv": np.floor_divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}.items():
    for _prefix, _method in zip(("", "r", "i"), _binary(_ufunc), strict=True):
        setattr(ndarray, f"__{_prefix}{_name}__", _method)
for _name, _ufunc in {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}.items():
    setattr(ndarray, f"__{_name}__", _binary(_ufunc)[0])
for _name, _ufunc in {"neg": np.negative, "invert": np.invert, "abs": np.absolute}.items():
    setattr(ndarray, f"__{_name}__", lambda self, ufunc=_ufunc: universal(ufunc, self))


def _reduction(name):
    """Return CuPy's function of a reduction's name."""
    function = getattr(np, name)

    def reduce(a, axis=None, dtype=None, out=None, keepdims=False):
        if out is not None or not isinstance(a, ndarray):
            raise TypeError(f"the emulator's {name} takes a CuPy array, and no `out`")
        options = {} if dtype is None else {"dtype": dtype}
        kind = function(np.ones((1,) * max(a.ndim, 1), a.dtype), **options).dtype
        axes = range(a.ndim) if axis is None else np.atleast_1d(axis) % a.ndim
        kept = [
            1 if k in axes else size for k, size in enumerate(a.shape) if keepdims or k not in axes
        ]
        result, source = ndarray(kept, kind), a._a
        target = result._a
        options |= {"keepdims": True} if keepdims else {}
        launch(
            name, lambda: target.__setitem__(..., function(source, axis=axis, **options)), result, a
        )
        return result

    reduce.__name__ = name
    return reduce


REDUCTIONS = {
    n: _reduction(n)
    for n in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean")
}
for _name, _function in REDUCTIONS.items():
    setattr(ndarray, _name, lambda self, *a, f=_function, **k: f(self, *a, **k))


def matmul(a, b):
    """Return the product of two arrays, C-ordered, by cuBLAS."""
    shape = (
        np.matmul(*(np.broadcast_to(np.empty((), np.int8), x.shape) for x in (a, b))).shape
        if a.ndim and b.ndim
        else ()
    )
    out = ndarray(shape, np.result_type(a.dtype, b.dtype))
    one, two, target = a._a, b._a, out._a
    machine.count("library calls")
    launch("matmul", lambda: target.__setitem__(..., np.matmul(one, two)), out, a, b)
    return out


def vdot(a, b):
    """Return the inner product of two arrays of one shape."""
    out = ndarray((), np.result_type(a.dtype, b.dtype))
    one, two, target = a._a, b._a, out._a
    launch("vdot", lambda: target.__setitem__(..., np.vdot(one, two)), out, a, b)
    return out


# --- creation -----------------------------------------------------------------------------------


def empty(shape, dtype=float, order="C"):
    """Return an array of poison."""
    return ndarray(shape, dtype, order=order)


def zeros(shape, dtype=float, order="C"):
    """Return an array of zeros."""
    out = ndarray(shape, dtype, order=order)
    target = out._a
    machine.note("memset", "zeros", [target])
    machine.enqueue("memset", lambda: target.fill(0), (out._memory.allocation,))
    machine.count("memsets")
    return out


def full(shape, value, dtype=None, order="C"):
    """Return an array of one number."""
    out = ndarray(shape, np.asarray(value).dtype if dtype is None else dtype, order=order)
    out.fill(value)
    return out


def ones(shape, dtype=float, order="C"):
    """Return an array of ones."""
    return full(shape, 1, dtype, order)


def empty_like(a, dtype=None, order="K"):
    """Return an uninitialized array of another one's shape."""
    return _like(a, a.dtype if dtype is None else dtype, order)


def zeros_like(a, dtype=None, order="K"):
    """Return zeros of another array's shape."""
    return zeros(a.shape, a.dtype if dtype is None else dtype, _order_of(a, order))


def full_like(a, value, dtype=None, order="K"):
    """Return one number in another array's shape."""
    return full(a.shape, value, a.dtype if dtype is None else dtype, _order_of(a, order))


def array(a, dtype=None, copy=True, order="K"):
    """Return a copy of a NumPy or CuPy array on the current device."""
    if isinstance(a, ndarray):
        here = _here(a)
        return here.astype(a.dtype if dtype is None else dtype, order=order, copy=here is a)
    if isinstance(a, (list, tuple)) and any(isinstance(x, ndarray) for x in a):
        raise TypeError("the emulator makes no arrays of lists of arrays")
    values = np.array(a, dtype=dtype)
    if values.dtype.kind not in "biufc":
        raise ValueError(f"Unsupported dtype {values.dtype}")
    out = ndarray(values.shape, values.dtype, order=_order_of(values, order))
    _put(out, values, machine.current_queue())
    return out


def asarray(a, dtype=None, order=None):
    """Return an array on the current device, or the same array if it is CuPy's already."""
    if isinstance(a, ndarray):
        a = _here(a)
        return a.astype(a.dtype if dtype is None else dtype, order=order or "K", copy=False)
    return array(a, dtype, order=order or "K")


def _here(a):
    """Return an array on the current device: a copy of one on another device, as in CuPy."""
    return a if a._memory.device == machine.current_device() else a.copy(order="K")


def asfortranarray(a, dtype=None):
    """Return an array in Fortran order."""
    return asarray(a, dtype, "F")


def ascontiguousarray(a, dtype=None):
    """Return an array in C order."""
    return asarray(a, dtype, "C")


def asnumpy(a, stream=None, order="C", out=None):
    """Return a NumPy array."""
    return a.get(stream, order, out) if isinstance(a, ndarray) else np.asarray(a, order=order)


def _made(name, values, order="C"):
    """Return an array that a kernel fills."""
    out = ndarray(values.shape, values.dtype, order=order)
    target = out._a
    launch(name, lambda: target.__setitem__(..., values), out)
    return out


def arange(*arguments, **options):
    """Return a range."""
    return _made("arange", np.arange(*arguments, **options))


def eye(n, m=None, k=0, dtype=float, order="C"):
    """Return an identity."""
    return _made("eye", np.eye(n, m, k, dtype), order)


def tri(n, m=None, k=0, dtype=float):
    """Return ones on and below a diagonal."""
    return _made("tri", np.tri(n, m, k, dtype))


# --- functions ----------------------------------------------------------------------------------


def where(condition, x, y):
    """Return entries of x where a condition holds, and of y elsewhere."""
    (c, _), (one, first), (two, second) = map(_operand, (condition, x, y))
    shape = np.broadcast_shapes(*(np.shape(part) for part in (c, one, two)))
    kinds = [np.empty(0, k) if isinstance(k, np.dtype) else k(0) for k in (first, second)]
    out = ndarray(shape, np.result_type(*kinds))
    target = out._a
    launch("where", lambda: target.__setitem__(..., np.where(c, one, two)), out, condition, x, y)
    return out


def copyto(dst, src, casting="same_kind", where=None):
    """Copy numbers into an array, where a mask is true."""
    if not isinstance(dst, ndarray):
        raise TypeError("dst must be cupy.ndarray")
    source, kind = _operand(src)
    if isinstance(kind, np.dtype) and not np.can_cast(kind, dst.dtype, casting):
        raise TypeError(f"Cannot cast {kind} to {dst.dtype} in {casting} casting mode")
    target, mask = dst._a, True if where is None else where._a
    launch(
        "copyto",
        lambda: np.copyto(target, source, casting="unsafe", where=mask),
        dst,
        src,
        where,
    )


def _triangle(name):
    function = getattr(np, name)

    def part(a, k=0):
        out = ndarray(a.shape, a.dtype)
        source, target = a._a, out._a
        launch(name, lambda: target.__setitem__(..., function(source, k)), out, a)
        return out

    return part


tril, triu = _triangle("tril"), _triangle("triu")


def diagonal(a, offset=0, axis1=0, axis2=1):
    """Return a view of the diagonal."""
    return a.diagonal(offset, axis1, axis2)


def concatenate(arrays, axis=0):
    """Return arrays joined along an axis."""
    arrays = list(arrays)
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    out = ndarray(shape, np.result_type(*(a.dtype for a in arrays)))
    parts, target = [a._a for a in arrays], out._a
    launch("concatenate", lambda: np.concatenate(parts, axis, out=target), out, *arrays)
    return out


def shape(a):
    """Return the shape of an array."""
    return a.shape if isinstance(a, ndarray) else np.shape(a)


def shares_memory(a, b):
    """Return whether two arrays overlap."""
    return np.shares_memory(a._a, b._a)


def allclose(a, b, rtol=1e-5, atol=1e-8):
    """Return whether two arrays agree, on the device."""
    return universal(np.less_equal, abs(a - b), atol + rtol * abs(b)).all()


def _universal(name):
    ufunc = getattr(np, name)
    return lambda *arguments, **options: universal(ufunc, *arguments, **options)


UFUNCS = {
    name: _universal(name)
    for name in (
        *("isfinite", "isnan", "log", "log2", "exp", "exp2", "sqrt", "absolute", "sign", "rint"),
        *(
            "maximum",
            "minimum",
            "square",
            "add",
            "subtract",
            "multiply",
            "divide",
            "power",
            "ldexp",
        ),
    )
}
UFUNCS["abs"] = UFUNCS["absolute"]
