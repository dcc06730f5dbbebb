"""A KG from triples: identity, names, relation words, rejects."""

import pytest

from kgrag_gpu.kg.names import other_spelling, read_names
from kgrag_gpu.kg.relation_text import inverse_text, relation_text
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.types import UserError


@pytest.fixture
def kg_of(tmp_path):
    def _kg_of(text, names=None, name="t.tsv", **more):
        (tmp_path / name).write_text(text, encoding="utf-8")
        if names is not None:
            (tmp_path / "names.tsv").write_text(names, encoding="utf-8")
        return import_triples(tmp_path / name, tmp_path / "names.tsv" if names is not None else None, **more)

    return _kg_of


def triples(kg) -> list[tuple]:
    return list(zip(kg.heads.tolist(), kg.relations.tolist(), kg.tails.tolist(), strict=True))


def test_direction_and_self_loops_are_kept_and_duplicates_collapse(kg_of):
    kg = kg_of("a\tr\tb\nb\tr\ta\na\tr\ta\na\tr\tb\na\ts\tb\n")
    assert kg.entity_names == ["a", "b"]
    assert kg.relation_names == ["r", "s"]
    assert triples(kg) == [(0, 0, 1), (1, 0, 0), (0, 0, 0), (0, 1, 1)]
    assert kg.manifest["notes"]["num_duplicates"] == 1
    assert kg.manifest["notes"]["num_self_loops"] == 1


def test_names_differing_in_case_or_inner_space_are_different(kg_of):
    assert kg_of("Rush\tr\tRUSH\nNew York\tr\tNewYork\n").num_entities == 4


def test_underscored_names_keep_their_form_and_get_a_readable_alias(kg_of):
    kg = kg_of("ada_of_graz\tplace_of_birth\tgraz\n")
    assert kg.entity_names == ["ada_of_graz", "graz"]
    assert kg.entity_aliases == [("ada of graz",), ()]
    assert kg.triple_texts[0] == "ada of graz place of birth graz"
    assert kg.entity_external_ids == ["", ""]


def test_ids_are_named_by_the_names_file_and_homonyms_stay_apart(kg_of):
    names = (
        "/m/01\tMercury\tQ308\tplanet\tHermes|Mercurius\n"
        "/m/02\tMercury\tQ925\telement\t\n"
        "/m/09\tunused\t\t\t\nbroken line\n"
    )
    kg = kg_of("/m/01\t/a/b/orbits\t/m/03\nm.02\t/a/b/orbits\t/m/01\n", names)
    assert kg.entity_names == ["Mercury", "/m/03", "Mercury"]
    assert kg.entity_external_ids == ["/m/01", "/m/03", "m.02"]
    assert kg.entity_aliases[0] == ("Hermes", "Mercurius")
    assert kg.entity_descriptions == ["planet", "", "element"]
    assert kg.manifest["notes"]["num_unnamed_entities"] == 1
    assert [r.reason for r in kg.rejected] == ["no name"]
    assert kg.triple_texts[0] == "Mercury b orbits /m/03"


def test_qids_are_ids_when_most_entities_are_and_names_otherwise(kg_of):
    assert kg_of("Q1\tP1\tQ2\n").entity_external_ids == ["Q1", "Q2"]
    assert kg_of("Audi\tmakes\tQ5\nAudi\tin\tIngolstadt\n").entity_external_ids == ["", "", ""]


def test_unnamed_mid_is_its_own_name_and_a_name_like_it_is_none(kg_of):
    kg = kg_of("m.0abc\tr\tm.i.a\n")
    assert kg.entity_names == ["m.0abc", "m.i.a"]
    assert kg.entity_external_ids == ["m.0abc", ""]


def test_uris_are_ids_and_labels_name_them(kg_of):
    text = (
        "<http://x.org/S%C3%A3o_Paulo> <http://x.org/locatedIn> <http://x.org/Q1> .\n"
        '<http://x.org/Q1> <http://www.w3.org/2000/01/rdf-schema#label> "Brazil"@en .\n'
    )
    kg = kg_of(text, name="t.nt")
    assert kg.entity_names == ["São_Paulo", "Brazil"]
    assert kg.entity_external_ids == ["http://x.org/S%C3%A3o_Paulo", "http://x.org/Q1"]
    assert kg.entity_aliases[0] == ("São Paulo",)
    assert kg.triple_texts[0] == "São Paulo located in Brazil"


def test_own_edge_texts_are_kept_and_gaps_filled(kg_of):
    kg = kg_of("head,relation,tail,text\na,r,b,A met B.\na,r,c,\n", name="t.csv")
    assert list(kg.triple_texts) == ["A met B.", "a r c"]


def test_rejects_past_the_share_refuse_the_import_and_name_the_first(kg_of):
    text = "a\tr\tb\n" * 60 + "bad\n"
    with pytest.raises(UserError, match=r"1 of 61 rows.*t\.tsv:61: 3 fields expected, got 1.*1\.00%"):
        kg_of(text)
    kg = kg_of(text, max_rejected_share=0.02)
    assert [r.where for r in kg.rejected] == ["t.tsv:61"]


def test_file_of_rejects_alone_is_refused_whatever_the_share(kg_of):
    with pytest.raises(UserError, match="2 of 2 rows"):
        kg_of("a\t\tb\n\tr\tb\n", max_rejected_share=1.0)


def test_header_alone_holds_no_triple(kg_of):
    with pytest.raises(UserError, match="no triple in the file"):
        kg_of("head\trelation\ttail\n")


def test_names_files_of_other_forms_are_read(tmp_path):
    (tmp_path / "n.csv").write_text('title,description\n"Graz, city",a town\n')
    (tmp_path / "n.jsonl").write_text('{"id": "Q1", "label": "Graz", "aliases": ["Gratz"]}\nnope\n')
    assert read_names(tmp_path / "n.csv").get("Graz, city").description == "a town"
    table = read_names(tmp_path / "n.jsonl")
    assert table.get("Q1").aliases == ("Gratz",)
    assert [r.where for r in table.rejected] == ["n.jsonl:2"]
    (tmp_path / "bad.tsv").write_text("one\ntwo\n")
    with pytest.raises(UserError, match="no row with an id and a name"):
        read_names(tmp_path / "bad.tsv")


def test_both_spellings_of_a_mid_are_one():
    assert other_spelling("/m/0a") == "m.0a" and other_spelling("m.0a") == "/m/0a" and other_spelling("Q1") == "Q1"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("location.country.form_of_government", "country form of government"),
        ("/tv/tv_program/regular_cast./tv/regular_tv_appearance/actor", "tv program regular cast actor"),
        ("base.rosetta.languoid.parent", "languoid parent"),
        ("film.film.directed_by", "film directed by"),
        ("starred_actors", "starred actors"),
        ("countryOfCitizenship", "country of citizenship"),
        ("hasISBN", "has ISBN"),
        ("http://dbpedia.org/ontology/birthPlace", "birth place"),
        ("has U.S. office in", "has U.S. office in"),
        ("is married to", "is married to"),
        ("出生地", "出生地"),
    ],
)
def test_relation_names_become_words(name, words):
    assert relation_text(name) == words


@pytest.mark.parametrize(
    ("text", "inverse"),
    [
        ("directed by", "has directed"),
        ("capital of", "has capital"),
        ("has genre", "genre of"),
        ("in language", "language of"),
        ("parents", "parents of"),
        ("born in", "inverse of born in"),
        ("is married to", "inverse of is married to"),
        ("of", "of of"),
        ("", "inverse of "),
    ],
)
def test_inverse_text_marks_the_direction(text, inverse):
    assert inverse_text(text) == inverse != text
