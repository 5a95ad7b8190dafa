"""The options with which files are found and planned; and patterns of names as Hadoop, and so Spark, has them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ftfile.core.codecs import filters_of_name
from ftfile.core.errors import ConfigError
from ftfile.core.options import values_of_fields
from ftfile.read.foreign.decoding.settings import FileDecoding
from ftfile.storage.paths import parse

if TYPE_CHECKING:
    from ftfile.core.options import ParsedOptions


_GROWING = ("text", "json", "csv")

_WILDCARD = re.compile(r"[*?\[{\\]")
_TOKEN = re.compile(r"\\.|\[[\^!]?\]?[^\]]*\]|.", re.DOTALL)
_BRACES = re.compile(r"\\.|[{},]", re.DOTALL)


def has_wildcard(text: str) -> bool:
    """Return True if a name, or a path, is a pattern."""
    return _WILDCARD.search(text) is not None


@lru_cache
def glob_pattern(glob: str) -> re.Pattern[str]:
    r"""Return the expression of a pattern as Hadoop has them: `*`, `?`, `[a-c]`, `[^a]`, `{a,b}`, and `\`.

    Raises:
        ConfigError: a bracket or a brace is not closed, or a bracket or a range is empty.
    """
    try:
        return re.compile("|".join(f"(?:{_to_regex(one)})" for one in alternatives(glob)), re.DOTALL)
    except re.error as error:
        raise ConfigError(f"the pattern {glob!r} is not understood: {error}") from error


def _to_regex(glob: str) -> str:
    pieces = []
    for match in _TOKEN.finditer(glob):
        sign = match.group()
        if sign == "*":
            pieces.append("[^/]*")
        elif sign == "?":
            pieces.append("[^/]")
        elif sign[0] == "[" and len(sign) > 1:
            inner = sign[1:-1]
            is_not = inner.startswith(("^", "!"))
            if not inner[is_not:]:
                raise ConfigError(f"the pattern {glob!r} has no character in {sign}; write \\[ for the character")
            inner = re.sub(r"([\[\]&~|^])", r"\\\1", inner[is_not:])
            pieces.append(f"[{'^' if is_not else ''}{inner}]")
        elif sign == "[":
            raise ConfigError(f"the pattern {glob!r} has a [ without its ]; write \\[ for the character")
        else:
            pieces.append(re.escape(sign[-1]))
    return "".join(pieces)


def alternatives(glob: str) -> list[str]:
    """Return a pattern for each choice of words in braces."""
    depth, start, commas = 0, 0, []
    for match in _BRACES.finditer(glob):
        sign, place = match.group(), match.start()
        if sign == "{":
            depth += 1
            if depth == 1:
                start, commas = place, [place]
        elif sign == "," and depth == 1:
            commas.append(place)
        elif sign == "}" and depth:
            depth -= 1
            if not depth:
                words = [glob[begin + 1 : end] for begin, end in zip(commas, [*commas[1:], place], strict=True)]
                return [one for word in words for one in alternatives(glob[:start] + word + glob[place + 1 :])]
    if depth:
        raise ConfigError(f"the pattern {glob!r} has a {{ without its }}; write \\{{ for the character")
    return [glob]


@dataclass(frozen=True, slots=True)
class FilesSettings:
    """Where files are, which of them are read, and when; plain data. Options have the names of the fields."""

    root: str  # URL of the directory to which all paths of plans are relative
    pattern: str  # relative to it, of the files and directories that are read; as Hadoop has globs
    decoding: FileDecoding  # of all files
    tail: bool  # files grow
    follow_links: bool = False  # to files; to directories, none is followed but those that the path names
    recursive_file_lookup: bool = False
    path_glob_filter: str | None = None
    file_pattern: str | None = None
    ignore_file_pattern: str | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    scan_interval: float = 1.0  # seconds
    max_file_age: float = 7 * 86_400.0  # seconds
    max_tracked_files: int = 1_000_000
    close_inactive: float = 300.0  # seconds
    min_file_age: float = 10.0  # seconds
    file_identity: Literal["native", "content"] = "native"
    allow_overwrites: bool = False
    fail_on_data_loss: bool = False
    max_retries: int = 5

    @property
    def shown(self) -> str:
        """Return the URL that is read, with its pattern."""
        return f"{self.root.rstrip('/')}/{self.pattern}"

    @property
    def separator(self) -> bytes:
        """Return the bytes that end a record of a growing file."""
        return self.decoding.separator

    @property
    def has_limits(self) -> bool:
        """Return True if a plan may leave something to the next one."""
        return self.max_files_per_trigger is not None or self.max_bytes_per_trigger is not None

    def reads_lines(self, path: str) -> bool:
        """Return True for a file whose lines are read as they appear; others are read whole, once they are complete."""
        return self.tail and not filters_of_name(path)

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> FilesSettings:
        """Return the settings that the options name; a ConfigError where they contradict each other."""
        root, pattern = split_path(parsed["path"])
        file_format = parsed["fileFormat"]
        grows = file_format in _GROWING and not parsed["multiLine"]
        tail = grows if parsed["tail"] is None else parsed["tail"]
        if tail and not grows:
            raise ConfigError(f"tail=true is for {', '.join(_GROWING)} without multiLine: other files are read whole")
        parsed.for_format(file_format)
        if parsed["pathGlobFilter"] is not None:
            glob_pattern(parsed["pathGlobFilter"])
        decoding = FileDecoding.from_options(parsed.given)
        computed = {"root": root, "pattern": pattern, "decoding": decoding, "tail": tail}
        return cls(**values_of_fields(cls, parsed.given) | computed)


def split_path(path: str | None) -> tuple[str, str]:
    """Return the URL of the deepest directory that a path names without a pattern, and the rest of the path.

    The last name always is in the rest, as it may be that of a file. A ConfigError says what is wrong with a pattern.
    """
    if path is None:
        raise ConfigError("the stream has no `path`: spark.readStream.format('ftfile').load('/data/in')")
    url = parse(path)
    names = url.path.strip("/").split("/") if url.path != "/" else []
    literal = next((place for place, name in enumerate(names) if has_wildcard(name)), max(len(names) - 1, 0))
    for pattern in alternatives("/".join(names[literal:])):
        for name in pattern.split("/"):
            glob_pattern(name)
    root = "/" + "/".join(names[:literal])
    return f"{url.scheme}://{url.authority}{root}", "/".join(names[literal:])
