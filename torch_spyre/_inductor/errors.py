"""Errors of the compiler."""


class Unsupported(RuntimeError):
    """Something the compiler cannot do. The message says what, where, and a way out."""
