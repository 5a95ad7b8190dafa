"""Positions of those who follow a log, their limits, and checks that it can be followed: of files and of stores."""
