"""Tests of the emulator: its results, its orders of execution, and the faults that it finds."""

import ctypes
import subprocess
import sys
import threading

import numpy as np
import pytest

from cuda_emulator import session

SEEDS = range(20)


@pytest.fixture
def cupy(machine):
    import cupy

    return cupy


def fault_of(machine, work, message):
    """Assert that the emulator finds a fault during `work`, or at its end."""

    def done():
        work()
        machine.synchronize_device()
        found = machine.finish()
        if found:
            raise machine.Fault(found[-1])

    with pytest.raises(machine.Fault, match=message):
        done()
    machine.finish()


def outcomes(machine, work):
    """Return the results of `work` under many orders of execution."""
    found = []
    for number in SEEDS:
        machine.seed(number)
        found.append(work())
        machine.finish()
    return found


# --- arrays -------------------------------------------------------------------------------------


def test_fresh_memory_is_poison(cupy):
    assert np.isnan(cupy.empty(5).get()).all()
    assert (cupy.empty(5, np.uint8).get() == 255).all()


def test_arrays_never_become_numpys_unasked(cupy):
    x = cupy.ones(3)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(x)
    with pytest.raises(TypeError, match="Unsupported type"):
        x + np.ones(3)
    with pytest.raises(TypeError, match="Unsupported type"):
        x[:] = np.ones(3)


def test_results_of_ufuncs_and_reductions_are_in_c_order_whatever_their_operands_are(cupy):
    x = cupy.zeros((4, 5), order="F")
    for y in (x + x, x.sum(axis=1, keepdims=True), cupy.where(x > 0, x, x), cupy.tril(x)):
        assert y.flags.c_contiguous
    assert x.copy(order="K").flags.f_contiguous
    assert x.astype(np.float32).flags.f_contiguous


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, bool])
@pytest.mark.parametrize("scalar", [2, 2.5, np.float64(2.5), np.float32(2.5), True])
def test_types_of_results_are_numpys(cupy, dtype, scalar):
    x = np.ones(3, dtype)
    for f in (np.add, np.multiply, np.true_divide):
        assert f(cupy.asarray(x), scalar).dtype == f(x, scalar).dtype


def test_views_and_assignments_are_numpys(cupy):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 7, 8))
    b = cupy.asarray(a)
    for key in (1, (slice(1, 4), 2), (..., slice(None, None, 2)), (None, 3), (2, 3, 4)):
        np.testing.assert_array_equal(b[key].get(), a[key])
    np.testing.assert_array_equal(cupy.diagonal(b, axis1=1, axis2=2).get(), np.diagonal(a, 0, 1, 2))
    b[1:3, ::2], a[1:3, ::2] = b[3:5, ::2] + 1, a[3:5, ::2] + 1
    np.testing.assert_array_equal(b.reshape(6, -1).get(), a.reshape(6, -1))
    np.testing.assert_array_equal(b.T.reshape(-1).get(), a.T.reshape(-1))


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("name", ["sum", "max", "any", "all", "mean"])
def test_reductions_are_numpys(cupy, name, axis):
    a = np.random.default_rng(1).integers(0, 2, (3, 4)).astype(float)
    found, expected = getattr(cupy.asarray(a), name)(axis=axis), getattr(a, name)(axis=axis)
    np.testing.assert_array_equal(found.get(), expected)
    assert found.dtype == np.asarray(expected).dtype


def test_a_name_that_is_missing_says_where_to_add_it(cupy):
    with pytest.raises(AttributeError, match=r"cupy\.fft: add it to tests/cuda_emulator"):
        _ = cupy.fft


# --- asynchrony ---------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
def test_a_missing_wait_between_streams_gives_wrong_numbers(machine, cupy, waits):
    one, two = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def work():
        with one:
            x = cupy.empty(10)
            x.fill(3)
            event = one.record()
        with two:
            if waits:
                two.wait_event(event)
            return (x + 1).get()

    right = [np.array_equal(found, np.full(10, 4.0)) for found in outcomes(machine, work)]
    assert all(right) if waits else not all(right)


def test_the_default_stream_waits_for_blocking_streams_and_they_for_it(machine, cupy):
    stream = cupy.cuda.Stream()

    def work():
        x = cupy.zeros(10)
        with stream:
            x += 1
        x *= 3
        return x.get()

    assert all(np.array_equal(found, np.full(10, 3.0)) for found in outcomes(machine, work))


@pytest.mark.parametrize("waits", [True, False])
def test_host_memory_has_a_copy_only_after_a_synchronization(machine, cupy, waits):
    import cupyx

    stream = cupy.cuda.Stream(non_blocking=True)

    def work():
        host = cupyx.empty_pinned(10)
        with stream:
            x = cupy.full(10, 5.0)
            runtime = cupy.cuda.runtime
            runtime.memcpyAsync(
                host.ctypes.data, x.data.ptr, x.nbytes, runtime.memcpyDefault, stream.ptr
            )
        if waits:
            stream.synchronize()
        found = host.copy()
        stream.synchronize()
        return found

    right = [(found == 5.0).all() for found in outcomes(machine, work)]
    assert all(right) if waits else not all(right)


@pytest.mark.parametrize("waits", [True, False])
def test_host_memory_that_is_written_too_early_is_read_wrongly(machine, cupy, waits):
    import cupyx

    stream = cupy.cuda.Stream(non_blocking=True)

    def work():
        host = cupyx.empty_pinned(10)
        host[...] = 5.0
        with stream:
            x = cupy.empty(10)
            runtime = cupy.cuda.runtime
            runtime.memcpyAsync(
                x.data.ptr, host.ctypes.data, x.nbytes, runtime.memcpyDefault, stream.ptr
            )
            if waits:
                stream.synchronize()
            host[...] = 7.0
            return x.get()

    right = [(found == 5.0).all() for found in outcomes(machine, work)]
    assert all(right) if waits else not all(right)


def test_asynchronous_copies_want_pinned_memory(machine, cupy):
    x, host = cupy.zeros(10), np.zeros(10)
    copy = cupy.cuda.runtime.memcpyAsync
    fault_of(
        machine,
        lambda: copy(x.data.ptr, host.ctypes.data, 80, 4, 0),
        "neither device memory nor pinned host memory",
    )


def test_memory_that_another_stream_still_uses_must_not_be_freed(machine, cupy):
    stream = cupy.cuda.Stream(non_blocking=True)

    def work():
        for number in SEEDS:
            machine.seed(number)
            x = cupy.zeros(10)
            cupy.cuda.Stream.null.synchronize()
            with stream:
                y = x + 1
            del x
            z = cupy.zeros(10)
            cupy.cuda.Stream.null.synchronize()
            stream.synchronize()
            del y, z

    fault_of(machine, work, "use after free: add")


def test_an_event_that_was_never_recorded_is_past(cupy):
    event = cupy.cuda.Event()
    event.synchronize()
    cupy.cuda.get_current_stream().wait_event(event)
    assert event.done


def test_times_between_events_want_both_to_be_past(machine, cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    stream._queue.pace = 0.0
    start = stream.record()
    if not start.done:
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="NotReady"):
            cupy.cuda.get_elapsed_time(start, start)
    start.synchronize()
    assert cupy.cuda.get_elapsed_time(start, start) == 0.0


# --- memory -------------------------------------------------------------------------------------


def test_a_pool_never_gives_back_a_chunk_that_a_small_array_holds(machine, cupy):
    with cupy.cuda.Device(1):
        pool = cupy.get_default_memory_pool()
        pool.free_all_blocks()
        limit = pool.total_bytes() + (1 << 20)
        pool.set_limit(size=limit)
        try:
            large = cupy.empty(1000 * 1024, np.uint8)
            del large
            small = cupy.empty(512, np.uint8)
            with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating"):
                cupy.empty(1000 * 1024, np.uint8)
            del small
            assert cupy.empty(1000 * 1024, np.uint8).nbytes == 1000 * 1024
        finally:
            pool.set_limit(size=0)


def test_memory_of_a_device_is_bounded(machine, cupy):
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.empty(machine.MEMORY + 1, np.uint8)
    free, total = cupy.cuda.runtime.memGetInfo()
    assert 0 < free <= total == machine.MEMORY


def test_writing_just_beside_an_array_is_noticed(machine, cupy):
    x = cupy.zeros(10)
    allocation = x._memory.allocation
    allocation.after[3] = 0
    fault_of(machine, allocation.check_margins, "written out of bounds")


# --- devices ------------------------------------------------------------------------------------


def test_kernels_refuse_arrays_of_another_device(cupy):
    with cupy.cuda.Device(1):
        x = cupy.zeros(3)
    assert x.device.id == 1
    for work in (lambda: x + 1, lambda: x.astype(np.float32), lambda: x.sum(), lambda: x.fill(1)):
        with pytest.raises(ValueError, match="Array device must be same as the current device"):
            work()
    assert x.copy().device.id == 0
    np.testing.assert_array_equal(x.get(), np.zeros(3))


def test_a_stream_of_another_device_is_refused(cupy):
    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream()
    with pytest.raises(RuntimeError, match="does not match with the current device"), stream:
        pass


# --- libraries ----------------------------------------------------------------------------------


@pytest.fixture
def gemm(cupy):
    """cuBLAS's C <- AB as a function, in which right arguments can be replaced by others."""
    from cupy_backends.cuda.libs import cublas

    a, b = (cupy.asarray(np.asfortranarray(x)) for x in (np.ones((4, 3)), np.ones((3, 5))))
    c = cupy.empty((4, 5), order="F")
    one, zero = ctypes.c_double(1.0), ctypes.c_double(0.0)

    def call(**given):
        about = {
            "handle": cupy.cuda.device.get_cublas_handle(), "transa": 0, "transb": 0,
            "m": 4, "n": 5, "k": 3, "alpha": ctypes.addressof(one),
            "a": a.data.ptr, "lda": 4, "b": b.data.ptr, "ldb": 3,
            "beta": ctypes.addressof(zero), "c": c.data.ptr, "ldc": 4,
        }  # fmt: skip
        cublas.dgemm(**(about | given))
        return c.get()

    call.arrays = a, b, c
    return call


def test_cublas_multiplies(gemm):
    np.testing.assert_array_equal(gemm(), np.full((4, 5), 3.0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lda": 3}, "leading dimension 3 of A is less than its 4 rows"),
        ({"ldb": 5}, "illegal address: B"),
        ({"transa": 1}, "leading dimension|illegal address"),
        ({"n": 6}, "illegal address: [BC]"),
        ({"handle": 5}, "not a handle of cublas"),
        ({"a": 4096}, "illegal address: A"),
    ],
    ids=str,
)
def test_cublas_notices_wrong_arguments(machine, gemm, given, message):
    fault_of(machine, lambda: gemm(**given), message)


def test_cublas_notices_the_wrong_device(machine, cupy, gemm):
    def work():
        with cupy.cuda.Device(1):
            gemm(handle=cupy.cuda.device.get_cublas_handle())

    fault_of(machine, work, "wrong device: C is in the memory of device 0, the current one is 1")


def test_handles_belong_to_a_thread(machine, cupy, gemm):
    handles = []
    thread = threading.Thread(target=lambda: handles.append(cupy.cuda.device.get_cublas_handle()))
    thread.start()
    thread.join()
    fault_of(machine, lambda: gemm(handle=handles[0]), "a handle of another thread")


def test_sizes_beyond_a_c_int_are_refused(cupy, gemm):
    with pytest.raises(OverflowError):
        gemm(m=2**31)


def test_tf32_products_read_ten_bits(cupy):
    from cupy_backends.cuda.libs import cublas

    x = np.array([[1 + 2.0**-11]], np.float32)
    assert cublas.tf32(x)[0, 0] == 1.0
    assert cublas.tf32(np.array([[1 + 2.0**-10]], np.float32))[0, 0] == 1 + 2.0**-10


def test_cupys_cholesky_does_not_say_that_there_is_none(cupy):
    cupy.linalg.cholesky(cupy.asarray(-np.eye(3)))


# --- counters -----------------------------------------------------------------------------------


def test_work_is_counted(machine, cupy):
    with machine.counting() as counts:
        x = cupy.asarray(np.ones(100))
        y = x + x
        float(y.sum())
    assert counts["bytes to device"] == 800
    assert counts["launches"] == 2
    assert counts["synchronizations"] == 1
    assert counts["bytes to host"] == 8


# --- what a review of the emulator found ---------------------------------------------------------


def test_a_fault_that_is_caught_is_reported_all_the_same(machine, gemm):
    with pytest.raises(machine.Fault):
        gemm(a=4096)
    assert [text.partition(":")[0] for text in machine.finish()] == ["illegal address"]


def test_faults_of_other_processes_are_reported(machine):
    script = "import cupy; x = cupy.zeros(3); x._memory.allocation.after[0] = 1"
    subprocess.run([sys.executable, "-c", script], check=True)
    (found,) = session.faults_of(machine)
    assert "written out of bounds" in found


READS = """
extern "C" __global__ void copy(double *out, const double *in, long long n)
{
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = in[i];
}
"""


@pytest.mark.parametrize(("written", "read"), [(4096, 16), (16, 4096)])
def test_a_kernel_far_out_of_bounds_is_a_fault_and_no_crash(machine, cupy, written, read):
    kernel = cupy.RawKernel(READS, "copy")
    out, source = cupy.zeros(written), cupy.zeros(read)
    fault_of(machine, lambda: kernel((1,), (32,), (out, source, 4096)), "copy, block")


def test_arrays_of_another_device_are_moved_by_asarray(cupy):
    x = cupy.arange(6.0).reshape(2, 3)
    # streams of other devices do not wait for what writes x
    expected = x.get()
    with cupy.cuda.Device(1):
        for y in (cupy.asarray(x), cupy.asarray(x, dtype=np.float32), cupy.array(x)):
            assert y.device.id == 1
            np.testing.assert_array_equal(y.get(), expected)


def test_casts_keep_the_order_of_the_strides_of_parts(cupy):
    x = cupy.zeros((6, 6), order="F")[:3, :3]
    assert x.astype(np.float32).strides == np.empty((3, 3), np.float32, order="F").strides
    assert cupy.empty_like(x).strides == np.empty((3, 3), order="F").strides


def test_events_belong_to_a_device(cupy):
    event = cupy.cuda.Event()
    with cupy.cuda.Device(1), pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="Invalid"):
        event.record()


def test_products_must_not_overlap_their_operands(machine, gemm):
    a, _, _ = gemm.arrays
    fault_of(machine, lambda: gemm(c=a.data.ptr, n=3), "the output overlaps an operand")


def test_memory_is_pinned_once(cupy):
    memory = np.zeros(4096, np.uint8)
    runtime = cupy.cuda.runtime
    runtime.hostRegister(memory.ctypes.data, 4096, 1)
    with pytest.raises(runtime.CUDARuntimeError, match="AlreadyRegistered"):
        runtime.hostRegister(memory.ctypes.data + 100, 8, 1)
    runtime.hostUnregister(memory.ctypes.data)


def test_the_next_test_starts_anew():
    with session.emulation("one"):
        import cupy

        cupy.cuda.Device(1).use()
        cupy.get_default_memory_pool().set_limit(size=4096)
        cupy.cuda.Stream().__enter__()
    with session.emulation("two") as machine:
        assert machine.current_device() == 0
        assert machine.pools[1].limit == 0
        assert machine.current_queue() is machine.default_queue()
    assert isinstance(ctypes.CDLL, type)
