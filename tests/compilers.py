"""Compilers for the CUDA sources: CUDA's own, which needs no GPU, and the host's."""

import ctypes
import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from cuda_emulator import host_kernels

from geomxp import cuda

CUPYS_OWN = ("-ftz=true", "--device-as-default-execution-space")
"""Options that CuPy adds to ours."""

LANGUAGES = {".c": (("gcc", "cc"), "c99"), ".cpp": (("g++", "c++"), "c++14")}


@cache
def nvrtc():
    """CUDA's run-time compiler; skips the test where there is none."""
    try:
        wheel = importlib.metadata.distribution("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("no compiler for CUDA: pip install nvidia-cuda-nvrtc")
    (path,) = (f for f in wheel.files if f.name.startswith("libnvrtc.so"))
    return ctypes.CDLL(str(path.locate()))


def architectures():
    """The architectures that it knows, as 90 for sm_90."""
    count = ctypes.c_int()
    nvrtc().nvrtcGetNumSupportedArchs(ctypes.byref(count))
    found = (ctypes.c_int * count.value)()
    nvrtc().nvrtcGetSupportedArchs(found)
    return list(found)


def compiled(text, architecture, *more):
    """NVRTC's return code, its log, and the PTX, with the options that CuPy gives it.

    They depend on the text, which has its headers in it, the options and the version of NVRTC
    only, and are kept beside the kernels of the emulator.
    """
    nvrtc()
    options = [*cuda.COMPILER_OPTIONS, *CUPYS_OWN, f"--gpu-architecture=sm_{architecture}", *more]
    about = text, options, importlib.metadata.version("nvidia-cuda-nvrtc")
    key = hashlib.sha256(repr(about).encode()).hexdigest()[:32]
    path = host_kernels.cache_folder() / f"{key}.json"
    if not path.exists():
        # another process finds a complete file or none
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            fresh = Path(folder) / path.name
            fresh.write_text(json.dumps(_compiled(text, options)))
            fresh.replace(path)
    return tuple(json.loads(path.read_text()))


def _compiled(text, options):
    program = ctypes.c_void_p()
    assert not nvrtc().nvrtcCreateProgram(ctypes.byref(program), text.encode(), None, 0, None, None)
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    code = nvrtc().nvrtcCompileProgram(program, len(options), array)
    log, ptx = _told(program, "ProgramLog"), "" if code else _told(program, "PTX")
    nvrtc().nvrtcDestroyProgram(ctypes.byref(program))
    return code, log, ptx


def _told(program, what):
    size = ctypes.c_size_t()
    assert not getattr(nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    assert not getattr(nvrtc(), f"nvrtcGet{what}")(program, room)
    return room.value.decode()


def library(path, text, *options):
    """What the host's compiler makes of a text; the path's suffix, .c or .cpp, names the language.

    A product is rounded before it is added to anything, as on the GPU. Skips where there is no
    such compiler.
    """
    names, standard = LANGUAGES[path.suffix]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        pytest.skip(f"no compiler for the host: neither {' nor '.join(names)} is found")
    path.write_text(text)
    fixed = [f"-std={standard}", "-ffp-contract=off", "-shared", "-fPIC"]
    command = [compiler, *fixed, *options, "-o", path.with_suffix(".so"), path, "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(path.with_suffix(".so")))
