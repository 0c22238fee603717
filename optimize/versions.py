"""Which versions took part in an answer."""

import sys

SCHEMA = 1
"""The version of the JSON of every command."""


def versions() -> dict[str, str]:
    """Versions of the program, of Python and of the libraries that took part."""
    loaded = {name: sys.modules[name].__version__ for name in ("numpy", "jax", "matplotlib") if name in sys.modules}
    return {"equipoise": own_version(), "python": ".".join(map(str, sys.version_info[:3]))} | loaded


def own_version() -> str:
    """The version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("equipoise")
    except PackageNotFoundError:
        return "not installed"
