"""Mistakes in what files hold: ORC, Arrow, Avro, records of bytes, encoders of the user's."""

from __future__ import annotations

from tests.mutants.mutant import wrong

UNIT = "tests/unit/encoding"
ORC, ARROW, AVRO = f"{UNIT}/test_orc_file.py", f"{UNIT}/test_arrow_file.py", f"{UNIT}/test_avro_file.py"
RECORDS, USER = f"{UNIT}/test_binary_records.py", f"{UNIT}/test_user_encoder.py"
BAD = "tests/unit/sink/test_formats.py::TestBadRecords"

COLLECTED = (
    wrong(
        "strings that are no text are written",
        "encoding/base/columnar_writer.py",
        "            column.validate(full=True)",
        "            pass",
        AVRO,
    ),
    wrong(
        "rows that no part can hold become segments",
        "encoding/base/segments.py",
        "        if self._check is not None:",
        "        if False:",
        f"{BAD}::test_they_are_refused_or_kept",
    ),
    wrong(
        "a row much larger than others is put into their group",
        "encoding/base/columnar_writer.py",
        "        if self._buffer_bytes + batch.nbytes > 2 * self.group_bytes_max:",
        "        if False:",
        f"{AVRO}::test_a_row_that_is_large_beside_others_is_a_block_of_its_own",
    ),
    wrong(
        "what the ORC writer holds back is not counted",
        "encoding/base/columnar_writer.py",
        "            self._held_bytes += self._buffer_bytes\n",
        "",
        f"{ORC}::test_what_the_writer_holds_back_counts",
    ),
    wrong(
        "nested columns are given to the ORC writer as they come",
        "encoding/orc/format.py",
        "rebuild(chunk, kind, leaf) for",
        "chunk for",
        f"{ORC}::TestNested",
    ),
    wrong(
        "slices within nested columns are given to the ORC writer",
        "encoding/orc/format.py",
        "    return pa.concat_arrays([_viewed(leaf, target)])",
        "    return _viewed(leaf, target)",
        f"{ORC}::TestNested",
    ),
    wrong(
        "timestamps that ORC cannot be read back with are written",
        "encoding/orc/format.py",
        "(np.abs(microseconds) <= _LAST_US)",
        "True",
        f"{ORC}::TestTimestamps",
    ),
    wrong(
        "timestamps that Spark cannot read in ORC files are written",
        "encoding/orc/format.py",
        "((microseconds >= 0) | (microseconds % _SECOND_US == 0))",
        "True",
        f"{ORC}::TestTimestamps",
    ),
    wrong(
        "ORC files do not say whose calendar is theirs",
        "encoding/orc/footer.py",
        '    return b"".join([*kept, _number(_FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN)])',
        '    return b"".join(kept)',
        f"{ORC}::test_the_footer_says_calendar_and_types",
    ),
    wrong(
        "ORC columns are chosen by names with dots",
        "encoding/orc/format.py",
        'if any("." in name for name in present)',
        "if False",
        f"{ORC}::test_names_with_dots",
    ),
    wrong(
        "Arrow files are taken at their word",
        "encoding/arrow_format.py",
        "                batch.validate(full=True)\n",
        "",
        f"{ARROW}::test_corrupt_files",
    ),
)

AVRO_FILES = (
    wrong(
        "null and value are taken for each other",
        "encoding/avro/rows.py",
        "_NULL, _PRESENT = 0, 2",
        "_NULL, _PRESENT = 2, 0",
        f"{AVRO}::test_fastavro_reads_every_type",
    ),
    wrong(
        "empty lists have two ends",
        "encoding/avro/rows.py",
        "(counts > 0)",
        "(counts >= 0)",
        f"{AVRO}::test_fastavro_reads_every_type",
    ),
    wrong(
        "null structs have fields",
        "encoding/avro/rows.py",
        "[branch, *fields] if not array.null_count else",
        "[branch, *fields] if True else",
        f"{AVRO}::test_fastavro_reads_every_type",
    ),
    wrong(
        "all Avro files have one marker",
        "encoding/avro/format.py",
        "bytes.fromhex(SYSTEM_IDS.unique())",
        "bytes(16)",
        f"{AVRO}::test_every_file_has_a_marker_of_its_own",
    ),
    wrong(
        "markers of Avro blocks are not looked at",
        "encoding/avro/container.py",
        "            _expect(file, marker)",
        "            _read(file, len(marker))",
        f"{AVRO}::test_damage_is_corrupt_data_and_nothing_else",
    ),
    wrong(
        "checksums of snappy blocks are not looked at",
        "encoding/avro/container.py",
        "        if isal_zlib.crc32(plain) != crc:",
        "        if False:",
        f"{AVRO}::test_damage_is_corrupt_data_and_nothing_else",
    ),
    wrong(
        "records of Avro may have one name",
        "encoding/avro/schema.py",
        'is_type_name(name.rstrip("_"))',
        "is_type_name(name)",
        f"{AVRO}::test_structs_called_like_types_keep_apart",
    ),
    wrong(
        "names that Avro does not have are written",
        "encoding/avro/schema.py",
        "            if not is_name(name):",
        "            if False:",
        f"{AVRO}::test_schemas_that_are_refused",
    ),
)

BYTES = (
    wrong(
        "records with the delimiter in them are written",
        "encoding/binary/framing.py",
        "        if pc.any(pc.match_substring(values, self.delimiter)).as_py():",
        "        if False:",
        f"{RECORDS}::test_a_record_with_the_delimiter_in_it_is_refused",
    ),
    wrong(
        "any delimiter will do",
        "encoding/binary/framing.py",
        "    if ends_as_it_begins(used):",
        "    if False:",
        f"{RECORDS}::test_options_that_are_refused",
    ),
    wrong(
        "any line separator of text will do",
        "encoding/text_format.py",
        "        if ends_as_it_begins(line_sep):",
        "        if False:",
        f"{UNIT}/test_text_lines.py",
    ),
    wrong(
        "records that are cut off are not missed",
        "encoding/binary/framing.py",
        "        if rest:",
        "        if False:",
        f"{RECORDS}::test_every_truncation_is_noticed",
    ),
    wrong(
        "null becomes an empty record",
        "encoding/binary/format.py",
        "        if values.null_count:",
        "        if False:",
        f"{RECORDS}::test_null_is_refused",
    ),
    wrong(
        "null of the user's encoder becomes an empty record",
        "encoding/binary/user_encoder.py",
        "        if values.null_count:",
        "        if False:",
        f"{USER}::test_null_says_that_a_record_cannot_be_encoded",
    ),
    wrong(
        "the user's encoder may return fewer values",
        "encoding/binary/user_encoder.py",
        "        if len(values) != batch.num_rows:",
        "        if False:",
        f"{USER}::test_what_fails_the_batch",
    ),
    wrong(
        "a log says which module its readers import",
        "encoding/binary/user_encoder.py",
        "        if is_name_of_code(self.name):",
        "        if False:",
        f"{USER}::test_the_log_does_not_make_readers_import_modules",
    ),
)

ENCODED = (*COLLECTED, *AVRO_FILES, *BYTES)
