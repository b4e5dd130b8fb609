"""Mutation operators for Python and CUDA sources.

Operators, comparisons, constants, indices, conditions and arguments are changed one at a time.
"""

import ast
import re
from typing import NamedTuple


class Mutant(NamedTuple):
    """One mutation: `old` at a line (from 1) and column (from 0) of a file becomes `new`."""

    file: str
    line: int
    column: int
    kind: str
    old: str
    new: str


OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "//",
    ast.Pow: "*", ast.MatMult: "*", ast.BitAnd: "|", ast.BitOr: "&",
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.And: "or", ast.Or: "and", ast.Is: "is not", ast.IsNot: "is", ast.In: "not in",
    ast.NotIn: "in",
}  # fmt: skip

BETWEEN = re.compile(r"is\s+not|not\s+in|\bis\b|\bin\b|\band\b|\bor\b|[-+*/<>=!%@&|]+")

CUDA = {
    " + ": " - ", " - ": " + ", " * ": " / ", " < ": " <= ", " <= ": " < ", " == ": " != ",
    " > ": " >= ", " >= ": " > ", " && ": " || ", " += ": " -= ", " -= ": " += ", "++": "--",
}  # fmt: skip


class _Python:
    """The places of a Python source that can be mutated: (start, end, kind, new text)."""

    def __init__(self, text):
        self.text = text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.lines = text.splitlines(keepends=True)

    def _place(self, line, column):
        # columns of the syntax tree count bytes
        before = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(before)

    def span(self, node):
        return (
            self._place(node.lineno, node.col_offset),
            self._place(node.end_lineno, node.end_col_offset),
        )

    def of(self, node):
        return self.text[slice(*self.span(node))]

    def places(self):
        yield from self._within(ast.parse(self.text))

    def _within(self, node):
        # the parts of an f-string have no places of their own before Python 3.12
        if isinstance(node, ast.JoinedStr) or _is_text(node):
            return
        yield from self._at(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._within(child)

    def _at(self, node):
        match node:
            case ast.BinOp(left=left, op=kind, right=right):
                yield from self._between(left, kind, right)
            case ast.Compare(left=left, ops=[kind, *_], comparators=[right, *_]):
                yield from self._between(left, kind, right)
            case ast.BoolOp(op=kind, values=[left, right, *_]):
                yield from self._between(left, kind, right)
            case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
                yield *self.span(node), "operator", f"({self.of(operand)})"
            case ast.Constant(value=bool(value)):
                yield *self.span(node), "constant", str(not value)
            case ast.Constant(value=int(value)):
                yield *self.span(node), "constant", str(value + 1)
            case ast.Constant(value=float(value)):
                yield *self.span(node), "constant", repr(2 * value if value else 1.0)
            case ast.Subscript(slice=ast.Tuple(elts=[one, two, *_])):
                yield from self._swapped(one, two, "index")
            case ast.Slice(lower=ast.AST() as lower):
                yield *self.span(lower), "index", f"({self.of(lower)}) + 1"
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield *self.span(test), "condition", f"(not ({self.of(test)}))"
            case ast.comprehension(ifs=[test, *_]):
                yield *self.span(test), "condition", f"(not ({self.of(test)}))"
        if isinstance(node, ast.Call):
            if len(node.args) > 1 and not any(isinstance(x, ast.Starred) for x in node.args[:2]):
                yield from self._swapped(*node.args[:2], "arguments")
            if node.keywords and node.keywords[-1].arg and node.args:
                last = node.keywords[-1]
                before = [*node.args, *(k.value for k in node.keywords[:-1])]
                begin = max(self.span(each)[1] for each in before)
                yield begin, self.span(last)[1], "arguments", ""

    def _between(self, left, kind, right):
        begin, end = self.span(left)[1], self.span(right)[0]
        found = BETWEEN.search(self.text, begin, end)
        if type(kind) in OPERATORS and found:
            yield *found.span(), "operator", OPERATORS[type(kind)]

    def _swapped(self, one, two, kind):
        (a, b), (c, d) = self.span(one), self.span(two)
        if self.text[a:b] != self.text[c:d]:
            yield a, d, kind, self.text[c:d] + self.text[b:c] + self.text[a:b]


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def of_cuda(text):
    """Yield (start, end, kind, new text) of each place of a CUDA source that can be mutated."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: " " * len(m[0]), text, flags=re.S)
    for old, new in CUDA.items():
        for found in re.finditer(re.escape(old), code):
            yield *found.span(), "operator", new
    for found in re.finditer(r"(?<![\w.#])(\d+)(?![\w.])", code):
        yield *found.span(), "constant", str(int(found[0]) + 1)


def mutants(file, text):
    """Yield the mutants of a file of the package; some are not valid Python, see `parses`."""
    places = _Python(text).places() if file.endswith(".py") else of_cuda(text)
    for begin, end, kind, new in places:
        line = text.count("\n", 0, begin) + 1
        column = begin - (text.rfind("\n", 0, begin) + 1)
        yield Mutant(file, line, column, kind, text[begin:end], new)


def parses(mutant, text):
    """Return whether the mutated file is valid Python; CUDA sources are not checked."""
    if not mutant.file.endswith(".py"):
        return True
    try:
        ast.parse(applied(mutant, text))
    except SyntaxError:
        return False
    return True


def applied(mutant, text):
    """Return the text of a file with the mutation applied.

    Raises
    ------
    ValueError
        If the text at this place is not `old`.
    """
    start = 0
    for _ in range(mutant.line - 1):
        start = text.index("\n", start) + 1
    start += mutant.column
    end = start + len(mutant.old)
    if text[start:end] != mutant.old:
        raise ValueError(
            f"{mutant.file}, line {mutant.line}: no longer {mutant.old!r}. The sample was drawn "
            "from another commit: check that commit out, or draw a new sample."
        )
    return text[:start] + mutant.new + text[end:]
