"""Selects the tests that can detect a mutant: those that execute its line.

For compiled loops, defaults and constants: those that execute a line that mentions their name.
"""

import ast
from collections import defaultdict
from pathlib import Path

from reach import COLLECTION, bits

KERNELS = {
    "batched": "tests/cuda/test_batched.py",
    "combine": "tests/linalg/test_combine.py tests/linalg/test_gpu.py",
    "matern": "tests/cuda/test_matern_cuda.py tests/likelihood/test_exact.py",
    "panels": "tests/cuda/test_batched.py",
    "quantize": "tests/linalg/test_quantize_on_gpu.py tests/linalg/test_kernels.py",
    "rows": "tests/cuda/test_batched.py",
    "vecchia": "tests/cuda/test_vecchia.py",
}
"""Test files that run the kernels of each CUDA source; the list is not exhaustive."""

DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Selection:
    """The tests for a line of the package.

    Parameters
    ----------
    package : Path
        The folder `geomxp`.
    tests : dict
        Seconds and lines of each test, from `reach.read`.
    """

    def __init__(self, package, tests):
        self.seconds = {name: s for name, (s, _) in tests.items() if name != COLLECTION}
        self._lines = defaultdict(dict)
        for name in self.seconds:
            for file, lines in tests[name][1].items():
                self._lines[file][name] = lines
        self._trees = {
            str(path.relative_to(package)): ast.parse(path.read_text())
            for path in sorted(package.rglob("*.py"))
        }
        self._mentions = defaultdict(set)
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                name = getattr(node, "id", None) or getattr(node, "attr", None)
                if name:
                    self._mentions[name].add((file, node.lineno))

    def of(self, mutant):
        """Return the tests for a mutant, by the total time of their file, shortest first."""
        if mutant.file.endswith(".py"):
            names = self._reaching(mutant.file, mutant.line)
        else:
            files = KERNELS[Path(mutant.file).stem].split()
            names = {name for name in self.seconds if name.split("::")[0] in files}
        total = defaultdict(float)
        for name in names:
            total[name.split("::")[0]] += self.seconds[name]
        order = {name: k for k, name in enumerate(self.seconds)}
        return sorted(names, key=lambda n: (total[n.split("::")[0]], n.split("::")[0], order[n]))

    def _reaching(self, file, line):
        # compiled loops, defaults and constants are reached through what mentions them
        seen, places = set(), [(file, line)]
        while places:
            found = set().union(*(self._direct(*place) for place in places))
            if found:
                return found
            names = {name for place in places for name in self._named(*place)} - seen
            seen |= names
            places = sorted(set().union(*(self._mentions[name] for name in names)))
        return set()

    def _direct(self, file, line):
        wanted = bits(self._statement(file, line))
        return {name for name, lines in self._lines[file].items() if lines & wanted}

    def _enclosing(self, file, line):
        """Return the statements around a line, the outermost first."""
        found, inner = [], self._trees[file]
        while inner is not None:
            children = [x for x in ast.walk(inner) if x is not inner and isinstance(x, ast.stmt)]
            around = [x for x in children if _first(x) <= line <= x.end_lineno]
            inner = max(around, key=lambda x: x.end_lineno - _first(x), default=None)
            if inner is not None:
                found.append(inner)
        return found

    def _statement(self, file, line):
        """Return the lines of the innermost statement, without those of nested statements."""
        around = self._enclosing(file, line)
        if not around:
            return {line}
        within = [x for x in ast.walk(around[-1]) if x is not around[-1]]
        inner = {
            k for x in within if isinstance(x, ast.stmt) for k in range(_first(x), x.end_lineno + 1)
        }
        return set(range(_first(around[-1]), around[-1].end_lineno + 1)) - inner

    def _named(self, file, line):
        """Return the names that the statement around a line defines: function, class, variables."""
        around = self._enclosing(file, line)
        functions = [x.name for x in around if isinstance(x, ast.FunctionDef)]
        if functions:
            # a generated or special method is reached through its class
            outer = [x.name for x in around if isinstance(x, ast.ClassDef)]
            return [functions[-1]] if not functions[-1].startswith("__") else outer
        assigned = [
            node.id
            for x in around[-1:]
            for node in ast.walk(x)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        return assigned or [x.name for x in around if isinstance(x, DEFINITIONS)]


def _first(statement):
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])
