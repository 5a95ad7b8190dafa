"""The command, reports, exports, metrics and migration: tools of people and of other engines."""
