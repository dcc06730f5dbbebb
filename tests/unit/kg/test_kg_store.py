"""The KG on disk: whole or not at all, and never read wrong."""

import json

import numpy as np
import pytest

from kgrag_gpu.kg import store
from kgrag_gpu.kg.collapse import collapse_triples, group_rows
from kgrag_gpu.kg.store import load_kg, make_kg, save_kg
from kgrag_gpu.kg.text_column import TextColumn
from kgrag_gpu.types import Passage, Rejected, UserError


def small_kg(**changes):
    values = {
        "entity_names": ["Graz", "Mur", "Mur"],
        "entity_aliases": [("Gratz", 'with "quotes"'), (), ("Mura",)],
        "entity_descriptions": ["a town", "", ""],
        "entity_external_ids": ["Q1", "Q2", "Q3"],
        "relation_names": ["lies_on"],
        "relation_texts": ["lies on"],
        "heads": np.array([0, 1]),
        "relations": np.array([0, 0]),
        "tails": np.array([1, 1]),
        "triple_texts": ["Graz lies on the Mur.", "绕"],
        "triple_passage_offsets": np.array([0, 2, 2]),
        "triple_passages": np.array([0, 1]),
        "passages": [Passage("Graz", "Text\nof two lines", "p1"), Passage("", "")],
        "passage_entities": np.array([0, -1]),
        "kind": "triples",
        "manifest": {"source": "by hand", "notes": {"a": 1}},
        "rejected": [Rejected("f:1", "bad", "é")],
    }
    return make_kg(**(values | changes))


def assert_same(a, b) -> None:
    for name in ("entity_names", "entity_aliases", "entity_descriptions", "entity_external_ids", "relation_names",
                 "relation_texts", "passages", "kind", "content_hash", "rejected", "counts"):  # fmt: skip
        assert getattr(a, name) == getattr(b, name), name
    for name in ("heads", "relations", "tails", "triple_passage_offsets", "triple_passages", "passage_entities"):
        assert getattr(a, name).tolist() == getattr(b, name).tolist(), name
        assert getattr(a, name).dtype == getattr(b, name).dtype, name
    assert list(a.triple_texts) == list(b.triple_texts)


def test_saved_kg_loads_as_it_was(tmp_path):
    kg = small_kg()
    save_kg(kg, tmp_path / "kg")
    loaded = load_kg(tmp_path / "kg")
    assert_same(kg, loaded)
    assert dict(loaded.manifest) == dict(kg.manifest)
    assert {p.name for p in tmp_path.iterdir()} == {"kg"}  # nothing temporary is left


def test_manifest_and_rejects_lie_beside_the_tables(tmp_path):
    save_kg(small_kg(), tmp_path / "kg")
    manifest = json.loads((tmp_path / "kg" / "manifest.json").read_text())
    assert manifest["schema_version"] == 2
    assert (manifest["num_entities"], manifest["num_triples"], manifest["num_rejected"]) == (3, 2, 1)
    assert json.loads((tmp_path / "kg" / "rejected.jsonl").read_text()) == {
        "where": "f:1", "reason": "bad", "excerpt": "é"
    }  # fmt: skip


def test_empty_kg_round_trips(tmp_path):
    none = np.zeros(0, dtype=np.int32)
    kg = make_kg(entity_names=[], relation_names=[], heads=none, relations=none, tails=none, triple_texts=[], kind="x")
    save_kg(kg, tmp_path / "kg")
    assert_same(kg, load_kg(tmp_path / "kg"))


@pytest.mark.parametrize(
    "changes",
    [
        {"entity_names": ["Graz", "Mur", "Mura"]},
        {"entity_aliases": [(), (), ()]},
        {"tails": np.array([1, 2])},
        {"triple_texts": ["Graz lies on the Mur", ".绕"]},
        {"passages": [Passage("Graz", "Text", "p1"), Passage("", "")]},
        {"triple_passage_offsets": np.array([0, 1, 2])},
    ],
)
def test_content_hash_changes_with_any_content(changes):
    assert small_kg(**changes).content_hash != small_kg().content_hash


def test_content_hash_does_not_depend_on_how_texts_are_stored():
    as_column = TextColumn(TextColumn(["x", "Graz lies on the Mur.", "绕"]).array[1:])
    assert small_kg(triple_texts=as_column).content_hash == small_kg().content_hash


def test_other_kg_in_the_place_is_replaced_and_other_files_are_left_alone(tmp_path):
    save_kg(small_kg(), tmp_path / "kg")
    other = small_kg(entity_names=["A", "B", "C"])
    save_kg(other, tmp_path / "kg")
    assert_same(load_kg(tmp_path / "kg"), other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="is not a KG folder"):
        save_kg(other, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_same_kg_put_there_meanwhile_by_another_process_is_kept(tmp_path, monkeypatch):
    kg = small_kg()
    write = store._write

    def write_while_another_finishes(kg, directory):
        write(kg, directory)
        if not (tmp_path / "kg").exists():
            monkeypatch.setattr(store, "_write", write)
            save_kg(kg, tmp_path / "kg")

    monkeypatch.setattr(store, "_write", write_while_another_finishes)
    save_kg(kg, tmp_path / "kg")
    assert_same(load_kg(tmp_path / "kg"), kg)
    assert {p.name for p in tmp_path.iterdir()} == {"kg"}


def test_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(kg, directory):
        (directory / "entities.parquet").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write", full)
    with pytest.raises(UserError, match="No space left"):
        save_kg(small_kg(), tmp_path / "kg")
    assert list(tmp_path.iterdir()) == []


def test_broken_folder_says_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="no such KG folder"):
        load_kg(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no readable manifest\.json"):
        load_kg(tmp_path / "empty")
    directory = save_kg(small_kg(), tmp_path / "kg")
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps(manifest | {"num_triples": 9}))
    with pytest.raises(UserError, match=r"triples\.parquet: 2 rows, 9 expected"):
        load_kg(directory)
    (directory / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 99}))
    with pytest.raises(UserError, match="schema version 99"):
        load_kg(directory)
    (directory / "manifest.json").write_text(json.dumps(manifest))
    (directory / "triples.parquet").write_bytes(b"half")
    with pytest.raises(UserError, match="incomplete"):
        load_kg(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tails": np.array([1, 3])}, "tails"),
        ({"heads": np.array([-1, 0])}, "heads"),
        ({"triple_texts": ["x"]}, "triple_texts has 1 rows, 2 expected"),
        ({"triple_passage_offsets": np.array([0, 2, 1])}, "triple_passage_offsets"),
        ({"passage_entities": np.array([0, 3])}, "passage_entities"),
    ],
)
def test_columns_that_do_not_fit_are_an_error_of_ours(changes, message):
    with pytest.raises(ValueError, match=message):
        small_kg(**changes)


def test_table_past_int32_is_refused():
    store.check_count(2**31 - 1, "entities")
    with pytest.raises(UserError, match="2,147,483,648 entities"):
        store.check_count(2**31, "entities")


def test_text_column_reads_like_a_list():
    texts = ["a", "", "é绕", "d"]
    column = TextColumn(texts)
    assert list(column) == texts and len(column) == 4
    assert (column[-1], column[1:3], column.take(np.array([3, 0]))) == ("d", ["", "é绕"], ["d", "a"])
    with pytest.raises(IndexError):
        column[4]


def test_collapse_merges_passages_and_keeps_direction_and_self_loops():
    heads, relations, tails = np.array([0, 1, 0, 2, 0]), np.array([0, 0, 0, 0, 0]), np.array([1, 0, 1, 2, 1])
    kept = collapse_triples(heads, relations, tails, np.array([5, 1, 2, -1, 5]))
    assert kept.rows.tolist() == [0, 1, 3]
    assert kept.offsets.tolist() == [0, 2, 3, 3]
    assert kept.passages.tolist() == [2, 5, 1]


def test_grouping_with_keys_past_int64_still_tells_rows_apart():
    big = np.array([2**31 - 2, 0, 2**31 - 2, 5])
    first, groups = group_rows([big, big, big, np.array([1, 1, 1, 1])])
    assert first.tolist() == [0, 1, 3]
    assert groups.tolist() == [0, 1, 0, 2]
