"""CUDA kernels compiled for the host, with g++ and the emulated multiprocessor of emulate.h.

The preprocessor expands the macros of a CUDA source and leaves the keywords of CUDA. Declarations
of shared memory and inline PTX are rewritten in C++, and g++ makes one shared library of all
kernels of the source. Libraries are cached in the folder given by GEOMXP_EMULATOR_CACHE, by default
~/.cache/geomxp-cuda-emulator; the folder can be deleted at any time.

A launch raises `KernelError` for arguments that do not match the signature, sizes beyond the limits
of the GPU or of `__launch_bounds__`, divergent barriers, writes outside of shared memory,
misaligned addresses, indices out of the bounds of an array, shifts by too many bits, integer
division by zero, conversions to integers that cannot hold the number, unmapped addresses and stack
overflow. Fresh shared memory is NaN. With a missing barrier the results depend on `order`.

`__CUDACC__` is defined and `__CUDA_ARCH__` is not: where a source has PTX for a GPU and C for the
host, the C runs. Sums, products, quotients, square roots and fma are rounded as on a GPU; rsqrt,
log and asin are those of the host and may differ in the last bits. Subnormal numbers of FP32 are
kept, although CuPy has NVRTC flush them to zero. Headers of CUDA are not available.

With GEOMXP_EMULATOR_ASAN=1 kernels are compiled with AddressSanitizer, which ends the process at
the first access outside of an allocation and prints the line of the CUDA source:

    LD_PRELOAD=$(g++ -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
        GEOMXP_EMULATOR_ASAN=1 python -m pytest tests/cuda
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

HEADER = Path(__file__).with_name("emulate.h")

MOST_THREADS = 1024
MOST_BLOCK = (1024, 1024, 64)
MOST_GRID = (2**31 - 1, 65535, 65535)
DEFAULT_SHARED_BYTES = 48 * 1024
"""Shared memory of a block unless the launch allows more."""
MOST_SHARED_BYTES = 232_448

KINDS = ("pointer", "integer", "real", "struct")
"""Kinds of parameters, in the order of `Kind` in emulate.h."""

FLAGS = (
    "-std=gnu++17",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-strict-aliasing",  # CUDA sources read and write shared memory as several types
    "-ffp-contract=fast",  # as NVRTC without --fmad=false
    "-fsanitize=alignment,bounds-strict,shift-exponent,integer-divide-by-zero,float-cast-overflow",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-D__CUDACC__",
    "-D__CUDACC_RTC__",
    "-Ulinux",
    "-Uunix",
)
"""Options of g++ for every source."""

OPTIONS = {
    r"--?std=c\+\+(\d+)": r"-std=gnu++\1",
    r"--?fmad=false": "-ffp-contract=off",
    r"--?fmad=true": "-ffp-contract=fast",
    r"(-[DUI].+)": r"\1",
    r"--?Werror=all-warnings": "-Werror",
    # no effect on the host
    r"--?(device-as-default-execution-space|generate-line-info|lineinfo|device-debug|G)": "",
    r"--?(ftz|maxrregcount|arch|gpu-architecture)=\w+": "",
}
"""Options of NVRTC, as regular expressions, and the corresponding options of g++."""

PTX = {
    "neg.f32": "{0} = -{1}",
    "add.rn.f32": "{0} = {1} + {2}",
    "sub.rn.f32": "{0} = {1} - {2}",
    "mul.rn.f32": "{0} = {1} * {2}",
    "fma.rn.f32": "{0} = fmaf({1}, {2}, {3})",
    "sqrt.rn.f32": "{0} = sqrtf({1})",
    "rcp.rn.f32": "{0} = 1.0f / {1}",
    "cvt.rn.f32.f64": "{0} = (float){1}",
    "cvt.f64.f32": "{0} = {1}",
    "bar.sync": "emulator::named_barrier({0}, {1})",
}
"""Instructions of inline PTX, and the corresponding statements of C++."""

REGISTERS = {".f32": "float", ".f64": "double", ".b32": "unsigned", ".u32": "unsigned"}

_launching = threading.Lock()
"""One kernel runs at a time, because signal handlers belong to the process."""
_compiling = threading.Lock()


class KernelError(RuntimeError):
    """A kernel cannot be compiled or launched, or failed in a launch."""


class Parameter(NamedTuple):
    """Parameter of a kernel: size in bytes, kind (one of `KINDS`) and declaration in C."""

    size: int
    kind: str
    declaration: str


class HostKernel:
    """Kernel of a CUDA source, compiled for the host.

    Parameters
    ----------
    code : str
        CUDA C++ in which includes have been replaced by the included text.
    name : str
        Name of an `extern "C" __global__` function.
    options : tuple of str
        Options of NVRTC.

    Attributes
    ----------
    name : str
    parameters : tuple of Parameter

    Raises
    ------
    KernelError
        If the source does not compile (the message has the compiler's log) or does not have the
        kernel.
    """

    def __init__(self, code, name, options=()):
        self.name = name
        self._library = _library(code, tuple(options))
        found = self._library.kernels.get(name)
        if found is None:
            names = ", ".join(self._library.kernels) or "none"
            raise KernelError(f'{name}: the source has no such extern "C" kernel; it has {names}.')
        self._address, self._bound, self.parameters = found

    def check(self, arguments):
        """Compare arguments with the signature.

        Parameters
        ----------
        arguments : list of (str, int)
            Kind and size in bytes of each argument.

        Raises
        ------
        KernelError
            If their number, a kind or a size differs.
        """
        given, needed = len(arguments), len(self.parameters)
        if given != needed:
            raise KernelError(f"{self.name}: {given} arguments for {needed} parameters.")
        pairs = zip(arguments, self.parameters, strict=True)
        for position, ((kind, size), parameter) in enumerate(pairs, start=1):
            if (size, kind) != parameter[:2]:
                raise KernelError(
                    f"{self.name}: argument {position} is of kind {kind} ({size} bytes); parameter "
                    f"`{parameter.declaration}` is of kind {parameter.kind} "
                    f"({parameter.size} bytes)."
                )

    def launch(
        self, grid, block, shared_bytes, arguments, *, order=0, shared_limit=DEFAULT_SHARED_BYTES
    ):
        """Run all blocks of a grid.

        Parameters
        ----------
        grid, block : (int, int, int)
        shared_bytes : int
            Dynamic shared memory of a block.
        arguments : list of bytes-like or ctypes objects
            Values of the parameters. Pointers are addresses of the host.
        order : int
            Seed for the order of the blocks, and of a block's threads between two barriers. 0 is
            the natural order.
        shared_limit : int
            Bytes of dynamic shared memory that the kernel may use, at most 232,448. Up to 48 KiB,
            static and dynamic shared memory together are limited to 48 KiB.

        Raises
        ------
        KernelError
            If the launch is not valid or a thread fails. The message names the block and, where
            known, the thread and the line.
        """
        self._check_shape(grid, block)
        allowed = min(shared_limit, MOST_SHARED_BYTES)
        if not 0 <= shared_bytes <= allowed:
            raise KernelError(
                f"{self.name}: {shared_bytes} bytes of dynamic shared memory; the limit is "
                f"{allowed}."
            )
        held = [_as_ctypes(argument) for argument in arguments]
        sizes = [ctypes.sizeof(value) for value in held]
        needed = [parameter.size for parameter in self.parameters]
        if sizes != needed:
            raise KernelError(f"{self.name}: arguments of {sizes} bytes; parameters of {needed}.")
        with _launching:
            message = self._library.launch(
                self._address,
                (ctypes.c_uint * 3)(*grid),
                (ctypes.c_uint * 3)(*block),
                shared_bytes,
                MOST_SHARED_BYTES if allowed > DEFAULT_SHARED_BYTES else DEFAULT_SHARED_BYTES,
                order % 2**64,
                (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held)),
            )
            if message is not None:
                raise KernelError(f"{self.name}, {message.decode()}.")

    def _check_shape(self, grid, block):
        for what, shape, most in (("grid", grid, MOST_GRID), ("block", block, MOST_BLOCK)):
            if len(shape) != 3 or not all(1 <= n <= m for n, m in zip(shape, most, strict=True)):
                raise KernelError(f"{self.name}: {what} {shape}; sizes must be from 1 to {most}.")
        threads, most = block[0] * block[1] * block[2], self._bound or MOST_THREADS
        if threads > most:
            source = " by __launch_bounds__" if self._bound else ""
            raise KernelError(
                f"{self.name}: {threads} threads in a block; the limit is {most}{source}."
            )


def _as_ctypes(argument):
    """Return an argument as an object of ctypes."""
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)):
        return argument
    data = memoryview(argument).cast("B")
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


# --- libraries ------------------------------------------------------------------------------------


class _ParameterRecord(ctypes.Structure):
    """`Parameter` of emulate.h."""

    _fields_ = (("kind", ctypes.c_int), ("size", ctypes.c_uint))


class _KernelRecord(ctypes.Structure):
    """`Kernel` of emulate.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("bound", ctypes.c_int),
        ("count", ctypes.c_int),
        ("parameters", ctypes.POINTER(_ParameterRecord)),
        ("declarations", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class _Library:
    """Compiled source: its kernels by name, each (address, launch bound, parameters)."""

    launch: ctypes._CFuncPtr
    kernels: dict

    @classmethod
    def opened(cls, path):
        library = ctypes.CDLL(str(path))
        launch = library.emulator_launch
        launch.restype = ctypes.c_char_p
        launch.argtypes = (
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_uint),
            ctypes.POINTER(ctypes.c_uint),
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_uint64,
            ctypes.POINTER(ctypes.c_void_p),
        )
        library.emulator_kernels.restype = ctypes.POINTER(_KernelRecord)
        kernels, records, k = {}, library.emulator_kernels(), 0
        while (record := records[k]).name:
            listed = zip(
                record.parameters[: record.count],
                record.declarations.decode().splitlines(),
                strict=False,
            )
            parameters = tuple(Parameter(p.size, KINDS[p.kind], text) for p, text in listed)
            address = ctypes.addressof(records[k])
            kernels[record.name.decode()] = address, record.bound, parameters
            k += 1
        return cls(launch, kernels)


def _library(code, options):
    with _compiling:
        return _cached_library(code, options)


@cache
def _cached_library(code, options):
    """Return the library of a source from the cache, or compile it."""
    compiler, version = _compiler()
    flags = _flags(options)
    parts = (code, flags, version, HEADER.read_text(), Path(__file__).read_text())
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
    path = cache_folder() / f"{key}.so"
    if not path.exists():
        _compile(code, compiler, flags, path)
    return _Library.opened(path)


def _compile(code, compiler, flags, path):
    """Write the library of a source; it appears at `path` when it is complete."""
    language = ["-x", "c++", "-"]
    # without the sanitizers' libraries: emulate.h defines the functions that the checks call
    libraries = ["-nodefaultlibs", "-Wl,--no-undefined", "-lm", "-lc", "-lgcc"]
    if "-fsanitize=address" in flags:
        libraries = []
    text = translated(_run([compiler, "-E", "-nostdinc", *flags, *language], code))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder) / path.name
        _run([compiler, "-shared", *flags, "-o", str(fresh), *language, *libraries], text)
        fresh.replace(path)


def _run(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(f"The CUDA source does not compile:\n{done.stderr}")
    return done.stdout


def _flags(options):
    """Return the options of g++. Of two that contradict each other, the last one counts."""
    asan = os.environ.get("GEOMXP_EMULATOR_ASAN") == "1"
    flags = list(FLAGS) + ["-mfma"] * _has_fma() + ["-g", "-fsanitize=address"] * asan
    for option in options:
        for pattern, flag in OPTIONS.items():
            match = re.fullmatch(pattern, option)
            if match:
                flags += match.expand(flag).split()
                break
        else:
            raise KernelError(f"The emulator does not know NVRTC's option {option!r}.")
    return tuple(flags)


@cache
def _has_fma():
    """Whether g++ needs -mfma to use the processor's fma instructions."""
    try:
        found = re.search(r"^flags\s*:.*\bfma\b", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        return False
    return found is not None


@cache
def _compiler():
    """Return the path of g++ and its version."""
    path = shutil.which(os.environ.get("CXX", "g++"))
    if path is None:
        raise KernelError("The CUDA emulator needs g++, which was not found.")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return path, version.stdout


@cache
def cache_folder():
    """Return the folder of the compiled libraries."""
    given = os.environ.get("GEOMXP_EMULATOR_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    fallback = Path(tempfile.gettempdir()) / f"geomxp-cuda-emulator-{os.getuid()}"
    for folder in [Path(given)] if given else [Path(home) / "geomxp-cuda-emulator", fallback]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise KernelError("No writable folder for compiled kernels. Set GEOMXP_EMULATOR_CACHE.")


# --- translation ----------------------------------------------------------------------------------

_SHARED = re.compile(
    r"(?P<storage>extern\s+|static\s+)?__shared__\s+(?:(?:alignas|__align__)\s*\([^()]*\)\s*)?"
    r"(?P<type>[^;={}]*?)\b(?P<name>\w+)\s*(?P<sizes>(?:\[[^\]]*\]\s*)*)(?=[;,=(])"
)
_ASM = re.compile(
    r'\basm\s*(?:volatile\s*)?\(\s*(?P<text>(?:"[^"]*"\s*)+)'
    r'(?P<operands>(?::\s*(?:"[^"]*"\s*(?:\((?:[^()]|\([^()]*\))*\))?[\s,]*)*)*)\)\s*;'
)
_BOUNDS = r"__launch_bounds__\s*\((?P<{}>(?:[^()]|\([^()]*\))*)\)\s*"
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+'
    rf"(?:{_BOUNDS.format('before')})?void\s+(?:{_BOUNDS.format('after')})?"
    r"(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)\s*\{"
)


def translated(preprocessed):
    """Return a preprocessed CUDA source in C++, with emulate.h and the table of its kernels."""
    text = _SHARED.sub(_shared_variable, preprocessed)
    text = _ASM.sub(_statements, text)
    if unread := re.search(r"\basm\b.*", text):
        raise KernelError(f"The emulator cannot parse this inline PTX: {unread[0]}")
    bare = re.sub(r"^#.*\n", "", preprocessed, flags=re.M)
    table = [_table_entry(match) for match in _KERNEL.finditer(bare)]
    return "\n".join(
        [
            f'#include "{HEADER}"',
            "namespace {",
            text,
            f'#line 1 "kernels of {Path(__file__).name}"',
            "const emulator::Kernel kernels[] = {",
            *table,
            "{}};",
            "} // namespace",
            'extern "C" __attribute__((visibility("default")))',
            "const emulator::Kernel *emulator_kernels() { return kernels; }",
            "",
        ]
    )


def _shared_variable(match):
    """Return the declaration of a shared variable, with the macros of emulate.h."""
    if match.string[match.end()] != ";":
        raise KernelError(f"Declare __shared__ variables one by one, for example: {match[0]};")
    before = match.string[: match.start()]
    if (match["storage"] or "").startswith("extern"):
        macro, kind = "EMULATOR_DYNAMIC_SHARED", match["type"]
    elif before.count("{") > before.count("}"):
        macro, kind = "EMULATOR_SHARED", match["type"] + match["sizes"]
    else:
        raise KernelError(f"Declare __shared__ variables in functions: {match[0]};")
    lines = "\n" * match[0].count("\n")
    return f"{macro}({match['name']}, {' '.join(kind.split())}){lines}"


def _statements(match):
    """Return inline PTX as statements of C++, with as many line breaks."""
    operands = re.findall(r'"[=+]?\w"\s*(\((?:[^()]|\([^()]*\))*\))', match["operands"])
    ptx = "".join(re.findall(r'"([^"]*)"', match["text"]))
    statements = []
    for instruction in ptx.strip("{} ").split(";"):
        opcode, _, rest = instruction.strip().partition(" ")
        names = [name.strip() for name in rest.split(",")]
        names = [re.sub(r"^%(\d+)$", lambda m: operands[int(m[1])], name) for name in names]
        if opcode in PTX:
            statements.append(PTX[opcode].format(*names))
        elif opcode == ".reg":
            kind, name = names[0].split()
            statements.append(f"{REGISTERS[kind]} {name}")
        elif opcode:
            raise KernelError(
                f"The emulator does not know the PTX instruction {opcode!r}. Add it to PTX in "
                f"{Path(__file__).name}."
            )
    return "{ " + " ".join(s + ";" for s in statements) + " }" + "\n" * match[0].count("\n")


def _table_entry(match):
    """Return a row of the table of kernels."""
    parameters = [" ".join(p.split()) for p in match["parameters"].split(",") if p.strip()]
    declarations = "\\n".join(p.replace("*__restrict__ ", "*") for p in parameters)
    bounds = match["before"] or match["after"]
    bound = f"emulator::first_of({bounds})" if bounds else "0"
    name = match["name"]
    entry = f"emulator::Entry<decltype({name}), {name}>"
    return f'{entry}::kernel("{name}", "{declarations}", {bound}),'
