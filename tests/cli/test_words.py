"""Words of the command line against tyro's own parser of the same options, which `--help` shows."""

import random

import pytest
import tyro

from costmodel.specs import SpecError
from optimize.cli import help as shown
from optimize.cli import words
from optimize.cli.explain import EXPLAIN
from optimize.cli.predict import PREDICT
from tests.support import often

COMMANDS = {"explain": EXPLAIN, "predict": PREDICT}
WORDS = (
    *("--model", "--batch", "--tokens", "--margin=0.5", "--zero-stage", "--zero_stage=2", "--schedule", "--json"),
    *("--overlap-data", "--no-overlap-data", "--stage-layers", "--stage_layers=3", "--rows", "--explain", "--columns"),
    *("8", "-3", "1_000", "0.5", "-.5", "-inf", "nan", "1e12", "interleaved", "1f1b", "llama3-8b", "None", "", "a=b"),
    *("--json=true", "--model=--batch", "--bogus", "-x", "-", " 7", "٣", "True"),
)


@pytest.mark.parametrize("seed", range(often(by_day=2, by_night=40)))
def test_what_is_read_is_what_tyro_reads(seed):
    chance, read = random.Random(seed), 0
    for _ in range(50):
        name = chance.choice([*COMMANDS])
        line = chance.choices(WORDS, k=chance.randint(0, 5))
        try:
            ours = words.read(COMMANDS[name], name, line)
        except SpecError:
            continue
        read += 1
        assert _fields(ours) == _fields(_by_tyro(COMMANDS[name], line)), line
    assert read > 5


def _by_tyro(command, line):
    line = [command.first, *line] if command.first and line and not line[0].startswith("-") else line
    return tyro.cli(shown._options(command.request), args=line, console_outputs=False)


def _fields(request):
    return {name: repr(vars(value) if name == "degrees" else value) for name, value in vars(request).items()} | {
        "with_file": None
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--json=true"], "`--json` is 'true'; expected no value"),
        (["--no-json"], "'--no-json' is not an option of equipoise explain; did you mean --json?"),
        (["--model", "-x"], "`--model` has no value before '-x'; expected text"),
        (["--batch", "-infx"], "`--batch` has no value before '-infx'; expected an integer"),
        (["--stage-layers"], "`--stage-layers` has no value; expected integers, one for each stage"),
        (["\u2013model", "a"], "'\u2013model' is not an option of equipoise explain; did you mean --model?"),
        (
            ["\u2014batch=3"],
            "'\u2014batch=3' is not an option of equipoise explain; did you mean --batch or --microbatch?",
        ),
        (
            ["--seq", "4096"],
            "'--seq' is not an option of equipoise explain; did you mean --sequence or --sequence-parallel?",
        ),
        (["--batch", "None"], "`--batch` is 'None'; expected an integer"),
    ],
)
def test_refusals(line, said):
    with pytest.raises(SpecError) as refusal:
        words.read(EXPLAIN, "explain", line)
    assert str(refusal.value) == f"command line: {said}"


def test_values_that_look_like_flags():
    read = words.read(EXPLAIN, "explain", ["--model=--batch", "--margin", "-inf", "--batch", "2", "--batch=-3"])
    assert (read.model, read.margin, read.batch) == ("--batch", float("-inf"), -3)
