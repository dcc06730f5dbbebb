"""FB15k-237 from its real file, and the same triples as damaged N-Triples of our own writing."""

import gzip
import os
import random
from pathlib import Path

import pytest

from kgrag_gpu.kg.triples_kg import import_triples

FILE = Path(os.environ.get("KGRAG_DATA", "")) / "fb15k237" / "train.txt.gz"


def _escaped(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\u{ord(c):04X}" for c in text)


@pytest.mark.skipif(not FILE.is_file(), reason="needs $KGRAG_DATA/fb15k237/train.txt.gz")
def test_fb15k237_as_damaged_ntriples_gives_the_same_kg_and_lists_rejects(tmp_path: Path):
    rng = random.Random(0)
    lines, num_broken, num_repeated = ["\ufeff# byte-order mark, CRLF, escapes, repeats, broken lines"], 0, 0
    with gzip.open(FILE, "rt", encoding="utf-8") as stream:
        triples = [line.rstrip("\n").split("\t") for line in stream]
    for number, (head, relation, tail) in enumerate(triples):
        parts = [_escaped(p) if number % 7 == 0 else p for p in (head, relation, tail)]
        lines.append("<{}> <{}> <{}> .".format(*parts))
        if rng.random() < 0.05:
            lines.append(lines[-1])
            num_repeated += 1
        if rng.random() < 0.01:
            lines.append(f"<{head}> <{relation} <{tail}")
            num_broken += 1
    dump = tmp_path / "fb.nt.gz"
    dump.write_bytes(gzip.compress(("\r\n".join(lines) + "\r\n").encode(), 1))
    plain, read = import_triples(FILE), import_triples(dump, None, 0.05)
    assert (plain.heads == plain.tails).sum() == 1625
    assert read.content_hash == plain.content_hash and read.num_triples == 272_115
    assert len(read.rejected) == num_broken > 2000
    assert read.manifest["notes"]["num_duplicates"] == num_repeated
