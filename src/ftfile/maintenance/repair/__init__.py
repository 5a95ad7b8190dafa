"""Repairing a directory: what verifying it finds, mended as far as that can be. Nothing is deleted."""
