"""What several tests share: places, builders, strategies, the registry of cost functions, a record of answers."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SHARED = ROOT.parent / "shared"
NIGHTLY = os.environ.get("EQUIPOISE_NIGHTLY") == "1"


def often(by_day: int, by_night: int) -> int:
    """How many random cases a test draws; `.ci/nightly` asks for all."""
    return by_night if NIGHTLY else by_day
