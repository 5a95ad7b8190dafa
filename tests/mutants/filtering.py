"""Mistakes with what is between a format and storage."""

from __future__ import annotations

from tests.mutants.mutant import wrong

CODECS = "tests/unit/filters/test_codecs.py"
CHAIN = "tests/unit/filters/test_chain.py"
SINK = "tests/unit/sink/test_filters.py"
NAMES = "tests/unit/sink/test_names.py"
READERS = "tests/unit/sink/test_compressed_readers.py"
LAYOUT = "tests/unit/commit/test_layout.py"

STREAMS = (
    wrong(
        "files below a directory of a store are called by their names in the store",
        "testing/fs/rooted.py",
        "        stream.path = path\n",
        "",
        "tests/unit/fs/test_decorators.py::TestStackOverMemory",
        "tests/unit/sink/test_writer.py::test_a_directory_within_a_store_in_memory",
    ),
    wrong(
        "what follows a frame is copied for each that follows",
        "filters/codecs/codec.py",
        "end = min(start + _FED_BYTES, len(view))",
        "end = len(view)",
        f"{CODECS}::test_what_follows_a_frame_is_not_copied_over_and_over",
    ),
    wrong(
        "a frame that ends early is taken for whole",
        "filters/codecs/codec.py",
        "if self._frame is not None or not self._frames:",
        "if not self._frames and self._frame is None:",
        f"{CODECS}::test_every_truncation_is_detected",
    ),
    wrong(
        "a file without any frame is taken for whole",
        "filters/codecs/codec.py",
        "if self._frame is not None or not self._frames:",
        "if self._frame is not None:",
        f"{CODECS}::test_every_truncation_is_detected",
    ),
    wrong(
        "only the first frame is decoded",
        "filters/codecs/codec.py",
        'self._frame, start = None, end - len(frame.unused_data or b"")',
        "self._frame, start = None, len(view)",
        f"{CODECS}::test_frames_follow_each_other",
    ),
    wrong(
        "a block that ends early is taken for whole",
        "filters/codecs/hadoop_blocks.py",
        "if self._rest or self._missing or not self._blocks:",
        "if not self._blocks and not self._rest:",
        f"{CODECS}::test_every_truncation_is_detected",
    ),
    wrong(
        "a block's length may be anything",
        "filters/codecs/hadoop_blocks.py",
        "if not 0 < length <= BLOCK_BYTES_MAX:",
        "if not 0 < length:",
        f"{CODECS}::test_damaged_lengths_of_blocks",
    ),
    wrong(
        "zstd frames have no checksum",
        "filters/codecs/zstd_stream.py",
        "write_checksum=True",
        "write_checksum=False",
        f"{CODECS}::test_a_flipped_bit_is_an_error_or_the_log_must_see_it",
    ),
    wrong(
        "LZ4 frames are called what exhausts Spark's memory",
        "filters/codecs/lz4_frame.py",
        'extension: ClassVar[str] = ".lz4f"',
        'extension: ClassVar[str] = ".lz4"',
        f"{READERS}::test_the_table_is_of_all_codecs",
    ),
)

FILES = (
    wrong(
        "a file's checksum is not verified when it is read",
        "filters/decoded.py",
        "if self._crc.text() != self._checksum or found_bytes != self._plain_bytes:",
        "if found_bytes != self._plain_bytes:",
        f"{CHAIN}::test_every_flipped_bit_of_a_file_is_detected",
    ),
    wrong(
        "filters are not asked whether they ended with the file",
        "filters/decoded.py",
        "last = self._decoder.finish()",
        'last = b""',
        f"{CHAIN}::test_files_come_back",
    ),
    wrong(
        "ten kilobytes are decoded to a hundred megabytes at once",
        "filters/decoded.py",
        "self._feed_bytes = min(max(likely, _FEED_BYTES_MIN), 2 * self._feed_bytes, _FEED_BYTES_MAX)",
        "self._feed_bytes = _FEED_BYTES_MAX",
        f"{CHAIN}::test_little_is_decoded_at_a_time",
    ),
    wrong(
        "filters are undone in the order in which they were applied",
        "filters/chain.py",
        "return _Composed([each.decoder(identity) for each in reversed(self._envelope)] + frames)",
        "return _Composed(frames + [each.decoder(identity) for each in self._envelope])",
        f"{CHAIN}::test_files_come_back",
    ),
    wrong(
        "all segments of a spool have the same identity",
        "commit/format/layout.py",
        "@{offset}",
        "@",
        f"{LAYOUT}::test_identities_on_storage",
    ),
    wrong(
        "the log does not say how segments are filtered",
        "sink/driver/proposal.py",
        "filters=segment.filters,",
        "filters=(),",
        f"{SINK}::test_every_format_codec_and_rolling",
    ),
    wrong(
        "another codec is no other encoding",
        "sink/config.py",
        '"filters": self.chain.definition(),',
        '"filters": [{"name": name} for name in self.chain.names],',
        f"{SINK}::test_another_codec_or_level_ends_open_parts",
    ),
    wrong(
        "compression comes after the other filters",
        "filters/chain.py",
        "return Chain((*first, *(filter_class(name).from_definition({}) for name in names), *last))",
        "return Chain((*(filter_class(name).from_definition({}) for name in names), *first, *last))",
        f"{CHAIN}::test_filters_are_used_in_their_order",
    ),
    wrong(
        "files are as long as asked for before compression",
        "attempt/stage.py",
        "self._filtered.size_bytes if self._goes_by_frames else self._encoder.size_bytes",
        "self._encoder.size_bytes",
        f"{SINK}::TestSizes::test_d4_files_of_a_batch_are_as_large_as_asked_for",
    ),
)

FRAMES = (
    wrong(
        "frames of others overtake what was written before",
        "parts/filtered_file.py",
        "self.flush()\n        self._append(frames)",
        "self._append(frames)",
        f"{SINK}::TestSizes::test_random_batches_and_limits",
    ),
    wrong(
        "rows that are in a part already are taken from frames, too",
        "sink/assembly/joiners.py",
        "[skip_rows : skip_rows + rows + 1]",
        "[: rows + 1]",
        f"{SINK}::TestSizes::test_random_batches_and_limits",
    ),
    wrong(
        "frames are taken whole although some of their rows are in a part already",
        "sink/assembly/joiners.py",
        "elif not self._merge and not skip_rows and self._has_room(rows, len(piece.data)):",
        "elif not self._merge and self._has_room(rows, len(piece.data)):",
        f"{SINK}::TestSizes::test_random_batches_and_limits",
    ),
    wrong(
        "the logical length of joined frames is that on storage",
        "sink/assembly/joiners.py",
        "self._target.write_frames(piece.data, segment.logical_length)",
        "self._target.write_frames(piece.data, len(piece.data))",
        f"{SINK}::test_every_format_codec_and_rolling",
    ),
    wrong(
        "an extension of a codec is taken from anyone",
        "sink/config.py",
        "        check_extension(extension, chain)\n",
        "",
        f"{NAMES}::TestTemplates::test_endings_that_readers_decompress_by",
    ),
    wrong(
        "an extension of a codec is not even taken from codecs",
        "sink/naming/endings.py",
        'last.extension if last is not None and last.name in CODECS else ""',
        '""',
        f"{NAMES}::TestTemplates::test_endings_of_the_codec",
    ),
    wrong(
        "a template may end in what a codec does",
        "sink/naming/settings.py",
        "if fault := ending_fault(names[-1], extension):",
        "if fault := name_fault(made := self.name(part)):",
        f"{NAMES}::TestTemplates::test_endings_that_readers_decompress_by",
    ),
    wrong(
        "a function may end names as a codec does",
        "sink/naming/settings.py",
        "if fault is None and self.function is not None:",
        "if False:",
        f"{NAMES}::TestFunctions::test_that_fail_commit_nothing",
    ),
    wrong(
        "small frames are never merged",
        "sink/assembly/joiners.py",
        "return len(merged) < MERGED_SHARE_MAX * sum(map(len, sample))",
        "return False",
        f"{SINK}::TestFrames::test_small_ones_are_merged",
    ),
    wrong(
        "small frames are merged only where that saves a quarter",
        "sink/assembly/joiners.py",
        "MERGED_SHARE_MAX = 0.9",
        "MERGED_SHARE_MAX = 0.72",
        "tests/unit/sink/test_merging.py",
    ),
    wrong(
        "frames are merged for nothing",
        "sink/assembly/joiners.py",
        "return len(merged) < MERGED_SHARE_MAX * sum(map(len, sample))",
        "return True",
        f"{SINK}::TestFrames::test_those_that_would_save_little_are_not",
    ),
    wrong(
        "a part passes a limit that is strict",
        "sink/assembly/joiners.py",
        "> room:",
        "> 2 * room:",
        f"{SINK}::TestSizes::test_d4_files_of_several_batches_are_as_large_as_asked_for",
    ),
)

FILTERING = (*STREAMS, *FILES, *FRAMES)
