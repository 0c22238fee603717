"""The texts of launch files: flags of a command line, `name=value` overrides, flat YAML, Python assignments, JSON.

Each pair of functions is inverse to the other on what this package writes; what people write is read leniently
(comments, continued lines, `--name=value`, shell variables that the same file sets). No YAML or shell library: only
the flat subsets that launch files are made of.
"""

import ast
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from costmodel.specs import SpecError, show
from optimize.launch import shell

Settings = dict[str, Any]
_WORDS = {"true": True, "false": False, "null": None, "none": None, "~": None}
_PLAIN = re.compile(r"[\w./:=,-]+")
"""A word that the shell leaves as it is."""


def comments(lines: Iterable[str]) -> str:
    """Lines that the launcher ignores."""
    return "".join(f"# {line}\n" for line in lines)


def literal(text: str) -> Any:
    """A number, a truth value, nothing, a list of these, or the text itself, without its quotes."""
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [literal(part) for part in text[1:-1].split(",") if part.strip()]
    for kind in (int, float):
        try:
            return kind(text.replace("_", "") if kind is int and re.fullmatch(r"[\d_]+", text) else text)
        except ValueError:
            continue
    return text


Found = list[tuple[int, Settings]]
"""What a text may mean: the line and the options of each command of a script, or of the whole file."""


def _by_command(text: str, options: Callable[[list[str]], Settings]) -> Found:
    """The options of each command that trains; those of what variables hold, where no command has any."""
    commands = [(line, _exploded(words)) for line, words in shell.commands(text) if words[0] not in _SAY]
    found = [(line, options(words)) for line, words in commands if not _trains_not(words)]
    if any(settings for _, settings in found) or len(found) < len(commands):
        return [(line, settings) for line, settings in found if settings]
    line, words = shell.held(text)
    return [(line, options(_exploded(words)))]


_SAY = ("echo", "printf", "cat", "mkdir", "cd", "rm", "test", "[", "[[")
_TRAINS_NOT = re.compile(
    r"(^|[./_])(inference|decode|vllm_decode|run_text_generation\w*|convert\w*|\w*checkpoint_conversion\w*|to_huggingface"
    r"|to_maxtext|train_rl|forward_pass_logit_checker|generate_param_only_checkpoint)([./_]|$)"
)
"""Programs, by a part of their names."""


def _trains_not(words: list[str]) -> bool:
    """Whether a command's program is known to do something else: generate, convert or evaluate."""
    modules = [module for sign, module in itertools.pairwise(words) if sign == "-m"]
    return any(_TRAINS_NOT.search(name) for name in [*modules, *(word for word in words if word.endswith(".py"))])


_OPTIONS = re.compile(r"(^|\s)['\"]?(--\w|[+~]*\w[\w.]*=)")


def _parted(word: str) -> list[str]:
    """A word behind which an undecided variable adds others, and that variable."""
    first, sign, rest = word.partition(shell.UNDECIDED)
    if not first or not sign or any(each[:1].strip() for each in shell.candidates(sign + rest)[1]):
        return [word]
    return [first, sign + rest]


def _exploded(words: list[str]) -> list[str]:
    """Words of which one is a quoted list of options are those options."""
    split: list[str] = []
    for word in (part for whole in words for part in _parted(whole)):
        if re.search(r"[\s'\"]", word) and _OPTIONS.search(word) and not word.startswith(("[", "{")):
            try:
                split += shlex.split(word, comments=True)
            except ValueError:
                split += word.split()
        else:
            split.append(word)
    return split


def dump_flags(settings: Settings, notes: tuple[str, ...]) -> str:
    """`--name value`, one a line; True is a flag without a value."""
    lines = [f"--{name}" if value is True else f"--{name} {_shell(value)}" for name, value in settings.items()]
    return comments(notes) + " \\\n".join(lines) + "\n"


def _shell(value: Any) -> str:
    return " ".join(map(shlex.quote, map(str, value if isinstance(value, list) else [value])))


def _either(word: str, options: Callable[[list[str]], Settings]) -> Settings:
    """What all the candidates of an undecided variable say alike; under `UNDECIDED` the options in which they differ.

    One that it may be is nothing at all where the variable is not known to be set.
    """
    name, among = shell.candidates(word)
    each = [options(_exploded(one.split())) for one in among]
    names = dict.fromkeys(option for settings in each for option in settings)
    shared = {option for option in names if all(one.get(option, _NONE) == each[0].get(option) for one in each)}
    said: Settings = {option: each[0][option] for option in names if option in shared}
    differing = {
        shell.UNDECIDED + option.removeprefix(shell.UNDECIDED): name for option in names if option not in shared
    }
    return said | (differing if among else {f"{shell.UNDECIDED}{name}": name})


_NONE = object()


def _with_either(settings: Settings, words: list[str], options: Callable[[list[str]], Settings]) -> Settings:
    for word in words:
        settings |= _either(word, options) if word.startswith(shell.UNDECIDED) else {}
    return settings


def parse_flags(text: str) -> Found:
    """Every `--name` of each command, with its values up to the next one: none is True, several are a list.

    Or the flags as keys of YAML, `--name: value`, as the tests of Megatron-LM have them.
    """
    keyed = [each for each in _KEYED.finditer(text) if each[1] or each[2]]
    if not any(each[2] for each in keyed):
        return _by_command(text, flags)
    found: list[tuple[int, list[str]]] = []
    for each in keyed:
        if each[1]:
            found.append((text.count("\n", 0, each.start(1)) + 1, []))
        elif found:
            found[-1][1].extend(_keyed(each[2], each[3]))
    return [(line, flags(words)) for line, words in found if words]


_KEYED = re.compile(r"^(?:(\w+):|[ \t]+(--[A-Za-z][\w-]*):[ \t]+([^\n#]*?))[ \t]*(?:#.*)?$", re.MULTILINE)
"""A section, or a flag and its value."""


def _keyed(name: str, value: str) -> list[str]:
    """The words of a flag that YAML holds; a list of words in brackets are several."""
    value = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    if value.lower() in ("true", "false", ""):
        return [name] if value.lower() == "true" else []
    inner = re.fullmatch(r"\[([\w ]+)\]", value)
    return [name, *(inner[1].split() if inner else [value])]


def flags(words: list[str]) -> Settings:
    """The options of a command. What stands before the program's file is the launcher's, `nnodes` and so on."""
    settings: Settings = {}
    name, values = "", []
    for word in (*(word for word in words if word not in _NOTHING), "--"):
        if word.startswith(shell.UNDECIDED):
            settings |= _either(word, flags)
        elif not re.match(r"--(\w|$)", word):
            values.append(literal(word))
        else:
            while len(values) > 1 and str(values[-1]).startswith("$") and not str(values[-1]).endswith(".py"):
                settings[str(values.pop())] = True  # more options, of which nothing is known
            if name:
                settings[name] = True if not values else values[0] if len(values) == 1 else values
            name, equals, value = word.removeprefix("--").partition("=")
            name, values = name.replace("_", "-"), [literal(value)] if equals else []
    for name in _LAUNCHERS & settings.keys():
        value = settings[name]
        settings[name] = value[0] if isinstance(value, list) else value
    return settings


_NOTHING = ("$@", "$*", "", "''", '""')
_LAUNCHERS = {"nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "rdzv-endpoint", "rdzv-backend"}


def dump_overrides(settings: Settings, notes: tuple[str, ...]) -> str:
    """`section.name=value`, one a line, to be put behind a command."""
    words = [f"{name}={_hydra(value)}" for name, value in settings.items()]
    return comments(notes) + "".join(f"{word if _PLAIN.fullmatch(word) else repr(word)}\n" for word in words)


def _hydra(value: Any) -> str:
    """A value in Hydra's grammar: a text of other than plain letters in double quotes, the word then in single ones."""
    return f'"{value}"' if isinstance(value, str) and not re.fullmatch(r"[\w./:-]+", value) else _plain(value)


def parse_overrides(text: str) -> Found:
    """`section.name=value` words, or the nested YAML of an override file."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if lines and all(re.match(r"\s*['\"]?[+~]*\w[\w.]*=", line) for line in lines):
        return [(1, _overrides(_exploded(lines)))]
    found = [each for each in _by_command(text, _overrides) if each[1]] if "=" in text else []
    return [*found, (1, parse_yaml(text))]


def _overrides(words: list[str]) -> Settings:
    pairs = [word.lstrip("+-").partition("=") for word in words if "=" in word]
    settings = {name: literal(value) for name, _, value in pairs if _SECTION.fullmatch(name)}
    return _with_either(settings, words, _overrides)


_SECTION = re.compile(r"\w+(\.\w+)+|mixed_precision|comm_overlap")


def dump_yaml(settings: Settings, notes: tuple[str, ...]) -> str:
    """`name: value`, one a line."""
    return comments(notes) + "".join(f"{name}: {_plain(value)}\n" for name, value in settings.items())


def parse_yaml(text: str) -> Settings:
    """Nested or flat `name: value` as dotted names; also `name=value` words of a command line."""
    settings: Settings = {}
    path: list[tuple[int, str]] = []
    listed = re.search(r"^\s*- ", text, re.MULTILINE)  # items of a list repeat their names
    for number, line in enumerate(text.splitlines(), 1):
        matched = re.match(r"^(\s*)([\w.]+):(?:\s+(.*))?$", re.sub(r"(^|\s)#.*$", "", line).rstrip())
        if not matched:
            continue
        depth, name, value = len(matched[1]), matched[2], (matched[3] or "").strip()
        path = [(d, n) for d, n in path if d < depth]
        if value:
            name = ".".join([*(n for _, n in path), name])
            if not listed and name in settings and settings[name] != literal(value):
                raise SpecError(f"line {number}: `{name}` is {show(settings[name])} and {value}; expected it once")
            settings[name] = literal(value)
        else:
            path.append((depth, name))
    return settings


def parse_pairs(text: str) -> Found:
    """Flat YAML, or `name=value` words of each command."""
    settings = parse_yaml(text)
    found = [each for each in _by_command(text, _pairs) if each[1]] if "=" in text else []
    return [*found, (1, settings)]


def _pairs(words: list[str]) -> Settings:
    named = [word for word in words if re.match(r"^[a-z]\w*=", word)]
    settings = {name: literal(value) for name, _, value in (word.partition("=") for word in named)}
    return _with_either(settings, words, _pairs)


IMPORTS: dict[str, str] = dict.fromkeys(
    ("FullAC", "FullActivationRematConfig"), "torchtitan.distributed.activation_checkpoint"
)
"""Modules of the objects of a configuration."""


class Name(str):
    """An expression of Python, written as it stands."""

    def __repr__(self) -> str:
        return str(self)


def dump_python(settings: Settings, notes: tuple[str, ...]) -> str:
    """A function that changes a configuration."""
    lines = [f"    config.{name} = {value!r}\n" for name, value in settings.items()]
    made = {match[0] for v in settings.values() if isinstance(v, Name) and (match := re.match(r"\w+", v))}
    imports = [f"    from {place} import {name}\n\n" for name, place in IMPORTS.items() if name in made]
    return comments(notes) + "def use_plan(config):\n" + "".join(imports + lines) + "    return config\n"


def parse_titan(text: str) -> Found:
    """torchtitan: TOML of releases to 0.2, Python of later ones, or `--section.name value` words."""
    for read in (_toml, _python):
        if (found := read(text)) is not None:
            return found
    return [(line, _dotted(settings)) for line, settings in parse_flags(text)]


def _toml(text: str) -> Found | None:
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return [(1, dict(_flat("", content)))]


def _dotted(settings: Settings) -> Settings:
    kept = {name: value for name, value in settings.items() if "." in name or name.startswith(shell.UNDECIDED)}
    return {name.replace("-", "_"): value for name, value in kept.items()}


def _python(text: str) -> Found | None:
    """Each function that sets `config.section.name = value`, or builds sections with `SectionConfig(name=value)`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] or [tree]
    found = [(getattr(node, "lineno", 1), _set_in(node)) for node in functions]
    return [(line, settings) for line, settings in found if settings] or None


def _set_in(function: ast.AST) -> Settings:
    settings: Settings = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names = ast.unparse(node.targets[0]).split(".")
            value = _python_value(node.value)
            if len(names) > 1 and names[0].isidentifier():
                settings[".".join(names[1:])] = value
        called = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and called in _SECTIONS:
            settings |= {f"{_SECTIONS[called]}.{each.arg}": _python_value(each.value) for each in node.keywords}
        if isinstance(node, ast.keyword) and node.arg == "activation_checkpoint":
            settings[node.arg] = _python_value(node.value)
    return settings


_SECTIONS = {"ParallelismConfig": "parallelism", "TrainingConfig": "training"}


def _python_value(node: ast.expr) -> Any:
    """A literal, or the expression as it stands."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)


def dump_json(settings: Settings, notes: tuple[str, ...]) -> str:
    """Dotted names as nested objects. JSON has no comments: the notes are a key of their own."""
    nested: dict[str, Any] = {"equipoise": [note.removeprefix("equipoise: ") for note in notes]} if notes else {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return json.dumps(nested, indent=2) + "\n"


def parse_json(text: str) -> Found:
    """Nested objects as dotted names."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise SpecError("it is JSON, but no object")
    return [(1, dict(_flat("", content)))]


def _flat(prefix: str, content: Any) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_plain, value)) + "]"
    return f"'{value}'" if isinstance(value, str) and not re.fullmatch(r"[\w./:-]+", value) else str(value)
