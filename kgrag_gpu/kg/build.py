"""The KG that a run asks: a KG folder, a file of triples or extractions, or the question set's own passages.

What is built is kept under the cache directory by the hash of everything that went in, so it is built once.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kgrag_gpu.config.schema import KgConfig
from kgrag_gpu.data.records import read_text
from kgrag_gpu.kg.formats import Report, TripleOptions
from kgrag_gpu.kg.lines import bare_suffix
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.kg.merge import merge_kgs
from kgrag_gpu.kg.model_reader import ModelReader
from kgrag_gpu.kg.openie_import import import_openie, is_openie
from kgrag_gpu.kg.store import Kg, load_kg, save_kg
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.types import Passage, QuestionSet, UserError

BUILD_VERSION = 2  # raised when the same input gives another KG, so that no cache of an older code is read


def kg_for_run(
    config: KgConfig,
    question_set: QuestionSet,
    cache_dir: Path,
    report: Report | None = None,
    reader: ModelReader | None = None,
) -> Kg:
    """The KG of a run, from the cache where it has been built before.

    Args:
        config: `path` names a KG folder or a file; without it the question set's own passages are the source.
        question_set: gives the passages.
        cache_dir: built KGs lie in `<cache_dir>/kg/<hash>`.
        report: told about progress.
        reader: the model that reads the passages where `extractor` is "llm"; opened only when something is to be read.

    Raises:
        UserError: nothing to build from, or an input that cannot be read; no model for the extractor "llm".
    """
    if config.path is None:
        if not question_set.passages:
            raise UserError(
                f"{question_set.name} has no passages of its own; give its KG with --kg (a KG folder or a triples file)"
            )
        how = config.mentions.model_dump_json()
        if config.extractor == "llm":
            how = _needed(reader).identity
        key = _key([config.extractor, how, *_passage_parts(question_set.passages)])
        passages, source = question_set.passages, question_set.source
        return _cached(cache_dir, key, lambda: kg_from_passages(passages, config, source, report, reader))
    path = Path(config.path).expanduser()
    if path.is_dir():
        kg = load_kg(path)
        if not config.with_mentions:
            return kg
        key = _key(["with mentions", kg.content_hash, config.mentions.model_dump_json()])
        return _cached(cache_dir, key, lambda: with_mentions(kg, config))
    if not path.exists():
        raise UserError(f"{path}: no such KG folder or file; check --kg")
    names = Path(config.names_path).expanduser() if config.names_path else None
    parts = [
        path.name,  # its suffix may decide the format
        _file_hash(path),
        _file_hash(names) if names else "",
        str(config.max_rejected_share),
        str(config.languages),
        config.mentions.model_dump_json() if config.with_mentions else "",
    ]
    return _cached(cache_dir, _key(parts), lambda: kg_from_file(path, config, report))


def kg_from_file(path: Path, config: KgConfig, report: Report | None = None) -> Kg:
    """Build a KG from a file of triples, or from an OpenIE file (a JSON object with `docs`).

    Raises:
        UserError: the file cannot be read, or has too many unreadable rows.
    """
    if bare_suffix(path) == ".json":
        if not is_openie(_json_value(path)):
            raise UserError(
                f'{path}: a JSON file is read as OpenIE output ({{"docs": [...]}}); triples go in JSON lines (.jsonl)'
            )
        kg = import_openie(path, config.max_rejected_share)
    else:
        names = Path(config.names_path).expanduser() if config.names_path else None
        options = TripleOptions(languages=config.languages)
        kg = import_triples(path, names, config.max_rejected_share, report, options)
    return with_mentions(kg, config) if config.with_mentions else kg


def with_mentions(kg: Kg, config: KgConfig) -> Kg:
    """The KG together with the mentions of its own passages.

    Raises:
        UserError: it has no passages.
    """
    if not kg.passages:
        raise UserError("this KG has no passages, so no mentions can be added; leave kg.with_mentions out")
    return merge_kgs(kg, build_mentions_kg(kg.passages, config.mentions, "its passages"))


def kg_from_passages(
    passages: Sequence[Passage],
    config: KgConfig,
    source: str,
    report: Report | None = None,
    reader: ModelReader | None = None,
) -> Kg:
    """Build a KG from passages: by the names that they mention, or (`extractor` "llm") by what the model reads in them.

    Raises:
        UserError: the extractor "llm" without a model to read with.
    """
    if config.extractor == "llm":
        return _needed(reader).read(list(passages), source, report)
    return build_mentions_kg(list(passages), config.mentions, source)


def _needed(reader: ModelReader | None) -> ModelReader:
    if reader is None:
        raise UserError("the extractor llm cannot be used here: this command opens no language model")
    return reader


def _json_value(path: Path) -> object:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not complete JSON ({error.msg}); copy or download it again") from None


def _cached(cache_dir: Path, key: str, build: Callable[[], Kg]) -> Kg:
    directory = cache_dir / "kg" / key
    if (directory / "manifest.json").is_file():
        try:
            return load_kg(directory)
        except UserError:
            pass  # a damaged cache entry is built again and replaced
    kg = build()
    save_kg(kg, directory)
    return kg


def _passage_parts(passages: Iterable[Passage]) -> Iterable[str]:
    for passage in passages:
        yield passage.title
        yield passage.text


def _key(parts: Iterable[str]) -> str:
    digest = hashlib.sha256(str(BUILD_VERSION).encode())
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()[:24]


def _file_hash(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or os.strerror(error.errno or 0)})") from None
