"""Malformed inputs, seeded: what people and programs write, damaged in one or several places.

A case is the words of a command, in which `{name}` stands for a file that it brings. Seeds are valid; a damage is of
bytes (cut, noise, other encodings), of lines (twice, gone, elsewhere) or of values (nan, negative, huge, other types).
"""

import dataclasses
import importlib
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from costmodel.inputs import Plan
from optimize.cli.run import COMMANDS as MODULES
from tests.support.files.fuzz_seeds import BESIDE, COMMANDS, file_name, seeds

Case = tuple[list[str], dict[str, bytes | str]]
"""Words, and by name what each file holds, or one of `PLACES`."""
PLACES = ("directory", "loop", "dangling", "pipe", "device", "link")
"""What stands where a file is expected; the last leads to a whole file."""
TYPES = (
    "1979-05-27T07:32:00Z", "07:32:00", "0b101", "0xffffffffffffffffffff", "{a = 1, b = {c = [1, {d = 2}]}}",
    "[[], [[]]]", '"""\nmany\nlines\n"""', "+inf", "-nan", "1e1000000", "'\\'", '"\\U0010ffff"', "[1, 'a', 2.5]",
    '"ｌｌａｍａ３"', "−8", "8,0", "½", "1/2", "8 # eight", "!!python/object:os.system", "&a [*a]", "~", "yes", "0o17",
    "--8", "$((1/0))", "${X:?no}", "`id`",
)  # fmt: skip
"""Values of the types and the languages of files."""
QUOTES = (
    ("'", '"'), ('"', "'"), ("=", " = "), (" ", "\\\n"), ("--", "—"), ("$", "\\$"), ("(", "$("), ('"', ""),
    (" ", "\u00a0"), ("\n", ";"), ("--", "\"--"), ("{", "${"), (")", ""), ("\n", "\r"), (" ", "  # "), ("=", "+="),
    ("[", "[["), (",", ",,"), (":", ""),
)  # fmt: skip
"""Marks that people confuse."""
VALUES = (
    "-1", "0", "nan", "inf", "-inf", "1e400", "1e308", "1e-320", '""', "[]", "{}", "true", "null", "None", '"eight"',
    "8.5", "1" + "0" * 400, "0x10", "1_000", "[1, 2]", '"\\u0000"', "'", '"', "$(rm x)", "no/../such",
    "2026-01-01", "٣", "é" * 50, "=8", "\t", "9" * 20, "-0.0", "8,8", "%s%n", "__import__('os')", "1", "3", "7.0",
    "1e-9", "1e18", "1000000000000000000", "2:3", "3:2", "1e3:2e3", ":", "a=b", "tensor=0", "schedule=no", ".", "-",
    "localhost:99999", "/dev/null", "/dev/full", "nosuch/dir/file", "llama3-8b", "h100", "fsdp", "megatron", " ", "'[[",
    "\x1b[31m", "model.toml",
)  # fmt: skip


def _of_bytes(text: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(text) + 1)
    noise = bytes(draw.randrange(256) for _ in range(draw.choice((1, 4, 40))))
    return draw.choice(
        (
            text[:at],
            text[:at] + noise + text[at:],
            text[:at] + text[at + draw.choice((1, 9)) :],
            text.replace(b"\n", b"\r\n")[: at + 9],
            text.decode().encode("utf-16"),
            text[:at] + b"\0" + text[at:],
            b"\xef\xbb\xbf" + text[:at],
            text[:at] + draw.choice((b"[", b"{", b"(")) * 20_000,
        )
    )


def _of_lines(text: bytes, draw: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    other = [lines[:i] + [lines[i]] + lines[i:], lines[:i] + lines[i + 1 :], [*lines]]
    other[2][i], other[2][j] = lines[j], lines[i]
    return b"".join(draw.choice(other))


def _of_values(text: bytes, draw: random.Random) -> bytes:
    """One value of a file becomes another; in a table one cell."""
    words = text.decode()
    found = [*re.finditer(r"(?<=[=:,\s])\s*[-\w.\"]+(?=[\s,\n}\]]|$)", words)]
    if not found:
        return text
    at = draw.choice(found)
    return (words[: at.start()] + draw.choice(VALUES) + words[at.end() :]).encode()


def _of_names(text: bytes, draw: random.Random) -> bytes:
    """One word loses, doubles or swaps letters."""
    found = [*re.finditer(rb"[A-Za-z_]{3,}", text)]
    if not found:
        return text
    at = draw.choice(found)
    word, i = at[0], draw.randrange(len(at[0]) - 1)
    swapped = word[:i] + word[i + 1 : i + 2] + word[i : i + 1] + word[i + 2 :]
    return text[: at.start()] + draw.choice((swapped, word[:-1], word + word[-1:], word.upper())) + text[at.end() :]


def _of_types(text: bytes, draw: random.Random) -> bytes:
    """One value becomes one of another type, or a list of lists as deep as no reader goes."""
    words = text.decode()
    found = [*re.finditer(r"(?<=[=:])\s*[^\s,}\]]+", words)]
    if not found:
        return text
    at, deep = draw.choice(found), draw.choice((3, 90, 1_000, 60_000))
    new = draw.choice((*TYPES, "[" * deep + "]" * deep, '{"a":' * deep + "1" + "}" * deep, "9" * deep))
    return (words[: at.start()] + new + words[at.end() :]).encode()


def _of_marks(text: bytes, draw: random.Random) -> bytes:
    """One mark, or all of a kind, become another."""
    old, new = (mark.encode() for mark in draw.choice(QUOTES))
    parts = text.split(old)
    if draw.random() < 0.5 or len(parts) < 2:
        return text.replace(old, new)
    at = draw.randrange(1, len(parts))
    return old.join(parts[:at]) + new + old.join(parts[at:])


def _of_encodings(text: bytes, draw: random.Random) -> bytes:
    """Other encodings and ends of lines, whole: what tables on other systems write."""
    words = text.decode().replace("a", "ä", draw.choice((0, 1)))
    crlf = words.replace("\n", "\r\n")
    return draw.choice(
        (
            crlf.encode("utf-8-sig"), words.encode("utf-8-sig"), words.encode("latin-1", "replace"),
            crlf.encode("utf-16"), words.encode("utf-32"), words.replace("\n", "\r").encode(), b"",
            words.replace(",", ";").encode(),
            words.replace(",", "\t").encode(), crlf.encode() + b"\x1a", b"\n\n\n" + text, text + b"\n" * 9,
            text.upper(),
            text.replace(b",", b", "), text.replace(b"_", b" "), text.replace(b"\n", b",\n"), text * 2, b"\xef\xbb\xbf",
        )
    )  # fmt: skip


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _of_values, _of_bytes, _of_lines, _of_names, _of_values, _of_types, _of_marks, _of_encodings,
)  # fmt: skip


def _words(words: list[str], draw: random.Random) -> list[str]:
    """The command line itself: a value, a flag, an order, a repetition."""
    i = draw.randrange(len(words))
    changed = [*words]
    kind = draw.randrange(5)
    if kind == 0:
        changed[i] = draw.choice(VALUES)
    elif kind == 1:
        changed = [*words, "--" + draw.choice(("tensor", "data", "batch", "fix", "out", "top", "schedule", "json"))]
        changed.append(draw.choice(VALUES))
    elif kind == 2:
        del changed[i]
    elif kind == 3:
        changed = words + words[i : i + 2]
    else:
        changed[i] = _of_names(words[i].encode(), draw).decode()
    return changed


def _flags(name: str) -> list[str]:
    """All options of a command, those of its plan among them."""
    request = getattr(importlib.import_module(f"optimize.cli.{MODULES[name]}"), name.upper()).request
    fields = [field.name for field in dataclasses.fields(request)]
    if "degrees" in fields:
        fields = [field for field in fields if field != "degrees"] + [field.name for field in dataclasses.fields(Plan)]
    return ["--" + field.replace("_", "-") for field in fields] + ["--with"]


def _with_flags(draw: random.Random) -> tuple[str, list[str]]:
    """A valid line of a command with one or two options of it, whose values may be anything."""
    name = draw.choice([*COMMANDS, "explain", "plan", "design"])
    words, told = [*COMMANDS[name]], []
    for _ in range(draw.choice((1, 1, 2))):
        told.append(draw.choice(_flags(name)))
        words += [told[-1], *draw.sample(VALUES, draw.choice((0, 1, 1, 1, 1, 2)))]
    return f"{name} {' '.join(told)}", words


def _damaged(content: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 1, 1, 3))):
        damage = draw.choice(DAMAGES)
        try:
            content = damage(content, draw)
        except (UnicodeDecodeError, IndexError, ValueError):
            break
    return content


def cases(seed: int, count: int) -> Iterator[tuple[str, Case]]:
    """So many damaged inputs, each with the name of what was damaged."""
    draw, kinds = random.Random(seed), seeds()
    whole: dict[str, bytes | str] = {name: text.encode() for name, text in BESIDE.items()}
    for number in range(count):
        if draw.random() < 0.2:
            told, words = _with_flags(draw)
            yield f"{number}, {told}", (words, whole)
            continue
        name = draw.choice([*kinds])
        text, *words = kinds[name]
        content, told = text.encode(), "words"
        kind = draw.random()
        if kind < 0.15:
            words = _words(words, draw)
        elif kind < 0.2:
            told = draw.choice(PLACES)
        else:
            content, told = _damaged(content, draw), "text"
        held = told if told in PLACES else content
        yield f"{number}, {told} of {name}", (words, whole | {file_name(name): held})


def written(case: Case, folder: Path) -> list[str]:
    """The words, their files in place."""
    words, files = case
    for name, content in files.items():
        _place(folder / name, content)
    return [re.sub(r"\{(?:[\w.-]+/)?([\w.-]+)\}", lambda match: str(folder / match[1]), word) for word in words]


def _place(path: Path, content: bytes | str) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "directory":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path.name, "dangling": "nowhere", "device": "/dev/null"}.get(content, "cluster.toml"))
