"""Deliberate mistakes in the protocol, and the tests that catch them."""
