"""`python -m pipelines.build_kg`: sources, output, exit codes."""

import json
import subprocess
import sys

import pytest

from kgrag_gpu.kg.store import load_kg
from kgrag_gpu.types import UserError
from pipelines import build_kg


@pytest.fixture
def files(tmp_path):
    (tmp_path / "kb.txt").write_text("a|r|b\nb|r|c\n")
    (tmp_path / "names.tsv").write_text("a\tAda\t\t\t\n")
    (tmp_path / "corpus.json").write_text(
        json.dumps([{"title": "Graz", "text": "It saw Linz."}, {"title": "Linz", "text": "x"}])
    )
    docs = [
        {"title": "Graz", "text": "Graz saw Linz.", "extracted_triples": [["Graz", "saw", "Linz"], ["a", "b"]]},
        {"title": "Linz", "text": "x", "extracted_triples": []},
    ]
    (tmp_path / "openie.json").write_text(json.dumps({"docs": docs}))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "kind", "num_triples", "first_name"),
    [
        (["--from-triples", "kb.txt"], "triples", 2, "a"),
        (["--from-triples", "kb.txt", "--names", "names.tsv"], "triples", 2, "Ada"),
        (["--from-passages", "corpus.json"], "mentions", 1, "Graz"),
        (["--from-openie", "openie.json"], "openie", 1, "Graz"),
        (["--from-openie", "openie.json", "--with-mentions"], "openie+mentions", 2, "Graz"),
    ],
)
def test_build_kg_writes_the_folder_and_names_it_last(
    files, monkeypatch, capsys, arguments, kind, num_triples, first_name
):
    monkeypatch.chdir(files)
    assert build_kg.main([*arguments, "--out", "kg"]) == 0
    kg = load_kg(files / "kg")
    assert (kg.kind, kg.num_triples, kg.entity_names[0]) == (kind, num_triples, first_name)
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == "kg"
    assert any(line.split() == ["triples", str(num_triples)] for line in output)


def test_build_kg_says_how_many_rows_were_rejected_and_where_they_are(files, capsys):
    build_kg.main(["--from-openie", str(files / "openie.json"), "--out", str(files / "kg")])
    notes = capsys.readouterr().err
    assert "1 row rejected" in notes and "rejected.jsonl" in notes and "3 fields expected, got 2" in notes
    assert json.loads((files / "kg" / "rejected.jsonl").read_text())["reason"] == "3 fields expected, got 2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-triples", "none.tsv"], "none.tsv: no such file"),
        (["--from-passages", "kb.txt"], "does not start like JSON"),
        (["--from-openie", "corpus.json"], "not an OpenIE file"),
        (["--from-passages", "corpus.json", "--names", "names.tsv"], "--names goes with --from-triples"),
        (["--from-passages", "corpus.json", "--with-mentions"], "--with-mentions goes with --from-openie"),
        (["--from-triples", "kb.txt", "--max-rejected-share", "2"], "--max-rejected-share"),
        (["--from-triples", "kb.txt", "--min-chars", "0"], "--min-chars"),
        (["--from-triples", "kb.txt", "--out", "corpus.json"], "is not a KG folder"),
    ],
)
def test_build_kg_wrong_input_is_a_user_error(files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    with pytest.raises(UserError, match=message):
        build_kg.main(["--out", "kg", *arguments])
    assert not (files / "kg").exists()


def test_build_kg_as_a_command_exits_2_with_one_line(tmp_path):
    command = [sys.executable, "-m", "pipelines.build_kg", "--from-triples", "none.tsv", "--out", str(tmp_path / "kg")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: none.tsv: no such file") and done.stderr.count("\n") == 1


def test_build_kg_help_states_every_default():
    parser = build_kg.build_parser()
    parts = parser.format_help().split("\noptions:")[1].replace("\n", " ").split("  --")
    for part in parts[1:]:
        required = part.startswith(("from-", "out "))
        assert required or "default:" in part, part
