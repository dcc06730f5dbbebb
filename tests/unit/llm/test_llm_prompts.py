"""Every prompt file renders, ends with the question, and has a schema that a grammar can hold a model to."""

import json

import jinja2
import pytest

from kgrag_gpu.prompts.registry import PROMPTS, make_request, sampling_for
from kgrag_gpu.prompts.templates import prompt_names, prompts_hash, schema_text

VALUES = {
    "question": "Who wrote it?",
    "options": ["first", "second"],
    "width": 3,
    "entity": "E",
    "path": "A -> B",
    "facts": ["a fact"],
    "passages": ["T: text"],
    "why": "the writer",
    "steps": ["a step"],
    "parts": ["a sub-question"],
    "title": "T",
    "text": "text",
    "sentences": ["One.", "Two."],
    "entities": ["A", "B"],
}
STRUCTURED = sorted(kind for kind, prompt in PROMPTS.items() if prompt.schema)


def test_every_file_is_registered():
    assert set(prompt_names()) == {*PROMPTS, "retry"}


@pytest.mark.parametrize("kind", sorted(PROMPTS))
def test_prompt_renders_instructions_first_and_the_question_last(kind):
    request = make_request(kind, "q1", 2, **VALUES)
    assert [message.role for message in request.messages] == ["system", "user"]
    other = make_request(kind, "q2", 2, **{**VALUES, "question": "Another?", "facts": [], "title": "U"})
    assert (
        request.messages[0] == other.messages[0] or kind == "cot"
    )  # the shared prefix does not depend on the question
    if kind not in ("openie_entities", "openie_triples", "ircot_step"):
        assert request.messages[1].content.endswith("Question: Who wrote it?")


@pytest.mark.parametrize("kind", STRUCTURED)
def test_prompt_example_and_schema_agree_on_the_keys(kind):
    schema = json.loads(schema_text(PROMPTS[kind].schema))
    system = make_request(kind, **VALUES).messages[0].content
    assert "title" not in schema
    assert all(f'"{name}"' in system for name in schema["properties"])


@pytest.mark.parametrize("kind", STRUCTURED)
def test_prompt_schema_compiles_to_a_grammar(kind):
    llguidance = pytest.importorskip("llguidance")
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema_text(PROMPTS[kind].schema))
    assert llguidance.LLMatcher.validate_grammar(grammar) == ""


def test_prompt_without_a_value_is_an_error_of_ours():
    with pytest.raises(jinja2.UndefinedError):
        make_request("answer", question="Q?")


def test_prompt_text_is_not_escaped():
    request = make_request("answer", question="Is \"<b>\" & 'x' ok?", passages=["北京 <i>"])
    assert request.messages[1].content == "[1] 北京 <i>\n\nQuestion: Is \"<b>\" & 'x' ok?"


def test_prompts_hash_is_stable_within_a_version():
    assert prompts_hash() == prompts_hash()
    assert len(prompts_hash()) == 16


def test_sampling_for_sets_only_the_limit():
    from kgrag_gpu.llm.records import Sampling

    base = Sampling(max_tokens=1, temperature=0.5, seed=3, stop=("x",))
    assert sampling_for("answer", base) == Sampling(32, 0.5, 1.0, 3, ("x",))
