"""Encoders as users write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping


class Marked:
    """A word after the mark of option `encoder.mark`; null for the word `bad`."""

    extension = ".marked"

    def __init__(self, options: Mapping[str, str]) -> None:
        self.mark = options.get("mark", "*")

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        words = batch.column("word")
        marked = pc.binary_join_element_wise(self.mark, words, "")
        return pc.if_else(pc.equal(words, "bad"), None, marked)

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
        assert schema.names
        words = pc.utf8_slice_codeunits(values.cast(pa.string()), len(self.mark))
        return pa.RecordBatch.from_arrays([words], names=["word"])


class WriteOnly(Marked):
    decode = None  # type: ignore[assignment] # so users say that there is none


class Broken(Marked):
    """Breaks the contract in the way that option `encoder.how` names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.how = options["how"]
        if self.how == "init":
            raise ValueError("no good")
        if self.how == "extension":
            self.extension = "../x"
        if self.how == "method":
            self.encode = None  # type: ignore[assignment, method-assign] # a mistake

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        if self.how == "raises":
            raise KeyError("word")
        if self.how == "type":
            return batch.column("word").to_pylist()
        if self.how == "numbers":
            return pa.array([1] * batch.num_rows, pa.int64())
        if self.how == "fewer":
            return super().encode(batch).slice(1) if batch.num_rows else pa.array(["more"])
        if self.how == "no type":
            return pa.array([word.encode() for word in batch.column("word").to_pylist()])
        return pa.chunked_array([super().encode(batch)])

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
        if self.how == "decode raises":
            raise KeyError("word")
        return super().decode(values, schema).slice(1)
