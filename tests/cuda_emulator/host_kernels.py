"""CUDA kernels on the host: compiled with g++ and run one block after the other by emulate.h.

A CUDA source is run through the preprocessor, which leaves the keywords of CUDA as they are.
Declarations of shared memory and inline PTX are then translated to C++, and the text is compiled
together with emulate.h to a shared library with all its kernels. Libraries are kept between runs
in the folder that the environment variable GEOMXP_EMULATOR_CACHE names, by default
~/.cache/geomxp-cuda-emulator; the folder may be deleted at any time.

`__CUDACC__` is defined and `__CUDA_ARCH__` is not: of a function that has PTX for a GPU and C for
the host, the C is run. Division, square roots and fma are those of IEEE 754, as on a GPU; rsqrt,
log and asin are those of the host, which may differ in the last bit. Subnormal numbers are kept,
whereas CuPy lets NVRTC flush those of FP32.

With GEOMXP_EMULATOR_ASAN=1 the kernels are compiled with AddressSanitizer, which then ends the
process at an access outside of an allocation and names the line of the CUDA source:

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
"""Shared memory of a block, unless a kernel is allowed more."""
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
    # these mean nothing on the host
    r"--?(device-as-default-execution-space|generate-line-info|lineinfo|device-debug|G)": "",
    r"--?(ftz|maxrregcount|arch|gpu-architecture)=\w+": "",
}
"""Options of NVRTC, as regular expressions, and what they are for g++."""

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
"""Instructions of inline PTX as statements of C++."""

REGISTERS = {".f32": "float", ".f64": "double", ".b32": "unsigned", ".u32": "unsigned"}

_launching = threading.Lock()
"""One kernel runs at a time: handlers of signals belong to the process."""
_compiling = threading.Lock()


class KernelError(RuntimeError):
    """A kernel that cannot be compiled or launched, or that fails while it runs."""


class Parameter(NamedTuple):
    """Parameter of a kernel's signature: its size in bytes, its kind, and its declaration in C."""

    size: int
    kind: str
    declaration: str


class HostKernel:
    """Kernel of a CUDA source, compiled for the host.

    Parameters
    ----------
    code : str
        CUDA C++ with all its includes in place.
    name : str
        Of an `extern "C" __global__` function.
    options : tuple of str
        As for NVRTC.

    Attributes
    ----------
    name : str
    parameters : tuple of Parameter

    Raises
    ------
    KernelError
        If the source does not compile, with the compiler's log, or has no such kernel.
    """

    def __init__(self, code, name, options=()):
        self.name = name
        self._library = _library(code, tuple(options))
        found = self._library.kernels.get(name)
        if found is None:
            names = ", ".join(self._library.kernels) or "none"
            raise KernelError(f'{name}: no such extern "C" kernel in the source, which has {names}')
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
        if len(arguments) != len(self.parameters):
            raise KernelError(
                f"{self.name}: {len(arguments)} arguments for {len(self.parameters)} parameters"
            )
        for position, (argument, parameter) in enumerate(
            zip(arguments, self.parameters, strict=True), start=1
        ):
            kind, size = argument
            if (size, kind) != parameter[:2]:
                raise KernelError(
                    f"{self.name}: argument {position} is a {kind} of {size} bytes, and the "
                    f"parameter `{parameter.declaration}` a {parameter.kind} of {parameter.size}"
                )

    def launch(
        self, grid, block, shared_bytes, arguments, *, order=0, shared_limit=DEFAULT_SHARED_BYTES
    ):
        """Run all blocks of a grid, and return when they are done.

        Parameters
        ----------
        grid, block : (int, int, int)
        shared_bytes : int
            Dynamic shared memory of a block.
        arguments : list of bytes-like or ctypes objects
            The values of the parameters; a pointer is an address of the host.
        order : int
            Seed of the order of blocks, and of a block's threads between two barriers; 0 for the
            natural order. A kernel that lacks a barrier depends on it.
        shared_limit : int
            Dynamic shared memory that the kernel is allowed.

        Raises
        ------
        KernelError
            If the launch is not valid, or a thread fails; the message names block and thread.
        """
        self._check_shape(grid, block)
        if not 0 <= shared_bytes <= min(shared_limit, MOST_SHARED_BYTES):
            raise KernelError(
                f"{self.name}: {shared_bytes} bytes of dynamic shared memory, and it is allowed "
                f"{min(shared_limit, MOST_SHARED_BYTES)}"
            )
        held = [_as_ctypes(argument) for argument in arguments]
        sizes = [ctypes.sizeof(value) for value in held]
        if sizes != [parameter.size for parameter in self.parameters]:
            raise KernelError(
                f"{self.name}: arguments of {sizes} bytes for parameters "
                f"({', '.join(p.declaration for p in self.parameters)})"
            )
        addresses = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        with _launching:
            message = self._library.launch(
                self._address,
                (ctypes.c_uint * 3)(*grid),
                (ctypes.c_uint * 3)(*block),
                shared_bytes,
                max(
                    DEFAULT_SHARED_BYTES, MOST_SHARED_BYTES * (shared_limit > DEFAULT_SHARED_BYTES)
                ),
                order % 2**64,
                addresses,
            )
            if message is not None:
                raise KernelError(f"{self.name}, {message.decode()}")

    def _check_shape(self, grid, block):
        for what, shape, most in (("grid", grid, MOST_GRID), ("block", block, MOST_BLOCK)):
            if len(shape) != 3 or not all(1 <= n <= m for n, m in zip(shape, most, strict=True)):
                raise KernelError(f"{self.name}: a {what} of {shape}, within 1 and {most}")
        threads, most = block[0] * block[1] * block[2], self._bound or MOST_THREADS
        if threads > most:
            reason = "by __launch_bounds__" if self._bound else "on any GPU"
            raise KernelError(f"{self.name}: {threads} threads, and at most {most} {reason}")


def _as_ctypes(argument):
    """Return an object of ctypes with the bytes of an argument."""
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)):
        return argument
    data = memoryview(argument).cast("B")
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


# --- libraries ----------------------------------------------------------------------------------


class _ParameterRecord(ctypes.Structure):
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
    """Shared library of all kernels of a source: (address, launch bound, parameters) by name."""

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
            declarations = record.declarations.decode().splitlines()
            parameters = tuple(
                Parameter(record.parameters[p].size, KINDS[record.parameters[p].kind], text)
                for p, text in enumerate(declarations)
            )
            address = ctypes.addressof(records[k])
            kernels[record.name.decode()] = address, record.bound, parameters
            k += 1
        return cls(launch, kernels)


def _library(code, options):
    with _compiling:
        return _cached_library(code, options)


@cache
def _cached_library(code, options):
    """Return the library of a source, compiled unless the cache has it."""
    compiler, version = _compiler()
    flags = _flags(options)
    parts = (code, flags, version, HEADER.read_text(), Path(__file__).read_text())
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
    path = _cache_folder() / f"{key}.so"
    if not path.exists():
        _compile(code, compiler, flags, path)
    return _Library.opened(path)


def _compile(code, compiler, flags, path):
    """Write the library of a source; processes that do the same at once do not disturb it."""
    language = ["-x", "c++", "-"]
    # emulate.h has what the checks call: the sanitizers' own libraries are not needed, except
    # for that of addresses
    libraries = (
        []
        if "-fsanitize=address" in flags
        else ["-nodefaultlibs", "-Wl,--no-undefined", "-lm", "-lc", "-lgcc"]
    )
    preprocessed = _run([compiler, "-E", "-nostdinc", *flags, *language], code)
    text = translated(preprocessed)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder) / path.name
        _run([compiler, "-shared", *flags, "-o", str(fresh), *language, *libraries], text)
        fresh.replace(path)


def _run(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(f"the source does not compile:\n{done.stderr}")
    return done.stdout


def _flags(options):
    """Return g++'s options for those of NVRTC, of which the later ones prevail."""
    asan = os.environ.get("GEOMXP_EMULATOR_ASAN") == "1"
    flags = list(FLAGS) + ["-mfma"] * _has_fma() + ["-g", "-fsanitize=address"] * asan
    for option in options:
        for pattern, flag in OPTIONS.items():
            match = re.fullmatch(pattern, option)
            if match:
                flags += match.expand(flag).split()
                break
        else:
            raise KernelError(f"the emulator does not know the option {option!r} of NVRTC")
    return tuple(flags)


@cache
def _has_fma():
    """Whether the processor of an x86 computer has fma; that of others is in its base set."""
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
        raise KernelError("the CUDA emulator needs g++, which is not found")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return path, version.stdout


@cache
def _cache_folder():
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
    raise KernelError("no folder for compiled kernels: set GEOMXP_EMULATOR_CACHE to one")


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
    """Return C++ for a preprocessed CUDA source: emulate.h, the source, and its kernels' table."""
    text = _SHARED.sub(_shared_variable, preprocessed)
    text = _ASM.sub(_statements, text)
    if unread := re.search(r"\basm\b.*", text):
        raise KernelError(f"inline PTX that the emulator cannot read: {unread[0]}")
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
    """Return a declaration in shared memory in terms of emulate.h."""
    if match.string[match.end()] != ";":
        raise KernelError(f"write one __shared__ variable in a declaration, as: {match[0]};")
    before = match.string[: match.start()]
    if (match["storage"] or "").startswith("extern"):
        macro, kind = "EMULATOR_DYNAMIC_SHARED", match["type"]
    elif before.count("{") > before.count("}"):
        macro, kind = "EMULATOR_SHARED", match["type"] + match["sizes"]
    else:
        raise KernelError(f"a __shared__ variable outside of functions: {match[0]};")
    lines = "\n" * match[0].count("\n")
    return f"{macro}({match['name']}, {' '.join(kind.split())}){lines}"


def _statements(match):
    """Return the statements of C++ for inline PTX, in as many lines."""
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
                f"the emulator does not translate the PTX instruction {opcode!r}: add it to PTX "
                f"in {Path(__file__).name}"
            )
    return "{ " + " ".join(s + ";" for s in statements) + " }" + "\n" * match[0].count("\n")


def _table_entry(match):
    """Return a kernel's row of the table."""
    parameters = [" ".join(p.split()) for p in match["parameters"].split(",") if p.strip()]
    declarations = "\\n".join(p.replace("*__restrict__ ", "*") for p in parameters)
    bounds = match["before"] or match["after"]
    bound = f"emulator::first_of({bounds})" if bounds else "0"
    name = match["name"]
    entry = f"emulator::Entry<decltype({name}), {name}>"
    return f'{entry}::described("{name}", "{declarations}", {bound}),'
