"""Commands asked in this process."""

import json
from typing import Any

from optimize import cli


def ask(capsys, *words: object) -> tuple[int, str, str]:
    """Status, standard output and standard error of one command."""
    status = cli.run([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def answer(capsys, *words: object) -> Any:
    """The JSON of a command that succeeds and says nothing beside it."""
    status, out, err = ask(capsys, *words, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)
