"""Where compiled programs are kept between commands. Set before JAX is imported; what the user has set stays."""

import os
from pathlib import Path


def keep() -> None:
    """A directory of the user's cache, small programs included (JAX leaves those out by default)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(home) / "equipoise" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
