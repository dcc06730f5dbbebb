"""The mentions graph, exactly, on corpora of a few sentences."""

import numpy as np

from kgrag_gpu.config.schema import MentionsConfig
from kgrag_gpu.kg.mentions import build_mentions_kg, kg_mention_table, title_forms
from kgrag_gpu.kg.phrases import capitalised_phrases
from kgrag_gpu.types import Passage


def edges(kg) -> list[tuple]:
    return [
        (
            kg.entity_names[h],
            kg.entity_names[t],
            text,
            kg.triple_passages[kg.triple_passage_offsets[i] : kg.triple_passage_offsets[i + 1]].tolist(),
        )
        for i, (h, t, text) in enumerate(zip(kg.heads, kg.tails, kg.triple_texts, strict=True))
    ]


def test_title_forms_are_whole_without_parentheses_and_up_to_the_comma():
    assert title_forms("Didi (footballer, born 1985)") == ("Didi (footballer, born 1985)", "Didi")
    assert title_forms("Ames, Iowa (city)") == ("Ames, Iowa (city)", "Ames, Iowa", "Ames")
    assert title_forms("Ames, Iowa", comma_forms=False) == ("Ames, Iowa",)
    assert title_forms("三体（小说）") == ("三体（小说）", "三体")
    assert title_forms("(What)") == ("(What)",)


def test_edge_goes_from_title_to_mention_with_its_sentence_and_passage():
    kg = build_mentions_kg(
        [
            Passage("Graz", "Graz lies on the Mura. It is near Maribor."),
            Passage("Mura (river)", "A river. The Mura passes Graz."),
            Passage("Maribor", "A town."),
        ]
    )
    assert edges(kg) == [
        ("Graz", "Mura (river)", "Graz lies on the Mura.", [0]),
        ("Graz", "Maribor", "It is near Maribor.", [0]),
        ("Mura (river)", "Graz", "The Mura passes Graz.", [1]),
    ]
    assert kg.relation_names == ["mentions"]
    assert kg.passage_entities.tolist() == [0, 1, 2]
    assert kg.entity_aliases[1] == ("Mura",)


def test_shared_capitalised_phrase_is_an_entity_and_a_lone_one_is_not():
    kg = build_mentions_kg(
        [
            Passage("Volt", "Volt was founded by Ada Byron in Linz."),
            Passage("Arc lamp", "The lamp that Ada Byron drew. Only Otto Meier liked it."),
        ]
    )
    assert kg.entity_names == ["Volt", "Arc lamp", "Ada Byron"]
    assert [edge[:2] for edge in edges(kg)] == [("Volt", "Ada Byron"), ("Arc lamp", "Ada Byron")]


def test_two_sentences_with_the_same_pair_are_two_edges():
    kg = build_mentions_kg([Passage("Graz", "See Linz. Go to Linz and Linz."), Passage("Linz", "x")])
    assert [edge[2] for edge in edges(kg)] == ["See Linz.", "Go to Linz and Linz."]


def test_same_sentence_in_two_passages_of_a_title_is_one_edge_with_both():
    passages = [Passage("Graz", "It saw Linz."), Passage("Graz", "It saw Linz. More."), Passage("Linz", "x")]
    assert edges(build_mentions_kg(passages)) == [("Graz", "Linz", "It saw Linz.", [0, 1])]


def test_shared_title_form_is_a_mention_of_each_bearer():
    kg = build_mentions_kg(
        [
            Passage("Mercury (planet)", "A planet."),
            Passage("Mercury (element)", "A metal."),
            Passage("Thermometer", "It holds Mercury."),
        ]
    )
    assert [edge[1] for edge in edges(kg)] == ["Mercury (planet)", "Mercury (element)"]


def test_passage_without_title_is_headed_by_the_first_entity_of_the_sentence():
    kg = build_mentions_kg([Passage("", "From Graz to Linz. Linz again."), Passage("Graz", "a"), Passage("Linz", "b")])
    assert edges(kg) == [("Graz", "Linz", "From Graz to Linz.", [0])]
    assert kg.passage_entities.tolist() == [-1, 0, 1]


def test_passages_without_any_entity_stay():
    kg = build_mentions_kg([Passage("", "nothing here"), Passage("Graz", "")])
    assert (kg.num_passages, kg.num_triples, kg.num_entities) == (2, 0, 1)
    assert build_mentions_kg([]).num_entities == 0


def test_short_names_are_no_mentions_and_two_ideographs_are_enough():
    kg = build_mentions_kg(
        [
            Passage("Ada", "x"),
            Passage("Graz", "Ada came."),
            Passage("鲁迅", "生于绍兴。"),
            Passage("绍兴", "鲁迅的故乡。"),
        ]
    )
    assert [edge[:2] for edge in edges(kg)] == [("鲁迅", "绍兴"), ("绍兴", "鲁迅")]


def test_frequent_phrases_and_comma_forms_are_left_out_and_whole_titles_are_not():
    config = MentionsConfig(max_phrase_passages=2, max_phrase_share=0)
    passages = [Passage("John, King of Ruritania", "x"), Passage("Graz", "x")]
    passages += [Passage(f"Page {i}", "We saw John and Graz and Maria.") for i in range(3)]
    kg = build_mentions_kg(passages, config)
    assert {edge[1] for edge in edges(kg)} == {"Graz"}
    assert kg.entity_aliases[0] == ()
    assert "Maria" not in kg.entity_names


def test_mention_table_of_a_kg_gives_places_and_sentences():
    kg = build_mentions_kg([Passage("Graz", "One. See Linz."), Passage("Linz", "Near Graz.")])
    table = kg_mention_table(kg)
    assert table.sentence_offsets.tolist() == [0, 2, 3]
    assert table.sentence_spans.tolist() == [[0, 4], [5, 14], [0, 10]]
    assert table.passage_ids.tolist() == [0, 1]
    assert table.sentence_ids.tolist() == [1, 2]
    assert table.entity_ids.tolist() == [1, 0]
    assert kg.passages[0].text[table.starts[0] : table.ends[0]] == "Linz"


def test_order_of_passages_changes_row_numbers_only():
    passages = [
        Passage("Graz", "See Linz. Ada Byron."),
        Passage("Linz", "See Graz. Ada Byron."),
        Passage("", "Graz Linz"),
    ]
    forward, backward = build_mentions_kg(passages), build_mentions_kg(passages[::-1])
    assert sorted(e[:3] for e in edges(forward)) == sorted(e[:3] for e in edges(backward))


def test_sentence_openers_are_read_off_the_texts():
    texts = ["In Graz in May. The town the river.", "In Graz he sat. The old town in the hills."]
    phrases = capitalised_phrases(texts, min_chars=2, min_texts=2, max_texts=9)
    assert phrases == ["Graz"]


def test_connected_phrases_count_whole_and_in_parts():
    texts = ["at the University of Graz", "the University of Graz, J. R. Tolkien", "see J. R. Tolkien"]
    phrases = capitalised_phrases(texts, min_chars=4, min_texts=2, max_texts=9)
    assert phrases == ["University of Graz", "University", "Graz", "J. R. Tolkien"]


def test_arrays_are_int32_and_offsets_int64():
    kg = build_mentions_kg([Passage("Graz", "See Linz."), Passage("Linz", "x")])
    assert kg.heads.dtype == kg.tails.dtype == kg.relations.dtype == kg.triple_passages.dtype == np.int32
    assert kg.triple_passage_offsets.dtype == np.int64
