"""BubbleRAG with scripted replies: groups that the model names, subgraphs that it grows, replies of no use."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import PASSAGES, ScriptedModel, choose_with, passage_kg, question, resources_of, triple_kg

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.bubble_rag import BubbleRag, BubbleRagConfig

BORN = "Where was the director of Silver Harbour born?"
OTHER = "Where was the director of Copper Gate born?"
HIDDEN = "Where was the woman behind that film about a harbour born?"
NONE = '{"add":[]}'


def groups(*rows: tuple[str, str, str]):
    body = ",".join(f'{{"text":"{text}","kind":"{kind}","specific":"{specific}"}}' for text, kind, specific in rows)
    return lambda user: f'{{"groups":[{body}]}}'


FILM = ("Silver Harbour", "entity", "Silver Harbour")


def run(tmp_path, scripted, *texts, kg=None, **config):
    engine = Engine(scripted) if scripted else None
    values = {"coverage": "groups", **config}
    method = BubbleRag(BubbleRagConfig.model_validate(values), resources_of(kg or triple_kg(), tmp_path, engine))
    return method.retrieve([question(text, number) for number, text in enumerate(texts)]), engine


def edges_of(found) -> list[set[str]]:
    return [{step.text for step in path.steps} for path in found.evidence]


def test_bubble_latent_concept_is_an_anchor_that_the_question_does_not_name(tmp_path):
    named = groups(FILM, ("director", "relation", "directed by"), ("born", "relation", "born in"))
    (found,), _ = run(tmp_path, ScriptedModel({"anchor_groups": named, "grow": lambda user: NONE}), HIDDEN)
    (without,), _ = run(tmp_path, None, HIDDEN)
    assert [a.name for a in found.anchors] == ["Silver Harbour"]
    assert without.anchors == ()
    assert {(g["text"], g["kind"]) for g in found.trace["groups"]} == {
        ("Silver Harbour", "entity"), ("director", "relation"), ("born", "relation"),
    }  # fmt: skip
    assert found.answer is None  # the reader answers from the facts


def test_bubble_described_entity_is_matched_by_the_nearest_nodes(tmp_path):
    named = groups(("the Ystad place", "entity", "Ystad"), ("directed", "relation", "directed by"))
    (found,), _ = run(tmp_path, ScriptedModel({"anchor_groups": named, "grow": lambda user: NONE}), "Who worked there?")
    assert [a.name for a in found.anchors] == ["Ystad"]


def test_bubble_name_that_the_model_leaves_out_stays_a_group(tmp_path):
    named = groups(("born", "relation", "born in"))
    (found,), _ = run(tmp_path, ScriptedModel({"anchor_groups": named, "grow": lambda user: NONE}), BORN)
    assert "Silver Harbour" in {a.name for a in found.anchors}


def test_bubble_growth_adds_what_the_model_picks_and_stops_when_it_picks_none(tmp_path):
    def grow(user: str) -> str:
        before, after = user.split("Neighbouring facts:")
        if "born in Ystad" in before or "directed by Ada" not in before:
            return NONE
        return choose_with("add", "Ada Lindqvist born in Ystad")(after)

    named = groups(FILM, ("director", "relation", "directed by"))
    scripted = ScriptedModel({"anchor_groups": named, "grow": grow})
    (found,), _ = run(tmp_path, scripted, BORN, growth={"num_subgraphs": 1, "max_hops": 3})
    (small,), _ = run(tmp_path, ScriptedModel({"anchor_groups": named}), BORN, growth={"num_subgraphs": 0})
    assert "Ada Lindqvist born in Ystad" in edges_of(found)[0]
    assert edges_of(found)[0] - edges_of(small)[0] == {"Ada Lindqvist born in Ystad"}
    assert edges_of(found)[1:] == edges_of(small)[1:]
    assert found.trace["candidates"][0]["grown"] == 1
    assert scripted.kinds().count("grow") == 2
    assert "Ystad" in {entity.name for entity in found.evidence_entities}


def test_bubble_growth_is_bounded_by_hops_and_by_facts(tmp_path):
    scripted = ScriptedModel({"anchor_groups": groups(FILM), "grow": lambda user: '{"add":[1,2,3,4,5]}'})
    growth = {"num_subgraphs": 1, "max_hops": 2, "max_added": 1}
    (found,), _ = run(tmp_path, scripted, BORN, growth=growth)
    assert found.trace["candidates"][0]["grown"] == 2


def test_bubble_unreadable_replies_leave_what_stands_without_a_model(tmp_path):
    (found,), engine = run(tmp_path, ScriptedModel({}), BORN)
    (without,), _ = run(tmp_path, None, BORN)
    assert edges_of(found) == edges_of(without)
    assert found.trace["groups"] == without.trace["groups"]
    assert {failure.kind for failure in engine.take_failures()} == {"anchor_groups", "grow"}


def test_bubble_use_model_off_asks_nothing(tmp_path):
    scripted = ScriptedModel({})
    (found,), _ = run(tmp_path, scripted, BORN, use_model=False)
    (without,), _ = run(tmp_path, None, BORN)
    assert scripted.asked == []
    assert found == without


def test_bubble_batch_asks_each_kind_once_a_hop_and_finds_as_alone(tmp_path):
    def named(user: str) -> str:
        film = "Silver Harbour" if "Silver" in user else "Copper Gate"
        return groups((film, "entity", film), ("director", "relation", "directed by"))(user)

    def script():
        return {"anchor_groups": named, "grow": choose_with("add", "born in Ystad", "born in Aarhus")}

    both, _ = run(tmp_path, ScriptedModel(script()), BORN, OTHER)
    alone = [run(tmp_path, ScriptedModel(script()), text)[0][0] for text in (BORN, OTHER)]
    assert [r.evidence for r in both] == [r.evidence for r in alone]
    assert [r.trace for r in both] == [r.trace for r in alone]


def test_bubble_over_passages_ranks_by_the_model_groups(tmp_path):
    kg = passage_kg(PASSAGES)
    scripted = ScriptedModel(
        {"anchor_groups": groups(("Ada Lindqvist", "entity", "Ada Lindqvist")), "grow": lambda user: NONE}
    )
    (found,), _ = run(tmp_path, scripted, HIDDEN, kg=kg, num_base=0)
    assert [a.name for a in found.anchors] == ["Ada Lindqvist"]
    assert kg.passages[found.passage_ids[0]].title in {"Ada Lindqvist", "Silver Harbour"}
