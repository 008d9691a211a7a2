"""A stateful differential fuzzer: the same random program on the card and on the CPU.

A program is a list of Python statements. `tests/README.md` says what is compared, and which file is
what.
"""
