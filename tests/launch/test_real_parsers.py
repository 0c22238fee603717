"""By night: files of some thirty plans and more for each framework, through the parsers that the frameworks have."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from costmodel.inputs import Plan, Workload, layers
from costmodel.specs.loading import load_cluster
from optimize.launch.frameworks import FRAMEWORKS, launch
from tests.support.files.launch_plans import BATCH, plans

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("EQUIPOISE_LAUNCH_PYTHON", ROOT / ".venv-launch/bin/python"))
CHECKOUTS = {"maxtext": "EQUIPOISE_MAXTEXT", "megatron": "EQUIPOISE_MEGATRON_LM"}
CHECKED = ("deepspeed", "torchtitan", "megatron-bridge", "megatron")
MOST = 60
"""Plans of each framework, evenly out of all."""
DEGREES = ("tensor", "context", "pipeline", "virtual_stages", "microbatch", "zero_stage", "accelerators")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the extra `launch` is not installed beside (.ci/nightly does it)"
)


@pytest.mark.parametrize("name", CHECKED)
def test_the_real_parser_accepts_what_is_written(name):
    assert _refused(name, "check.py") == {}


@pytest.mark.parametrize("name", CHECKOUTS)
def test_a_checkout_accepts_what_is_written(name):
    """For frameworks in no registry: EQUIPOISE_MAXTEXT is the `src` of its checkout, EQUIPOISE_MEGATRON_LM its root."""
    folder = os.environ.get(CHECKOUTS[name])
    if folder is None:
        pytest.skip(f"{CHECKOUTS[name]} is not set")
    assert _refused(name, "sources.py", name, folder) == {}


def _refused(name: str, script: str, *words: str) -> dict[str, str]:
    """Plans whose files the parser refuses, and what it says."""
    framework, cluster = FRAMEWORKS[name], load_cluster("h100", 64)
    asked = [
        (plan, [name, launch(name, plan, workload, cluster), _facts(plan, workload)])
        for plan, workload in plans(framework)
        if plan.precision != "fp16"
    ]
    asked = asked[:: max(1, len(asked) // MOST)]
    assert len(asked) >= 30
    content = json.dumps([each for _, each in asked])
    command = [PYTHON, str(Path(__file__).parent / "real" / script), *words]
    done = subprocess.run(command, input=content, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return {str(plan): said for (plan, _), said in zip(asked, json.loads(done.stdout), strict=True) if said}


def _facts(plan: Plan, workload: Workload) -> dict[str, int]:
    return {key: getattr(plan, key) for key in DEGREES} | {"batch": BATCH, "layers": layers(workload)}
