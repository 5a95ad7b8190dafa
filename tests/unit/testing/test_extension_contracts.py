"""Each promise of formats, filters and key providers is seen when one breaks it."""

from __future__ import annotations

import base64
import contextlib
import inspect
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError
from ftfile.filters import codecs
from ftfile.filters.aes_gcm import AesGcm, AesGcmEncoder
from ftfile.filters.api import BadStream
from ftfile.filters.chain import codec
from ftfile.filters.codecs import CompressionCodec, FrameDecoder, Gzip
from ftfile.filters.keys import IssuedKey, Keys
from ftfile.formats import arrow_files as arrow_format
from ftfile.formats import columnar
from ftfile.formats.api import Joiner, format_from_options
from ftfile.formats.arrow_files import ArrowFormat
from ftfile.formats.columnar import CollectingEncoder, RowJoiner, RowSegments
from ftfile.formats.csv_lines import CsvLines
from ftfile.formats.json_lines import JsonLines
from ftfile.formats.line_formats import LineEncoder, LineJoiner, Lines, LineSegments
from ftfile.formats.reading import read_errors
from ftfile.testing.contracts.filter import FilterContract, KeyProviderContract
from ftfile.testing.contracts.format import FormatContract
from tests.unit.filters import filters_of_users
from tests.unit.filters.filters_of_users import Cipher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.filters.api import Filter

Changes = dict[tuple[Any, str], Any]


def mistakes(found: Sequence[tuple[str, Any, Changes]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("part", "subject", "changes"), found, ids=[f"{number}-{part}" for number, (part, *_) in enumerate(found)]
    )


def play(contract: Any, part: str, subject: Any) -> None:
    """Run the tests of a contract whose name has this part in it, with all values of their parameters."""
    names = [name for name in dir(contract) if name.startswith(f"test_{part}")]
    assert names, part
    for name in names:
        test = getattr(contract, name)
        marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
        values = [dict(zip([mark.args[0]], [value], strict=True)) for mark in marks for value in mark.args[1]] or [{}]
        (fixture,) = {*inspect.signature(test).parameters} - {*values[0]}
        for more in values:
            with contextlib.suppress(pytest.skip.Exception):
                test(**{fixture: subject}, **more)


def check(contract: Any, part: str, subject: Any, changes: Changes, patch: pytest.MonkeyPatch) -> None:
    """Check that a test passes, and fails with a mistake."""
    play(contract, part, subject)
    for (owner, attribute), what in changes.items():
        patch.setattr(owner, attribute, what)
    with pytest.raises((Exception, pytest.fail.Exception)):
        play(contract, part, subject)


# -------------------------------------------------------------------------------------------------------------- formats


class Formats(FormatContract):
    unfit = (pa.schema([("keys", pa.map_(pa.int64(), pa.int64()))]),)


real_write, real_collect = LineEncoder.write, CollectingEncoder.write
real_take, real_rows_encode = LineJoiner.take, RowSegments.encode
real_line_encode, real_batch = LineSegments.encode, RowSegments.batch


def without_the_last(encoder: LineEncoder, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
    return 1 + real_write(encoder, batch.slice(0, batch.num_rows - 1), limit_bytes)


def twice(encoder: CollectingEncoder, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
    real_collect(encoder, batch, limit_bytes)
    return real_collect(encoder, batch, limit_bytes)


def from_the_start_of_the_buffer(encoder: CollectingEncoder, batch: pa.RecordBatch, limit: int | None = None) -> int:
    number = pa.array(range(batch.num_rows), pa.int64())
    return real_collect(encoder, batch.set_column(0, batch.schema.field(0), number), limit)


def by_place(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [batch.column(min(place, batch.num_columns - 1)) for place in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def in_own_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch.select(schema.names)


def without_count(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch.select(schema.names) if len(schema) else pa.RecordBatch.from_pylist([], schema)


def one_for_all(fmt: ArrowFormat, schema: pa.Schema, target: Any) -> Any:
    if not encoders:
        encoders.append(real_arrow_encoder(fmt, schema, target))
    return encoders[-1]


def all_in_the_first(codec: LineSegments, batch: pa.RecordBatch, counts: list[int]) -> Any:
    return ((0, data) for _, data in real_line_encode(codec, batch, counts))


def reversed_segments(codec: RowSegments, batch: pa.RecordBatch, counts: list[int]) -> Any:
    return reversed(list(real_rows_encode(codec, batch, counts)))


def batch_unchecked(codec: RowSegments, data: bytes, path: str) -> pa.RecordBatch:
    try:
        return real_batch(codec, data, path)
    except Exception as error:
        raise ValueError from error


def skips_nothing(joiner: RowJoiner, data: bytes, rows: int, _: int) -> Any:
    return real_row_take(joiner, data, rows, 0)


def appends_and_denies(_: Joiner, __: int, ___: int, append: Callable[[], object]) -> bool:
    append()
    return False


def takes_some(encoder: LineEncoder, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
    return real_write(encoder, batch.slice(0, 10), limit_bytes)


def closing(encoder: LineEncoder) -> None:
    cast("Any", encoder)._target.close()  # noqa: SLF001


encoders: list[Any] = []
real_arrow_encoder, real_row_take, real_csv_ends = ArrowFormat.encoder, RowJoiner.take, CsvLines.row_ends
JSON, CSV, ARROW = "json", "csv", "arrow"

FORMATS: list[tuple[str, str, Changes]] = [
    ("formats_are_values", JSON, {(JsonLines, "__eq__"): lambda one, other: one is other}),
    ("formats_are_values", JSON, {(JsonLines, "__setattr__"): object.__setattr__}),
    ("names", JSON, {(JsonLines, "extension"): "json"}),
    ("the_definition", JSON, {(JsonLines, "definition"): lambda *_: {"lineSep": {"\n"}}}),
    ("the_definition", CSV, {(CsvLines, "from_definition"): classmethod(lambda cls, _: cls.from_options({}))}),
    ("the_schema", JSON, {(JsonLines, "check_schema"): lambda *_: None}),
    ("rows_come_back", JSON, {(LineEncoder, "write"): without_the_last}),
    ("rows_come_back", ARROW, {(CollectingEncoder, "write"): twice}),
    ("rows_come_back", ARROW, {(CollectingEncoder, "write"): from_the_start_of_the_buffer}),
    ("rows_come_back", JSON, {(LineEncoder, "finish"): closing}),
    ("a_file_without_rows", ARROW, {(arrow_format._ArrowEncoder, "_end"): lambda _: None}),  # noqa: SLF001
    ("columns_are_matched", ARROW, {(arrow_format, "batch_as"): by_place}),
    ("a_file_is_read_for", ARROW, {(arrow_format, "batch_as"): without_count}),
    ("types_are_widened", ARROW, {(arrow_format, "batch_as"): in_own_types}),
    ("without_a_limit", JSON, {(LineEncoder, "write"): takes_some}),
    ("with_a_limit", JSON, {(LineEncoder, "write"): lambda encoder, batch, _=None: real_write(encoder, batch)}),
    ("with_a_limit", ARROW, {(CollectingEncoder, "_reaches"): lambda *_: False}),
    ("the_size", JSON, {(LineEncoder, "size_bytes"): property(lambda encoder: encoder._target.position)}),  # noqa: SLF001
    ("a_flush", ARROW, {(CollectingEncoder, "flush"): lambda _: None}),
    ("two_files", ARROW, {(ArrowFormat, "encoder"): one_for_all}),
    ("rows_that_cannot", ARROW, {(arrow_format, "check_text"): lambda _: None}),
    ("damage_is_corrupt", ARROW, {(read_errors, "corrupt"): lambda *_: ValueError()}),
    ("segments_come_back", JSON, {(LineSegments, "encode"): all_in_the_first}),
    ("segments_come_back", ARROW, {(RowSegments, "encode"): reversed_segments}),
    ("segments_come_back", ARROW, {(columnar, "batch_as"): in_own_types}),
    ("damaged_segments", ARROW, {(RowSegments, "batch"): batch_unchecked}),
    ("line_segments", JSON, {(Lines, "row_ends"): lambda _, data: [len(data)]}),
    ("line_segments", CSV, {(CsvLines, "row_ends"): lambda fmt, data: real_csv_ends(fmt, data)[1:]}),
    ("parts_are_made", JSON, {(LineJoiner, "_has_room"): lambda *_: True}),
    ("parts_are_made", JSON, {(LineJoiner, "is_full"): lambda _: False}),
    ("parts_are_made", ARROW, {(RowJoiner, "take"): skips_nothing}),
    ("a_whole_segment", JSON, {(LineJoiner, "try_copy_segment"): lambda *_: True}),
    ("a_whole_segment", ARROW, {(Joiner, "try_copy_segment"): appends_and_denies}),
]


@pytest.mark.slow
@mistakes(FORMATS)
def test_each_mistake_of_a_format_is_seen(
    part: str, subject: str, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"header": True, "sep": ";"} if subject == CSV else {}
    check(Formats(), part, format_from_options(subject, options), changes, monkeypatch)


# -------------------------------------------------------------------------------------------------------------- filters


class Filters(FilterContract):
    notices_damage = True
    held_bytes_max = 1 << 20


class Bound(FilterContract):
    binds_identity = True


@dataclass
class Collecting:
    """A stream that returns nothing before its end."""

    stream: Any
    pieces: list[Any] = field(default_factory=list)
    keep: Callable[[Any], Any] = bytes

    def feed(self, data: Any, /) -> bytes:
        self.pieces.append(self.keep(data))
        return b""

    def finish(self) -> bytes:
        fed = b"".join([self.stream.feed(data) for data in self.pieces])
        return cast("bytes", fed + self.stream.finish())


def first_frame_alone(decoder: Any, data: bytes) -> bytes:
    return b"" if decoder._frames else real_feed(decoder, data[:400])  # noqa: SLF001


def swallowing(decoder: Any, data: bytes) -> bytes:
    try:
        return real_feed(decoder, data)
    except BadStream:
        return b""


def bound_to_nothing(chunks: Any, key: str, _: str, chunk_bytes: int, *, is_writing: bool) -> None:
    real_chunks(chunks, key, "", chunk_bytes, is_writing=is_writing)


def shared(byte_filter: Any, *_: Any) -> Any:
    if not streams:
        streams.append(real_encoder(byte_filter, ""))
    return streams[0]


streams: list[Any] = []
real_feed, real_encoder, real_decoder = FrameDecoder.feed, Gzip.encoder, Gzip.decoder
real_chunks = filters_of_users._Chunks.__init__  # noqa: SLF001
real_size = AesGcmEncoder.size_of
GZIP, CIPHER, AES = "gzip", "cipher", "aes-gcm"

FILTERS: list[tuple[str, str, Changes]] = [
    ("filters_are_values", GZIP, {(CompressionCodec, "__eq__"): lambda one, other: one is other}),
    ("names", GZIP, {(Gzip, "extension"): "gz"}),
    ("names", GZIP, {(Gzip, "name"): "gzip,fast"}),
    ("the_definition", GZIP, {(CompressionCodec, "definition"): lambda _: {"level": {1}}}),
    ("the_definition", GZIP, {(CompressionCodec, "from_definition"): classmethod(lambda cls, _: cls(9))}),
    ("an_empty_definition", CIPHER, {(Cipher, "from_definition"): classmethod(lambda cls, known: cls(known["key"]))}),
    (
        "bytes_come_back",
        GZIP,
        {(FrameDecoder, "feed"): lambda stream, data: real_feed(stream, data)[:9_000]},
    ),
    ("bytes_come_back", CIPHER, {(filters_of_users._Chunks, "finish"): lambda _: b""}),  # noqa: SLF001
    (
        "any_buffer",
        GZIP,
        {(Gzip, "encoder"): lambda *given: Collecting(real_encoder(*given), keep=lambda data: data)},
    ),
    ("streams_at_a_time", GZIP, {(Gzip, "encoder"): shared}),
    ("memory", GZIP, {(Gzip, "encoder"): lambda *given: Collecting(real_encoder(*given))}),
    ("memory", GZIP, {(Gzip, "decoder"): lambda *given: Collecting(real_decoder(*given))}),
    ("a_missing_end", GZIP, {(FrameDecoder, "finish"): lambda _: b""}),
    ("damage", GZIP, {(codecs, "BadStream"): ValueError}),
    ("damage", GZIP, {(FrameDecoder, "feed"): swallowing, (FrameDecoder, "finish"): lambda _: b""}),
    ("outputs_that_join", GZIP, {(FrameDecoder, "feed"): first_frame_alone}),
    ("a_stream_that_is_bound", CIPHER, {(filters_of_users._Chunks, "__init__"): bound_to_nothing}),  # noqa: SLF001
    ("a_stream_that_is_bound", CIPHER, {(Cipher, "joins"): True}),
    ("a_size_that_is_told", AES, {(AesGcmEncoder, "size_of"): lambda encoder, size: real_size(encoder, size) + 16}),
    ("without_keys", AES, {(AesGcm, "with_keys"): lambda *_: codec("gzip")}),
]


@pytest.mark.slow
@mistakes(FILTERS)
def test_each_mistake_of_a_filter_is_seen(
    part: str, subject: str, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTFILE_KEYS", f"first {base64.b64encode(bytes(range(32))).decode()}")
    made: dict[str, Filter] = {
        GZIP: codec("gzip"),
        CIPHER: Cipher(),
        AES: AesGcm("first", Keys.from_reference("env:FTFILE_KEYS")),
    }
    check(Filters() if subject == GZIP else Bound(), part, made[subject], changes, monkeypatch)


# -------------------------------------------------------------------------------------------------------- key providers

made: dict[bytes, tuple[str, bytes]] = {}
numbers = itertools.count(1)


class Provider:
    """Makes a key at each call, and finds it by a number."""

    def __init__(self) -> None:
        self.own: set[bytes] = set()
        self.asking = 0

    def known_ids(self) -> tuple[str, ...]:
        return "first", "second"

    def new_key(self, key_id: str) -> IssuedKey:
        if key_id not in self.known_ids():
            raise ConfigError(f"there is no key {key_id!r}")
        number = next(numbers)
        wrapped = b"key %06d" % number
        made[wrapped] = key_id, bytes((number * 31 + place * 7) % 256 for place in range(32))
        self.own.add(wrapped)
        return IssuedKey(made[wrapped][1], wrapped)

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        found_id, key = made.get(wrapped, ("", b""))
        if found_id != key_id:
            raise ConfigError(f"there is no key {key_id!r}")
        return key


def issuing(change: Callable[[IssuedKey], IssuedKey]) -> Callable[..., IssuedKey]:
    return lambda provider, key_id: change(real_new(provider, key_id))


def finding_its_own_alone(provider: Provider, key_id: str, wrapped: bytes) -> bytes:
    if wrapped not in provider.own:
        raise ConfigError(f"there is no key {key_id!r}")
    return real_find(provider, key_id, wrapped)


def refusing(error: Callable[[str], Exception]) -> Callable[..., IssuedKey]:
    def new_key(provider: Provider, key_id: str) -> IssuedKey:
        if key_id not in provider.known_ids():
            raise error(key_id)
        return real_new(provider, key_id)

    return new_key


def one_at_a_time(provider: Provider, key_id: str) -> IssuedKey:
    provider.asking += 1
    time.sleep(0.01)
    assert provider.asking == 1, "two ask at once"
    provider.asking -= 1
    return real_new(provider, key_id)


real_new, real_find = Provider.new_key, Provider.find_key

PROVIDERS: list[tuple[str, None, Changes]] = [
    ("ids_are_known", None, {(Provider, "known_ids"): lambda _: ["first", "second"]}),
    ("ids_are_known", None, {(Provider, "known_ids"): lambda _: ("first", "first")}),
    ("ids_are_known", None, {(Provider, "known_ids"): lambda _: ("first", "the second")}),
    ("ids_are_known", None, {(Provider, "known_ids"): lambda _: ("first", f"{bytes(32).hex()[:43]}=")}),
    ("ids_are_known", None, {(Provider, "known_ids"): lambda _: ("first", f"second-{next(numbers)}")}),
    ("keys_are_keys", None, {(Provider, "new_key"): issuing(lambda found: IssuedKey(found.key[:16], found.wrapped))}),
    ("keys_are_keys", None, {(Provider, "new_key"): issuing(lambda found: IssuedKey(bytes(32), found.wrapped))}),
    ("keys_are_keys", None, {(Provider, "new_key"): issuing(lambda found: IssuedKey(found.key, bytes(9_000)))}),
    (
        "keys_are_keys",
        None,
        {(Provider, "new_key"): issuing(lambda found: IssuedKey(cast("bytes", bytearray(found.key)), found.wrapped))},
    ),
    ("each_id", None, {(Provider, "new_key"): issuing(lambda found: IssuedKey(bytes(range(32)), found.wrapped))}),
    ("a_key_is_found", None, {(Provider, "find_key"): finding_its_own_alone}),
    ("a_key_is_found", None, {(Provider, "find_key"): lambda *given: real_find(*given)[::-1]}),
    ("wrapped_keys", None, {(Provider, "new_key"): issuing(lambda found: IssuedKey(found.key, b"1 " + found.key))}),
    ("a_key_is_not_shown", None, {(Provider, "__repr__"): lambda _: f"Provider({list(made.values())!r})"}),
    ("an_unknown_id", None, {(Provider, "new_key"): refusing(KeyError)}),
    ("an_unknown_id", None, {(Provider, "new_key"): refusing(lambda _: ConfigError("no such key"))}),
    (
        "an_unknown_id",
        None,
        {
            (Provider, "new_key"): refusing(
                lambda key_id: ConfigError(f"{key_id}? {[k.hex() for _, k in made.values()]}")
            )
        },
    ),
    ("an_unknown_id", None, {(Provider, "find_key"): lambda _, __, wrapped: made[wrapped][1]}),
    ("what_was_never", None, {(Provider, "find_key"): lambda _, __, wrapped: made.get(wrapped, ("", bytes(32)))[1]}),
    ("what_was_never", None, {(Provider, "find_key"): lambda p, key_id, wrapped: real_find(p, key_id, wrapped[:10])}),
    ("what_was_issued", None, {(Provider, "find_key"): lambda _, __, wrapped: made[wrapped][1]}),
    ("many_threads", None, {(Provider, "new_key"): one_at_a_time}),
]


@mistakes(PROVIDERS)
def test_each_mistake_of_a_key_provider_is_seen(
    part: str, subject: None, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    del subject
    check(KeyProviderContract(), part, Provider, changes, monkeypatch)


# ---------------------------------------------------------------------------------------------------------------- whole


@pytest.mark.parametrize(
    ("contract", "found"), [(FormatContract, FORMATS), (FilterContract, FILTERS), (KeyProviderContract, PROVIDERS)]
)
def test_no_test_of_a_contract_is_left_out(contract: Any, found: list[tuple[str, Any, Changes]]) -> None:
    names = {name for name in dir(contract) if name.startswith("test_")}
    seen = {name for name in names for part, *_ in found if name.startswith(f"test_{part}")}
    assert seen == names
