"""Migration: one record adds the files of another program to an ftfile log, without copying them."""
