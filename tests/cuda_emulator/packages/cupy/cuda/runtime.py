"""The CUDA runtime's calls over emulated GPUs."""

from cuda_emulator import machine

memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost = 0, 1, 2
memcpyDeviceToDevice, memcpyDefault = 3, 4
hostRegisterPortable = 1
cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin = 16, 97

MULTIPROCESSOR = {
    "maxThreadsPerBlock": 1024,
    "maxThreadsDim": (1024, 1024, 64),
    "maxThreadsPerMultiProcessor": 2048,
    "maxBlocksPerMultiProcessor": 32,
    "regsPerBlock": 65_536,
    "regsPerMultiprocessor": 65_536,
    "sharedMemPerMultiprocessor": machine.SHARED_MEMORY + 1024,
    "reservedSharedMemPerBlock": 1024,
}
"""Of compute capability 9.0, as CUDA's programming guide has them."""


class CUDARuntimeError(RuntimeError):
    """An error of the runtime."""

    def __init__(self, status, message=""):
        super().__init__(message)
        self.status = status


def getDeviceCount():
    """Return the number of devices."""
    return machine.DEVICES


def getDevice():
    """Return the current device."""
    return machine.current_device()


def setDevice(device):
    """Make a device the current one."""
    machine.set_device(device)


def runtimeGetVersion():
    """Return CUDA's version."""
    return 13000


def driverGetVersion():
    """Return the driver's version."""
    return 13000


def memGetInfo():
    """Return the free and the total bytes of the current device."""
    pool = machine.pools[getDevice()]
    return machine.MEMORY - pool.total_bytes() - pool.direct, machine.MEMORY


def deviceGetAttribute(attribute, device):
    """Return a property of a device."""
    return {
        cudaDevAttrMultiProcessorCount: machine.PROCESSORS,
        cudaDevAttrMaxSharedMemoryPerBlockOptin: machine.SHARED_MEMORY,
    }[attribute]


def getDeviceProperties(device):
    """Return the properties of a device."""
    return {
        "name": b"emulated GPU",
        "totalGlobalMem": machine.MEMORY,
        "multiProcessorCount": machine.PROCESSORS,
        "sharedMemPerBlockOptin": machine.SHARED_MEMORY,
        **MULTIPROCESSOR,
        "major": int(machine.CAPABILITY[:-1]),
        "minor": int(machine.CAPABILITY[-1]),
    }


def deviceSynchronize():
    """Wait for all streams of the current device."""
    machine.synchronize_device()


def memcpyAsync(dst, src, size, kind, stream):
    """Put a copy on a stream, given by its handle; host memory must be pinned."""
    machine.copy(dst, src, size, machine.queue_of(stream))


def hostRegister(ptr, size, flags):
    """Pin host memory."""
    if not machine.register_host(ptr, size):
        raise CUDARuntimeError(712, "cudaErrorHostMemoryAlreadyRegistered")


def hostUnregister(ptr):
    """Undo `hostRegister`."""
    machine.unregister_host(ptr)
