"""How long a matrix product takes, by how its loops are split over cores.

The model of the public implementation: its constants are those of the card (98.304 TFLOP/s over 32
cores, 204.8 GB/s), its penalties were fitted there. Microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MACS_PER_CORE = 98.304e12 / 2 / 32 / 1e6  # in a microsecond
BYTES = 204.8e3  # of device memory, in a microsecond
PT_ROWS = 8
PARTIAL_SUM = 1.4e-4  # an element, for each core of a cohort beyond the first


@dataclass(frozen=True)
class Product:
    """Batches of an M x K by K x N product."""

    b: int
    m: int
    n: int
    k: int

    def microseconds(self, b: int, m: int, n: int, k: int) -> float:
        """With every loop split over so many cores."""
        cores = b * m * n * k
        volume = self.b * self.m * self.n * self.k
        result = self.b * self.m * self.n
        passes = max(1, (self.m // m) / PT_ROWS)
        efficiency = min(1, math.sqrt(passes / PT_ROWS))
        compute = volume / cores / (MACS_PER_CORE * efficiency)
        touched = self.b * (self.m * self.k + self.k * self.n) + result
        memory = 2 * touched / BYTES * max(1, max(m, n) / 8)
        partial_sums = max(0, k - 1) * result * PARTIAL_SUM
        rows_missing = 0 if passes >= PT_ROWS else math.log2(PT_ROWS / passes) * 50
        return float((compute + memory + partial_sums + rows_missing) * b**1.4)


def divisors(number: int, limit: int) -> list[int]:
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def divisions(units: tuple[int, int, int, int], cores: int) -> Iterator[tuple[int, int, int, int]]:
    """All splits that divide (B, M, N, K) evenly, on no more than ``cores``."""
    for b in divisors(units[0], cores):
        for m in divisors(units[1], cores // b):
            for n in divisors(units[2], cores // (b * m)):
                for k in divisors(units[3], cores // (b * m * n)):
                    yield b, m, n, k
