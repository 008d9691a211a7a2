"""Names and numbers of the card that more than one stage of the compiler knows."""

IDENTITY_OP = "identity"
BATCH_MATMUL_OP = "batchmatmul"
RESTICKIFY_OP = "ReStickifyOpHBM"
FP8_E4M3_MAX = 448.0
