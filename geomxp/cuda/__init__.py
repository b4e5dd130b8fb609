"""CUDA sources and their loader."""

from functools import cache
from pathlib import Path

COMPILER_OPTIONS = ("--std=c++14", "--fmad=false")
"""The sources write out each fma: none is to be added, so that the bits are those of the CPU."""


def source(name):
    """Return the text of a CUDA source; compilers find its lines by its name.

    Parameters
    ----------
    name : str
        A file of this folder.

    Returns
    -------
    str
        With the text of a file of ours in the place of its `#include "..."`.

    Examples
    --------
    >>> source("matern.cu").splitlines()[0]
    '#line 1 "matern.cu"'
    """
    lines = [f'#line 1 "{name}"']
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith('#include "'):
            lines += [source(line.split('"')[1]), f'#line {number + 1} "{name}"']
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


@cache
def module(name, *options):
    """Return a CUDA source as a `cupy.RawModule`, compiled for each GPU when first used there.

    Parameters
    ----------
    name : str
    *options : str
        Of the compiler, besides COMPILER_OPTIONS.
    """
    import cupy

    return cupy.RawModule(code=source(name), options=(*COMPILER_OPTIONS, *options))
