"""Helpers for columns of Arrow, such as buffers, types, conversions and conditions."""
