"""Differences that are known. An entry goes when its fault is fixed: then it is a finding again."""

import re

# Errors that the CPU raises and the card does not: such statements are left out.
ERRORS = re.compile(
    "|".join([
        "can't be cast to the desired output type",  # out= of another kind of dtype
        "Found dtype .* but expected",  # the same, of unary ops
        "Boolean inputs not supported for relu",
        "Subtraction, the `-` operator, with",  # of bools, into out=
        "Negation, the `-` operator, on a bool",  # into out=
    ])
)  # fmt: skip

# What is wrong with new tensors: they are dropped.
NEW_TENSORS = re.compile(
    "|".join([
        # abs, logical_*, where, roll, x[index] and out= that is resized: contiguous, where the CPU
        # lays results out like the inputs, or the other way round.
        "^strides and offset of",
        r"\.shape is torch\.Size\(\[0\]\)",  # out= of no elements is not resized
    ])
)  # fmt: skip

# add, sub and mul of integers into out= of another dtype: computed in 64 bits, and not, as on the
# CPU, in the dtype of the inputs (bool + bool is 2, not True). Such an out= is not drawn.
SAME_DTYPE_OUT = {"add", "sub", "mul"}
