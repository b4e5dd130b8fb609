"""Mechanical mutants of GPU code: are small random mistakes caught by a module's tests?

    python tests/cuda_emulator/mutants.py --count 50 --seed 0 --output mutants.csv

Operators, comparisons, constants and the order of arguments are changed one at a time, at places
drawn at random, in a copy of the package. The result is a CSV file with one row per mutant; a
mutant that survives is either equivalent to the code or a gap in the tests.
"""

import argparse
import ast
import csv
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cuda_emulator.planted import ROOT, Fault, plant

MODULES = {
    "linalg/gpu.py": "tests/linalg/test_gpu.py tests/linalg/test_quantize_on_gpu.py",
    "linalg/products_gpu.py": "tests/linalg/test_quantize_on_gpu.py tests/linalg/test_gpu.py",
    "linalg/batched_gpu.py": "tests/cuda/test_batched.py",
    "tiles/memories.py": "tests/tiles/test_memories.py tests/tiles/test_out_of_core.py",
    "vecchia/gpu.py": "tests/cuda/test_vecchia.py",
    "cuda/matern.cu": "tests/cuda/test_matern_cuda.py",
    "cuda/quantize.cu": "tests/linalg/test_quantize_on_gpu.py",
    "cuda/quantize.cuh": "tests/linalg/test_quantize_on_gpu.py",
    "cuda/vecchia.cuh": "tests/cuda/test_vecchia.py",
    "cuda/vecchia.cu": "tests/cuda/test_vecchia.py",
    "cuda/batched.cuh": "tests/cuda/test_batched.py",
    "cuda/batched.cu": "tests/cuda/test_batched.py",
    "cuda/panels.cu": "tests/cuda/test_batched.py",
    "cuda/rows.cu": "tests/cuda/test_batched.py",
    "cuda/combine.cu": "tests/linalg/test_combine.py tests/linalg/test_gpu.py",
    "linalg/recursive.py": "tests/linalg/test_gpu.py",
    "tiles/on_gpu.py": "tests/tiles/test_on_gpu.py",
}
"""The files that are changed, and the tests that run against their mutants."""

SWAPS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*",
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.And: "or", ast.Or: "and", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip

C_SWAPS = {
    " + ": " - ", " - ": " + ", " * ": " / ", " < ": " <= ", " <= ": " < ", " == ": " != ",
    " > ": " >= ", " >= ": " > ", " && ": " || ", " += ": " -= ", " -= ": " += ", "++": "--",
}  # fmt: skip


def of_python(text):
    """Yield (start, end, replacement) of the mutants of a Python source, as offsets."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))

    def place(line, column):
        return len(text.encode()[: starts[line - 1] + column].decode())

    def span(node):
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    tree = ast.parse(text)
    docstrings = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp):
            if isinstance(node, ast.BinOp):
                left, right, kind = node.left, node.right, node.op
            elif isinstance(node, ast.Compare):
                left, right, kind = node.left, node.comparators[0], node.ops[0]
            else:
                left, right, kind = node.values[0], node.values[1], node.op
            if type(kind) in SWAPS:
                begin, end = span(left)[1], span(right)[0]
                between = text[begin:end]
                old = re.search(r"[-+*/<>=!]+|is not|is|and|or", between)
                if old:
                    yield begin + old.start(), begin + old.end(), SWAPS[type(kind)]
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            if isinstance(node.value, bool):
                yield *span(node), str(not node.value)
            elif isinstance(node.value, int):
                yield *span(node), str(node.value + 1)
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            one, two = node.args[:2]
            if not isinstance(one, ast.Starred) and not isinstance(two, ast.Starred):
                (a, b), (c, d) = span(one), span(two)
                yield a, d, text[c:d] + text[b:c] + text[a:b]


def of_cuda(text):
    """Yield the mutants of a CUDA source; see `of_python`."""
    code = re.sub(r"/\*.*?\*/", lambda m: " " * len(m[0]), text, flags=re.S)
    for old, new in C_SWAPS.items():
        for found in re.finditer(re.escape(old), code):
            yield found.start(), found.end(), new
    for found in re.finditer(r"(?<![\w.#])(\d+)(?![\w.])", code):
        yield *found.span(), str(int(found[0]) + 1)


def mutants():
    """Yield (file, line, old, new text of the whole file) of all mutants."""
    for file in MODULES:
        text = (ROOT / "geomxp" / file).read_text()
        for begin, end, new in (of_python if file.endswith(".py") else of_cuda)(text):
            line = text.count("\n", 0, begin) + 1
            whole = text[:begin] + new + text[end:]
            if file.endswith(".py"):
                try:
                    ast.parse(whole)
                except SyntaxError:
                    continue
            yield file, line, text[begin:end], new, text, whole


def killed(fault, seconds=900):
    """Return whether a mutant fails the GPU tests of its module, does not end, or crashes."""
    with tempfile.TemporaryDirectory() as folder:
        plant(fault, Path(folder))
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(
                [*command, "--gpu=emulated", "-m", "gpu", *fault.test.split()],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": folder},
                capture_output=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return True
    return done.returncode != 0


def main():
    """Run a sample of the mutants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("mutants.csv"))
    options = parser.parse_args()
    found = {}
    for mutant in mutants():
        found.setdefault(mutant[0], []).append(mutant)
    draw, sample = random.Random(options.seed), []
    files = list(found)
    while len(sample) < options.count:
        # each file as often as the others
        several = found[files[len(sample) % len(files)]]
        sample.append(several.pop(draw.randrange(len(several))))
    with options.output.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "line", "old", "new", "caught"])
        for file, line, old, new, text, whole in sample:
            fault = Fault(f"{file}:{line}", file, text, whole, MODULES[file])
            died = killed(fault)
            writer.writerow([file, line, old, new, died])
            stream.flush()
            print(
                file, line, repr(old), "->", repr(new), "caught" if died else "SURVIVED", flush=True
            )


if __name__ == "__main__":
    main()
