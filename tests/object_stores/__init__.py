"""Tests on object stores: servers that implement the protocols of S3, Azure and Google."""
