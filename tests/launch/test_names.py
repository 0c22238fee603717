"""Every written option is one that its framework has, with a value that it may have (golden/launch_options.toml)."""

import tomllib

import pytest

from costmodel.specs.loading import load_cluster
from optimize.launch.frameworks import FRAMEWORKS, VERSIONS, framework_at, launch
from tests.support import GOLDEN
from tests.support.files.launch_plans import plans

TABLE = tomllib.loads((GOLDEN / "launch_options.toml").read_text())
LEAST = 30
VERSIONED = [*((name, None) for name in FRAMEWORKS), *VERSIONS]
KINDS = {
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) in (int, float),
    "bool": lambda value: isinstance(value, bool),
    "flag": lambda value: value is True,
    "list": lambda value: isinstance(value, list),
    "tokens": lambda value: type(value) is int or isinstance(value, list),
    "text": lambda value: isinstance(value, str | list),
}


def table(name, version):
    return TABLE[name if version is None else f"{name}-{version}"]


@pytest.mark.parametrize(("name", "version"), VERSIONED)
def test_the_table_is_that_of_the_version_that_files_name(name, version):
    assert table(name, version)["version"] == framework_at(name, version).version


@pytest.mark.parametrize(
    ("name", "version", "cluster"), [*((*each, "h100") for each in VERSIONED), ("maxtext", None, "tpu-v5p")]
)
def test_written_options_exist_with_values_that_they_may_have(name, version, cluster):
    options, framework, count = table(name, version)["options"], framework_at(name, version), 0
    for plan, workload in plans(framework, cluster):
        settings = written(framework, launch(name, plan, workload, load_cluster(cluster, 64), version))
        wrong = {option: value for option, value in settings.items() if not allowed(options, option, value)}
        assert wrong == {}, plan
        count += 1
    assert count >= LEAST


def written(framework, text):
    return next(settings for _, settings in framework.parse(text) if settings)


def allowed(options, name, value):
    kind = options.get(name)
    if kind is None or value is None:
        return kind is not None
    words = value if isinstance(value, list) and isinstance(kind, list) else [value]
    return KINDS[kind](value) if isinstance(kind, str) else all(str(word) in kind for word in words)
