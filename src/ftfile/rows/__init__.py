"""Helpers for columns of Arrow: buffers, types, conversions to text and back, conditions, time zones."""
