"""Reads a TOML or JSON file into a dictionary, and writes whole files, or says in one line why not."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

LARGEST_FILE_BYTES = 16 * 2**20  # a spec is a few kilobytes: anything near this was meant to be another file


class SpecError(ValueError):
    """A wrong input. Its message is one line: field, value, what is allowed and where it was read."""


def show(value: Any) -> str:
    """A value as a message may hold it: one short line, whatever it is."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except Exception:  # a broken __repr__ must not hide the message
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def plain(text: str) -> str:
    """A name or a path inside a message: on one line, without quotes."""
    return repr(text)[1:-1][:300]


def read_mapping(path: str | Path) -> dict[str, Any]:
    """The content of a `.toml` or `.json` file (other names: JSON if it starts with a brace)."""
    where = plain(str(path)) or "''"
    if str(path).endswith(".py"):
        raise SpecError(
            f"{where}: a Python file; expected TOML or JSON (--with {where} runs it, for what it registers)"
        )
    text = read_text(path, where)
    if str(path).endswith(".json") or (not str(path).endswith(".toml") and text.lstrip().startswith("{")):
        return _parse_json(text, where)
    return _parse_toml(text, where)


def read_text(path: str | Path, where: str = "") -> str:
    """The content of a file of text, of a size that someone may have written."""
    where = where or plain(str(path))
    try:
        file = Path(path)
        if not file.exists():
            raise SpecError(f"{where}: no such file")
        if not file.is_file():
            raise SpecError(f"{where}: not a file; expected a TOML or JSON file")
        if file.stat().st_size > LARGEST_FILE_BYTES:
            raise SpecError(f"{where}: {file.stat().st_size} bytes; expected a TOML or JSON file of a few kilobytes")
        text = file.read_bytes().decode("utf-8-sig")
        if "\0" in text:
            line = text[: text.index("\0")].count("\n") + 1
            raise SpecError(f"{where}: not text (line {line} holds a null byte); expected a TOML or JSON file")
        return text
    except UnicodeDecodeError as error:
        raise SpecError(f"{where}: not text (byte {error.start} is not UTF-8); expected a TOML or JSON file") from None
    except SpecError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{where}: cannot be read ({reason})") from None


def digest_of_files(folder: Path, kinds: Sequence[str] = ("*.py",)) -> str:
    """A digest of the names and contents of all files of these kinds below a folder: what a kept result depends on."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted(path for kind in kinds for path in folder.rglob(kind)):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def write_file(path: str | Path, content: bytes) -> None:
    """Write beside and rename, so that nobody meets half a file; a link, or what is no file, as it is."""
    try:
        target = Path(path)
        if target.is_symlink() or (target.exists() and not target.is_file()):
            target.write_bytes(content)
            return
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            beside.write_bytes(content)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise SpecError(f"{plain(str(path))}: cannot be written ({why_not(error)})") from None


def why_not(error: Exception) -> str:
    """The system's own words, such as `No space left on device`."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _parse_toml(text: str, where: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        reason = _one_line(error).replace("(at end of document)", f"(at line {text.count(chr(10)) + 1}, the end)")
        raise SpecError(f"{where}: not valid TOML: {reason}") from None


def _parse_json(text: str, where: str) -> dict[str, Any]:
    import json

    try:
        content = json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{where}: not valid JSON: {error.msg} (at line {error.lineno}, column {error.colno})"
        ) from None
    except (RecursionError, ValueError) as error:
        raise SpecError(f"{where}: not valid JSON: {_one_line(error)}") from None
    if not isinstance(content, dict):
        raise SpecError(f"{where}: the file is {show(content)}; expected an object of named fields")
    return content


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"{show(key)} is given twice")
        content[key] = value
    return content


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; expected a finite one")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
