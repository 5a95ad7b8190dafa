"""Random changes of a directory's files, as an attacker with write access can make them, with right checksums.

A mutation depends only on its generator, so its seed repeats it. Fields of JSON get values of other types and sizes,
paths, addresses and names of code. Files are emptied, cut, extended, swapped, replaced by links, and have bits flipped.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.checksum import checksum, crc32
from ftfile.core.errors import FtfileError
from ftfile.log.format.record import compact_json, from_checked_text, to_checked_text

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

PLANTED = "planted_by_an_attacker"
CHECKED = {".record", ".checkpoint", "_published", "_format", "_marker"}
# Derived from records: with these files, readers would not see the changes of records.
DERIVED = ("hints", "checkpoints", "compacted")
_WAL_CHECKSUM_BYTES = len(checksum(b""))
_COLUMNS_CRC_AT = 41
# Too deep for a recursive encoder, so it is inserted into the encoded text.
_DEEP = "a value of many levels"
_DEEP_TEXT = b"[" * 5_000 + b"]" * 5_000
# Arrow decodes these files without checking their rows, so a right checksum would let any bytes into Arrow.
_OF_ARROW = (".parquet", ".orc", ".arrow")


class Embedded:
    """JSON inside a text of JSON."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Node(NamedTuple):
    """A place in JSON."""

    steps: str  # its path, without the places in arrays and the keys of large objects
    container: Any  # an object, an array, or `Embedded`
    key: Any

    @property
    def value(self) -> Any:
        """Return the value at the place."""
        return self.container.value if isinstance(self.container, Embedded) else self.container[self.key]

    def put(self, value: Any) -> None:
        """Replace the value at the place."""
        if isinstance(self.container, Embedded):
            self.container.value = value
        else:
            self.container[self.key] = value


def mutate(place: Path, outside: Path, generator: random.Random) -> list[str]:
    """Change files below a place; return one line for each change. `outside` is a directory that no call may reach."""
    mutator = _Mutator(place, outside, generator)
    lines: list[str] = []
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        lines += mutator.change_one()
    if generator.random() < 0.5:
        lines += mutator.remove_derived()
    return lines


class _Mutator:
    def __init__(self, place: Path, outside: Path, generator: random.Random) -> None:
        self.place = place
        self.outside = outside
        self.generator = generator
        self._values = _values(place, outside)

    def files(self) -> list[Path]:
        """Return all files in order, except the query's checkpoint, which an attacker cannot write."""
        files = (path for path in self.place.rglob("*") if path.is_file() and not path.is_symlink())
        return sorted(path for path in files if path.relative_to(self.place).parts[0] != "checkpoint")

    def change_one(self) -> Iterator[str]:
        """Change one file. Its kind is drawn first, so that kinds with few files are changed as well."""
        kinds = defaultdict(list)
        for path in self.files():
            kinds[_kind_of(path)].append(path)
        if not kinds:
            return
        names = sorted(kinds)
        kind = self.generator.choices(names, [6 if name == ".record" else 1 if name == "" else 2 for name in names])[0]
        path = self.generator.choice(kinds[kind])
        name = path.relative_to(self.place).as_posix()
        if self.generator.random() < 0.75 and (change := self._change_of_fields(path)) is not None:
            yield f"{name}: {change}"
        else:
            yield f"{name}: {self._change_bytes(path)}"

    def remove_derived(self) -> Iterator[str]:
        """Delete the files that are derived from records."""
        for meta in sorted({path.parents[1] for path in self.files() if path.suffix == ".record"}):
            for name in DERIVED:
                shutil.rmtree(meta / name, ignore_errors=True)
            yield f"{meta.relative_to(self.place).as_posix()}: no {', '.join(DERIVED)}"

    # ------------------------------------------------------------------------------------------------ fields

    def _change_of_fields(self, path: Path) -> str | None:
        """Change fields of a JSON file and correct the checksums; None for other files."""
        content = path.read_bytes()
        try:
            if path.name in CHECKED or path.suffix in CHECKED:
                lines = from_checked_text(content, path.name)
                return self._change_lines(path, lines, to_checked_text)
            if path.suffix == ".compacted":
                return self._change_range(path, content)
            if path.suffix == ".wal":
                line, _, rest = content[:-_WAL_CHECKSUM_BYTES].partition(b"\n")
                return self._change_lines(path, [line], lambda lines: _with_checksum(lines[0] + b"\n" + rest))
            if path.suffix in {".finalPath", ".origin", ".deadLetters", ".changes"}:
                change = self._change_lines(path, content.split(b"\n"), b"\n".join)
                self._put_right(path)
                return change
        except (FtfileError, ValueError, LookupError, TypeError, RecursionError, zlib.error):
            pass  # an earlier change has made the value another type
        return None

    def _change_lines(self, path: Path, lines: list[bytes], encode: Callable[[list[bytes]], bytes]) -> str:
        """Change a field in a line of JSON, or in a text."""
        at = self.generator.randrange(len(lines))
        trees = [_tree(line) for line in lines]
        change = self._change_tree(trees, at)
        path.write_bytes(encode([line if number != at else _text(trees[at]) for number, line in enumerate(lines)]))
        return change

    def _change_range(self, path: Path, content: bytes) -> str:
        """Change the header of a range, or one of its streams."""
        end = content.index(b"\n", content.index(b"\n") + 1) + 1
        header = json.loads(from_checked_text(content[:end], path.name)[0])
        places = _streams(header)
        streams, start = [], end
        for holder, name in places:
            size, _ = holder[name]
            streams.append(content[start : start + size])
            start += size
        at = self.generator.randrange(-len(places), len(places))
        if at < 0:
            trees = [_tree(compact_json(header))]
            change = self._change_tree(trees, 0)
            path.write_bytes(to_checked_text([_text(trees[0])]) + b"".join(streams))
            return f"header: {change}"
        trees = [_tree(zlib.decompress(streams[at]))]
        change = self._change_tree(trees, 0)
        streams[at] = zlib.compress(_text(trees[0]))
        holder, name = places[at]
        holder[name] = [len(streams[at]), checksum(streams[at])]
        path.write_bytes(to_checked_text([compact_json(header)]) + b"".join(streams))
        return f"stream {at}: {change}"

    def _change_tree(self, trees: list[Any], at: int) -> str:
        nodes = defaultdict(list)
        for node in _nodes(trees, at, ""):
            nodes[node.steps].append(node)
        steps = self.generator.choice(sorted(nodes))
        node = self.generator.choice(nodes[steps])
        old = node.value
        kind = self.generator.random()
        if kind < 0.08 and isinstance(node.container, (dict, list)) and node.container is not trees:
            del node.container[node.key]
            return f"{steps} is removed"
        if kind < 0.12 and isinstance(node.container, dict):
            key = str(self.generator.choice(["", "-1", "x", "1" * 30, "../x", "\0", "1.5", PLANTED]))
            node.container[key] = node.container.pop(node.key)
            return f"{steps} has the name {key!r:.40}"
        if kind < 0.18 and isinstance(node.container, list) and node.container is not trees:
            node.container.append(old)
            return f"{steps} is there twice"
        new = self._value_for(old, nodes)
        node.put(new)
        return f"{steps} is {new!r:.80}, and was {old!r:.60}"

    def _value_for(self, old: Any, nodes: dict[str, list[Node]]) -> Any:  # noqa: PLR0911 - by type
        generator = self.generator
        kind = generator.random()
        if kind < 0.15:  # another value of the same document
            return copy.deepcopy(generator.choice(nodes[generator.choice(sorted(nodes))]).value)
        if kind < 0.45:
            if isinstance(old, bool):
                return not old
            if isinstance(old, int):
                return generator.choice(
                    [old + 1, old - 1, old * 2, -old, float(min(old, 1 << 100)), 0, 1 << 31, 1 << 40, (1 << 63) - 1]
                )
            if isinstance(old, str):
                return generator.choice([old[:-1], old + "x", old.upper(), f"../{old}", f"/{old}", old * 3, [old]])
            if isinstance(old, list):
                return generator.choice([old[:-1], old * 2, old[::-1], [old], {"0": old}, [None] * len(old)])
            if isinstance(old, dict):
                return generator.choice([[old], {**old, "x": 1}, dict.fromkeys(old), dict.fromkeys(old, 0)])
        return generator.choice(self._values)

    # ------------------------------------------------------------------------------------------------- bytes

    def _change_bytes(self, path: Path) -> str:
        generator = self.generator
        content = path.read_bytes()
        others = [other for other in self.files() if other != path]
        kind = generator.choice(["empty", "cut", "more", "flip", "flip", "flip", "swap", "gone", "place", "name"])
        if kind == "place":
            return self._change_place(path, others)
        if kind == "name":
            return self._change_name(path, others)
        if kind == "gone":
            path.unlink()
            return "is removed"
        if kind == "swap" and others:
            same = [other for other in others if _kind_of(other) == _kind_of(path)]
            other = generator.choice(same or others)
            path.write_bytes(other.read_bytes())
            return f"has the bytes of {other.relative_to(self.place)}"
        if kind == "flip":
            content = self._flipped(path, content)
        else:
            size = int(generator.random() * len(content))
            content = {"cut": content[:size], "more": content + os.urandom(0) + content[:size]}.get(kind, b"")
        if (path.name in CHECKED or path.suffix in CHECKED) and generator.random() < 0.7:
            lines = content.split(b"\n")
            content = to_checked_text(lines[:-2] or lines[:1])
        path.write_bytes(content)
        is_right = not path.name.endswith(_OF_ARROW) and generator.random() < 0.8
        if is_right:
            self._put_right(path)
        return f"{kind}, now {len(content)} bytes with {'a right' if is_right else 'any'} checksum"

    def _flipped(self, path: Path, content: bytes) -> bytes:
        """Return bytes with some changes, inside the codec or checksum that surrounds them."""
        if path.suffix == ".spool" and content[4:8] == b"\0\0\0\0" and self.generator.random() < 0.7:
            with contextlib.suppress(pa.ArrowInvalid, OSError):
                size = int.from_bytes(content[:8], "little")
                message = pa.Codec("lz4").decompress(content[8:], size, asbytes=True)
                return content[:8] + bytes(pa.Codec("lz4").compress(self._flip(message), asbytes=True))
        if path.suffix == ".wal":
            return _with_checksum(self._flip(content[:-_WAL_CHECKSUM_BYTES]))
        flipped = self._flip(content)
        if path.suffix == ".columns" and len(flipped) > _COLUMNS_CRC_AT + 4:
            rows_crc = crc32(flipped[_COLUMNS_CRC_AT + 4 :]).to_bytes(4, "little")
            return flipped[:_COLUMNS_CRC_AT] + rows_crc + flipped[_COLUMNS_CRC_AT + 4 :]
        return flipped

    def _flip(self, content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(self.generator.choice([1, 1, 2, 8]) if content else 0):
            at = int(self.generator.random() * len(content))
            changed[at] = self.generator.choice([changed[at] ^ 1 << self.generator.randrange(8), 0, 0x7F, 0xFF])
        return bytes(changed)

    def _change_place(self, path: Path, others: list[Path]) -> str:
        """Replace a file by another kind of entry."""
        path.unlink()
        kind = self.generator.choice(
            ["link outside", "link to a directory", "link within", "loop", "directory", "pipe"]
        )
        if kind == "directory":
            path.mkdir()
            (path / "file").write_bytes(b"{}\n")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            target = {"link outside": self.outside / "secret", "link to a directory": self.outside, "loop": path}
            path.symlink_to(target.get(kind) or self.generator.choice([*others, self.outside]))
        return f"is a {kind}"

    def _change_name(self, path: Path, others: list[Path]) -> str:
        """Copy a file to a name that resembles other names of its directory."""
        stem, dot, end = path.name.partition(".")
        digits = [place for place, character in enumerate(stem) if character.isdigit()]
        names = [f"{stem}x{dot}{end}", f"{'9' * 40}{dot}{end}", f"{'9' * 20}{dot}{end}", path.name[1:] or "x"]
        if digits:
            at = self.generator.choice(digits)
            names += [f"{stem[:at]}{self.generator.randrange(10)}{stem[at + 1 :]}{dot}{end}"] * 4
        names += [other.name for other in others if other.parent == path.parent]
        name = self.generator.choice(names)
        with contextlib.suppress(OSError, shutil.SameFileError):
            shutil.copyfile(path, path.with_name(name))
        return f"is also {name:.60}"

    # --------------------------------------------------------------------------------------------- checksums

    def _put_right(self, path: Path) -> None:
        """Correct the checksum of a file in the records, and delete the files derived from these records."""
        content = path.read_bytes()
        for record in [file for file in self.files() if file.suffix == ".record"]:
            root = record.parents[2]
            if root not in path.parents:
                continue
            name = path.relative_to(root).as_posix()
            with contextlib.suppress(FtfileError, ValueError, RecursionError):
                trees = [json.loads(line) for line in from_checked_text(record.read_bytes(), record.name)]
                if sum(_put_right(tree, name, content) for tree in trees):
                    record.write_bytes(to_checked_text([compact_json(tree) for tree in trees]))
                    for derived in DERIVED:
                        shutil.rmtree(root / "_ftfile" / derived, ignore_errors=True)


def _values(place: Path, outside: Path) -> tuple[Any, ...]:
    deep: list[Any] = []
    for _ in range(90):
        deep = [deep]
    secret = str(outside / "secret")
    return (
        *(None, True, False, 0, 1, -1, 7, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, 1 << 70, -(1 << 63), 10**400),
        *(1.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "0", "-1", "1e9", "\0", "\ud800", "é", "a\nb", " "),
        *("../x", "../../outside/secret", "..", ".", "/", secret, f"file://{secret}", "~/x", "a//b", "_ftfile/log"),
        *("_ftfile/directory/_format", "C:\\x", "%2e%2e/x", str(place / "out")),
        *("http://127.0.0.1:9/x", "webhdfs://127.0.0.1:9/x", "s3://bucket/x", "abfss://a@b/x", "hdfs://h/x", "x:"),
        *(
            "os:system",
            f"{PLANTED}:Hit",
            f"{PLANTED}.Hit",
            "crc32:00000000",
            "sha1:00",
            "UTC",
            "Europe/../x",
            "env:HOME",
        ),
        *("part", "segment", "struct", "long", "timestamp", "bytes", "rows", "9" * 19, "9" * 400, "x" * 70_000),
        *(
            [],
            [[]],
            [None],
            [1],
            ["x"],
            [1.5],
            [{}],
            [[1, "x"]],
            {},
            {"a": 1},
            {"": None},
            {"type": "udt", "class": "x"},
        ),
        *(deep, _DEEP, [0] * 100_000, list(range(100_000)), {str(number): number for number in range(20_000)}),
    )


def _kind_of(path: Path) -> str:
    if path.suffix in {".json", ".parquet", ".gz"}:
        return ""  # not a file of ftfile
    return path.suffix if path.suffix else path.name


def _tree(line: bytes) -> Any:
    """Return the JSON of a line, with the JSON inside its texts, or the text if it is not JSON."""
    try:
        return _expanded(json.loads(line))
    except (ValueError, RecursionError):
        return line.decode("utf-8", "surrogateescape")


def _expanded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _expanded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item) for item in value]
    if isinstance(value, str) and value[:1] in {"{", "["}:
        with contextlib.suppress(ValueError):
            return Embedded(_expanded(json.loads(value)))
    return value


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_packed(item) for item in value]
    return json.dumps(_packed(value.value)) if isinstance(value, Embedded) else value


def _text(tree: Any) -> bytes:
    """Return the line of a result of `_tree`."""
    if isinstance(tree, str):
        return tree.encode("utf-8", "surrogatepass").replace(b"\n", b"")
    return compact_json(_packed(tree)).replace(json.dumps(_DEEP).encode(), _DEEP_TEXT)


def _nodes(container: Any, key: Any, steps: str) -> Iterator[Node]:
    node = Node(steps, container, key)
    yield node
    value = node.value
    if isinstance(value, dict):
        for name in value:
            is_name = len(value) < 40 and len(name) < 30 and not name.isdigit()
            yield from _nodes(value, name, f"{steps}.{name if is_name and not _is_hex(name) else '*'}")
    elif isinstance(value, list):
        for place in range(len(value)):
            yield from _nodes(value, place, f"{steps}[{place if len(value) < 5 else ''}]")
    elif isinstance(value, Embedded):
        yield from _nodes(value, "", f"{steps}:")


def _is_hex(name: str) -> bool:
    return len(name) >= 12 and not name.strip("0123456789abcdef")


def _streams(header: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the streams of a range in order, each as the object with its length and checksum, and their name there."""
    live, ended = header["live"], header["ended"]
    places = [(document["columns"], name) for document in live for name in document["columns"]]
    places.append((header, "removes"))
    places += [(document["columns"], name) for document in ended for name in document["columns"]]
    for document in live:
        statistics = document.get("statistics", {})
        places += [(statistics, name) for name in statistics]
    return places


def _with_checksum(content: bytes) -> bytes:
    return content + checksum(content).encode()


def _put_right(tree: Any, name: str, content: bytes) -> int:
    """Correct checksum and length of a file in each object that names it; return the number of these objects."""
    if isinstance(tree, list):
        if len(tree) == 3 and isinstance(tree[0], str) and tree[0] in name and name.endswith(".columns"):
            tree[1:] = [len(content), checksum(content)]
            return 1
        return sum(_put_right(item, name, content) for item in tree)
    if not isinstance(tree, dict):
        return 0
    count = sum(_put_right(item, name, content) for item in tree.values())
    if name not in [tree.get("path"), tree.get("finalPath")] or "checksum" not in tree:
        return count
    start, size = tree.get("offsetBytes", 0), tree.get("lengthBytes", 0)
    if not (isinstance(start, int) and isinstance(size, int)):
        return count
    if start == 0 and tree.get("kind") != "segment":
        size = tree["lengthBytes"] = len(content)
    tree["checksum"] = checksum(content[start : start + size])
    return count + 1
