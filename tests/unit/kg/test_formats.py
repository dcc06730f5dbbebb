"""Triples from files of every form; one bad line never stops the rest."""

import bz2
import gzip
import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kgrag_gpu.kg import lines
from kgrag_gpu.kg.formats import TripleOptions, TripleReader, sniff_format
from kgrag_gpu.kg.ntriples import decode_term, is_uri, local_name
from kgrag_gpu.types import UserError

ROWS = [("Graz", "lies_on", "Mur"), ("Mur", "flows|in", 'Maribor, "old" town'), ("北京", "在", "中国")]
TSV = "".join("\t".join(row) + "\n" for row in ROWS)


@dataclass
class Raw:
    """All blocks of a file, and what its reader learned."""

    reader: TripleReader
    blocks: list

    def column(self, role: str) -> list:
        return [value for block in self.blocks for value in getattr(block, role).to_pylist()]


def read_triples(path, **options) -> Raw:
    reader = TripleReader(path, TripleOptions(**options))
    return Raw(reader, list(reader))


def rows(raw) -> list[tuple]:
    return list(zip(raw.column("heads"), raw.column("relations"), raw.column("tails"), strict=True))


def rejects(raw) -> list[tuple]:
    return [(r.where, r.reason) for r in raw.reader.rejected]


@pytest.fixture
def put(tmp_path):
    def _put(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return _put


def as_csv() -> str:
    return "".join(",".join('"' + f.replace('"', '""') + '"' for f in row) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", TSV),
        ("a.txt", TSV.replace("\n", "\r\n")),
        ("a.txt", "\ufeff" + TSV + "\n\n"),
        ("a.tsv", "head\trelation\ttail\n" + TSV),
        ("a.tsv", "Subject\tPredicate\tObject\n" + TSV),
        ("a.csv", as_csv()),
        ("a.csv", "source,relationship,target\n" + as_csv()),
        ("a.jsonl", "\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS)),
        ("a.jsonl", "\n".join(json.dumps({"h": h, "r": r, "t": t}) for h, r, t in ROWS)),
        ("a.tsv.gz", gzip.compress(TSV.encode(), mtime=0)),
        ("a.tsv.bz2", bz2.compress(TSV.encode())),
    ],
)
def test_every_form_gives_the_same_triples(put, name, content):
    raw = read_triples(put(name, content))
    assert rows(raw) == ROWS
    assert (raw.reader.num_rows, raw.reader.rejected) == (3, [])


def test_pipes_are_read_and_a_line_with_more_of_them_is_rejected(put):
    raw = read_triples(put("kb.txt", "a|r|b\nc|r|d|e\n\nf|s|g\n"))
    assert rows(raw) == [("a", "r", "b"), ("f", "s", "g")]
    assert rejects(raw) == [("kb.txt:2", "3 fields expected, got 4")]
    assert raw.reader.num_rows == 3


def test_parquet_with_other_column_names_and_texts_is_read(tmp_path):
    table = pa.table({"text": ["s1", None], "subject": ["a", "b"], "predicate": ["r", "r"], "object": ["b", "c"]})
    pq.write_table(table, tmp_path / "t.parquet")
    raw = read_triples(tmp_path / "t.parquet")
    assert rows(raw) == [("a", "r", "b"), ("b", "r", "c")]
    assert raw.column("texts") == ["s1", None]
    pq.write_table(pa.table({"x": [1]}), tmp_path / "u.parquet")
    with pytest.raises(UserError, match="columns x; expected head, relation, tail"):
        read_triples(tmp_path / "u.parquet")


def test_graphrag_relationships_keep_their_description_as_text(put):
    raw = read_triples(put("rel.csv", "id,source,target,description\n1,A,B,A likes B\n"))
    assert rows(raw) == [("A", "related to", "B")]
    assert raw.column("texts") == ["A likes B"]


def test_bad_lines_of_tsv_are_rejected_with_their_number_and_reason(put):
    content = b"a\tr\tb\nonly one\n\t r\tb\na\tr\t \nx\xff\tr\ty\nc\tr\td\te\ng\tr\th"
    raw = read_triples(put("t.tsv", content))
    assert rows(raw) == [("a", "r", "b"), ("g", "r", "h")]
    assert rejects(raw) == [
        ("t.tsv:2", "3 fields expected, got 1"),
        ("t.tsv:3", "empty head"),
        ("t.tsv:4", "empty tail"),
        ("t.tsv:5", "not UTF-8"),
        ("t.tsv:6", "3 fields expected, got 4"),
    ]
    assert raw.reader.num_rows == 7


def test_bad_lines_of_csv_and_json_lines_are_rejected(put):
    raw = read_triples(put("t.csv", "a,r,b\nonly,two\nc,r,d\n"))
    assert (rows(raw), rejects(raw)) == ([("a", "r", "b"), ("c", "r", "d")], [("t.csv:2", "3 fields expected, got 2")])
    raw = read_triples(put("t.jsonl", '["a", "r", "b"]\n{"h": "a"}\n{not\n["a"]\n3\n'))
    assert rows(raw) == [("a", "r", "b")]
    assert [reason for _, reason in rejects(raw)] == [
        "no `relation`",
        "the line is not JSON",
        "3 fields expected, got 1",
        "a JSON object or an array of three is expected",
    ]


def test_names_are_trimmed_and_normalised_and_keep_quotes_and_case(put):
    raw = read_triples(put("t.tsv", '  Cafe\u0301 \tr\t"Heroes"\nCAFÉ\tr\tx\n'))
    assert rows(raw) == [("Café", "r", '"Heroes"'), ("CAFÉ", "r", "x")]


def test_blocks_do_not_change_what_is_read(put, monkeypatch):
    content = "".join(f"e{i}\tr\te{i + 1}\n" for i in range(50)) + "bad\n" + "last\tr\tone"
    path = put("t.tsv", content)
    whole = read_triples(path)
    monkeypatch.setattr(lines.read_line_blocks, "__defaults__", (7,))
    assert rows(read_triples(path)) == rows(whole)
    assert rejects(read_triples(path)) == rejects(whole) == [("t.tsv:51", "3 fields expected, got 1")]


NT = r"""# a comment
<http://x.org/Graz> <http://x.org/liesOn> <http://x.org/Mur> .
<http://x.org/Graz> <http://www.w3.org/2000/01/rdf-schema#label> "Gr\u00E1z"@de .
<http://x.org/Graz> <http://www.w3.org/2000/01/rdf-schema#label> "Graz \"city\""@en .
<http://x.org/Graz> <http://www.w3.org/2004/02/skos/core#altLabel> "Gratz" .
<http://x.org/Graz> <http://www.w3.org/2000/01/rdf-schema#comment> "A town" .
_:b1 <http://x.org/size> "127"^^<http://www.w3.org/2001/XMLSchema#int> . # why not
not a triple
<http://x.org/a> <http://x.org/b> "no end .
<http://rdf.freebase.com/ns/m.0abc>	<http://rdf.freebase.com/ns/a.b.c>	<http://rdf.freebase.com/ns/m.0def>	.
"""


def test_ntriples_give_edges_names_and_rejects(put):
    raw = read_triples(put("t.nt.gz", gzip.compress(NT.encode(), mtime=0)))
    assert raw.reader.format == "ntriples"
    assert rows(raw) == [
        ("http://x.org/Graz", "http://x.org/liesOn", "http://x.org/Mur"),
        ("_:b1", "http://x.org/size", "127"),
        ("http://rdf.freebase.com/ns/m.0abc", "http://rdf.freebase.com/ns/a.b.c", "http://rdf.freebase.com/ns/m.0def"),
    ]
    assert raw.reader.names == {"http://x.org/Graz": 'Graz "city"'}
    assert raw.reader.aliases == {"http://x.org/Graz": ["Gratz"]}
    assert raw.reader.descriptions == {"http://x.org/Graz": "A town"}
    assert [where for where, _ in rejects(raw)] == ["t.nt.gz:8", "t.nt.gz:9"]


@pytest.mark.parametrize(
    ("term", "decoded"),
    [
        (r'"tab\there \\u0041 \u0041 \U0001F600"@en', "tab\there \\u0041 A 😀"),
        (r"<http://x/\u00E9>", "http://x/é"),
        ('"a"@b"^^<http://t>', 'a"@b'),
        ("_:n1", "_:n1"),
        (r'"\uD800"', "\ufffd"),
    ],
)
def test_ntriples_escapes_are_decoded(term, decoded):
    assert decode_term(term) == decoded


def test_local_names_are_readable():
    assert local_name("http://dbpedia.org/resource/S%C3%A3o_Paulo") == "São_Paulo"
    assert local_name("http://x.org/ns#Thing") == "Thing"
    assert local_name("http://rdf.freebase.com/key/wiki/Andr$00E9") == "André"
    assert is_uri("http://x") and not is_uri("Title: a film") and not is_uri("_:b")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "", "is empty"),
        ("a.txt", "just words\nand more\n", "no known form of triples"),
        ("a.tsv.gz", gzip.compress(TSV.encode() * 50, mtime=0)[:-20], "cut-off"),
        ("a.parquet", "no parquet", "not a readable Parquet file"),
    ],
)
def test_file_that_is_no_triples_is_refused(put, name, content, message):
    with pytest.raises(UserError, match=message):
        read_triples(put(name, content))


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        sniff_format(tmp_path / "none.tsv")
    with pytest.raises(UserError, match="is a folder"):
        sniff_format(tmp_path)


def test_progress_is_the_share_of_the_file_that_was_read(put, monkeypatch):
    content = "".join(f"e{i}\tr\te{i + 1}\n" for i in range(4_000))
    reader = TripleReader(put("t.tsv.gz", gzip.compress(content.encode(), mtime=0)))
    monkeypatch.setattr(lines.read_line_blocks, "__defaults__", (8_000,))
    shares = [reader.progress for _ in reader]
    assert len(shares) > 3 and shares == sorted(shares) and 0 < shares[0] <= 1 and reader.progress == 1.0


def test_columns_and_languages_are_chosen(put):
    chosen = {"head": "who", "relation": "how", "tail": "whom", "text": "note"}
    raw = read_triples(put("t.csv", "note,whom,how,who\nn1,b,r,a\n"), columns=chosen)
    assert rows(raw) == [("a", "r", "b")] and raw.column("texts") == ["n1"]
    raw = read_triples(put("t.jsonl", '{"who": "a", "how": "r", "whom": "b", "note": "n"}\n'), columns=chosen)
    assert rows(raw) == [("a", "r", "b")]
    with pytest.raises(UserError, match=r"no column 'who' for the head; its first line has: a, r, b"):
        read_triples(put("t.tsv", "a\tr\tb\n"), columns=chosen)
    dump = "".join(f'<http://x/a> <http://x/motto> "{text}"{tag} .\n' for text, tag in [
        ("hello", "@en"), ("hallo", "@de-AT"), ("salut", "@fr"), ("plain", "")])  # fmt: skip
    assert [tail for _, _, tail in rows(read_triples(put("t.nt", dump)))] == ["hello", "hallo", "salut", "plain"]
    kept = read_triples(put("t.nt", dump), languages=("de",))
    assert [tail for _, _, tail in rows(kept)] == ["hallo", "plain"]
    label = '<http://x/a> <http://www.w3.org/2000/01/rdf-schema#label> "%s"@%s .\n'
    german = put("t.nt", label % ("Vienna", "en") + label % ("Wien", "de") + dump)
    assert read_triples(german, languages=("de",)).reader.names == {"http://x/a": "Wien"}
    assert read_triples(german).reader.names == {"http://x/a": "Vienna"}
