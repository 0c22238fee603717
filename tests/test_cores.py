"""Processors that a process may use, by quotas of control groups as they are written in both versions."""

import os

import pytest

from optimize import cores


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        ("0::/", {}, 8),
        ("0::/", {"cpu.max": "max 100000\n"}, 8),
        ("0::/", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/user/job", {"user/job/cpu.max": "max 100000", "user/cpu.max": "300000 100000"}, 3),
        ("0::/of/the/host", {"cpu.max": "150000 100000"}, 1),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("3:cpuset:/\n4:cpu,cpuacct:/job", {"cpu,cpuacct/job/cpu.cfs_quota_us": "-1"}, 8),
        (
            "4:cpu,cpuacct:/job\n0::/",
            {"cpu,cpuacct/job/cpu.cfs_quota_us": "400000", "cpu,cpuacct/job/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("0::/", {"cpu.max": "what?"}, 8),
    ],
)
def test_a_quota_counts_beside_the_affinity(groups, files, found, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores.usable(tmp_path) == found


def test_where_nothing_is_told_the_machine_counts(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores.usable(tmp_path) == (os.cpu_count() or 1)
