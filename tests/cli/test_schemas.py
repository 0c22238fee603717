"""What `--json` prints is what docs/schemas says: real answers are valid, and no key at the top is left out."""

import json

import jsonschema
import pytest

from tests.support.schemas import FOLDER, QUICK, SLOW, answer, schema_of


def _check(name, words, folder):
    schema, told = json.loads((FOLDER / f"{name}.json").read_text()), answer(words, folder)
    jsonschema.validate(told, schema)
    assert told.keys() <= schema["properties"].keys()


@pytest.mark.parametrize("name", QUICK)
def test_answers_are_as_documented(name, tmp_path):
    for words in QUICK[name]:
        _check(name, words, tmp_path)


@pytest.mark.parametrize(("name", "words"), [(name, words) for name in SLOW for words in SLOW[name]])
def test_slow_answers_are_as_documented(name, words, tmp_path):
    _check(name, words, tmp_path)


def test_a_schema_refuses_other_answers():
    schema = schema_of("explain", [{"step_s": 1.5, "terms": {"a": 1.0}, "plan": None}, {"step_s": 2, "terms": {}}])
    jsonschema.validate({"step_s": 1, "terms": {"b": 2.0}}, schema)
    for wrong in ({"step_s": "1", "terms": {}}, {"terms": {}}, {"step_s": 1.0, "terms": {"b": "x"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
