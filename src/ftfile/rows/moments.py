"""Functions of the current time in conditions, replaced by literals before a condition is parsed.

The grammar, in the words of Spark and not case-sensitive::

    moment = CURRENT_DATE() | CURRENT_TIMESTAMP() | NOW() | DATE 'text' | TIMESTAMP 'text' | moment (+ -) shift
           | DATE_ADD( moment , 7 ) | DATE_SUB( moment , 7 )
    shift  = INTERVAL 7 unit {7 unit} | 7, for days of a date
    text   = DATE_FORMAT( moment , 'pattern' )

A unit is YEAR, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND, singular or plural; a number can have a sign.
"""

from __future__ import annotations

import calendar
import datetime
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.rows.comparisons import Cursor, TimeText, typed_scalar_of, unquote
from ftfile.rows.value_text import DAYS_OF_TEXT, UTC, TimePattern, offset_text, value_texts
from ftfile.rows.zone_clocks import clocks_of

if TYPE_CHECKING:
    from ftfile.rows.comparisons import Token


_Where = TypeVar("_Where")

_FUNCTIONS = ("CURRENT_DATE", "CURRENT_TIMESTAMP", "NOW", "DATE_ADD", "DATE_SUB", "DATE_FORMAT")
_LITERALS = ("DATE", "TIMESTAMP")
_ANY = re.compile(rf"\b(?:{'|'.join(_FUNCTIONS)}|INTERVAL)\b|'\s*[-+]", re.IGNORECASE)
_OFFSET = re.compile(r"(?:Z|[+-]\d\d:\d\d(?::\d\d)?)$")
_DAY_US = 86_400_000_000
_US = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": _DAY_US, "WEEK": 7 * _DAY_US}
_MONTHS = {"MONTH": 1, "YEAR": 12}
_SIGNS = ("+", "-")
_FIRST_DAY, _LAST_DAY = DAYS_OF_TEXT
_EPOCH = datetime.date(1970, 1, 1).toordinal()
# Words that can follow a moment. After another word, such as DIV, the moment would be an operand.
_AFTER = frozenset({"AND", "OR", "IN", "IS", "NOT", "BETWEEN", "LIKE", "WHEN", "THEN", "ELSE", "END"})
_DIGITS_MAX = 9  # of a number; longer numbers exceed the supported years
_NESTED_MAX = 100  # nested functions
_CLOCK, _INSTANT = pa.timestamp("us"), pa.timestamp("us", UTC)


def with_clock_values(where: _Where, now_ms: int, time_zone: str, argument: str = "where") -> _Where | str:
    """Return a condition with functions of the current time replaced by literals, such as `DATE '2024-06-01'`.

    Other types of conditions are returned unchanged. Dates, and steps of a day or more, are in `time_zone`, as in a
    Spark session with this time zone: a local time that daylight saving skips is moved later by the gap.

    Args:
        where: any condition.
        now_ms: since 1970 UTC.
        time_zone: of dates.
        argument: the name of the argument with the condition, for errors.

    Raises:
        ConfigError: an interval, a function or a pattern is invalid, or a time is outside of the years 1 to 9999.
    """
    if not isinstance(where, str) or not _ANY.search(where):
        return where
    return _ClockReplacer(where, argument, now_ms * 1000, time_zone).text()


class _ConditionTime(NamedTuple):
    kind: str  # a value of `_LITERALS`
    value: int  # days or microseconds since 1970 UTC


class _ClockReplacer(Cursor):
    """Replaces functions of the current time in one condition by literals."""

    def __init__(self, where: str, argument: str, now_us: int, time_zone: str) -> None:
        super().__init__(where, argument)
        self._now_us = now_us
        self._zone = time_zone
        self._nested = 0

    def text(self) -> str:
        pieces, copied = list[str](), 0
        while (token := self._peek()).kind != "end":
            if not self._is_moment():
                self._next += 1
                continue
            pieces.append(self._where[copied : token.position - len(token.text)])
            pieces.append(self._written_out())
            copied = self._tokens[self._next - 1].position
        return "".join([*pieces, self._where[copied:]])

    def _written_out(self) -> str:
        if self._next and self._tokens[self._next - 1].word in _SIGNS:
            raise self._error("a number")  # the operator before the sign would bind first
        literal = self._literal_text()
        following = self._peek()
        if following.kind not in ("sign", "end") and following.word not in _AFTER:
            raise self._error("AND, OR or the end")
        return literal

    def _literal_text(self) -> str:
        if not self._take("DATE_FORMAT"):
            moment = self._moment()
            return f"{moment.kind} '{self._text(moment)}'"
        self._expect("(")
        clock = pa.array([self._clock(self._instant(self._moment()))], _CLOCK)
        self._expect(",")
        text = self._parse_quoted("a pattern, such as 'yyyyMMdd'")
        pattern = TimePattern.parse(f"{self._argument} with date_format", text, _CLOCK)
        self._expect(")")
        return "'" + str(pattern.format(clock, UTC)[0].as_py()).replace("'", "''") + "'"

    def _moment(self) -> _ConditionTime:
        self._nested += 1
        if self._nested > _NESTED_MAX:
            raise ConfigError(f"{self._argument}: functions nested more than {_NESTED_MAX} levels")
        moment = self._parse_first()
        while self._peek().word in _SIGNS:
            sign = -1 if self._peek().word == "-" else 1
            self._next += 1
            if self._take("INTERVAL"):
                moment = self._move_moment(moment, sign)
            elif moment.kind == "DATE":
                moment = self._check_field("DATE", moment.value + sign * self._number())
            else:
                raise self._error("INTERVAL")
        self._nested -= 1
        return moment

    def _parse_first(self) -> _ConditionTime:
        word = self._peek().word
        if word == "DATE_FORMAT" or not (word in _LITERALS or self._is_moment()):
            raise self._error("current_date(), now() or DATE '2024-12-31'")
        self._next += 1
        if word in _LITERALS:
            return self._parse_literal(word)
        self._expect("(")
        moment = _ConditionTime("TIMESTAMP", self._now_us)
        if word == "CURRENT_DATE":
            moment = self._date(moment)
        elif word in ("DATE_ADD", "DATE_SUB"):
            start = self._date(self._moment())
            self._expect(",")
            days = self._number()
            moment = self._check_field("DATE", start.value + (days if word == "DATE_ADD" else -days))
        self._expect(")")
        return moment

    def _parse_literal(self, kind: str) -> _ConditionTime:
        text = TimeText(self._parse_quoted("a text, such as '2024-12-31'"), kind)
        is_clock = kind == "TIMESTAMP" and not _OFFSET.search(text.text)
        if kind == "DATE":
            type_: pa.DataType = pa.date32()
        elif is_clock:
            type_ = _CLOCK
        else:
            type_ = _INSTANT
        try:
            scalar = typed_scalar_of(text, type_, UTC)
        except (ValueError, pa.ArrowException) as error:
            raise ConfigError(f"{self._argument}: {text!r}: {error}") from error
        checked = self._check_field(kind, scalar.value)
        if is_clock:
            return _ConditionTime(kind, self._show_clock(checked.value))
        return checked

    def _move_moment(self, moment: _ConditionTime, sign: int) -> _ConditionTime:
        """Return a moment plus the following interval, as in Spark: days and months are added to the local time."""
        months = micros = 0
        while True:
            number, unit = self._number(), self._unit(self._peek())
            if unit in _MONTHS:
                months += sign * number * _MONTHS[unit]
            elif unit in _US:
                micros += sign * number * _US[unit]
            else:
                raise self._error("a unit, such as DAYS")
            self._next += 1
            following = self._tokens[self._next : self._next + 3]
            if following[0].word in _SIGNS and self._unit(following[-1]):
                continue
            if following[0].kind not in ("number", "text"):
                break
        if months and micros:
            raise ConfigError(
                f"{self._argument}={self._where!r}: months and days must be separate intervals, as in Spark"
            )
        days, rest = abs(micros) // _DAY_US, abs(micros) % _DAY_US
        if micros < 0:
            days, rest = -days, -rest
        if moment.kind == "DATE" and not rest:
            return self._check_field("DATE", _plus_months(moment.value, months) + days)
        instant = self._instant(moment)
        if months or days:
            clock = self._clock(instant)
            day, time_us = divmod(clock, _DAY_US)
            day = self._check_field("DATE", _plus_months(day, months) + days).value
            instant = self._show_clock(day * _DAY_US + time_us, clock - instant)
        return self._check_field("TIMESTAMP", instant + rest)

    @staticmethod
    def _unit(token: Token) -> str:
        unit = token.word.removesuffix("S")
        if unit in _US or unit in _MONTHS:
            return unit
        return ""

    def _date(self, moment: _ConditionTime) -> _ConditionTime:
        if moment.kind == "DATE":
            return moment
        return _ConditionTime("DATE", self._clock(moment.value) // _DAY_US)

    def _instant(self, moment: _ConditionTime) -> int:
        if moment.kind == "TIMESTAMP":
            return moment.value
        return self._show_clock(moment.value * _DAY_US)

    def _clock(self, instant: int) -> int:
        """Return the local time at an instant, both in microseconds."""
        clock_us: int = clocks_of(pa.array([instant], _INSTANT), self._zone)[0].value
        return clock_us

    def _offset_at(self, instant: int) -> int:
        return self._clock(instant) - instant

    def _show_clock(self, clock: int, offset: int | None = None) -> int:
        """Return the instant of a local time; of two instants, the one with this offset."""
        before, after = self._offset_at(clock - _DAY_US), self._offset_at(clock + _DAY_US)
        for candidate_us in (before if offset is None else offset, before, after):
            if self._clock(clock - candidate_us) == clock:
                return clock - candidate_us
        return clock - before

    def _text(self, moment: _ConditionTime) -> str:
        if moment.kind == "DATE":
            return value_texts(pa.array([moment.value], pa.date32()), UTC)[0]
        clock = self._clock(moment.value)
        return value_texts(pa.array([clock], _CLOCK), UTC)[0] + offset_text(clock - moment.value)

    def _check_field(self, kind: str, value: int) -> _ConditionTime:
        # A day is kept at both ends, so that the time exists in all time zones.
        if not _FIRST_DAY < (value if kind == "DATE" else value // _DAY_US) < _LAST_DAY:
            raise ConfigError(f"{self._argument}={self._where!r}: a time is outside the years 1 to 9999")
        return _ConditionTime(kind, value)

    def _number(self) -> int:
        negative = self._take("-")
        if not negative:
            self._take("+")
        token = self._peek()
        digits = token.text
        if token.kind == "text":
            digits = unquote(token.text)
        if token.kind not in ("number", "text") or not re.fullmatch(r"-?[0-9]+", digits):
            raise self._error("a whole number")
        if len(digits) > _DIGITS_MAX:
            raise ConfigError(f"{self._argument}: {digits[:20]}: it must be a number of at most {_DIGITS_MAX} digits")
        self._next += 1
        if negative:
            return -int(digits)
        return int(digits)

    def _parse_quoted(self, what: str) -> str:
        if self._peek().kind != "text":
            raise self._error(what)
        return unquote(self._advance().text)

    def _is_moment(self) -> bool:
        word, following = self._peek().word, self._tokens[self._next + 1 : self._next + 3]
        if word in _FUNCTIONS:
            return following[0].word == "("
        is_literal = word in _LITERALS and following[0].kind == "text"
        return is_literal and following[1].word in _SIGNS


def _plus_months(day: int, months: int) -> int:
    """Return a day some months later, or the last day of that month if it is shorter."""
    if not months:
        return day
    date = datetime.date.fromordinal(day + _EPOCH)
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    if not datetime.MINYEAR <= year <= datetime.MAXYEAR:
        return _LAST_DAY  # which is refused
    last = calendar.monthrange(year, month + 1)[1]
    return datetime.date(year, month + 1, min(date.day, last)).toordinal() - _EPOCH
