"""Which buckets a condition on partition columns chooses, and which of them are one partition."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.arrays.predicates import predicate
from ftfile.arrays.value_text import UTC, value_type
from ftfile.encoding.partitions.paths import bucket_names, parse_bucket_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow.compute as pc

    Place = tuple[str, str]  # the path of a bucket, and the time zone by whose clocks timestamps in it are written

_INDEX = "\0index"  # no name of a column


def chosen_places(
    where: Mapping[str, object] | str | pc.Expression | None,
    schema: pa.Schema,
    places: Iterable[Place],
    derived: tuple[pa.Field, Callable[[Sequence[str]], pa.Array]] | None = None,
    argument: str = "where",
) -> set[Place]:
    """Return the places whose values match a condition on the columns of `schema`; see `predicates.predicate`.

    Timestamps without an offset are by the clocks that each place is written by. `derived` is one more column, and the
    function that makes its values of paths.

    Raises:
        ConfigError: as `predicate`, also when there are no places.
        CorruptData: a place has no values of these columns.
    """
    known = schema if derived is None else schema.append(derived[0])
    made = functools.partial(predicate, where, known, columns="partition columns", argument=argument)
    made()
    chosen: set[Place] = set()
    for time_zone, paths in _by_zone(places).items():
        condition = made(time_zone=time_zone)
        values = _values(paths, schema, time_zone) | ({} if derived is None else {derived[0].name: derived[1](paths)})
        table = pa.table({_INDEX: range(len(paths)), **values})
        found = table if condition is None else table.filter(condition)
        chosen.update((paths[index], time_zone) for index in found[_INDEX].to_pylist())
    return chosen


def partitions_of(places: Sequence[Place], schema: pa.Schema) -> list[str]:
    """Return the partition of each place, `a=1/b=2` by the clocks of UTC: equal values have equal ones."""
    known: dict[Place, str] = {}
    for time_zone, paths in _by_zone(places).items():
        values = _values(paths, schema, time_zone)
        names = [bucket_names(name, array, UTC) for name, array in values.items()]
        known.update(((path, time_zone), "/".join(each)) for path, *each in zip(paths, *names, strict=True))
    return [known[place] for place in places]


def _by_zone(places: Iterable[Place]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, time_zone in dict.fromkeys(places):
        found.setdefault(time_zone, []).append(path)
    return found


def _values(paths: Sequence[str], schema: pa.Schema, time_zone: str) -> dict[str, pa.Array]:
    """Return the values of each path, by column."""
    rows = [parse_bucket_path(path, schema, time_zone) for path in paths]
    return {each.name: pa.array([row[each.name] for row in rows], value_type(each.type)) for each in schema}
