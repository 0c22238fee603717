"""By night: files of some thirty plans and more for each framework, through the parsers that the frameworks have."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from costmodel.specs.loading import load_cluster
from optimize.launch.frameworks import FRAMEWORKS, launch
from tests.support.files.launch_plans import BATCH, plans

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("EQUIPOISE_LAUNCH_PYTHON", ROOT / ".venv-launch/bin/python"))
CHECKED = ("deepspeed", "torchtitan", "megatron-bridge", "megatron")
MOST = 60
"""Plans of each framework, evenly out of all."""
DEGREES = ("tensor", "context", "pipeline", "virtual_stages", "microbatch", "zero_stage", "accelerators")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the extra `launch` is not installed beside (.ci/nightly does it)"
)


@pytest.mark.parametrize("name", CHECKED)
def test_the_real_parser_accepts_what_is_written(name):
    framework, cluster = FRAMEWORKS[name], load_cluster("h100", 64)
    asked = [
        (plan, [name, launch(name, plan, workload, cluster), {key: getattr(plan, key) for key in DEGREES}])
        for plan, workload in plans(framework)
        if plan.precision != "fp16"
    ]
    asked = asked[:: max(1, len(asked) // MOST)]
    assert len(asked) >= 30
    content = json.dumps([[*each[:2], each[2] | {"batch": BATCH}] for _, each in asked])
    script = str(Path(__file__).parent / "real/check.py")
    done = subprocess.run([PYTHON, script], input=content, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    wrong = {str(plan): said for (plan, _), said in zip(asked, json.loads(done.stdout), strict=True) if said}
    assert wrong == {}
