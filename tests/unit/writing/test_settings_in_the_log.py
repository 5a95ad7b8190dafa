"""Settings in the log are read as they were written."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ftfile.kv.planning.picker import PlanSettings
from ftfile.log.format.model import NUMBER_MAX
from ftfile.writing.files.naming import Naming
from ftfile.writing.files.rolling_rules import RollingSettings
from ftfile.writing.options import Storage

TEXT = st.text(st.characters(codec="utf-8"))
FILE_SETTINGS = (("filePermission", "640"), ("directoryPermission", "750"), ("replication", "3"), ("blockSize", "512"))
COUNT = st.integers(0, NUMBER_MAX)
NAMING = st.builds(
    Naming,
    text=st.sampled_from([None, "{name}-{number:5}", "module:function", "{time:yyyy}-{unique}"]),
    prefix=TEXT,
    suffix=TEXT,
    if_exists=st.sampled_from(["newName", "fail"]),
    ttl_ms=COUNT,
    time_zone=st.sampled_from(["UTC", "Europe/Berlin"]),
)
STORAGE = st.builds(
    Storage,
    file_settings=st.lists(st.sampled_from(FILE_SETTINGS), unique=True).map(tuple),
    durability=st.sampled_from(["auto", "close", "hsync"]),
)

MAYBE = st.none() | COUNT
ROLLING = st.builds(
    RollingSettings,
    *(MAYBE, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE, TEXT, st.none() | TEXT, MAYBE, st.none() | TEXT, st.none() | TEXT),
    *(st.booleans(), COUNT, COUNT),
)
PLAN = st.builds(PlanSettings, *(COUNT,) * 6)


@given(NAMING | STORAGE)
def test_names_and_storage(settings: Naming | Storage) -> None:
    text = msgspec.json.decode(msgspec.json.encode(settings.to_json()))
    assert type(settings).from_json(text) == settings


@given(ROLLING | PLAN)
def test_rules(settings: RollingSettings | PlanSettings) -> None:
    text = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(settings)))
    assert msgspec.convert(text, type(settings)) == settings
