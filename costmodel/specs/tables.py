"""Descriptions of models, clusters, accelerators, prices and curves: the shipped tables, and files of one's own."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.specs.checks import Check, convert, fail, nearest
from costmodel.specs.files import SpecError, plain, read_mapping, show

DATA = Path(__file__).parents[1] / "data"


@functools.cache
def read_tables(kind: str) -> dict[str, dict[str, Any]]:
    """A shipped file: `models`, `clusters`, `accelerators`, `prices` or `curves`, as it stands there. Read once."""
    return read_mapping(DATA / f"{kind}.toml")


def described(kind: str, name_or_path: str | Path, more: Mapping[str, Any] = {}) -> tuple[str, dict[str, Any], str]:  # noqa: B006
    """Name, table and place of a shipped or a user-written description; `more` are known besides the shipped ones."""
    if not isinstance(name_or_path, str | Path):
        fail(kind, kind, name_or_path, "a name or the path of a TOML or JSON file")
    known = {**read_tables(f"{kind}s"), **more}
    text = str(name_or_path)
    if text in known and not isinstance(name_or_path, Path):
        return text, known[text], f'{kind} "{text}"'
    if not _is_there(name_or_path):
        meant = nearest(Path(text).name.lower(), known)  # of `deepseek-ai/DeepSeek-V3` too
        if not is_path(name_or_path) or meant.startswith("did you mean"):
            raise SpecError(f"`{kind}` is {show(text)}, which is neither a known name nor a file; {meant}")
    table = read_mapping(text)
    name = table.get("name", Path(text).stem)
    label = plain(name if isinstance(name, str) else Path(text).stem)
    return name, table, f'{kind} "{label}" ({plain(text)})'


def is_path(name_or_path: str | Path) -> bool:
    """Whether it is meant as a file: a path, a name with its ending, or a file that is there."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith((".toml", ".json", ".py")):
        return True
    return _is_there(text)


def _is_there(path: str | Path) -> bool:
    """Whether a file or a folder is; a `Path` is taken to be one."""
    try:
        return isinstance(path, Path) or (path != "" and Path(path).exists())
    except (OSError, ValueError):
        return False


def arguments(where: str, given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """Arguments that are not None, checked as the fields of the file are."""
    present = {name: value for name, value in given.items() if value is not None}
    return convert(present, {name: checks[name] for name in given}, f"{where}, argument")
