"""Knowledge-base question sets: their official records, the ToG/AnchorRAG forms, and lines."""

import json

import pytest

from kgrag_gpu.config.schema import DatasetConfig
from kgrag_gpu.data import cwq, grailqa, metaqa, pathquestion, webqsp, webquestions
from kgrag_gpu.data.pool import PassagePool
from kgrag_gpu.data.records import ParseOptions, RecordError
from kgrag_gpu.data.registry import load_questions
from kgrag_gpu.types import EntityRef, GoldAnswer, UserError

OPTIONS = ParseOptions()


def webqsp_record(**changes) -> dict:
    record = {
        "QuestionId": "WebQTest-1",
        "RawQuestion": "what does X speak?",
        "NoisyQuestion": "waht does X speak?",
        "Parses": [
            {
                "TopicEntityName": "X",
                "TopicEntityMid": "m.01",
                "InferentialChain": ["a.b", "c.d"],
                "Answers": [
                    {"AnswerType": "Entity", "AnswerArgument": "m.02", "EntityName": "Latin"},
                    {"AnswerType": "Value", "AnswerArgument": "1999", "EntityName": None},
                ],
            },
            {"Answers": [{"AnswerType": "Entity", "AnswerArgument": "m.03", "EntityName": "Greek"}]},
        ],
    }
    return record | changes


def test_webqsp_answers_of_any_parse_are_gold_and_literals_have_no_id():
    question = webqsp.parse(webqsp_record(), PassagePool(), OPTIONS)
    assert question.golden_answers == (
        GoldAnswer("Latin", (), "m.02"),
        GoldAnswer("1999"),
        GoldAnswer("Greek", (), "m.03"),
    )
    assert question.topic_entities == (EntityRef("X", "m.01"),)
    assert question.num_hops == 2


def test_webqsp_noisy_twin_is_another_field():
    question = webqsp.parse(webqsp_record(), PassagePool(), ParseOptions("NoisyQuestion"))
    assert question.text == "waht does X speak?"


def test_webqsp_topic_entity_object_goes_before_the_parses():
    question = webqsp.parse(webqsp_record(topic_entity={"m.09": "Y"}), PassagePool(), OPTIONS)
    assert question.topic_entities == (EntityRef("Y", "m.09"),)


def test_webqsp_official_file_is_an_object_around_the_questions(tmp_path):
    path = tmp_path / "WebQSP.test.json"
    path.write_text(json.dumps({"Version": "1.0", "Questions": [webqsp_record()]}, indent=1), encoding="utf-8")
    assert len(load_questions(DatasetConfig(name="webqsp", data=str(path))).questions) == 1


@pytest.mark.parametrize("parses", [None, "x", [1]])
def test_webqsp_without_parses_is_rejected(parses):
    with pytest.raises(RecordError, match="Parses"):
        webqsp.parse(webqsp_record(Parses=parses), PassagePool(), OPTIONS)


def test_rog_record_gives_names_without_its_graph():
    record = {"id": "r", "question": "q", "answer": ["A"], "a_entity": ["A", "B"], "q_entity": ["X"], "graph": []}
    question = webqsp.parse(record, PassagePool(), OPTIONS)
    assert [a.name for a in question.golden_answers] == ["A", "B"]
    assert question.topic_entities == (EntityRef("X"),)


def test_cwq_takes_one_answer_text_or_official_answers():
    record = {"ID": "c", "question": "q", "compositionality_type": "conjunction", "answer": "A", "topic_entity": {}}
    assert cwq.parse(record, PassagePool(), OPTIONS).golden_answers == (GoldAnswer("A"),)
    official = record | {"answers": [{"answer": "A", "answer_id": "m.1", "aliases": ["AA", "A"]}]}
    question = cwq.parse(official, PassagePool(), OPTIONS)
    assert question.golden_answers == (GoldAnswer("A", ("AA",), "m.1"),)
    assert question.type == "conjunction"


def grailqa_record(**changes) -> dict:
    record = {
        "qid": 7,
        "question": "which play?",
        "Noisy_Question": "whihc play?",
        "answer": [{"answer_type": "Entity", "answer_argument": "m.1", "entity_name": "P"}],
        "num_edge": 2,
        "level": "zero-shot",
        "graph_query": {
            "nodes": [
                {"node_type": "class", "id": "theater.play", "friendly_name": "Play"},
                {"node_type": "entity", "id": "m.2", "friendly_name": "T"},
            ]
        },
    }
    return record | changes


def test_grailqa_without_topic_entity_takes_the_entities_of_its_query_graph():
    question = grailqa.parse(grailqa_record(), PassagePool(), OPTIONS)
    assert (question.id, question.num_hops, question.type) == ("7", 2, "zero-shot")
    assert question.topic_entities == (EntityRef("T", "m.2"),)


def test_grailqa_empty_topic_entity_stays_empty():
    assert grailqa.parse(grailqa_record(topic_entity={}), PassagePool(), OPTIONS).topic_entities == ()


def test_grailqa_hub_form_reads_like_the_official_one():
    official = grailqa_record()
    columns = {"answer_type": ["Entity"], "answer_argument": ["m.1"], "entity_name": ["P"]}
    hub = grailqa_record(answer=columns)
    assert grailqa.parse(hub, PassagePool(), OPTIONS) == grailqa.parse(official, PassagePool(), OPTIONS)


def test_grailqa_answer_without_argument_is_rejected():
    with pytest.raises(RecordError, match="answer_argument"):
        grailqa.parse(grailqa_record(answer=[{"entity_name": "P"}]), PassagePool(), OPTIONS)


def test_webquestions_both_forms_give_the_same_answers_and_id():
    plain = {"url": "u", "question": "who?", "answers": ["A (b)", 'C "d"'], "topic_entity": {"m.1": "X"}}
    official = {
        "url": "u",
        "utterance": "who?",
        "targetValue": '(list (description "A (b)") (description "C \\"d\\""))',
    }
    one, other = (webquestions.parse(r, PassagePool(), OPTIONS) for r in (plain, official))
    assert one.golden_answers == other.golden_answers == (GoldAnswer("A (b)"), GoldAnswer('C "d"'))
    assert one.id == other.id


def load_lines(tmp_path, name: str, dataset: str, lines: list[str]):
    path = tmp_path / name
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_questions(DatasetConfig(name=dataset, data=str(path)))


def test_pathquestion_line_gives_spaced_question_set_of_answers_topic_and_hops(tmp_path):
    line = "the son of a_b ?\td_e(c/d_e/)\ta_b#children#x#children#d_e#<end>#d_e"
    question = load_lines(tmp_path, "PQ-2H.txt", "pathquestion", [line]).questions[0]
    assert question.id == "PQ-2H-1"
    assert question.text == "the son of a b ?"
    assert question.golden_answers == (GoldAnswer("c"), GoldAnswer("d_e", ("d e",)))
    assert question.topic_entities == (EntityRef("a_b"),)
    assert question.num_hops == 2
    assert question.extra["gold_relations"] == ["children", "children"]


def test_pathquestion_name_with_brackets_is_not_cut(tmp_path):
    line = "q of x ?\tking_(film)(king_(film)/other/)\tx#r#king_(film)#<end>#king_(film)"
    question = load_lines(tmp_path, "a.txt", "pathquestion", [line]).questions[0]
    assert [a.name for a in question.golden_answers] == ["king_(film)", "other"]


def test_pathquestion_bad_line_in_mid_file_is_rejected_and_counted(tmp_path):
    good = "q of x ?\ta(a/)\tx#r#a#<end>#a"
    found = load_lines(tmp_path, "a.txt", "pathquestion", [good, "no columns", "q\ta(a/)\tx#r", good])
    assert len(found.questions) == 2
    assert [r.where for r in found.rejected] == ["a.txt:2", "a.txt:3"]


def test_pathquestion_refuses_a_file_of_another_format(tmp_path):
    with pytest.raises(UserError, match="not a pathquestion file"):
        load_lines(tmp_path, "a.txt", "pathquestion", ["head\trelation\ttail"])


def test_metaqa_brackets_are_taken_away_and_hops_come_from_the_type(tmp_path):
    lines = ["who wrote [The [REC]]\tA|B|A\tmovie_to_writer", "films of [X Y]\tC\tactor_to_movie_to_year"]
    questions = load_lines(tmp_path, "qa_dev.tsv", "metaqa", lines[1:]).questions
    assert questions[0].text == "films of X Y"
    assert questions[0].topic_entities == (EntityRef("X Y"),)
    assert (questions[0].num_hops, questions[0].type) == (2, "actor_to_movie_to_year")


def test_metaqa_without_type_takes_hops_from_the_file_name(tmp_path):
    question = load_lines(tmp_path, "qa_3hop_dev.tsv", "metaqa", ["films of [X]\tA|B|A"]).questions[0]
    assert question.num_hops == 3
    assert question.golden_answers == (GoldAnswer("A"), GoldAnswer("B"))


def test_metaqa_line_without_brackets_or_answer_is_rejected(tmp_path):
    found = load_lines(tmp_path, "qa.tsv", "metaqa", ["films of [X]\tA", "films of X\tA", "films of [X]\t "])
    assert len(found.questions) == 1
    assert len(found.rejected) == 2


def test_metaqa_other_question_field_keeps_the_topic_of_the_bracketed_one():
    record = {"id": "m", "question": "films of [Red]", "answers": "A", "type": "", "noisy": "flms of red"}
    question = metaqa.parse(record, PassagePool(), ParseOptions("noisy"))
    assert (question.text, question.topic_entities) == ("flms of red", (EntityRef("Red"),))


def test_pathquestion_answer_set_without_its_answer_is_rejected():
    record = {"id": "p", "question": "q", "answer": "a(b/c/)", "path": ""}
    with pytest.raises(RecordError, match="does not hold"):
        pathquestion.parse(record, PassagePool(), OPTIONS)
