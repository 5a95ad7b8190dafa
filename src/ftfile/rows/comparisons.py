"""Tokens of conditions, and literals in the types of columns."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.arguments import CONDITION_TAKEN
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Argument
from ftfile.rows.predicate import Column, bind, columns_of
from ftfile.rows.value_text import UTC, value_of, value_type
from ftfile.rows.zone_clocks import clocks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.rows.predicate import Tree


_DIGITS_MAX = 40  # more than any integer column has
_MIDNIGHT = " 00:00:00"
_OFFSET = re.compile(r"[+-]\d\d:\d\d(?::\d\d)?$")
_INSTANT = pa.timestamp("us", UTC)

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>--|/\*)|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?!\w)"""
    r"""|(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<column>`(?:[^`]|``)+`)"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<sign><>|!=|==|<=|>=|[-+=<>(),]))"""
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a condition."""

    kind: str  # the name of a group of `_TOKEN`, or `end`
    text: str
    position: int  # the position of its end in the condition

    @property
    def word(self) -> str:
        """Return a word in capitals, or a sign; empty for other tokens, such as columns in backticks."""
        if self.kind in ("word", "sign"):
            return self.text.upper()
        return ""


def tokens_of(where: str, argument: str) -> list[Token]:
    """Return the tokens of a condition, and its end; a ConfigError for invalid characters and comments."""
    tokens, position, end = list[Token](), 0, len(where.rstrip())
    while position < end:
        match = _TOKEN.match(where, position)
        if match is None:
            rest = where[position:].strip()
            raise ConfigError(
                Advice(Argument(argument, where), f": {rest[:20]!r} is not understood; ", CONDITION_TAKEN[argument])
            )
        if match["comment"]:
            # Spark would ignore the text after them, where two minus signs would mean plus.
            comment = where[match.start("comment") :][:20]
            raise ConfigError(f"{argument}={where!r}: {comment!r}: comments are not supported")
        position, kind = match.end(), str(match.lastgroup)
        tokens.append(Token(kind, match[kind], position))
    return [*tokens, Token("end", "", end)]


class Cursor:
    """Reads the tokens of a condition, the value of an argument, from left to right.

    Raises:
        ConfigError: like `tokens_of`.
    """

    def __init__(self, where: str, argument: str) -> None:
        self._where = where
        self._argument = argument
        self._tokens = tokens_of(where, argument)
        self._next = 0

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _take(self, word: str) -> bool:
        is_word = self._peek().word == word
        self._next += is_word
        return is_word

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._error(word)

    def _error(self, what: str) -> ConfigError:
        """Return the error that another token is expected here."""
        before = ""
        if self._next:
            before = self._where[: self._tokens[self._next - 1].position].strip()
        text = self._peek().text or "nothing"
        after = "at the start"
        if before:
            after = f"after {before!r}"
        return ConfigError(f"{self._argument}={self._where!r}: {what} is expected {after}, not {text!r}")


def unquote(text: str) -> str:
    """Return the content of a quoted text or column name."""
    return text[1:-1].replace(text[0] * 2, text[0])


@dataclass(frozen=True, slots=True)
class TimeText:
    """A date or a timestamp literal."""

    text: str
    kind: str

    def __repr__(self) -> str:
        return f"{self.kind} {self.text!r}"


@dataclass(frozen=True, slots=True)
class FlagValue:
    """The value TRUE, with which a column without a comparison is compared."""

    error: ConfigError  # for columns that are not boolean


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of rows that conditions can compare."""

    schema: pa.Schema
    time_zone: str  # of timestamps without an offset
    called: str  # the name of the columns in errors
    time_zones: Mapping[str, str]  # the time zones of columns with another time zone
    argument: str  # the argument that contains the condition, for errors

    def fields(self, names: Iterable[str]) -> list[pa.Field]:
        """Return the columns with these names, ignoring case; `ConfigError` names all unknown ones."""
        fields = {field.name.lower(): field for field in self.schema}
        fields |= {field.name: field for field in self.schema}
        matches, unknown = [], []
        for name in names:
            field = fields.get(name, fields.get(name.lower()))
            if field is None:
                unknown.append(repr(name))
            else:
                matches.append(field)
        if unknown:
            which = "and this directory has none"
            if fields:
                which = f"which are {', '.join(self.schema.names)}"
            raise ConfigError(f"{self.argument}: {', '.join(unknown)} is not one of the {self.called}, {which}")
        return matches

    def bind(self, tree: Tree) -> Tree:
        """Return a condition on names and Python values as a condition on columns and literals of their types.

        Raises:
            ConfigError: an unknown column, or a value of another type.
        """
        names = columns_of(tree)
        fields = self.fields(names)
        columns = {name: Column((field.name,), field.type) for name, field in zip(names, fields, strict=True)}
        return bind(tree, columns.__getitem__, self._literal)

    def _literal(self, column: Column, value: object) -> pa.Scalar:
        name, kind = column.path[0], value_type(column.type)
        if isinstance(value, FlagValue):
            if not pa.types.is_boolean(column.type):
                raise value.error
            value = True
        if pa.types.is_nested(kind):
            raise ConfigError(f"{self.argument}: column {name!r} is {kind}, which cannot be compared")
        try:
            return typed_scalar_of(value, kind, self.time_zones.get(name, self.time_zone))
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
            why = "it is out of range" if isinstance(error, OverflowError) else error
            if isinstance(error, TypeError) and _holds_text(kind):
                why = f"it must be a text, such as {str(value)!r}"
            shown = value if isinstance(value, Decimal) else repr(value)
            raise ConfigError(
                f"{self.argument}: {name}={shown} is not a value of the column's type {kind}: {why}"
            ) from error


def typed_scalar_of(value: object, kind: pa.DataType, time_zone: str) -> pa.Scalar:
    """Return a value converted to this type; `ValueError`, `TypeError`, or an error of Arrow if it has no such value.

    A text with an offset, for a type without time zone, is the local time in `time_zone`.
    """
    value = _plain_value_of(value, kind)
    if isinstance(value, str) and not _holds_text(kind):
        text = _time_text(value, kind)
        if pa.types.is_timestamp(kind) and kind.tz is None and _OFFSET.search(text):
            instant = value_of(text, _INSTANT, UTC)
            return clocks_of(pa.array([instant.value], _INSTANT), time_zone)[0].cast(kind)
        if pa.types.is_time(kind):
            from ftfile.rows.clock_text import time_of_day  # noqa: PLC0415 - most conditions have no times of day

            return time_of_day(text)
        return value_of(text, kind, time_zone)
    if isinstance(value, str) and pa.types.is_binary(kind):
        value = value.encode()
    scalar = pa.scalar(value, kind)
    if scalar.as_py() != value and not pa.types.is_floating(kind):
        raise ValueError(f"it would be compared as {scalar.as_py()!r}")  # pyarrow 26 converts 7.5 to 7
    return scalar


def _plain_value_of(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - as many types as columns
    """Return a value in a form that Arrow converts to this type: dates as text, numbers as Python's."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    elif type(value).__module__ == "numpy":
        value = value.item()
    if isinstance(value, TimeText):
        if not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
            raise ValueError(
                "it can only be compared with a date or a timestamp; date_format(…, 'yyyyMMdd') returns a text"
            )
        return value.text
    if type(value) is datetime.date and pa.types.is_timestamp(kind):
        return value.isoformat()
    if isinstance(value, datetime.datetime) and value.tzinfo is None and getattr(kind, "tz", None):
        return value.isoformat(sep=" ")
    if isinstance(value, float) and pa.types.is_decimal(kind):
        return Decimal(repr(value))
    if isinstance(value, Decimal) and not pa.types.is_decimal(kind):
        whole = value.adjusted() < _DIGITS_MAX and value == value.to_integral_value()
        return int(value) if whole else float(value)
    return value


def _holds_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _time_text(text: str, kind: pa.DataType) -> str:
    """Return the text of a date or a timestamp that `value_of` accepts."""
    if pa.types.is_date(kind):
        return text.removesuffix(_MIDNIGHT)
    if pa.types.is_timestamp(kind):
        text = text.replace("T", " ", 1)
        if text.endswith("Z"):
            text = f"{text[:-1]}+00:00"
        if ":" in text:
            return text
        return f"{text}{_MIDNIGHT}"
    if pa.types.is_boolean(kind):
        return text.lower()
    return text
