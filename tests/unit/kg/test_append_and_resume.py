"""Adding to a KG gives what one build would have given; an import that was stopped goes on where it was."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from kgrag_gpu.kg import formats, lines
from kgrag_gpu.kg.collapse import first_rows
from kgrag_gpu.kg.formats import TripleReader
from kgrag_gpu.kg.store import load_kg, save_kg
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.types import UserError
from pipelines import build_kg

NT_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


def random_lines(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [f"e_{rng.randrange(30)}\tr{rng.randrange(4)}\te_{rng.randrange(30)}\n" for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_append_equals_one_build_of_both(tmp_path, seed):
    rows, more = random_lines(seed, 40), random_lines(seed + 100, 15)
    for name, content in (("old", rows), ("new", more), ("both", rows + more)):
        (tmp_path / f"{name}.tsv").write_text("".join(content))
    whole = import_triples(tmp_path / "both.tsv")
    base = load_kg(save_kg(import_triples(tmp_path / "old.tsv"), tmp_path / "kg"))
    added = import_triples(tmp_path / "new.tsv", base=base)
    assert added.content_hash == whole.content_hash
    assert list(added.triple_texts) == list(whole.triple_texts)
    assert added.manifest["notes"]["num_added_triples"] == whole.num_triples - base.num_triples
    assert list(added.entity_names[: base.num_entities]) == list(base.entity_names)
    assert load_kg(save_kg(added, tmp_path / "kg")).content_hash == whole.content_hash


def test_append_keeps_texts_passages_and_ids_of_the_base(tmp_path):
    docs = [{"title": "Graz", "text": "Graz saw Linz.", "extracted_triples": [["Graz", "saw", "Linz"]]}]
    (tmp_path / "openie.json").write_text(json.dumps({"docs": docs}))
    (tmp_path / "more.jsonl").write_text('["Linz", "lies on", "Danube"]\n["Graz", "saw", "Linz"]\n')
    assert build_kg.main(["--from-openie", str(tmp_path / "openie.json"), "--out", str(tmp_path / "kg")]) == 0
    assert build_kg.main(["--from-triples", str(tmp_path / "more.jsonl"), "--append", str(tmp_path / "kg")]) == 0
    kg = load_kg(tmp_path / "kg")
    assert (kg.kind, kg.num_triples, kg.num_passages) == ("openie", 2, 1)
    assert kg.triple_texts[0] == "Graz saw Linz." and kg.triple_texts[1] == "Linz lies on Danube"
    assert kg.triple_passage_offsets.tolist() == [0, 1, 1] and kg.triple_passages.tolist() == [0]


def test_append_of_passages_equals_one_build_of_all(tmp_path):
    passages = [{"title": t, "text": f"{t} saw Linz and Ames."} for t in ("Graz", "Linz", "Ames", "Steyr")]
    for name, part in (("old", passages[:3]), ("new", passages[2:]), ("all", passages)):
        (tmp_path / f"{name}.json").write_text(json.dumps(part))
    build_kg.main(["--from-passages", str(tmp_path / "all.json"), "--out", str(tmp_path / "whole")])
    build_kg.main(["--from-passages", str(tmp_path / "old.json"), "--out", str(tmp_path / "kg")])
    build_kg.main(["--from-passages", str(tmp_path / "new.json"), "--append", str(tmp_path / "kg")])
    assert load_kg(tmp_path / "kg").content_hash == load_kg(tmp_path / "whole").content_hash
    (tmp_path / "t.tsv").write_text("Linz\tlies on\tDanube\n")
    build_kg.main(["--from-triples", str(tmp_path / "t.tsv"), "--out", str(tmp_path / "kb")])
    build_kg.main(["--from-passages", str(tmp_path / "old.json"), "--append", str(tmp_path / "kb")])
    joined = load_kg(tmp_path / "kb")
    assert joined.kind == "triples+mentions" and joined.num_passages == 3
    assert list(joined.entity_names[:2]) == ["Linz", "Danube"]


FORMS = {
    "kb.tsv": lambda i: f"e{i % 37}\tr{i % 5}\te{i % 11}\n" if i % 50 else "broken\n",
    "kb.jsonl": lambda i: f'["e{i % 37}", "r{i % 5}", "e{i % 11}"]\n' if i % 50 else "{\n",
    "kb.nt": lambda i: (
        f'<http://x/e{i % 37}> <{NT_LABEL}> "Name {i}" .\n' if i % 7 == 0
        else f"<http://x/e{i % 37}> <http://x/r{i % 5}> <http://x/e{i % 11}> .\n" if i % 50 else "broken\n"
    ),
    "kb.csv": lambda i: f"e{i % 37},r{i % 5},e{i % 11}\n" if i % 50 else "broken\n",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_import_that_was_stopped_goes_on_and_gives_the_same(tmp_path, monkeypatch, name):
    path, work = tmp_path / name, tmp_path / "parts"
    path.write_text("".join(FORMS[name](i) for i in range(1, 1500)))
    monkeypatch.setattr(lines.read_line_blocks, "__defaults__", (2_000,))
    monkeypatch.setattr(formats, "BLOCK_BYTES", 2_000)
    whole = import_triples(path, max_rejected_share=0.1)
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_triples(path, None, 0.1, stop, work_dir=work)
    assert work.is_dir()
    parsed = []
    for parser in ("_statements", "_json_lines", "_split_lines"):
        real = getattr(TripleReader, parser)
        monkeypatch.setattr(TripleReader, parser, lambda *args, real=real: (parsed.append(1), real(*args))[1])
    again = import_triples(path, None, 0.1, told.append, work_dir=work)
    assert again.content_hash == whole.content_hash
    assert again.rejected == whole.rejected and again.manifest["notes"] == whole.manifest["notes"]
    num_blocks = len(told) - 3 - 1  # the last line tells of the numbering
    assert num_blocks > 4
    if name != "kb.csv":
        assert len(parsed) == num_blocks - 2  # the second and third were known; the first shows the form
    assert not work.exists()


def test_parts_of_another_file_are_not_taken(tmp_path):
    path, work = tmp_path / "t.tsv", tmp_path / "parts"
    path.write_text("a\tr\tb\n")

    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_triples(path, report=stop, work_dir=work)
    path.write_text("c\tr\td\n")
    os.utime(path, (1, 1))
    assert list(import_triples(path, work_dir=work).entity_names) == ["c", "d"]
    path.write_text("broken\n")
    with pytest.raises(UserError, match="no known form"):
        import_triples(path, work_dir=work)
    assert not work.exists()


def test_first_rows_equal_a_loop_over_many_buckets():
    rng = np.random.default_rng(3)
    for size in (0, 1, 50, 3000):
        columns = [rng.integers(0, high, size) for high in (9, 3, 7)]
        seen: dict[tuple, int] = {}
        for row, key in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            seen.setdefault(key, row)
        assert first_rows(columns, bucket_rows=16).tolist() == sorted(seen.values())
        assert first_rows(columns).tolist() == sorted(seen.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--columns", "head"], "'head'; expected ROLE=NAME with a role among head, relation, tail, text"),
        (["--columns", "who=x"], "expected ROLE=NAME"),
        (["--columns", "head=x"], "no column 'x' for the head"),
        (["--append", "none"], "no such KG folder"),
    ],
)
def test_wrong_columns_or_base_are_user_errors(tmp_path: Path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("t.tsv").write_text("a\tr\tb\n")
    with pytest.raises(UserError, match=message):
        build_kg.main(["--from-triples", "t.tsv", "--out", "kg", *arguments])
    with pytest.raises(UserError, match="--out is missing"):
        build_kg.main(["--from-triples", "t.tsv"])


def test_header_mapping_reads_a_table_with_other_names(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("id,who,what,whom,why\n1,ann,knows,bob,they met\n")
    mapping = "head=who,relation=what,tail=whom,text=why"
    assert build_kg.main(["--from-triples", "t.csv", "--columns", mapping, "--out", "kg"]) == 0
    kg = load_kg("kg")
    assert list(kg.entity_names) == ["ann", "bob"] and list(kg.triple_texts) == ["they met"]
