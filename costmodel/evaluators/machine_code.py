"""Gradients as machine code in the user's cache: what one process has compiled, the next one loads without tracing.

JAX's own cache finds a program by its trace, which takes longer than all the rest; here the key is what a trace depends
on (`_key`). A program is compiled in a process of its own because the ways in which batches of gradients run fastest
are unofficial and may end it: loops that we cut (`loops.py`), or XLA's fusion into several outputs, half as fast, which
a flag of the whole process asks for. Where both fail, or no place for files is safe, the program is compiled here
without any fusion. A way that cannot be gone with these versions is not tried again; one that failed by chance (time
was up, somebody ended it) is, by the next processes.

All numbers of one shape are one array, since hundreds of arguments cost more than they hold. Programs are loaded only
from a folder that nobody else can write: loading one runs what it holds.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.evaluators import loops
from costmodel.evaluators.loops import Shapes
from costmodel.evaluators.programs import COMPILER_OPTIONS
from costmodel.formulas import COLLECTIVES
from costmodel.pytree import register_pytrees
from costmodel.specs import digest_of_files

MOST_S = 90.0  # that another process may take to compile, in each way
TRIES = 3  # of a way that fails by chance
KEPT = 64  # files, the newest; one takes 1 to 10 MB
_WAYS = {"loops": "", "fused": "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"}
"""By which another process compiles, the fastest first, and XLA's flag for each."""

_LATE = 124  # status of a process that has ended itself because its time was up

_COMPILING: list["subprocess.Popen[bytes]"] = []

Packed = tuple[list[np.ndarray], Any, Shapes | None]
"""One array for all leaves of one shape; the structure of the tree; the shapes of its leaves."""


def packed(tree: Any) -> Packed:
    """A tree of float32 arrays; where there are other leaves, or traced ones, no arrays and no shapes."""
    import jax

    register_pytrees()
    leaves, structure = jax.tree.flatten(tree)
    of_jax = _array_of_jax()
    arrays = [np.asarray(leaf) if type(leaf) is of_jax else leaf for leaf in leaves]
    own = [array for array in arrays if isinstance(array, (np.ndarray, np.generic)) and array.dtype is _FLOAT32]
    if len(own) < len(leaves):
        return [], structure, None
    shapes, of_shape = tuple([array.shape for array in own]), {}
    for leaf, shape in zip(own, shapes, strict=True):
        of_shape.setdefault(shape, []).append(leaf)
    return [np.array(some) for some in of_shape.values()], structure, shapes


_FLOAT32 = np.dtype(np.float32)


@functools.cache
def _array_of_jax() -> type:
    """The type of JAX's arrays that hold numbers; what is traced has another. (`isinstance` takes longer than all.)"""
    import jax

    return type(jax.numpy.zeros(0))


def _unpacked(arrays: Sequence[Any], shapes: Shapes) -> list[Any]:
    """The leaves again."""
    of_shape = {shape: iter(array) for shape, array in zip(dict.fromkeys(shapes), map(list, arrays), strict=True)}
    return [next(of_shape[shape]) for shape in shapes]


def stored(make: Callable[[], Callable[..., Any]], trees: tuple[Any, ...], result: Any) -> Callable[..., Any]:
    """The program that `make` makes, over these trees packed: from a file, or compiled now.

    `make` is a function of a module, or a `functools.partial` of one; `result` has the structure of what its program
    returns. The arrays of each tree are one argument.
    """
    import jax

    shapes = tuple(own for tree in trees if (own := packed(tree)[2]) is not None)
    if len(shapes) < len(trees):
        raise ValueError("a tree has leaves that are no arrays of float32; expected these alone")
    found = _kept(make, trees, shapes, result)
    return found or jax.jit(_of_packed(make(), trees, shapes), compiler_options={**COMPILER_OPTIONS["gradient"]})


def _kept(make: Callable[..., Any], trees: tuple[Any, ...], shapes: tuple[Shapes, ...], result: Any) -> Any:
    """The program of a file, which is written if need be; or None."""
    import jax

    folder = _folder()
    own = all(law.__module__.startswith("costmodel.") for laws in COLLECTIVES.values() for law in laws.values())
    if folder is None or jax.default_backend() != "cpu" or not own:
        return None
    key, order = _key(make, trees, shapes), (make, jax.tree.map(lambda _: 0.0, trees), shapes)
    paths = {way: folder / f"{key}.{way}.bin" for way in _WAYS}
    there = (path for way, path in paths.items() if path.exists() or _compiled_apart(path, order, way))
    if (path := next(there, None)) is None:
        return None
    arguments = tuple([0.0] * len(set(some)) for some in shapes)
    return _loaded(path, jax.tree.structure((arguments, {})), jax.tree.structure(result))


def _folder() -> Path | None:
    """The user's own cache, if nobody else can write there."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "equipoise" / "programs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError:
        return None
    return folder if hasattr(os, "getuid") and about.st_uid == os.getuid() and not about.st_mode & 0o022 else None


def _key(make: Callable[..., Any], trees: tuple[Any, ...], shapes: tuple[Shapes, ...]) -> str:
    """Of what a program depends on: structure and shapes, options, versions, the processor, the sources."""
    import jax

    versions = jax.__version__, version("jaxlib"), sys.version, os.environ.get("XLA_FLAGS", "")
    asked = pickle.dumps(make), str(jax.tree.structure(trees)), shapes, COMPILER_OPTIONS
    package, precision = getattr(make, "func", make).__module__.partition(".")[0], jax.numpy.zeros(0).dtype
    sources = [_source(name) for name in sorted({"costmodel", package})]
    return hashlib.sha256(repr((asked, versions, precision, _processor(), sources)).encode()).hexdigest()[:32]


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "|".join(os.uname())
    return "|".join(
        sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    )


@functools.cache
def _source(package: str) -> str:
    """A digest of all modules of a package, or beside a module."""
    return digest_of_files(Path(sys.modules[package].__file__ or "").parent)


def _compiled_apart(path: Path, order: tuple[Any, ...], way: str) -> bool:
    """Whether another process has compiled the program, in one of `_WAYS`, and written it."""
    tried = path.with_suffix(".tries")
    if (before := _number(tried)) >= TRIES:
        return False
    ended = _status_of_another(pickle.dumps((way, *order, str(path))), way)
    if ended is not None and not path.exists():
        by_chance = ended in (_LATE, -signal.SIGKILL, -signal.SIGTERM)
        with contextlib.suppress(OSError):
            tried.write_text(str(before + 1 if by_chance else TRIES))
    return path.exists()


def _number(file: Path) -> int:
    """What a file says; 0 without one."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _status_of_another(order: bytes, way: str) -> int | None:
    """How another process ended that was asked to compile; None where none could be started."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_WAYS[way]}".strip()
    places = os.pathsep.join(map(os.path.abspath, sys.path))
    settings = {"XLA_FLAGS": flags, "PYTHONPATH": places, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [
        sys.executable or "",  # none where Python is part of another program
        "-c",
        "from costmodel.evaluators.machine_code import compile_for_another; compile_for_another()",
    ]
    nowhere, own = subprocess.DEVNULL, {**os.environ, **settings}
    try:
        running = subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere)
        _COMPILING.append(running)
        running.communicate(order, MOST_S)
    except (OSError, subprocess.SubprocessError) as failed:
        end_compiling()
        return _LATE if isinstance(failed, subprocess.TimeoutExpired) else None
    return running.returncode


def end_compiling() -> None:
    """End the processes that compile for this one. (Where nobody does, they finish, and the next process finds it.)"""
    for running in _COMPILING:
        running.kill()


def compile_for_another() -> None:
    """Compile what the standard input asks for, and write it: what that other process runs."""
    import jax
    from jax.experimental import serialize_executable

    end = threading.Timer(MOST_S, os._exit, (_LATE,))
    end.daemon = True
    end.start()
    way, make, trees, shapes, path = pickle.load(sys.stdin.buffer)
    arguments = [
        [np.zeros((some.count(shape), *shape), np.float32) for shape in dict.fromkeys(some)] for some in shapes
    ]
    if way == "loops":
        program, options = loops.in_loops(make(), trees, shapes), {**loops.OPTIONS}
    else:
        program, options = _of_packed(make(), trees, shapes), {**COMPILER_OPTIONS["fused gradient"]}
    code = serialize_executable.serialize(jax.jit(program).lower(*arguments).compile(compiler_options=options))[0]
    with tempfile.NamedTemporaryFile(dir=Path(path).parent, delete=False) as file:
        file.write(code)
    os.replace(file.name, path)
    files = sorted(Path(path).parent.glob("*.*"), key=lambda each: each.stat().st_mtime)
    for old in files[:-KEPT]:
        old.unlink(missing_ok=True)


def _of_packed(program: Callable[..., Any], trees: tuple[Any, ...], shapes: tuple[Shapes, ...]) -> Callable[..., Any]:
    """`program` of trees as a program of their packed leaves."""
    import jax

    structures = [jax.tree.structure(tree) for tree in trees]

    def of_arrays(*arrays: Any) -> Any:
        return program(*map(jax.tree.unflatten, structures, map(_unpacked, arrays, shapes)))

    return of_arrays


def _loaded(path: Path, arguments: Any, result: Any) -> Any:
    """The program of a file; None, and no file any more, where it cannot be loaded."""
    import jax
    from jax.experimental import serialize_executable

    try:
        code, devices = path.read_bytes(), jax.devices()[:1]
        return serialize_executable.deserialize_and_load(code, arguments, result, execution_devices=devices)
    except Exception:  # whatever a file of another build or a broken one makes of it
        path.unlink(missing_ok=True)
        return None
