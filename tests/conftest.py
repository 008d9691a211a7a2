"""Set-up that all tests share: two software cards, and how hypothesis looks for examples."""

import os
import sys
from pathlib import Path

os.environ.setdefault("SPYRE_SOFT_CARDS", "2")  # before the first import of torch
sys.path.insert(0, str(Path(__file__).parent))  # importlib mode: makes `import oracle` work

from hypothesis import HealthCheck, settings

settings.register_profile(
    "spyre",
    deadline=None,  # the first example of a shape may start a card
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ci", settings.get_profile("spyre"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "spyre")
