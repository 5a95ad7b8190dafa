"""Conditions of users on rows, as trees (`rows.predicate`) and as Arrow expressions.

A condition is a mapping, an SQL-like text or an Arrow expression. The grammar of a text, which is not case-sensitive::

    condition  = both {OR both}          both = negated {AND negated}
    negated    = {NOT} (( condition ) | TRUE | FALSE | column | comparison)
    comparison = column (= == != <> < <= > >=) literal | literal (= ...) column
               | column [NOT] IN ( literal {, literal} ) | column [NOT] BETWEEN literal AND literal
               | column IS [NOT] NULL
    literal    = 7 | -7.5 | 1e3 | 'text' | "text" | TRUE | FALSE | NULL | DATE 'text' | TIMESTAMP 'text'

As in SQL, a condition selects a row only if it is true, and not if it is null. Floating-point numbers are ordered as in
Spark: NaN equals NaN, and is greater than all other numbers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.arguments import CONDITION_TAKEN
from ftfile.core.errors import ConfigError
from ftfile.core.per_process import PerProcess
from ftfile.core.remedies import Advice, Argument
from ftfile.rows import kernels as pc
from ftfile.rows.comparisons import Columns, Cursor, FlagValue, TimeText, unquote
from ftfile.rows.expressions import expression_of
from ftfile.rows.predicate import OPPOSITES, Always, Compare, In, Null, all_of, any_of, of_mapping
from ftfile.rows.value_text import UTC

if TYPE_CHECKING:
    from ftfile.rows.predicate import Tree


_DEPTH_MAX = 100  # nested parentheses
_COMPARISONS_MAX = 1000  # Arrow's unguarded recursion ends the process at 20,000
_CALLS_MAX = 4000  # operators of an expression: comparisons, and operators that join two conditions
_WALK_BYTES = 512 << 20  # bytes of stack, enough for 200,000 nested calls; only used pages take memory
# The end of a call in a serialized expression: a text of three letters.
_CALL_END = b"\x03\x00\x00\x00end\x00"
_COPIES = 2  # occurrences in every serialized expression, at its start and its end
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SIGNS = {sign: sign for sign in OPPOSITES} | {"==": "=", "<>": "!="}
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_TIMES = ("DATE", "TIMESTAMP")
_COMPARISON = "a comparison by a sign, IN, BETWEEN or IS NULL"
_FOLLOWING = ("AND", "OR", ")")  # the tokens after a column without a comparison
_WORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "BETWEEN", "NULL", "TRUE", "FALSE"})
_POSITION = "FieldPath("  # how the text of an expression shows a column that it names by number
_UNPRINTABLE = "an expression with long texts"


def predicate(
    where: Mapping[str, object] | str | pc.Expression | None,
    schema: pa.Schema,
    *,
    time_zone: str = UTC,
    time_zones: Mapping[str, str] | None = None,
    columns: str = "columns",
    argument: str = "where",
) -> pc.Expression | None:
    """Return a condition on rows of `schema` as an Arrow expression; None and an empty mapping match all rows.

    Column names ignore case, except for those in an expression. Literals are converted to the type of their column.

    Args:
        where: a mapping from columns to a value or a list of values (None is null); a text in the grammar of this
            module; or
            an Arrow expression, which is checked and returned.
        schema: of the rows.
        columns: what errors call the columns of the schema.
        argument: what errors call the condition.
        time_zone: of timestamps without an offset.
        time_zones: of columns with another time zone.

    Raises:
        ConfigError: `where` has another type, names an unknown column, or compares a column with a value of another
            type.
    """
    if where is None:
        return None
    if isinstance(where, pc.Expression):
        return _check_expression(where, schema, columns)
    if isinstance(where, Mapping) and not where:
        return None
    columns_of_rows = Columns(
        schema=schema, time_zone=time_zone, called=columns, time_zones=time_zones or {}, argument=argument
    )
    return expression_of(columns_of_rows.bind(tree_of(where, argument)))


def tree_of(where: object, argument: str = "where") -> Tree:
    """Return a text or a mapping as a condition on names of columns.

    Raises:
        ConfigError: another type, or a text that does not follow the grammar of this module.
    """
    if isinstance(where, str):
        return _Parser(where, argument).parse()
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise ConfigError(Advice(Argument(argument, where), " is not a condition: ", CONDITION_TAKEN[argument]))
    return of_mapping(where)


def _check_expression(where: pc.Expression, schema: pa.Schema, columns: str) -> pc.Expression:
    if _calls(where) > _CALLS_MAX:
        raise ConfigError(
            f"where: an expression of more than {_CALLS_MAX} comparisons and operators, which Arrow cannot evaluate: "
            "for many values of a column, use pyarrow.compute.field(name).isin(values)"
        )
    try:
        schema.empty_table().filter(where)
    except (pa.ArrowException, TypeError, ValueError) as error:
        names = ", ".join(schema.names) or "none"
        raise ConfigError(
            f"where: {text_of_condition(where)} is not a condition on the {columns}, which are {names}: {error}"
        ) from error
    return where


def text_of(expression: pc.Expression) -> str | None:
    """Return the text of an expression; None if Arrow cannot print it.

    Arrow shortens long texts of a value set to a number of bytes, also within a character (pyarrow 26).
    """
    try:
        return str(expression)
    except UnicodeDecodeError:
        return None


def text_of_condition(expression: pc.Expression | None) -> str:
    """Return the text that names an expression in a message."""
    if expression is None:
        return str(expression)
    return text_of(expression) or _UNPRINTABLE


def names_by_number(expression: pc.Expression) -> bool:
    """Return True if an expression names a column by its number."""
    text = text_of(expression)
    if text is not None:
        return _POSITION in text
    try:
        expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return True  # Arrow cannot serialize such an expression
    return False


def _calls(where: pc.Expression) -> int:
    """Return the number of comparisons and operators in an expression of any depth."""
    counts: list[int] = []

    def count() -> None:
        # Arrow cannot serialize columns by number, which `Selection` refuses.
        with contextlib.suppress(pa.ArrowNotImplementedError):
            _, (serialized,) = where.__reduce__()
            counts.append(serialized.to_pybytes().count(_CALL_END) // _COPIES)

    # Arrow's recursion would overflow the stack of this thread (pyarrow 26).
    stack = _stack.here
    with stack.lock:
        stack.bytes_before = threading.stack_size(_WALK_BYTES)
        try:
            walk = threading.Thread(target=count)
            walk.start()
        finally:
            threading.stack_size(stack.bytes_before)
            stack.bytes_before = None
    walk.join()
    return sum(counts)


class _StackSize:
    """The stack size of new threads of this process, which a thread changes for a moment while it holds the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes_before: int | None = None  # the size to restore during a change


def _in_fork(parent: _StackSize) -> _StackSize:
    if parent.bytes_before is not None:
        threading.stack_size(parent.bytes_before)
    return _StackSize()


_stack = PerProcess(_StackSize, _in_fork)


class _Parser(Cursor):
    """Parses a text to a condition or, with `negated`, to its opposite; both match only true rows."""

    def __init__(self, where: str, argument: str) -> None:
        super().__init__(where, argument)
        self._depth = self._comparisons = 0

    def parse(self) -> Tree:
        if len(self._tokens) == 1:
            raise ConfigError(
                Advice(Argument(self._argument, self._where), " is empty: ", CONDITION_TAKEN[self._argument])
            )
        condition = self._parse_or(negated=False)
        if self._peek().kind != "end":
            raise self._error("AND, OR or the end")
        return condition

    def _parse_or(self, *, negated: bool) -> Tree:
        conditions = [self._parse_and(negated=negated)]
        while self._take("OR"):
            conditions.append(self._parse_and(negated=negated))
        if negated:
            return all_of(conditions)
        return any_of(conditions)

    def _parse_and(self, *, negated: bool) -> Tree:
        conditions = [self._parse_not(negated=negated)]
        while self._take("AND"):
            conditions.append(self._parse_not(negated=negated))
        if negated:
            return any_of(conditions)
        return all_of(conditions)

    def _parse_not(self, *, negated: bool) -> Tree:
        while self._take("NOT"):
            negated = not negated
        if not self._take("("):
            return self._comparison(negated=negated)
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ConfigError(f"{self._argument}: parentheses nested more than {_DEPTH_MAX} levels")
        condition = self._parse_or(negated=negated)
        self._expect(")")
        self._depth -= 1
        return condition

    def _comparison(self, *, negated: bool) -> Tree:
        self._comparisons += 1
        if self._comparisons > _COMPARISONS_MAX:
            raise ConfigError(
                f"{self._argument}: more than {_COMPARISONS_MAX} comparisons; use IN, which accepts any number of "
                "values"
            )
        if not self._is_column():
            return self._of_literal(self._parse_literal(), negated=negated)
        name = self._column()
        if self._is_sign():
            return self._compare(name, self._sign(), self._parse_literal(), negated=negated)
        if self._take("IS"):
            is_null = self._take("NOT") == negated
            self._expect("NULL")
            return Null(name, is_null)
        if self._take("NOT"):
            negated = not negated
            if self._peek().word not in ("IN", "BETWEEN"):
                raise self._error("IN or BETWEEN")
        if self._take("BETWEEN"):
            low = self._compare(name, ">=", self._parse_literal(), negated=negated)
            self._expect("AND")
            high = self._compare(name, "<=", self._parse_literal(), negated=negated)
            return any_of([low, high]) if negated else all_of([low, high])
        if self._take("IN"):
            return In(name, tuple(self._list()), not negated)
        no_comparison = self._error(_COMPARISON)
        if self._peek().kind != "end" and self._peek().word not in _FOLLOWING:
            raise no_comparison
        return self._compare(name, "=", FlagValue(no_comparison), negated=negated)

    def _of_literal(self, value: object, *, negated: bool) -> Tree:
        if self._is_sign():
            sign = _FLIPPED[self._sign()]
            return self._compare(self._column(), sign, value, negated=negated)
        if value is None or isinstance(value, bool):
            return Always(value is (not negated))
        raise self._error("a comparison")

    def _compare(self, name: str, sign: str, value: object, *, negated: bool) -> Tree:
        return Compare(name, OPPOSITES[sign] if negated else sign, value)

    def _list(self) -> list[object]:
        self._expect("(")
        values = [self._parse_literal()]
        while self._take(","):
            values.append(self._parse_literal())
        self._expect(")")
        return values

    def _is_column(self) -> bool:
        token = self._peek()
        if token.kind == "column":
            return True
        return token.kind == "word" and not self._is_time() and token.word not in _WORDS

    def _column(self) -> str:
        if not self._is_column():
            raise self._error("a column")
        token = self._advance()
        if self._peek().word == "(":
            raise self._error(_COMPARISON)
        return unquote(token.text) if token.kind == "column" else token.text

    def _is_sign(self) -> bool:
        return self._peek().word in _SIGNS

    def _sign(self) -> str:
        return _SIGNS[self._advance().word]

    def _parse_literal(self) -> object:
        """Return a value, None for null, or a `TimeText`."""
        if self._is_time():
            kind = self._advance().word
            return TimeText(unquote(self._advance().text), kind)
        negative = self._take("-")
        token = self._peek()
        if token.kind != "number" and (negative or (token.kind != "text" and token.word not in _CONSTANTS)):
            raise self._error("a literal, such as 7, 'text' or DATE '2024-12-31'")
        self._next += 1
        if token.kind == "text":
            return unquote(token.text)
        if token.word:
            return _CONSTANTS[token.word]
        text = f"-{token.text}" if negative else token.text  # unary minus of Python rounds Decimals
        try:
            if token.text.isdigit():
                return int(text)
            return Decimal(text)
        except (ValueError, ArithmeticError):
            raise ConfigError(f"{self._argument}: {text[:20]} is too long, or too large, for a number") from None

    def _is_time(self) -> bool:
        # `date` and `timestamp` can also be column names.
        return self._peek().word in _TIMES and self._tokens[self._next + 1].kind == "text"
