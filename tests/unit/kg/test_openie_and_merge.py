"""OpenIE import, merging, and the KG of a run."""

import json

import pytest

from kgrag_gpu.config.schema import KgConfig
from kgrag_gpu.kg import build
from kgrag_gpu.kg.build import kg_for_run
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.kg.merge import merge_kgs
from kgrag_gpu.kg.openie_import import clean_name, import_openie
from kgrag_gpu.kg.store import make_kg
from kgrag_gpu.types import Passage, QuestionSet, UserError

DOCS = [
    {
        "title": "Volt (firm)",
        "text": "Volt is a firm. It was founded by  Ada Byron in Linz.",
        "extracted_triples": [
            ["Volt (firm)", "founded by", "Ada Byron"],
            ["volt (firm)", "founded  in", '"linz"'],
            ["Volt", "is"],
            ["a", "b", "c", "d"],
            ["Volt", "", "firm"],
            "no list",
        ],
    },
    {"passage": "Linz\nAda Byron founded Volt.", "extracted_triples": [["ADA BYRON", "founded", "Volt (firm)"]]},
    {"title": "Empty", "text": "Nothing is said.", "extracted_triples": []},
    {"title": "Volt (firm)", "text": "Again.", "extracted_triples": [["Volt (firm)", "founded by", "Ada Byron"]]},
]


@pytest.fixture
def openie(tmp_path):
    def _write(docs=DOCS):
        path = tmp_path / "openie.json"
        path.write_text(json.dumps({"docs": docs, "avg_ent_chars": float("nan")}))
        return path

    return _write


def edges(kg) -> list[tuple]:
    return [
        (kg.entity_names[h], kg.relation_names[r], kg.entity_names[t],
         kg.triple_passages[kg.triple_passage_offsets[i] : kg.triple_passage_offsets[i + 1]].tolist())
        for i, (h, r, t) in enumerate(zip(kg.heads, kg.relations, kg.tails, strict=True))
    ]  # fmt: skip


def test_openie_rows_become_edges_with_merged_passages(openie):
    kg = import_openie(openie())
    assert edges(kg) == [
        ("Volt (firm)", "founded by", "Ada Byron", [0, 3]),
        ("Volt (firm)", "founded in", "Linz", [0]),
        ("Ada Byron", "founded", "Volt (firm)", [1]),
    ]


def test_openie_rows_without_three_filled_fields_are_listed(openie):
    kg = import_openie(openie())
    assert [(r.where, r.reason) for r in kg.rejected] == [
        ("openie.json docs[0].extracted_triples[2]", "3 fields expected, got 2"),
        ("openie.json docs[0].extracted_triples[3]", "3 fields expected, got 4"),
        ("openie.json docs[0].extracted_triples[4]", "empty relation"),
        ("openie.json docs[0].extracted_triples[5]", "a list of three fields expected, got str"),
    ]


def test_openie_spellings_join_their_entity_as_aliases(openie):
    kg = import_openie(openie())
    assert kg.entity_names == ["Volt (firm)", "Linz", "Empty", "Ada Byron"]
    assert kg.entity_aliases[0] == ("Volt", "volt (firm)")
    assert kg.entity_aliases[1] == ("linz",)
    assert kg.entity_aliases[3] == ("ADA BYRON",)


def test_openie_titles_differing_in_case_stay_apart(openie):
    docs = [
        {"title": "Rush", "text": "A film.", "extracted_triples": [["RUSH", "is", "band"]]},
        {"title": "RUSH", "text": "A band.", "extracted_triples": [["rush", "is", "film"]]},
    ]
    assert edges(import_openie(openie(docs))) == [("RUSH", "is", "band", [0]), ("Rush", "is", "film", [1])]


def test_openie_edge_text_is_the_sentence_that_says_it(openie):
    kg = import_openie(openie())
    assert kg.triple_texts[0] == "It was founded by  Ada Byron in Linz."
    docs = [{"title": "T", "text": "Other words.", "extracted_triples": [["x", "y", "z"]]}]
    assert import_openie(openie(docs)).triple_texts[0] == "x y z"


def test_openie_passages_without_triples_stay_and_titles_are_tied(openie):
    kg = import_openie(openie())
    assert [p.title for p in kg.passages] == ["Volt (firm)", "Linz", "Empty", "Volt (firm)"]
    assert kg.passage_entities.tolist() == [0, 1, 2, 0]


def test_openie_of_another_form_is_refused(openie, tmp_path):
    with pytest.raises(UserError, match="not an OpenIE file"):
        import_openie(openie([{"title": "x"}]))
    with pytest.raises(UserError, match=r"1 of 2 rows cannot be read .*no text"):
        import_openie(openie([DOCS[0], {"extracted_triples": []}]))
    (tmp_path / "cut.json").write_text('{"docs": [')
    with pytest.raises(UserError, match="not complete JSON"):
        import_openie(tmp_path / "cut.json")


def test_wrapping_quotes_go_and_inner_ones_stay():
    assert clean_name('  "Get\n Low" ') == "Get Low"
    assert clean_name('"A" and "B"') == '"A" and "B"'
    assert clean_name("'n'") == "n" and clean_name('"') == '"'


def test_merged_kg_has_both_sides_edges_over_one_set_of_entities(openie):
    first = import_openie(openie())
    second = build_mentions_kg(first.passages)
    merged = merge_kgs(first, second)
    assert merged.kind == "openie+mentions"
    assert merged.passages == first.passages
    assert merged.entity_names[: first.num_entities] == first.entity_names
    assert [e for e in edges(merged) if e[1] != "mentions"] == edges(first)
    assert merged.num_triples == first.num_triples + second.num_triples
    assert ("Volt (firm)", "mentions", "Linz", [0]) in edges(merged)
    assert merged.passage_entities.tolist() == first.passage_entities.tolist()


def test_merging_a_kg_with_itself_changes_nothing_but_its_kind(openie):
    kg = import_openie(openie())
    twice = merge_kgs(kg, kg)
    assert edges(twice) == edges(kg)
    assert (twice.entity_names, twice.entity_aliases) == (kg.entity_names, kg.entity_aliases)


def test_merge_matches_by_id_before_name():
    def one(name, external_id):
        return make_kg(
            entity_names=[name, "x"], entity_external_ids=[external_id, ""], relation_names=["r"],
            heads=[0], relations=[0], tails=[1], triple_texts=["t"], kind="triples",
        )  # fmt: skip

    assert merge_kgs(one("Mercury", "Q1"), one("Mercury", "Q2")).entity_names == ["Mercury", "x", "Mercury"]
    assert merge_kgs(one("Mercury", "Q1"), one("Hermes", "Q1")).entity_aliases[0] == ("Hermes",)


def question_set(passages=()):
    return QuestionSet("mine", (), tuple(passages), "by hand", "0")


def test_run_builds_the_kg_of_its_passages_once(tmp_path, monkeypatch):
    questions = question_set([Passage("Graz", "It saw Linz."), Passage("Linz", "x")])
    first = kg_for_run(KgConfig(), questions, tmp_path)
    monkeypatch.setattr(build, "build_mentions_kg", None)
    again = kg_for_run(KgConfig(), questions, tmp_path)
    assert again.content_hash == first.content_hash and first.num_triples == 1


def test_damaged_cache_is_built_again(tmp_path):
    questions = question_set([Passage("Graz", "It saw Linz."), Passage("Linz", "x")])
    first = kg_for_run(KgConfig(), questions, tmp_path)
    (cached,) = (tmp_path / "kg").iterdir()
    (cached / "triples.parquet").write_bytes(b"")
    assert kg_for_run(KgConfig(), questions, tmp_path).content_hash == first.content_hash


def test_run_takes_a_triples_file_an_openie_file_or_a_folder(tmp_path, openie):
    (tmp_path / "kb.txt").write_text("a|r|b\n")
    kg = kg_for_run(KgConfig(path=str(tmp_path / "kb.txt")), question_set(), tmp_path)
    assert (kg.kind, kg.num_triples) == ("triples", 1)
    (folder,) = (tmp_path / "kg").iterdir()
    assert kg_for_run(KgConfig(path=str(folder)), question_set(), tmp_path).content_hash == kg.content_hash
    kg = kg_for_run(KgConfig(path=str(openie()), with_mentions=True), question_set(), tmp_path)
    assert kg.kind == "openie+mentions"


def test_changed_file_under_the_same_name_is_built_again(tmp_path):
    path = tmp_path / "kb.txt"
    path.write_text("a|r|b\n")
    first = kg_for_run(KgConfig(path=str(path)), question_set(), tmp_path)
    path.write_text("a|r|c\n")
    assert kg_for_run(KgConfig(path=str(path)), question_set(), tmp_path).content_hash != first.content_hash


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no passages of its own; give its KG with --kg"),
        ({"path": "/nowhere/kb.txt"}, "no such KG folder or file"),
    ],
)
def test_run_without_a_kg_says_what_to_give(tmp_path, config, message):
    with pytest.raises(UserError, match=message):
        kg_for_run(KgConfig(**config), question_set(), tmp_path)


def test_mentions_of_a_kg_without_passages_are_refused(tmp_path):
    (tmp_path / "kb.txt").write_text("a|r|b\n")
    with pytest.raises(UserError, match="has no passages"):
        kg_for_run(KgConfig(path=str(tmp_path / "kb.txt"), with_mentions=True), question_set(), tmp_path)
