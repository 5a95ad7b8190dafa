"""A long test of ftfile in Spark under kills: every row and every word is counted by another program after each round.

``python -m tests.soak``. It can be interrupted at any time, and the next run continues.
"""
