"""What several tests share: places, builders, strategies, the registry of cost functions, a record of answers."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SHARED = ROOT.parent / "shared"
