"""Trend formulas, such as "elevation + poly(x, 2)": their validation and their columns.

formulaic computes the columns by executing parts of the text as Python. A formula may come from an
untrusted file, so every name, operator and constant is checked against a list before execution.
"""

import ast
import re
import warnings
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput
from .names import in_formula

MOST_CHARACTERS = 1000
"""Most characters of a formula."""

LARGEST_DEGREE = 50
"""Largest degree, df and power: columns beyond it are rounding errors, or exceed the memory."""

MOST_TEXT_LEVELS = 20
"""Levels of a column of text above which a formula must say C(…)."""

DATE_PATTERN = r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}.*"
"""Text that looks like a date."""

NUMPY_FUNCTIONS = (
    *("abs", "arctan2", "cbrt", "ceil", "cos", "exp", "expm1", "floor", "hypot", "log", "log10"),
    *("log1p", "log2", "maximum", "minimum", "radians", "sin", "sqrt", "square", "tan", "tanh"),
    "where",
)
COLUMN_TRANSFORMS = ("C", "I", "bs", "cc", "center", "cr", "poly", "scale", "standardize")
CONTRASTS = ("Diff", "Helmert", "Poly", "Sum", "Treatment")
KEYWORDS = (
    *("base", "center", "constraints", "contrasts", "ddof", "degree", "df", "extrapolation"),
    *("include_intercept", "knots", "levels", "lower_bound", "raw", "reference", "rescale"),
    *("scale", "upper_bound"),
)
FORMULA_FUNCTIONS = tuple(sorted((*NUMPY_FUNCTIONS, *COLUMN_TRANSFORMS), key=str.lower))

POWER_SIGNS = ("**", "^")
ARITHMETIC_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
LOGICAL_OPERATORS = (ast.BitAnd, ast.BitOr)
SIGN_OPERATORS = (ast.USub, ast.UAdd, ast.Invert)
COMPARISON_OPERATORS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


@dataclass(frozen=True)
class Formula:
    """A validated formula.

    `text` is the formula as given, `plain` has a plain name in place of each name in backticks, and
    `quoted` pairs these names. `variables` are the columns in the order of their first use,
    `categories` those that are used in C(…) only, `computed` those that are used in computations.
    """

    text: str
    plain: str
    quoted: tuple[tuple[str, str], ...]
    variables: tuple[str, ...]
    categories: frozenset[str]
    computed: frozenset[str]

    @classmethod
    def parse(cls, text):
        """Parse and validate a formula of one side, "x" or "~ x".

        Names with characters other than letters, digits and _ must be in backticks. A name,
        operator or constant that is not allowed is an `InvalidInput`.

        Examples
        --------
        >>> Formula.parse("log(dist) + C(rock) + poly(x, 2):`soil pH`").variables
        ('dist', 'rock', 'x', 'soil pH')
        """
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            raise InvalidInput(f"a formula must be text of at most {MOST_CHARACTERS} characters.")
        text = " ".join(text.strip().removeprefix("~").split())
        if not text:
            raise InvalidInput("a formula must not be empty: write 1 for a constant, 0 for none.")
        plain, quoted = _without_backticks(text)
        reader = _Reader(text, dict(quoted))
        reader.check(_tokens(text, plain))
        _parsed(text, plain)
        elsewhere = reader.elsewhere
        return cls(
            text,
            plain,
            quoted,
            tuple(reader.variables),
            frozenset(name for name in reader.variables if name not in elsewhere),
            frozenset(reader.computed),
        )

    @classmethod
    def of_values(cls, text, what="values", columns=1):
        """Parse values such as "log(zinc)": a function of one column. None for any other text.

        `columns` is the largest number of columns, and `what` the name of the argument.

        Functions that learn from the observations, such as scale, are an `InvalidInput`.

        Examples
        --------
        >>> Formula.of_values("log(zinc)").variables, Formula.of_values("zinc (ppm)")
        (('zinc',), None)
        """
        called = re.match(r"(?:np\.)?(\w+)\(", text.strip())
        if called is None or called[1] not in FORMULA_FUNCTIONS:
            return None
        formula = cls.parse(text)
        try:
            whole = ast.parse(formula.plain, mode="eval")
        except SyntaxError:
            # several terms, such as log(a):b
            whole = ast.Expression(ast.Constant(None))
        calls = [node for node in ast.walk(whole) if isinstance(node, ast.Call)]
        names = {ast.unparse(node.func).removeprefix("np.") for node in calls}
        single = isinstance(whole.body, ast.Call)
        known = 1 <= len(formula.variables) <= columns
        if not known or not single or names & ({*COLUMN_TRANSFORMS} - {"I"}):
            most = "one column" if columns == 1 else f"at most {columns} columns"
            raise InvalidInput(
                f"{what} {text!r}: must be a function of {most}, of: {', '.join(NUMPY_FUNCTIONS)}; "
                "or I(…) for arithmetic, such as I(zinc / 1000)."
            )
        return formula

    def values(self, *columns):
        """Evaluate a formula of `of_values` for its columns, (n,) each, in order of `variables`."""
        import pandas as pd

        parsed = _parsed(self.text, f"0 + {self.plain}")
        frame = pd.DataFrame(dict(zip(self.variables, columns, strict=True)))
        return self._run(parsed.get_model_matrix, frame, na_action="ignore")[0][:, 0]

    def check_factors(self, frame, levels):
        """Question columns of text that are probably no factors, before their columns are computed.

        The frame holds the variables at the observations; `levels` has the columns of text. A
        factor in C(…) is accepted if it has fewer levels than there are observations.
        """
        for name in self.variables:
            stated = name in self.categories
            if not stated and name not in levels:
                continue
            found = frame[name].dropna().unique()
            factor = f"C({in_formula(name)})"
            if stated and len(found) >= len(frame):
                raise self._invalid(
                    f"{factor} has {len(found)} levels for {len(frame)} observations, so that its "
                    "coefficients are not estimable: leave it out, or merge levels"
                )
            if stated:
                continue
            kind, remedy = "", "holds a quantity, make it a column of numbers"
            if all(re.fullmatch(DATE_PATTERN, str(level)) for level in found):
                kind = f" that looks like dates ({found[0]!r})"
                remedy = "is a time, write it as a number: days, or years"
            if kind or len(found) > MOST_TEXT_LEVELS:
                raise self._invalid(
                    f"{name!r} is text{kind} and would be a factor of {len(found)} levels. If it "
                    f"{remedy}; if it is a factor, write {factor}"
                )

    def check_columns(self, known, texts=()):
        """Refuse a column that is not among `known`, and one of `texts` in a computation."""
        for name in self.variables:
            if name not in known:
                columns = ", ".join(map(str, known)) or "none"
                raise _invalid(
                    self.text,
                    f"no column {name!r}. The columns are: {columns}; the functions: "
                    f"{', '.join(FORMULA_FUNCTIONS)}",
                )
            if name in texts and name in self.computed:
                raise _invalid(
                    self.text,
                    f"{name!r} is text and cannot be used in a computation: write "
                    f"{in_formula(name)} or C({in_formula(name)})",
                )

    def learn(self, frame):
        """Return the names of the columns, and formulaic's ModelSpec: the state of the transforms.

        The frame holds the variables at the observations; the state is means, knots and levels.
        """
        parsed = _parsed(self.text, self.plain)
        _, memory = self._run(parsed.get_model_matrix, frame, na_action="ignore")
        names = tuple("intercept" if n == "Intercept" else n for n in memory.column_names)
        for plain, name in self.quoted:
            names = tuple(column.replace(plain, name) for column in names)
        return names, memory

    def columns(self, frame, memory):
        """Compute the columns at locations with the stored state of the transforms, (n, p)."""
        return self._run(memory.get_model_matrix, frame)[0]

    def _run(self, compute, frame, **options):
        """Return formulaic's columns and state; its errors become one line."""
        from formulaic.errors import DataMismatchWarning

        plain = {name: short for short, name in self.quoted}
        frame = frame[list(self.variables)].rename(columns=plain)
        functions = {name: getattr(np, name) for name in NUMPY_FUNCTIONS}
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DataMismatchWarning)
            try:
                matrix = compute(frame, context=functions, output="numpy", **options)
                numbers = np.array(matrix, dtype=np.float64)
            except DataMismatchWarning:
                memory = getattr(compute, "__self__", None)
                raise self._invalid(_unknown_level(frame, memory)) from None
            except Exception as error:
                raise self._invalid(_reason(error)) from None
        return numbers.reshape(len(frame), len(matrix.model_spec.column_names)), matrix.model_spec

    def _invalid(self, complaint):
        """Return an error with the names of columns as the user wrote them."""
        for short, name in self.quoted:
            complaint = complaint.replace(short, name)
        return _invalid(self.text, complaint)


def _invalid(text, complaint):
    return InvalidInput(f"formula {text!r}: {complaint}.")


def _unknown_level(frame, memory):
    """Return a message that names the value of a frame with an unknown level."""
    for term, (_, state) in getattr(memory, "encoder_state", {}).items():
        match = re.fullmatch(r"(?:C\()?(\w+)(?:, .*)?\)?", term)
        column, levels = match and match[1], state.get("categories", ())
        if column in frame.columns and len(levels):
            unknown = np.flatnonzero(~frame[column].isin(levels).to_numpy())
            if len(unknown):
                known = ", ".join(
                    f"{level:g}" if isinstance(level, float) else str(level) for level in levels
                )
                value = frame[column].iloc[unknown[0]]
                return (
                    f"{term}: {value} in row {unknown[0] + 1} is not one of the levels of the "
                    f"observations ({len(unknown)} such rows): {known}"
                )
    return "a value in C(…) is not one of the levels of the observations"


def _without_backticks(text):
    """Return the text with plain names in place of those in backticks, and their pairs."""
    quoted = {}

    def plain(match):
        return quoted.setdefault(match[1], f"quoted_{len(quoted) + 1}_")

    result = re.sub(r"`([^`]+)`", plain, text)
    if "`" in result:
        raise _invalid(text, "a backtick is not closed")
    for short in quoted.values():
        if short in text:
            raise _invalid(text, f"the name {short!r} is reserved: rename the column")
    return result, tuple((short, name) for name, short in quoted.items())


def _tokens(text, plain):
    """Return formulaic's tokens."""
    from formulaic.parser import DefaultFormulaParser

    return _read(text, lambda: list(DefaultFormulaParser().get_tokens(plain)))


def _parsed(text, plain):
    """Return formulaic's formula of validated tokens."""
    from formulaic import Formula as Parsed

    return _read(text, lambda: Parsed(plain))


def _read(text, read):
    """Call a parser, which executes nothing; its errors become `InvalidInput`."""
    from formulaic.errors import FormulaParsingError

    try:
        with warnings.catch_warnings():
            # invalid escapes and the like are refused later
            warnings.simplefilter("ignore")
            return read()
    except (FormulaParsingError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        spaced = re.search(r"[^\W\d]\w*(?: \w+)+", text)
        advice = ""
        if spaced:
            advice = (
                f"; names with spaces must be in backticks: `{spaced[0]}`, and in a shell the "
                "formula in single quotes"
            )
        raise _invalid(text, _reason(error) + advice) from None


def _reason(error):
    """Return the first line of an error of formulaic or Python."""
    text = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error))
    inner = re.search(r"\[\w+: (.*)\]", text, re.DOTALL)
    line = (inner[1] if inner else text).strip().split("\n")[0]
    return (line or type(error).__name__).rstrip(".")[:200]


class _Reader(ast.NodeVisitor):
    """Validates a formula's tokens, and the Python in them, against the lists of allowed names."""

    def __init__(self, text, quoted):
        self.text = text
        self.quoted = quoted
        self.variables = {}
        self.elsewhere = set()
        self.computed = set()
        self.called = set()
        self.in_category = self.in_arithmetic = False

    def check(self, tokens):
        """Raise `InvalidInput` for a token that is not allowed."""
        last = None
        for token in tokens:
            self._take(token, last)
            last = token
        for name in self.called & set(self.variables):
            self.refuse(f"{name!r} is a column and a function: rename the column")

    def refuse(self, complaint):
        """Raise `InvalidInput`."""
        for short, name in self.quoted.items():
            complaint = complaint.replace(short, f"`{name}`")
        raise _invalid(self.text, complaint)

    def _take(self, token, last):
        kind, word = token.kind.value, token.token
        if kind == "operator":
            self._operator(word, last)
        elif (
            last is not None
            and last.token in POWER_SIGNS
            and not (word.isdecimal() and int(word) < 5)
        ):
            self.refuse("a power of terms must be a whole number of at most 4")
        elif kind == "name":
            self._use(word)
        elif kind == "python":
            self.visit(ast.parse(word, mode="eval").body)

    def _operator(self, word, last):
        power = word in POWER_SIGNS
        if not (power or word == "in" or set(word) <= set("+-*:/")) or word.count("*") > 1 + power:
            self.refuse(f"{word!r} is not allowed in a trend: write one side, with all terms")
        if power and last is not None and last.kind.value in ("name", "python"):
            self.refuse(
                f"{word} would cross {last.token} with itself, which changes nothing: "
                f"for powers write I({last.token}**2) or poly({last.token}, 2)"
            )

    def _use(self, name):
        name = self.quoted.get(name, name)
        self.variables[name] = None
        if not self.in_category:
            self.elsewhere.add(name)
        if self.in_arithmetic:
            self.computed.add(name)

    def _within(self, nodes, **state):
        before = {name: getattr(self, name) for name in state}
        vars(self).update(state)
        for node in nodes:
            self.visit(node)
        vars(self).update(before)

    def generic_visit(self, node):
        self.refuse(f"{ast.unparse(node)!r} is not allowed in a formula")

    def visit_Name(self, node):
        if node.id in CONTRASTS and self.in_category:
            self.called.add(node.id)
            return
        self._use(node.id)

    def visit_Constant(self, node):
        value = node.value
        if isinstance(value, str):
            # formulaic inserts text constants into the code that it executes
            if not value.isprintable() or set(value) & set("'\"\\{}"):
                self.refuse(f"the string {value!r} must not have quotes, backslashes or braces")
        elif not isinstance(value, (bool, int, float, type(None))):
            self.refuse(f"{ast.unparse(node)!r} is not a number")

    def visit_List(self, node):
        if not all(isinstance(item, (ast.Constant, ast.UnaryOp)) for item in node.elts):
            self.refuse(f"{ast.unparse(node)!r} must list numbers or strings")
        self._within(node.elts)

    visit_Tuple = visit_List  # noqa: N815

    def visit_UnaryOp(self, node):
        if not isinstance(node.op, SIGN_OPERATORS):
            self.generic_visit(node)
        self._operands(node, (node.operand,))

    def visit_BinOp(self, node):
        if not isinstance(node.op, ARITHMETIC_OPERATORS + LOGICAL_OPERATORS):
            self.generic_visit(node)
        power = isinstance(node.op, ast.Pow)
        if power and not any(isinstance(part, ast.Name) for part in ast.walk(node.left)):
            self.refuse(f"{ast.unparse(node)!r} must be a power of a column")
        self._operands(node, (node.left, node.right))

    def _operands(self, node, parts):
        for part in parts:
            text = isinstance(part, ast.Constant) and not isinstance(part.value, (int, float))
            if text or isinstance(part, (ast.List, ast.Tuple)):
                self.refuse(f"{ast.unparse(node)!r}: {ast.unparse(part)!r} is not a number")
        self._within(parts, in_arithmetic=True)

    def visit_Compare(self, node):
        if len(node.ops) > 1 or not isinstance(node.ops[0], COMPARISON_OPERATORS):
            self.refuse(f"{ast.unparse(node)!r}: compare two at a time, (a > 1) & (a < 2)")
        self._within((node.left, *node.comparators), in_arithmetic=False)

    def visit_Call(self, node):
        name = ast.unparse(node.func).removeprefix("np.")
        allowed = NUMPY_FUNCTIONS if isinstance(node.func, ast.Attribute) else FORMULA_FUNCTIONS
        contrast = self.in_category and name in CONTRASTS
        if name not in allowed and not contrast:
            self.refuse(f"no function {name!r}. The functions are: {', '.join(FORMULA_FUNCTIONS)}")
        self.called.add(name)
        for keyword in node.keywords:
            if keyword.arg not in KEYWORDS:
                self.refuse(f"{name} has no option {keyword.arg!r}")
        options = [keyword.value for keyword in node.keywords]
        if name in COLUMN_TRANSFORMS:
            self._check_sizes(name, node)
        state = {"in_arithmetic": name not in ("C", "I", "where")}
        if name == "C":
            state["in_category"] = True
        self._within((*node.args, *options), **state)

    def _check_sizes(self, name, node):
        """Refuse degrees and degrees of freedom above `LARGEST_DEGREE`."""
        sizes = [keyword.value for keyword in node.keywords if keyword.arg in ("degree", "df")]
        if name in ("poly", "bs", "cr", "cc"):
            sizes += node.args[1:2]
        for size in sizes:
            value = getattr(size, "value", None)
            if value is None and isinstance(size, ast.Constant):
                continue
            if not (isinstance(value, int) and 1 <= value <= LARGEST_DEGREE):
                self.refuse(
                    f"{ast.unparse(node)!r}: {ast.unparse(size)} must lie in [1, {LARGEST_DEGREE}]"
                )
