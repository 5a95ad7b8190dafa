"""First calls of Arrow before a fork, so that the forked process does not wait for the first call of another thread."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# The functions below that have run in this process.
_started: set[str] = set()


def start_arrow() -> bool:
    """Run first calls of the modules of Arrow that are imported. Return False if all of them ran before.

    Arrow creates static objects of C++, such as its thread pools, during first calls and without Python's lock. If
    another thread was creating such an object during a fork, the forked process would wait for the object for ever.
    Here, a call waits until the other thread has created the object. Seen with pyarrow 26.
    """
    if len(sys._current_frames()) == 1:  # noqa: SLF001 - no other thread can call Arrow
        return False
    has_started = False
    for start, modules in _STARTS.items():
        if start.__name__ not in _started and all(map(_is_imported, modules)):
            try:
                start()
            finally:
                _started.add(start.__name__)  # an error is printed once, and not at each fork
            has_started = True
    return has_started


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _arrow(name: str = "") -> Any:  # noqa: ANN401 - this module must not import Arrow
    """Return a module of Arrow that is imported."""
    return sys.modules[f"pyarrow.{name}" if name else "pyarrow"]


def _table() -> Any:  # noqa: ANN401
    """Return columns with and without nulls, and a column with one value: Arrow reduces its comparisons."""
    numbers = _arrow().array([1, None, 2, 2])
    return _arrow().table({"number": numbers, "text": ["a", None, "b", "b"], "one": ["one"] * 4})


def _write_to_memory(write: Callable[[Any, Any], object]) -> Any:  # noqa: ANN401
    """Write a table to memory, and return a file of it."""
    sink = _arrow().BufferOutputStream()
    write(_table(), sink)
    return _arrow().BufferReader(sink.getvalue())


def _start_tables() -> None:
    table = _table()
    assert table.nbytes + table.to_batches()[0].nbytes > 0
    table.combine_chunks().validate(full=True)
    assert table.slice(1).equals(table.slice(1))


def _start_compute() -> None:
    compute, table = _arrow("compute"), _table()
    compute.min_max(table["number"])
    compute.sort_indices(table, [("number", "ascending"), ("text", "ascending")])
    compute.match_substring_regex(table["text"], "[ab]")
    for kind in ("int64", "float64"):
        compute.cast(compute.cast(table["number"], "string"), kind)
    table.filter(compute.is_valid(table["number"]))


def _start_ipc() -> None:
    ipc = _arrow("ipc")

    def write(table: Any, sink: Any) -> None:  # noqa: ANN401
        with ipc.new_file(sink, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)

    ipc.open_file(_write_to_memory(write)).read_all()
    ipc.RecordBatchReader.from_stream(_table()).read_all()  # by the C interface


def _start_parquet() -> None:
    parquet = _arrow("parquet")
    file = parquet.ParquetFile(_write_to_memory(parquet.write_table))
    file.read()
    list(file.iter_batches())


def _start_acero() -> None:
    acero, condition = _arrow("acero"), _arrow("compute").field("number") > 1
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(_table()))
    acero.Declaration("filter", acero.FilterNodeOptions(condition), inputs=[source]).to_table()


def _start_dataset() -> None:
    dataset = _arrow("dataset")
    condition = (dataset.field("number") > 1) & (dataset.field("one") == "one")
    dataset.dataset(_table()).to_table(filter=condition)
    fragment = dataset.ParquetFileFormat().make_fragment(_write_to_memory(_arrow("parquet").write_table))
    fragment.subset(condition, fragment.physical_schema).to_table(filter=condition)


def _start_orc() -> None:
    orc = _arrow("orc")
    orc.ORCFile(_write_to_memory(orc.write_table)).read_stripe(0)


def _start_csv() -> None:
    csv = _arrow("csv")
    csv.read_csv(_write_to_memory(csv.write_csv))


def _start_json() -> None:
    _arrow("json").read_json(_arrow().BufferReader(b'{"number": 1}\n'))


_STARTS: dict[Callable[[], None], set[str]] = {
    _start_tables: {"pyarrow"},
    _start_ipc: {"pyarrow.ipc"},
    _start_compute: {"pyarrow.compute"},
    _start_parquet: {"pyarrow.parquet"},
    _start_acero: {"pyarrow.acero", "pyarrow.compute"},
    _start_dataset: {"pyarrow.dataset", "pyarrow.parquet"},
    _start_orc: {"pyarrow.orc"},
    _start_csv: {"pyarrow.csv"},
    _start_json: {"pyarrow.json"},
}
