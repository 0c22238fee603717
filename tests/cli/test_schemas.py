"""What `--json` prints is what docs/schemas says: real answers are valid, and no key at the top is left out."""

import itertools

import jsonschema
import pytest

from tests.support.schemas import QUICK, SLOW, answer, merged, schema, schema_of


def _check(name, words, folder):
    known, told = schema(name), answer(words, folder)
    jsonschema.validate(told, known)
    assert told.keys() <= known["properties"].keys()


@pytest.mark.parametrize("name", QUICK)
def test_answers_are_as_documented(name, tmp_path):
    for words in QUICK[name]:
        _check(name, words, tmp_path)


@pytest.mark.parametrize(("name", "words"), [(name, words) for name in SLOW for words in SLOW[name]])
def test_slow_answers_are_as_documented(name, words, tmp_path):
    _check(name, words, tmp_path)


def test_a_schema_refuses_other_answers():
    found = schema_of("explain", [{"step_s": 1.5, "terms": {"a": 1.0}, "plan": None}, {"step_s": 2, "terms": {}}])
    jsonschema.validate({"step_s": 1, "terms": {"b": 2.0}}, found)
    for wrong in ({"step_s": "1", "terms": {}}, {"terms": {}}, {"step_s": 1.0, "terms": {"b": "x"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, found)


def test_nothing_that_was_known_is_forgotten():
    """Of all pairs of answers, whatever comes later: both are valid, as by a schema of the two together."""
    answers = (
        {"step_s": 1, "range": None, "plans": [], "terms": {}},
        {"step_s": 1.5, "range": {"best": {"n": 8}}, "plans": [{"a": 1, "b": "x"}], "terms": {"a": 1.0}},
        {"step_s": 2, "range": {"best": None}, "plans": [{"a": None}], "terms": {"a": None}, "more": True},
    )
    for pair in itertools.permutations(answers, 2):
        one, other = ([schema_of("plan", [told]) for told in pair], schema_of("plan", pair))
        grown = merged(*one)
        for told in pair:
            jsonschema.validate(told, grown)
        assert grown.keys() == other.keys()
        assert set(grown["required"]) == set(other["required"])
        assert {name: of.get("type") for name, of in grown["properties"].items()} == {
            name: of.get("type") for name, of in other["properties"].items()
        }
    known = schema("plan")
    assert merged(known, known) == known
