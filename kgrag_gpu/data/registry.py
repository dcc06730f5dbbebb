"""Question sets by name. `load_questions` finds the records, hands each to the set's loader module, and pools passages.

How a loader module plugs in: a line in `_MODULES` (a name whose module is not there is not offered). The module holds

- `EXPECTED: str`: what one record looks like, for error messages ("`id`, `question` and `paragraphs`");
- `FILE_PATTERNS: tuple[str, ...]`: glob patterns of file names, best first, for choosing a file in a folder;
- `matches(record) -> bool`: whether a raw record is of this format at all (cheap; used on the first record, and to
  name the right data set when a file of another format was given);
- `parse(record, pool, options) -> Question`: one raw record to one question, passages added to the pool; raises
  `RecordError(reason)` for a record that cannot be used (what it had pooled is taken back);
- optional `read(path) -> RecordFile`: for files that are not JSON or Parquet (default `read_json_records`);
- optional `HUB: HubConfig`: where the set lies on the hub.

A bad record is rejected and counted and the rest loads. The file as a whole is refused (UserError) when its first
record is not of the format, or when no record can be used: then it is another format, not a file with a flaw.

`limit` cuts the questions, never the pooled passages: a question finds the same corpus whatever the limit.
"""

import dataclasses
import difflib
import hashlib
import importlib
import json
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from kgrag_gpu.config.schema import DatasetConfig, HubConfig
from kgrag_gpu.data.hub import HubUnavailable, hub_records
from kgrag_gpu.data.locate import choose_file
from kgrag_gpu.data.pool import PassagePool
from kgrag_gpu.data.records import ParseOptions, RecordError, RecordFile, excerpt, read_json_records
from kgrag_gpu.types import Question, QuestionSet, Rejected, UserError

_MODULES: dict[str, str] = {
    "musique": "kgrag_gpu.data.musique",
    "hotpotqa": "kgrag_gpu.data.hotpotqa",
    "2wikimultihopqa": "kgrag_gpu.data.twowiki",
    "ircot": "kgrag_gpu.data.ircot",
    "webqsp": "kgrag_gpu.data.webqsp",
    "cwq": "kgrag_gpu.data.cwq",
    "grailqa": "kgrag_gpu.data.grailqa",
    "webquestions": "kgrag_gpu.data.webquestions",
    "pathquestion": "kgrag_gpu.data.pathquestion",
    "metaqa": "kgrag_gpu.data.metaqa",
    "jsonl": "kgrag_gpu.data.own_jsonl",
}
DATASETS: dict[str, str] = {name: module for name, module in _MODULES.items() if find_spec(module)}
SAMPLE_DATASET = "musique"


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """Records and where they come from."""

    file: RecordFile
    place: str  # names the file in messages
    source: str  # QuestionSet.source
    is_sample: bool = False


def load_questions(config: DatasetConfig, require_full: bool = False) -> QuestionSet:
    """Load the question set that `config` names.

    Looked for in this order: `config.data` (a file or folder), `$KGRAG_DATA/<name>/`, the hub or its cache through
    `datasets` (no connection under HF_HUB_OFFLINE=1), and for MuSiQue alone the sample inside the package.

    Args:
        config: name, place, limit, question field.
        require_full: refuse the embedded sample.

    Raises:
        UserError: unknown name, nothing found, a file of another format, or a file without a usable record.
    """
    loader = _loader(config.name)
    found = _find(config, loader, require_full)
    options = ParseOptions(config.question_field)
    if config.question_field:
        _check_question_field(found, config.question_field)
    pool = PassagePool()
    questions, rejected = _parse_all(found, loader, pool, options, config.name)
    questions = _with_unique_ids(questions)[: config.limit]
    return QuestionSet(
        name=config.name,
        questions=tuple(questions),
        passages=tuple(pool.passages),
        source=found.source.format(n=len(questions)) if found.is_sample else found.source,
        content_hash=content_hash(questions, pool),
        is_sample=found.is_sample,
        rejected=tuple(rejected),
        passage_sentences=tuple(pool.sentences) if pool.has_sentences else None,
    )


def content_hash(questions: Sequence[Question], pool: PassagePool) -> str:
    """SHA-256 (32 hex digits) over the questions and passages in use; the same records in another file hash alike."""
    digest = hashlib.sha256()
    for question in questions:
        row = json.dumps(dataclasses.asdict(question), ensure_ascii=False, sort_keys=True, default=str)
        digest.update(row.encode("utf-8", "surrogatepass") + b"\n")
    for passage, sentences in zip(pool.passages, pool.sentences, strict=True):
        row = json.dumps([passage.title, passage.text, passage.external_id, sentences], ensure_ascii=False)
        digest.update(row.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()[:32]


def _loader(name: str) -> ModuleType:
    if name not in DATASETS:
        near = difflib.get_close_matches(name.lower(), DATASETS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"unknown data set {name!r}; {hint}known: {', '.join(DATASETS)}")
    return importlib.import_module(DATASETS[name])


def _find(config: DatasetConfig, loader: ModuleType, require_full: bool) -> _Found:
    if config.data is not None:
        return _from_path(Path(config.data).expanduser(), config.name, loader)
    looked = ["no --data"]
    root = os.environ.get("KGRAG_DATA")
    folder = Path(root).expanduser() / config.name if root else None
    if folder is None:
        looked.append("KGRAG_DATA is not set")
    elif folder.is_dir():
        return _from_path(folder, config.name, loader)
    else:
        looked.append(f"no folder {folder}")
    hub: HubConfig | None = config.hub or getattr(loader, "HUB", None)
    if hub is None:
        looked.append("not on the hub")
    else:
        try:
            return _Found(hub_records(hub), hub.path, _hub_source(hub))
        except HubUnavailable as error:
            looked.append(f"hub: {error}")
    if config.name == SAMPLE_DATASET and not require_full:
        return _embedded_sample()
    raise UserError(
        f"no {config.name} questions found ({'; '.join(looked)}); give a file with --data or set KGRAG_DATA"
        + (" (the embedded sample is refused by --require-full)" if config.name == SAMPLE_DATASET else "")
    )


def _from_path(path: Path, name: str, loader: ModuleType) -> _Found:
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; check --data (a {name} file or its folder is expected)")
    chosen = choose_file(path, loader.FILE_PATTERNS, name) if path.is_dir() else path
    read: Callable[[Path], RecordFile] = getattr(loader, "read", read_json_records)
    return _Found(read(chosen), str(chosen), f"file {chosen}")


def _hub_source(hub: HubConfig) -> str:
    parts = [hub.path, hub.name, f"split {hub.split}", f"revision {hub.revision}" if hub.revision else None]
    return "hub " + ", ".join(p for p in parts if p)


def _embedded_sample() -> _Found:
    from kgrag_gpu.data.sample import sample_records

    records = [(f"sample[{i}]", record) for i, record in enumerate(sample_records())]
    return _Found(RecordFile(records), "embedded sample", "embedded sample, {n} questions, not MuSiQue", is_sample=True)


def _check_question_field(found: _Found, field: str) -> None:
    names = {key for _, record in found.file.records if isinstance(record, dict) for key in record}
    if field not in names:
        near = difflib.get_close_matches(field, names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(
            f"{found.place}: no record has the field {field!r} of --question-field; "
            f"{hint}fields: {', '.join(sorted(names)) or 'none'}"
        )


def _parse_all(
    found: _Found, loader: ModuleType, pool: PassagePool, options: ParseOptions, name: str
) -> tuple[list[Question], list[Rejected]]:
    rejected = list(found.file.rejected)
    records = found.file.records
    if records and not loader.matches(records[0][1]):
        raise UserError(_other_format(found, loader, name, records[0]))
    questions: list[Question] = []
    reasons: list[str] = []
    for where, record in records:
        num_passages = len(pool)
        try:
            questions.append(loader.parse(record, pool, options))
        except RecordError as error:
            pool.truncate(num_passages)
            reasons.append(str(error))
            rejected.append(Rejected(where, str(error), excerpt(record)))
    if not questions:
        first = f"; the first: {reasons[0]}" if reasons else ""
        raise UserError(
            f"{found.place}: none of the {len(records)} records can be used as {name}{first}; "
            f"a record needs {loader.EXPECTED}"
        )
    return questions, rejected


def _other_format(found: _Found, loader: ModuleType, name: str, first: tuple[str, Any]) -> str:
    where, record = first
    missing = ""
    try:
        loader.parse(record, PassagePool(), ParseOptions())
    except RecordError as error:
        missing = f" ({error})"
    others = [other for other in DATASETS if other != name and _matches_other(other, record)]
    advice = (
        f"it looks like {others[0]}: use --dataset {others[0]}" if others else "check --dataset, or repair the record"
    )
    place = found.place if found.place.endswith(where.split(":")[0].split("[")[0]) else f"{found.place} {where}"
    return f"{place}: not a {name} file: its first record is not one{missing}; needed: {loader.EXPECTED}; {advice}"


def _matches_other(name: str, record: Any) -> bool:
    """Own JSONL accepts nearly anything with a question, so it is never the hint. Text lines are told apart by name."""
    if name == "jsonl" or not isinstance(record, dict):
        return False
    return bool(_loader(name).matches(record))


def _with_unique_ids(questions: list[Question]) -> list[Question]:
    """Give a repeated id a suffix (#2, #3 ...), so that no question's result overwrites another's."""
    seen: dict[str, int] = {}
    taken = {q.id for q in questions}
    result = []
    for question in questions:
        count = seen.get(question.id, 0) + 1
        seen[question.id] = count
        if count > 1:
            new_id = f"{question.id}#{count}"
            while new_id in taken:
                count += 1
                new_id = f"{question.id}#{count}"
            seen[question.id] = count
            taken.add(new_id)
            question = dataclasses.replace(question, id=new_id, extra={**question.extra, "original_id": question.id})
        result.append(question)
    return result
