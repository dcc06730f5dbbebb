"""Every text format of triples under every compression gives the KG of the plain file."""

from pathlib import Path

import pyarrow as pa
import pytest

from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.types import UserError

TEXTS = {
    "kb.tsv": "ann\tknows\tbob\nbob\tknows\tcid\n",
    "kb.csv": "head,relation,tail\nann,knows,bob\nbob,knows,cid\n",
    "kb.jsonl": '{"head": "ann", "relation": "knows", "tail": "bob"}\n'
    '{"head": "bob", "relation": "knows", "tail": "cid"}\n',
    "kb.nt": "<http://a/ann> <http://a/knows> <http://a/bob> .\n<http://a/bob> <http://a/knows> <http://a/cid> .\n",
}


def _write(path: Path, text: str, codec: str) -> Path:
    with pa.output_stream(str(path), compression=codec) as stream:
        stream.write(text.encode())
    return path


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(("suffix", "codec"), [(".gz", "gzip"), (".bz2", "bz2"), (".zst", "zstd")])
def test_import_compressed_file_gives_the_plain_files_kg(tmp_path: Path, name: str, suffix: str, codec: str):
    plain = tmp_path / name
    plain.write_text(TEXTS[name], encoding="utf-8")
    packed = _write(tmp_path / (name + suffix), TEXTS[name], codec)
    kg = import_triples(packed)
    assert kg.num_triples == 2
    assert kg.content_hash == import_triples(plain).content_hash


def test_import_cut_off_zstd_is_refused_in_words(tmp_path: Path):
    packed = _write(tmp_path / "kb.tsv.zst", "".join(f"e{i}\tr\te{i * 7}\n" for i in range(5000)), "zstd")
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    with pytest.raises(UserError, match="cut-off"):
        import_triples(packed)
