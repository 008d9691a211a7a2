"""Every environment variable this package reads. ``python -m torch_spyre env`` prints the table.

The table is the documentation: a test checks that no other ``SPYRE``-like variable is read
anywhere, in Python or C++.
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    name: str
    default: str
    meaning: str

    @property
    def value(self) -> str | None:
        """What the process has, or None if it is not set."""
        return os.environ.get(self.name)


VARIABLES = [
    Variable("SPYRE_SOFT_CARDS", "1", "number of software cards in this machine, 1 to 8"),
    Variable("SPYRE_CARD_MEMORY", "128G", "memory of a software card (bytes, or with K, M, G)"),
    Variable(
        "SPYRE_CARD_WARM_BYTES",
        "256M",
        "freed device memory a software card keeps for reuse before it returns it to the host",
    ),
    Variable("SPYRE_CARD_THREADS", "usable cores", "host threads a software card works with"),
    Variable(
        "SPYRE_CARD_CHECK",
        "0",
        "1: a software card checks every access of every program (docs/checker.md); slow",
    ),
    Variable(
        "SPYRE_CARD_SIMD",
        "best",
        "vector instructions of the software card: baseline, avx2 or avx512; for tests",
    ),
    Variable(
        "SPYRE_DL16_SPECIALS",
        "ieee",
        "special values of DLFloat16: ieee keeps Infinity apart from NaN, merged is as published",
    ),
    Variable(
        "SPYRE_ACCUMULATION",
        "fp32",
        "sums and matmuls of a software card: fp32, or chunked (64 products, then DLFloat16)",
    ),
    Variable(
        "SPYRE_CARD_LIBRARY",
        "software card",
        "shared library that implements the card interface, for an adapter to hardware",
    ),
    Variable("AIU_WORLD_SIZE", "all cards", "use at most this many cards"),
    Variable("SPYRE_DEVICES", "all cards", "card numbers to use, in this order, such as 0,2"),
    Variable(
        "FLEX_DEVICE",
        "PF",
        "PF: whole cards; VF: an isolated share of each; MOCK: AIU_WORLD_SIZE mock cards",
    ),
    Variable("LOCAL_RANK", "0", "set by torchrun: the device a process uses unless it chooses one"),
    Variable("TORCH_SPYRE_FALLBACK", "warn", "error: refuse ops that would run on the CPU"),
    Variable("TORCH_SPYRE_CACHE", "1", "0: keep no compiled kernels on disk, and use none"),
    Variable(
        "TORCH_SPYRE_CACHE_DIR",
        "Inductor's",
        "where the directory of compiled kernels is; by default in Inductor's cache directory",
    ),
    Variable("TORCH_SPYRE_DEBUG", "0", "1: log allocations, copies and device starts to stderr"),
    Variable(
        "DUMP_SPYRE_CODE",
        "0",
        "not 0: keep bundle and SpyreCode of every kernel in Inductor's cache directory",
    ),
    Variable("SPYRE_INDUCTOR_LOG", "0", "1: log the compiler, unless TORCH_LOGS is set; old name"),
    Variable("SPYRE_INDUCTOR_LOG_LEVEL", "INFO", "the level of that"),
    Variable("SPYRE_LOG_FILE", "none", "append messages of the log to this file too"),
    Variable("TORCH_SPYRE_DOWNCAST_WARN", "1", "0: no warning that int64 has 32 bits on the card"),
    Variable(
        "TORCH_SPYRE_INT64",
        "wrap",
        "error: refuse int64 values outside of 32 bits, with slow checks of results",
    ),
    Variable(
        "IS_INDUCTOR_SPAWNED_SUBPROCESS",
        "0",
        "set by Inductor in its compile workers, which may not open the device",
    ),
    Variable(
        "TORCH_SPYRE_COMPILE_FALLBACK",
        "warn",
        "error: refuse graphs that cannot be compiled, instead of running them op by op",
    ),
    Variable("SENCORES", "32", "compiler: cores that a kernel may use, 1 to 32"),
    Variable("SPYRE_CORE_ID_K_FAST_EMISSION", "1", "compiler: cores of a K split are neighbours"),
    Variable(
        "BUNDLE_SYMBOLIC_ARGS",
        "1",
        "compiler: addresses as arguments of a kernel; 0: baked, where there are at most 7 tensors",
    ),
    Variable(
        "CHUNK_LARGE_TENSORS", "0", "compiler: 1 runs ops on tensors beyond a core's reach in parts"
    ),
    Variable(
        "GLOBAL_STICK_OPTIMIZER",
        "1",
        "compiler: 0 chooses sticks op by op, not for all of a kernel",
    ),
    Variable(
        "SPYRE_INDUCTOR_MEMORY_PLAN", "1", "compiler: 0 gives every intermediate its own memory"
    ),
    Variable(
        "SPYRE_INDUCTOR_ENABLE_FUSION", "1", "compiler: 0 makes a kernel of every loop of a graph"
    ),
    Variable("LX_PLANNING", "1", "compiler: 0 keeps all intermediates in device memory"),
    Variable(
        "CO_OPTIMIZING_LX_PLANNING",
        "1",
        "compiler: 0 splits every op as is fastest for itself, not so that results can stay in LX",
    ),
    Variable("LX_IN_PLACE", "1", "compiler: 0 gives every intermediate in LX a place of its own"),
    Variable("LX_BOUNDARY_CLONES", "1", "compiler: 0 copies no inputs to LX"),
    Variable(
        "LX_RING_MOVES", "1", "compiler: 0 moves nothing from the LX of a core to that of another"
    ),
    Variable(
        "LX_ACROSS_KERNELS",
        "1",
        "compiler: 0 leaves nothing in LX for the next kernel; VF never does",
    ),
    Variable(
        "SPYRE_INDUCTOR_AUTO_TILING",
        "1",
        "compiler: 0 makes no loops over tiles but those of hints",
    ),
    Variable("DXP_LX_FRAC_AVAIL", "0.2", "compiler: part of LX that is left to the back end"),
    Variable("SPYRE_INDUCTOR_IGNORE_HINTS", "0", "compiler: 1 ignores what spyre_hint says"),
    Variable("UNROLL_LOOPS", "0", "compiler: write loops out in bundles"),
    Variable("MAX_BUCKETS", "32", "compiler: into how many buckets a dynamic dimension divides"),
    Variable("MIN_DEFAULT_GRANULARITY", "4", "compiler: sizes in a bucket, at least"),
]
