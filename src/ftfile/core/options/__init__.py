"""The options: one table is the only spelling, of which parsing and errors are made."""

from __future__ import annotations

from ftfile.core.options.kinds import Kind, Option
from ftfile.core.options.parse import ParsedOptions, parse_options, values_of_fields
from ftfile.core.options.table import OPTIONS, STORAGE_PREFIX

__all__ = ("OPTIONS", "STORAGE_PREFIX", "Kind", "Option", "ParsedOptions", "parse_options", "values_of_fields")
