"""AnchorRAG without a model, over passages and over triples."""

import os
from pathlib import Path

import pytest
from anchor_rag_case import PASSAGES, anchor_rag, passage_kg, question, triple_kg

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.methods.anchor_rag import AnchorRag, AnchorRagConfig
from kgrag_gpu.types import Passage

BORN = "Where was the director of Silver Harbour born?"
COMPARE = "Were the directors of Silver Harbour and Copper Gate born in one country?"


def test_anchor_rag_over_passages_ranks_the_chain_first(tmp_path):
    (found,) = anchor_rag(passage_kg(), tmp_path).retrieve([question(BORN)])
    titles = [PASSAGES[p].title for p in found.passage_ids]
    assert set(titles[:2]) == {"Silver Harbour", "Ada Lindqvist"}
    assert len(titles) == len(set(titles)) == len(PASSAGES)
    assert list(found.passage_scores) == sorted(found.passage_scores, reverse=True)
    assert found.anchors[0].name == "Silver Harbour"
    assert found.answer is None


def test_anchor_rag_evidence_steps_are_the_kgs_edges(tmp_path):
    kg = passage_kg()
    (found,) = anchor_rag(kg, tmp_path).retrieve([question(BORN)])
    assert found.evidence
    for path in found.evidence:
        for step in path.steps:
            (passage,) = step.passage_ids
            assert step.text in kg.passages[passage].text
            if step.edge_id >= 0:
                assert kg.triple_texts[step.edge_id] == step.text
                assert kg.entity_names[kg.tails[step.edge_id]] == step.tail
    assert any(step.edge_id >= 0 for path in found.evidence for step in path.steps)


def test_anchor_rag_two_named_films_are_walked_as_one_path(tmp_path):
    (found,) = anchor_rag(passage_kg(), tmp_path).retrieve([question(COMPARE)])
    joint = [path for path in found.evidence if path.notes["agent"] == "two agents"]
    assert joint
    assert {"Silver Harbour", "Copper Gate"} <= {step.head for path in joint for step in path.steps}
    top = {PASSAGES[p].title for p in found.passage_ids[:4]}
    assert top == {"Silver Harbour", "Copper Gate", "Ada Lindqvist", "Otto Falk"}


def test_anchor_rag_question_in_lower_case_finds_the_same_anchor(tmp_path):
    (found,) = anchor_rag(passage_kg(), tmp_path).retrieve([question(BORN.lower())])
    assert "Silver Harbour" in [a.name for a in found.anchors]


def test_anchor_rag_misspelt_name_is_an_anchor_unless_switched_off(tmp_path):
    text = "Where was the director of Silvr Harbuor born?"
    few = {"evidence_scorer": "sentence", "anchors": {"num_base": 0}}
    (found,) = anchor_rag(passage_kg(), tmp_path, passages=few).retrieve([question(text)])
    assert [a.name for a in found.anchors] == ["Silver Harbour"]
    off = {"evidence_scorer": "sentence", "anchors": {"num_base": 0, "misspelt_score": 0}}
    (found,) = anchor_rag(passage_kg(), tmp_path, passages=off).retrieve([question(text)])
    assert found.anchors == ()


def test_anchor_rag_word_that_passages_hold_is_no_misspelling(tmp_path):
    passages = [*PASSAGES, Passage("Otta Falk", "Otta Falk painted boats.")]
    few = {"evidence_scorer": "sentence", "anchors": {"num_base": 0}}
    (found,) = anchor_rag(passage_kg(passages), tmp_path, passages=few).retrieve(
        [question("What did Otta Falk paint?")]
    )
    assert [a.name for a in found.anchors] == ["Otta Falk"]


def test_anchor_rag_question_without_any_known_word_falls_back_to_the_base_order(tmp_path):
    method = anchor_rag(passage_kg(), tmp_path)
    found = method.retrieve([question("zzz qqq"), question(BORN)])
    assert len(set(found[0].passage_ids)) == len(found[0].passage_ids)
    assert found[1] == method.retrieve([question(BORN)])[0]


def test_anchor_rag_untitled_passages_still_work(tmp_path):
    passages = [Passage("", p.text) for p in PASSAGES]
    (found,) = anchor_rag(passage_kg(passages), tmp_path).retrieve([question(BORN)])
    assert found.passage_ids


def test_anchor_rag_empty_batch_gives_nothing(tmp_path):
    assert anchor_rag(passage_kg(), tmp_path).retrieve([]) == []
    assert anchor_rag(triple_kg(), tmp_path, triples={"whole_paths": False}).retrieve([]) == []
    assert anchor_rag(triple_kg(), tmp_path).retrieve([]) == []


@pytest.mark.parametrize(
    "change",
    [
        {"depth": 1},
        {"judge": {"verify": False}},
        {"passages": {"evidence_scorer": "sentence", "max_joined": 0}},
        {"passages": {"evidence_scorer": "sentence", "anchors": {"num_agents": 1}}},
    ],
)
def test_anchor_rag_every_switch_changes_the_walk(tmp_path, change):
    plain = anchor_rag(passage_kg(), tmp_path).retrieve([question(COMPARE)])[0]
    changed = anchor_rag(passage_kg(), tmp_path, **change).retrieve([question(COMPARE)])[0]
    assert changed.passage_ids and changed.trace != plain.trace


@pytest.mark.parametrize("policy", ["sample", "top"])
def test_anchor_rag_hub_limit_counts_what_it_drops(tmp_path, policy):
    kg = triple_kg([("Silver Harbour", "starring", f"Actor {number}") for number in range(7)])
    config = {"triples": {"whole_paths": False, "entity_width": 7}, "hub_limit": 3, "judge": {"verify": False}}
    method = anchor_rag(kg, tmp_path, hub_policy=policy, **config)
    (found,) = method.retrieve([question("Was Actor 4 starring in Silver Harbour?")])
    first = found.trace["rounds"][0]
    assert (first["hub_dropped"], first["kept"]) == (4, 3 + first["expanded"] - 1)
    if policy == "top":
        assert "Actor 4" in {step.tail for path in found.evidence for step in path.steps}


def test_anchor_rag_over_triples_answers_by_whole_paths(tmp_path):
    (found,) = anchor_rag(triple_kg(), tmp_path).retrieve([question("where was the director of silver harbour born")])
    assert found.anchors[0].name == "Silver Harbour"
    assert found.answer is not None and found.answer.names == ("Ystad",)
    assert found.answer.source == "graph"
    assert [step.relation for step in found.evidence[0].steps] == ["directed by", "born in"]
    assert "Ystad" in [e.name for e in found.evidence_entities]


def test_anchor_rag_path_that_falls_short_is_a_guess_unless_verification_is_off(tmp_path):
    strict = {"triples": {"max_shortfall": 0.0}}
    text = "who composed the music of silver harbour"
    (kept,) = anchor_rag(triple_kg(), tmp_path, judge={"verify": False}).retrieve([question(text)])
    assert kept.answer is not None and kept.answer.source == "graph"
    assert kept.trace["shortfall"] > 0
    (found,) = anchor_rag(triple_kg(), tmp_path, **strict).retrieve([question(text)])
    assert found.answer is not None and found.answer.source == "none"
    assert found.answer.text == kept.answer.text, "a guess keeps its text"
    assert not found.evidence[0].notes["verified"]


def test_anchor_rag_walk_over_triples_answers_with_the_best_end(tmp_path):
    method = anchor_rag(triple_kg(), tmp_path, triples={"whole_paths": False}, depth=1)
    (found,) = method.retrieve([question("Who is the film Silver Harbour directed by?")])
    assert found.answer is not None and found.answer.text == "Ada Lindqvist"
    assert found.evidence[0].steps[0].edge_id == 0


def test_anchor_rag_presets_load_and_name_what_they_switch():
    def preset(name: str) -> AnchorRagConfig:
        config = load_run_config("musique", name).method
        assert isinstance(config, AnchorRagConfig)
        return config

    assert preset("anchorrag").use_model and not preset("anchorrag-lr").use_model
    assert not preset("anchorrag-no-verification").judge.verify
    assert preset("anchorrag-single-path").passages.anchors.num_agents == 1
    assert preset("anchorrag-single-path").triples.paths.disambiguation.num_anchors == 1
    assert preset("anchorrag-no-disambiguation").triples.paths.disambiguation.tie_margin < 0
    assert preset("anchorrag-relations-only").triples.paths.disambiguation.mode == "relations_only"
    assert not preset("anchorrag-walk").triples.whole_paths
    assert preset("anchorrag-sentence").passages.evidence_scorer == "sentence"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "file", "at_least"),
    [
        ("hotpotqa", "hotpotqa/hotpot_dev_distractor_v1.json", 0.92),
        ("2wikimultihopqa", "2wikimultihopqa/dev.json", 0.96),
    ],
)
def test_anchor_rag_on_real_files_keeps_the_recall_of_pagerank(tmp_path, dataset, file, at_least):
    from kgrag_gpu.config.schema import DatasetConfig
    from kgrag_gpu.data.registry import load_questions
    from kgrag_gpu.methods.resources import Resources

    root = os.environ.get("KGRAG_DATA")
    if not root or not (Path(root) / file).is_file():
        pytest.skip(f"$KGRAG_DATA holds no {file}")
    questions = load_questions(DatasetConfig(name=dataset, data=str(Path(root) / file)))
    kg = passage_kg(questions.passages)
    resources = Resources(load_run_config(dataset, "anchorrag-sentence"), kg, tmp_path)
    method = AnchorRag(AnchorRagConfig.model_validate({"passages": {"evidence_scorer": "sentence"}}), resources)
    found = method.retrieve(questions.questions)
    recalls = [
        len(set(q.gold_passage_ids) & set(r.passage_ids[:5])) / len(set(q.gold_passage_ids))
        for q, r in zip(questions.questions, found, strict=True)
    ]
    assert sum(recalls) / len(recalls) >= at_least
