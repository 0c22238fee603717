"""One hypothesis profile, one cache of compiled programs, the order of files, and small inputs by hand."""

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from costmodel.inputs.cluster import Cluster
from costmodel.inputs.workload import Workload
from costmodel.models.decoder import decoder
from costmodel.pytree import as_floats
from tests.support import NIGHTLY, ROOT, often
from tests.support.builders import cluster
from tests.support.nightly import LONG

settings.register_profile("equipoise", deadline=None, derandomize=True, max_examples=often(6, 50))
settings.load_profile("equipoise")

# for this process, other workers, notebooks and the programs that tests start: nothing is compiled twice
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / ".pytest_cache" / "home"))

# gradients compile in a tenth of the time (values run a fifth slower); by night programs are compiled as users' are
if not NIGHTLY:
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion")

# a shell that starts this in the background ignores Ctrl-C for it and for what it starts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


ENOUGH_BYTES = 900e6
"""Of one worker, beyond which it forgets what it has compiled: two stay below 2 GiB each."""


def _resident_bytes() -> float:
    """Memory of this process; without Linux' way to say it, too much."""
    try:
        return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return float("inf")


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_end_with_their_file() -> Iterator[None]:
    """Programs that no later file calls, and what the compiler asked of the system for them, go back."""
    yield
    if "jax" in sys.modules and _resident_bytes() > ENOUGH_BYTES:
        sys.modules["jax"].clear_caches()
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no worker is left alone with one at the end; nightly tests by night."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    left = [] if NIGHTLY or _are_named(config) else [item for item in items if _is_nightly(item)]
    if left:
        items[:] = [item for item in items if not _is_nightly(item)]
        config.hook.pytest_deselected(items=left)


def _is_nightly(item: pytest.Item) -> bool:
    return item.nodeid.startswith(LONG)


def _are_named(config: pytest.Config) -> bool:
    """Whether single tests are asked for: they run, whatever they take."""
    return any("::" in word for word in config.args)


@pytest.fixture(scope="session")
def small_decoder() -> Workload:
    """A dense decoder whose sizes divide by many plans: 8 layers, 16 heads, 64 sequences."""
    return decoder(
        name="small",
        layers=8,
        hidden=1024,
        heads=16,
        key_value_heads=8,
        ffn=4096,
        vocabulary=32768,
        sequence=2048,
        batch=64,
        gated=True,
    )


@pytest.fixture(scope="session")
def two_tiers() -> Cluster:
    """64 accelerators in domains of 8."""
    return as_floats(cluster(64))
