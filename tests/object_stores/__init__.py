"""Tests on object stores: servers that speak S3."""
