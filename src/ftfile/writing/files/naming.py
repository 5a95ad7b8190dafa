"""The options that name parts, the facts that make a name, and names that a storage system keeps and readers see."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ftfile.core.codecs import CODECS, READERS_ENDINGS
from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.core.extensions import is_name_of_code, load
from ftfile.core.per_process import cached_property
from ftfile.rows.buffers import from_numpy
from ftfile.rows.value_text import TimePattern
from ftfile.rows.zone_clocks import clocks_of
from ftfile.storage.paths import NAME_BYTES_MAX, join
from ftfile.writing.options import MORE_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.core.options.typed import SinkOptions
    from ftfile.filters.chain import Chain
    from ftfile.storage.api import Capabilities


__all__ = (
    "DEFAULT_TEMPLATE",
    "PATH_BYTES_MAX",
    "Naming",
    "PartFacts",
    "PathCheck",
    "Template",
    "check_extension",
    "ending_fault",
    "first_part",
    "name_fault",
    "path_fault",
)


PATH_BYTES_MAX = 1_000  # some storage systems support only 1,024, or less below a directory: see `PathCheck`

_HIDING = "_."
_HIDDEN_ENDING = "._COPYING_"
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f:\ud800-\udfff]")

DEFAULT_TEMPLATE = "{name}-{batch}-{index}-{unique}{ext}"
_OPTION = "partFileName"
_DIGITS = {"batch": 10, "index": 5, "number": 1}
_PLAIN = ("name", "directory", "unique", "ext")
_DIGITS_MAX = 20
# The value of each placeholder by name. The placeholder `time` has a pattern instead.
_TEXTS: dict[str, Callable[[PartFacts, int], str]] = {
    "name": lambda part, _: part.name,
    "directory": lambda part, _: part.directory.replace("/", "-"),
    "batch": lambda part, digits: part.batch.lstrip("0").rjust(digits, "0"),
    "index": lambda part, digits: f"{part.index:0{digits}d}",
    "number": lambda part, digits: f"{part.number:0{digits}d}",
    "unique": lambda part, _: part.unique,
    "ext": lambda part, _: part.extension,
}
# Keys in the log by attribute.
_GIVEN = {
    "text": "partFileName",
    "prefix": "partPrefix",
    "suffix": "partSuffix",
    "if_exists": "ifExists",
    "ttl_ms": "directoryStateTtlMs",
    "time_zone": "timeZone",
}
# Examples of the stem and the directory, which no real name contains.
_NAME, _DIRECTORY = "\0", "\1"


def path_fault(path: str, last_bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """Return why a path below the directory is invalid, as in "it … ", or None."""
    if path.startswith("/"):
        return "is absolute, but files must be below the directory"
    size_bytes = len(path.encode(errors="surrogatepass"))
    if size_bytes > PATH_BYTES_MAX:
        return f"has {size_bytes} bytes, but a path may have at most {PATH_BYTES_MAX}"
    *directories, last = path.split("/")
    return next(filter(None, map(name_fault, directories)), None) or name_fault(last, last_bytes_max)


def name_fault(name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """Return why the name of a file or directory is invalid, as in "it … ", or None."""
    if not name:
        return "has an empty part"
    if name in {".", ".."}:
        return f"has the part {name!r}, but files must be below the directory"
    if name[0] in _HIDING or name.endswith(_HIDDEN_ENDING):
        return f"has the part {name[:80]!r}, which readers ignore"
    forbidden = _FORBIDDEN.search(name)
    if forbidden is not None:
        return f"has the character {forbidden[0]!r}, which some storage systems do not accept"
    size_bytes = len(name.encode())
    if size_bytes > bytes_max:
        return f"has a part of {size_bytes} bytes, but a part may have at most {bytes_max}"
    return None


def check_extension(extension: str, chain: Chain) -> None:
    """Raise a ConfigError if an extension from user code belongs to a codec that is not the last filter."""
    last = next((filter_ for filter_ in reversed(chain.filters) if filter_.extension), None)
    fault = ending_fault(extension, last.extension if last is not None and last.name in CODECS else "")
    if fault is not None:
        raise ConfigError(
            f"the names of files {fault}: change the extension of the class of the encoder or of the filter"
        )


def ending_fault(name: str, extension: str) -> str | None:
    """Return why the end of a file name is invalid, as in "it … ", or None. `extension` is allowed."""
    ending = "." + name.rpartition(".")[2]
    if ending.lower() not in READERS_ENDINGS or extension.endswith(ending.lower()):
        return None
    return f"would end in {ending!r}: readers would decompress the files, but they are not compressed with this codec"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """The facts from which a name is built. The user's naming function receives them."""

    name: str  # from `fileNameColumn` or a user's assigner; otherwise `partPrefix`
    directory: str  # relative; empty for the root directory
    batch: str  # the batch id in ten digits; for a batch write, `w` and twelve characters
    index: int  # index among the parts of the directory in this batch, from 0
    number: int  # number among all parts of the directory, from 0, while the log keeps the number
    unique: str  # twelve unique characters
    extension: str  # of the file format, with its dot
    time_ms: int  # planning time of the batch by the driver's clock, in milliseconds since 1970 UTC
    rows: int
    size_bytes: int
    query_id: str  # the streaming query, or the id of the batch write


def first_part(name: str, directory: str, extension: str) -> PartFacts:
    """Return an example."""
    return PartFacts(
        name=name,
        directory=directory,
        batch="0000000000",
        index=0,
        number=0,
        unique="0123456789ab",
        extension=extension,
        time_ms=0,
        rows=1,
        size_bytes=1,
        query_id="query",
    )


@dataclass(frozen=True, slots=True)
class Template:
    """A checked template, with placeholders and doubled braces as in Python's `str.format`."""

    text: str
    time_zone: str  # for the local time of `time`

    @classmethod
    def parse(cls, text: str, time_zone: str) -> Template:
        """Parse a template. An empty template or an unknown placeholder raises a ConfigError."""
        if not text:
            raise ConfigError(f"{_OPTION} is empty: leave it out to get names such as {DEFAULT_TEMPLATE}")
        try:
            for _, name, argument, conversion in Formatter().parse(text):
                _check_placeholder(name, argument or "", conversion)
        except ValueError as error:
            accepted = ", ".join(f"{{{placeholder}}}" for placeholder in (*_PLAIN, *_DIGITS))
            raise ConfigError(
                f"{_OPTION}={text!r}: {error}; accepted are {accepted}, a number of digits as in {{number:5}}, and "
                "{time:yyyyMMdd-HHmm}"
            ) from error
        return cls(text, time_zone)

    def uses(self, name: str) -> bool:
        """Return True if a placeholder occurs."""
        return name in [placeholder for _, placeholder, _, _ in Formatter().parse(self.text)]

    def fill(self, part: PartFacts) -> str:
        """Return the name of a part."""
        pieces = []
        for text, name, argument, _ in Formatter().parse(self.text):
            pieces.append(text + ("" if name is None else self._value(name, argument or "", part)))
        return "".join(pieces)

    def _value(self, name: str, argument: str, part: PartFacts) -> str:
        if name == "time":
            instant = from_numpy(np.array([part.time_ms * 1000]), pa.timestamp("us", "UTC"))
            return str(_time_pattern(argument).format(clocks_of(instant, self.time_zone), "UTC")[0].as_py())
        return _TEXTS[name](part, int(argument or _DIGITS.get(name, 0)))


def _check_placeholder(name: str | None, argument: str, conversion: str | None) -> None:
    """Raise a ValueError for an unknown placeholder, and a ConfigError for an invalid time pattern."""
    if name == "time" and argument and "{" not in argument and conversion is None:
        _time_pattern(argument)
        return
    is_number = name in _DIGITS and argument.isdecimal() and 1 <= int(argument) <= _DIGITS_MAX
    if name is not None and (conversion is not None or not (is_number or (name in _TEXTS and not argument))):
        shown = f"{{{name}{'' if conversion is None else f'!{conversion}'}{argument and f':{argument}'}}}"
        raise ValueError(f"{shown!r} is not a known field")


@functools.lru_cache
def _time_pattern(text: str) -> TimePattern:
    return TimePattern.parse(f"{_OPTION} with time", text, pa.timestamp("us"))


def _before_ending(template: str, added: str) -> str:
    """Return a template with more text before the extension of its names."""
    stem, dot, ending = template.rpartition(".")
    if template.endswith("{ext}"):
        stem, dot, ending = template.removesuffix("{ext}"), "", "{ext}"
    elif not dot or "{" in ending or "}" in ending:
        stem, dot, ending = template, "", ""
    return f"{stem}{added}{dot}{ending}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The settings for the names of parts."""

    text: str | None  # `partFileName`, None for the default
    prefix: str  # the stem of names without a stem from rows
    suffix: str  # text before the extension
    if_exists: Literal["newName", "fail"]  # with `newName`, all names are unique
    ttl_ms: int  # how long the log keeps the number of a directory's parts after its last part
    time_zone: str  # for local times
    template: Template = field(init=False)  # used if there is no function
    function: str | None = field(init=False)  # the user's function, as `module:function`

    def __post_init__(self) -> None:
        is_function = self.text is not None and "{" not in self.text and is_name_of_code(self.text)
        text = DEFAULT_TEMPLATE if self.text is None or is_function else self.text
        if self.suffix:
            text = _before_ending(text, self.suffix.replace("{", "{{").replace("}", "}}"))
        template = Template.parse(text, self.time_zone)
        if self.if_exists == "newName" and not template.uses("unique"):
            template = Template.parse(_before_ending(text, "-{unique}"), self.time_zone)
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "function", self.text if is_function else None)

    @classmethod
    def from_options(cls, parsed: SinkOptions, extension: str, time_zone: str) -> Naming:
        """Return the options, checked with an example name that has this extension."""
        _check_contradictions(parsed)
        naming = cls(
            text=parsed.part_file_name,
            prefix=parsed.part_prefix,
            suffix=parsed.part_suffix,
            if_exists=parsed.if_exists,
            ttl_ms=int(parsed.directory_state_ttl * 1000),
            time_zone=time_zone,
        )
        if naming.if_exists == "fail" and naming.function is None and naming.template.uses("unique"):
            raise ConfigError("ifExists=fail is only for names that can repeat: set a partFileName without {unique}")
        if parsed.is_given("directoryStateTtl") and not naming.uses_numbers:
            raise ConfigError("directoryStateTtl is only for names with {number}: add {number} to partFileName")
        naming.examples(extension)
        return naming

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return {name: getattr(self, attribute) for attribute, name in _GIVEN.items()}

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> Naming:
        """Build from `to_json()`."""
        naming = cls(**{attribute: text[name] for attribute, name in _GIVEN.items()})
        texts = (naming.prefix, naming.suffix, naming.if_exists, naming.time_zone, naming.text or "")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"names of files are {text!r:.200}")
        return naming

    @property
    def uses_numbers(self) -> bool:
        """Return True if the log must count the parts of each directory. A function may use the number."""
        return self.function is not None or self.template.uses("number")

    @property
    def more_bytes(self) -> int:
        """Return the number of bytes by which later names can be longer than the first name of a directory."""
        if any(map(self.template.uses, ("batch", "index", "number"))):
            return MORE_DIGITS
        return 0

    def stem_bytes_max(self, extension: str) -> int:
        """Return the maximum size of a stem from rows in bytes. With a function, it is the maximum size of a name."""
        if self.function is not None:
            return NAME_BYTES_MAX
        around = self.template.fill(first_part("", "directory", extension))
        return NAME_BYTES_MAX - len(around.encode()) - self.more_bytes

    def name(self, part: PartFacts) -> str:
        """Return the name of a part, without its directory.

        Raises:
            ConfigError: the template results in an invalid name.
            UserCodeError: the function failed, or returned an invalid name.
        """
        name = self.template.fill(part) if self.function is None else self._by_function(self.function, part)
        fault = "has a slash, but only rows choose directories" if "/" in name else name_fault(name)
        if fault is None and self.function is not None:
            fault = ending_fault(name, part.extension)
        if fault is not None:
            kind = ConfigError if self.function is None else UserCodeError
            raise kind(_refusal(name, part, fault))
        return name

    def _by_function(self, function: str, part: PartFacts) -> str:
        called = load("partFileName", function)
        try:
            name = called(part)
        except Exception as error:
            raise UserCodeError(f"partFileName={function!r} raised {error!r} for {part}") from error
        if not isinstance(name, str):
            raise UserCodeError(f"partFileName={function!r} returned {name!r} for {part}, but must return a string")
        if self.if_exists == "fail" or part.unique in name:
            return name
        if part.extension and name.endswith(part.extension):
            return f"{name.removesuffix(part.extension)}-{part.unique}{part.extension}"
        stem, dot, ending = name.rpartition(".")
        if dot:
            return f"{stem}-{part.unique}{dot}{ending}"
        return f"{name}-{part.unique}"

    def examples(self, extension: str, directory: str = "directory") -> list[str]:
        """Return example names with and without a stem from rows. Invalid names raise a ConfigError."""
        names = []
        try:
            for name in ("x", self.prefix):
                part = first_part(name, directory, extension)
                names.append(self.name(part))
                # Checked only here: later names contain stems from rows, which must not fail a batch.
                if fault := ending_fault(names[-1], extension):
                    raise ConfigError(_refusal(names[-1], part, fault))
        except UserCodeError as error:
            raise ConfigError(f"in a test with an example, {error}") from error
        return names


class PathCheck:
    """Checks the path of a directory's first file, with room for longer names of later files."""

    def __init__(self, naming: Naming, extension: str, storage: Capabilities) -> None:
        self._naming = naming
        self._extension = extension
        self._storage = storage

    def fault_of(self, directory: str, stem: str) -> str | None:
        """Return why the files of a directory cannot have valid names, as in "it … ", or None."""
        if self._naming.function is None:
            example, more_bytes = self._example
            name = example.replace(_DIRECTORY, directory.replace("/", "-"))
            name = name.replace(_NAME, stem or self._naming.prefix)
        else:
            # The names of a function are unknown: they can start with the given name, and have the maximum length.
            name = stem.rstrip() or self._naming.prefix
            more_bytes = max(0, NAME_BYTES_MAX - len(name.encode()))
        path = join(directory, name)
        fault = self._storage.fault_of(path, more_bytes)
        if fault is None:
            return None
        return f"would be written to a file such as {_show_path(path)}, which {fault}"

    @cached_property
    def _example(self) -> tuple[str, int]:
        return self._naming.template.fill(first_part(_NAME, _DIRECTORY, self._extension)), self._naming.more_bytes

    def check(self, directory: str) -> None:
        """Raise a ConfigError if the storage does not support the names of examples in a directory."""
        more_bytes = 0
        if self._naming.function is None:
            more_bytes = self._naming.more_bytes
        for name in self._naming.examples(self._extension, directory):
            path = join(directory, name)
            if fault := self._storage.fault_of(path, more_bytes):
                raise ConfigError(f"the name of a new file would be {_show_path(path)}, which {fault}")


def _show_path(path: str) -> str:
    if len(path) <= NAME_BYTES_MAX:
        return repr(path)
    return f"{path[:80]!r}...{path[-80:]!r}"


def _refusal(name: str, part: PartFacts, fault: str) -> str:
    return f"partFileName returns the name {name!r} in {part.directory or 'the directory'!r}, which {fault}"


def _check_contradictions(parsed: SinkOptions) -> None:
    set_options = parsed.given
    for name in ("partPrefix", "partSuffix"):
        if name in set_options and "partFileName" in set_options:
            raise ConfigError(f"partFileName and {name} are both set: write the {name[4:].lower()} into partFileName")
    if "partPrefix" in set_options and "fileNameColumn" in set_options:
        raise ConfigError(
            "fileNameColumn and partPrefix both set the start of names. To use both, write "
            f"partFileName={set_options['partPrefix'] + DEFAULT_TEMPLATE!r} instead of partPrefix"
        )
