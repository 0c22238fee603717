"""The command line as a user and as a program meet it: exit statuses, one-line errors, one JSON object, files."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from optimize import cli
from optimize.cli.run import COMMANDS
from tests.support import ROOT
from tests.support.commands import answer, ask
from tests.support.files.bad_inputs import BAD_INPUTS

EXPLAIN = ("explain", "--model", "llama3-8b", "--cluster", "h100", "--accelerators", "64")
FIGURES = {f"{name}.{kind}" for name in ("step_time", "memory", "roofline", "timeline") for kind in ("png", "svg")}
FILES = FIGURES | {"trace.json", "result.json", "index.html"}


def refusal(capsys, *words: object, status: int = 2) -> str:
    found, out, err = ask(capsys, *words)
    assert (found, out) == (status, ""), err
    assert err.count("\n") == 1
    assert err.startswith("equipoise: ")
    assert err.strip().isprintable()
    return err


def process(*words: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-m", "optimize.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


# answers


def test_json_keys_and_sums(capsys):
    told = answer(capsys, *EXPLAIN, "--tensor", "4", "--pipeline", "2", "--sequence-parallel")
    assert told["schema"] == 1
    assert told["status"] == "ok"
    assert {"message", "inputs", "versions", "seconds", "step_s", "tokens_per_s", "mfu", "plan"} <= told.keys()
    assert sum(term["exposed_s"] for term in told["terms"]) == pytest.approx(told["step_s"], rel=1e-12)
    assert all(term.keys() == {"name", "exposed_s", "hidden_s", "limited_by"} for term in told["terms"])
    memory = told["memory"]
    assert {"peak_bytes", "limit_bytes", "fits", "stages"} <= memory.keys()
    assert len(memory["stages"]) == 2
    assert max(sum(stage.values()) for stage in memory["stages"]) == pytest.approx(memory["peak_bytes"], rel=1e-12)
    assert memory["fits"] is (memory["peak_bytes"] <= memory["limit_bytes"])
    assert told["violations"] == []
    assert "dense 16-bit peak" in told["mfu_convention"]
    assert told["elasticities"]["accelerator.peak_16bit_flop_per_s"] < 0
    assert told["plan"]["data"] == 8
    assert told["inputs"]["accelerators"] == 64
    assert told["tokens_per_s"] == pytest.approx(512 * 8192 / told["step_s"])


def test_a_plan_that_does_not_fit_is_an_answer(capsys):
    told = answer(capsys, "explain", "--model", "llama3-70b", "--cluster", "h100", "--tensor", "8", "--pipeline", "1")
    assert told["memory"]["fits"] is False
    assert "does not fit" in told["message"]


def test_an_answer_is_a_plan_again(capsys, tmp_path):
    first = answer(capsys, *EXPLAIN)
    (tmp_path / "answer.json").write_text(json.dumps(first))
    (tmp_path / "plan.json").write_text(json.dumps(first["plan"]))
    for name in ("answer.json", "plan.json"):
        again = answer(capsys, *EXPLAIN[:5], "--plan", tmp_path / name)
        assert again["plan"] == first["plan"]
        assert again["step_s"] == first["step_s"]
        assert again["inputs"]["plan_chosen"] is None


def test_flags_over_config_over_plan(capsys, tmp_path):
    (tmp_path / "plan.toml").write_text("tensor = 2\npipeline = 2\nmicrobatch = 2\nzero_stage = 3\n")
    (tmp_path / "job.toml").write_text(
        f'model = "llama3-8b"\ncluster = "h100"\naccelerators = 32\nplan = "{tmp_path}/plan.toml"\ntensor = 4\n'
    )
    told = answer(capsys, "explain", "--config", tmp_path / "job.toml", "--zero-stage", "2", "--batch", "256")
    plan, inputs = told["plan"], told["inputs"]
    assert (plan["tensor"], plan["pipeline"], plan["microbatch"], plan["zero_stage"], plan["data"]) == (4, 2, 2, 2, 4)
    assert (inputs["accelerators"], inputs["batch"]) == (32, 256)
    assert "plan.toml" in inputs["plan_from"]
    assert "command line" in inputs["plan_from"]


def test_accelerators_follow_from_a_whole_plan(capsys):
    degrees = ("--data", "2", "--tensor", "8", "--pipeline", "4", "--no-overlap-data")
    told = answer(capsys, "explain", "--model", "llama3-8b", "--cluster", "h100", *degrees)
    assert told["inputs"]["accelerators"] == 64
    assert told["plan"]["overlap_data"] is False


def test_stage_layers(capsys):
    told = answer(capsys, *EXPLAIN, "--tensor", "1", "--pipeline", "4", "--stage-layers", "7", "9", "9", "7")
    assert told["plan"]["stage_layers"] == [7, 9, 9, 7]


def test_models_and_clusters(capsys):
    models = {model["name"]: model for model in answer(capsys, "models")["models"]}
    assert models["llama3-8b"]["parameters"] == 8_030_261_248
    clusters = {cluster["name"]: cluster for cluster in answer(capsys, "clusters")["clusters"]}
    assert clusters["gb200-nvl72"]["tiers"][0]["size"] == 72
    assert {"accelerator", "tiers"} <= clusters["h100"].keys()
    for command, word in (("models", "8.03 B"), ("clusters", "nvlink of 72")):
        status, out, _ = ask(capsys, command)
        assert status == 0
        assert word in out


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=str)
def test_help_has_examples(capsys, command):
    assert cli.run([*command, "--help"]) == 0
    told = capsys.readouterr().out
    assert "examples:" in told
    assert "--with FILE.py" in told
    assert f"  equipoise {' '.join(command)}" in told


# refusals


@pytest.mark.parametrize("bad", BAD_INPUTS, ids=lambda bad: bad.name)
def test_wrong_files_and_names(bad, capsys, tmp_path):
    words = {"--model": "llama3-8b", "--cluster": "h100"} | {f"--{bad.kind}": bad.write(tmp_path)}
    words |= {f"--{name}": str(value) for name, value in bad.arguments}
    told = refusal(capsys, "explain", *(f"{flag}={value}" for flag, value in words.items()))
    for word in bad.words:
        if not bad.arguments or "`" in word:
            assert word in told
    assert "expected" in told or "did you mean" in told or "not valid" in told or "given twice" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tensor", "abc"), ("command line", "--tensor", "'abc'", "an integer")),
        (("--tensor", "8.5"), ("command line", "--tensor", "'8.5'", "an integer")),
        (("--tensor=-8",), ("command line", "`tensor` is -8", "from 1")),
        (("--tensor",), ("command line", "--tensor", "no value")),
        (("--recompute-share", "nan"), ("command line", "`recompute_share` is nan", "from 0 to 1")),
        (("--schedule", "1f1b"), ("command line", "--schedule", "'1f1b'", "one_f_one_b")),
        (("--zero-stage", "4"), ("command line", "--zero-stage", "'4'", "0, 1, 2, 3")),
        (("--stage-layers", "3", "x"), ("command line", "--stage-layers", "'x'")),
        (("--tensro", "8"), ("command line", "--tensro", "did you mean --tensor")),
        (("llama",), ("command line", "'llama'", "--name value")),
        (("--accelerators", "0"), ("command line", "`accelerators` is 0")),
        (("--tensor", "8", "--pipeline", "3"), ("command line", "`accelerators` is 64", "8 x 1 x 3 = 24")),
        (("--tensor", "8", "--pipeline", "4", "--data", "4"), ("command line", "is 128", "64 accelerators")),
        (("--tensor", "3"), ("`tensor` is 3", "64 accelerators")),
        (("--tensor", "64", "--pipeline", "1"), ("command line", "`tensor` is 64", "32 heads")),
        (("--pipeline", "1", "--batch", "7"), ("`data` x `microbatch`", "7 sequences")),
        (("--config", "absent.toml"), ("command line", "`config`", "absent.toml", "no such file")),
        (("--config", ""), ("command line", "`config`: '': not a file")),
        (("--out", __file__), ("command line", "`out`", "a directory")),
        (("--pipeline", "1000000", "--tensor", "1"), ("command line", "`pipeline` is 1000000", "100000")),
    ],
)
def test_wrong_flags(capsys, words, said):
    told = refusal(capsys, *EXPLAIN, *words)
    for word in said:
        assert word in told


def test_the_place_is_the_file_that_says_it(capsys, tmp_path):
    (tmp_path / "job.toml").write_text('model = "llama3-8b"\ncluster = "h100"\ntensor = 8\npipline = 2\n')
    assert f"config ({tmp_path}/job.toml): `pipline`" in refusal(capsys, "explain", "--config", tmp_path / "job.toml")
    (tmp_path / "job.toml").write_text('model = "lama3-8b"\ncluster = "h100"\n')
    assert f"config ({tmp_path}/job.toml): `model`" in refusal(capsys, "explain", "--config", tmp_path / "job.toml")


def test_missing_inputs_and_commands(capsys):
    assert "`model` is missing" in refusal(capsys, "explain")
    assert "`cluster` is missing" in refusal(capsys, "explain", "--model", "llama3-8b")
    assert "did you mean explain" in refusal(capsys, "exlain")


def test_a_refusal_in_json(capsys):
    status, out, err = ask(capsys, *EXPLAIN, "--tensor", "5", "--pipeline", "3", "--data", "1", "--json")
    told = json.loads(out)
    assert status == 2
    assert told["status"] == "bad_input"
    assert told["message"] in err
    assert len(told["violations"]) > 1


def test_nothing_fits(capsys):
    told = refusal(capsys, "explain", "--model", "llama3-405b", "--cluster", "h100", "--accelerators", "8", status=3)
    assert "does not fit on 8 h100" in told
    assert "it fits with --accelerators 128 --recompute full" in told
    status, out, _ = ask(capsys, "explain", "--model=llama3-70b", "--cluster=h100", "--accelerators=1", "--json")
    assert status == 3
    assert json.loads(out)["status"] == "infeasible"


# files


def test_out_writes_result_and_figures(capsys, tmp_path):
    told = answer(capsys, *EXPLAIN, "--out", tmp_path / "deep" / "result")
    assert {path.name for path in (tmp_path / "deep" / "result").iterdir()} == FILES
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["result"]
    written = json.loads((tmp_path / "deep" / "result" / "result.json").read_text())
    assert {key: written[key] for key in ("step_s", "inputs", "plan")} == {
        key: told[key] for key in ("step_s", "inputs", "plan")
    }
    assert {"equipoise", "python", "numpy"} <= written["versions"].keys()
    assert (tmp_path / "deep" / "result" / "memory.png").read_bytes().startswith(b"\x89PNG")
    ask(capsys, *EXPLAIN, "--tensor", "8", "--out", tmp_path / "deep" / "result")  # again, over the first
    assert json.loads((tmp_path / "deep" / "result" / "result.json").read_text())["plan"]["tensor"] == 8
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["result"]


@pytest.mark.parametrize("written", [0, 3])
def test_an_interruption_leaves_nothing(capsys, tmp_path, monkeypatch, written):
    """Ctrl-C while the first or the fourth file is being written."""
    seen, write_bytes = [], Path.write_bytes

    def interrupt(path, data):
        seen.append(path)
        if len(seen) > written:
            raise KeyboardInterrupt
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", interrupt)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ending:
        cli.main([*EXPLAIN, "--out", str(tmp_path / "result")])
    assert ending.value.code == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_files_are_written_leaves_none_and_tells_the_answer(tmp_path, sent):
    script = (
        "import sys, time, pathlib, optimize.cli\n"
        "write = pathlib.Path.write_bytes\n"
        "def slowly(path, data):\n    write(path, data[:9]); print('half', flush=True); time.sleep(60)\n"
        "pathlib.Path.write_bytes = slowly\n"
        "optimize.cli.main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", script, *EXPLAIN, "--out", str(tmp_path / "result")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"half\n"
        running.send_signal(sent)
        answer = running.stdout.read()
        assert running.wait(timeout=20) == 130
    assert b"step " in answer
    assert list(tmp_path.iterdir()) == []


# processes


def test_processes_end_with_their_status():
    good = process(*EXPLAIN, "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["status"] == "ok"
    for words in (("explain", "--model", "lama3-8b", "--cluster", "h100"), (*EXPLAIN, "--tensor", "x"), ("nothing",)):
        bad = process(*words)
        assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
        assert "Traceback" not in bad.stderr


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m optimize.cli models --json | head -1"
    told = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert (told.stdout, told.stderr) == ("{\n", "")


def imported(told: str) -> set[str]:
    """Packages in the report of `-X importtime`."""
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in told.splitlines() if "import time" in line}


def test_explain_imports_what_it_needs_alone():
    loaded = imported(process(*EXPLAIN, python=("-X", "importtime")).stderr)
    assert "numpy" in loaded
    assert loaded.isdisjoint({"jax", "jaxlib", "matplotlib", "scipy", "optax", "tyro"})
    loaded = imported(process("models", python=("-X", "importtime")).stderr)
    assert loaded.isdisjoint({"jax", "jaxlib", "matplotlib", "numpy"})


def seconds(*command: str) -> float:
    """Of processor time: what else the machine does stays out of the ratios."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_start_up_time(tmp_path):
    """At most twice `import jax`, and four times with figures; measured: 0.7 and 2.4 times."""
    rounds = [
        (
            seconds("-c", "import jax"),
            seconds("-m", "optimize.cli", *EXPLAIN),
            seconds("-m", "optimize.cli", *EXPLAIN, "--out", str(tmp_path / "result")),
        )
        for _ in range(3)
    ]
    jax_s, explain_s, out_s = (min(column) for column in zip(*rounds, strict=True))
    assert explain_s <= 2 * jax_s
    assert out_s <= 4 * jax_s


def test_no_colour_in_a_file():
    environment = os.environ | {"COLUMNS": "100"}
    command = [sys.executable, "-m", "optimize.cli", *EXPLAIN]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert "\x1b" not in told.stdout


def test_messages_that_name_what_was_meant(capsys, tmp_path):
    for model, meant in (("dlrm", "dlrm-criteo"), ("deepseek-ai/DeepSeek-V3", "deepseek-v3")):
        assert f"did you mean {meant}?" in refusal(capsys, "explain", "--model", model, "--cluster", "h100")
    assert "did you mean a100-40gb" in refusal(capsys, "explain", "--model", "gpt3-175b", "--cluster", "a100")
    (tmp_path / "job.toml").write_text('model = "llama3-8b"\ncluster = "h100"\ntensor = 2\n')
    told = refusal(capsys, "plan", "--config", tmp_path / "job.toml")
    assert '`tensor` is a field of a plan; expected it in `fix`, as in fix = "tensor=..."' in told
    (tmp_path / "rows.csv").write_text("machine,howmany\nh100,8\n")
    assert "`equipoise predict --columns` lists them" in refusal(
        capsys, "predict", tmp_path / "rows.csv", "--out", "x.csv"
    )


def test_the_size_of_the_model_is_told(capsys):
    """Mixtral 8x7B: 46.7 B, of which 12.9 B work on a token."""
    words = ("explain", "--model", "mixtral-8x7b", "--cluster", "h100", "--accelerators", "32")
    told = answer(capsys, *words)
    assert (told["parameters"], round(told["active_parameters"] / 1e9, 1)) == (46_702_792_704, 12.9)
    assert "46.7 B parameters, 12.9 B of them active at a token" in " ".join(ask(capsys, *words)[1].split())
