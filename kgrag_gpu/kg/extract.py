"""A KG from passages by the model (OpenIE): first the entities of a passage, then its triples with their sentences.

All passages of a chunk go to the engine in one batch per step. Resumable by passage: the engine's cache holds every
usable reply, so the same call after a kill asks only for what is missing. A passage that yields nothing stays in the
KG, found by its text; every row that is dropped is listed with its reason. Names are kept as the passage writes them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kgrag_gpu.kg.openie_import import Extraction, build_extraction_kg, clean_name
from kgrag_gpu.kg.sentences import split_sentences
from kgrag_gpu.kg.store import Kg, make_kg
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Reply, Sampling
from kgrag_gpu.prompts.registry import PROMPTS, make_request, sampling_for
from kgrag_gpu.types import Passage, Rejected

CHUNK_PASSAGES = 512  # enough to keep the engine full; progress is told after each chunk
_PROMPT_TOKENS = 400  # upper bound on the instructions of either prompt
_EXCERPT_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class _Window:
    """A run of sentences of one passage that fits the model's context; most passages are one window."""

    passage: int
    sentences: tuple[str, ...]


@dataclass(slots=True)
class ModelExtraction:
    """What the model read: triples as in `Extraction`, the sentence of each, and the entities of each passage."""

    extraction: Extraction
    sentences: list[str] = field(default_factory=list)  # beside `extraction.rows`; "" where the number was wrong
    entities: list[list[str]] = field(default_factory=list)  # beside `extraction.passages`

    def summary(self) -> dict[str, Any]:
        """Counts for a manifest: coverage, yield, and rejects by reason."""
        num_passages = len(self.extraction.passages)
        with_triples = len({row[0] for row in self.extraction.rows})
        reasons = Counter(item.reason.split(":")[0] for item in self.extraction.rejected)
        return {
            "num_passages": num_passages,
            "share_with_triples": with_triples / num_passages if num_passages else 0.0,
            "triples_per_passage": len(self.extraction.rows) / num_passages if num_passages else 0.0,
            "rejected_by_reason": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        }


def extract_kg(
    passages: Sequence[Passage],
    engine: Engine,
    source: str = "passages",
    sampling: Sampling | None = None,
    report: Callable[[str], None] | None = None,
    openie_path: Path | None = None,
) -> Kg:
    """Build a KG of kind "llm": edges carry the sentence that states them and the passage that it stands in.

    Args:
        passages: read once each; equal ones are one passage.
        engine: its cache makes the work resumable.
        source: for the manifest.
        sampling: temperature, seed and stops, the engine's own by default; reply limits are those of the prompts.
        report: told about progress, one line a chunk.
        openie_path: also write what was read there, in HippoRAG's OpenIE format.

    Returns:
        The KG; its manifest notes hold the extraction's summary, its `rejected` every dropped row.
    """
    found = extract_triples(passages, engine, sampling, report)
    if openie_path is not None:
        export_openie(found, openie_path)
    config = {"model_id": engine.model_id, "revision": engine.revision}
    kg = build_extraction_kg(found.extraction, "llm", f"{source}, read by {engine.model_id}", config)
    return _with_sentences(kg, found)


def extract_triples(
    passages: Sequence[Passage],
    engine: Engine,
    sampling: Sampling | None = None,
    report: Callable[[str], None] | None = None,
) -> ModelExtraction:
    """The model's triples, checked. See `extract_kg`."""
    distinct = list(dict.fromkeys(passages))
    found = ModelExtraction(Extraction(passages=distinct), entities=[[] for _ in distinct])
    for start in range(0, len(distinct), CHUNK_PASSAGES):
        chunk = range(start, min(start + CHUNK_PASSAGES, len(distinct)))
        windows = [window for row in chunk for window in _windows(row, distinct[row], engine)]
        _read_chunk(windows, found, engine, sampling)
        if report:
            report(f"{chunk.stop} of {len(distinct)} passages read, {len(found.extraction.rows)} triples")
    return found


def export_openie(found: ModelExtraction, path: Path) -> None:
    """Write the extraction in HippoRAG's OpenIE format; appears whole or not at all."""
    by_passage: list[list[list[str]]] = [[] for _ in found.extraction.passages]
    for passage, head, relation, tail in found.extraction.rows:
        by_passage[passage].append([head, relation, tail])
    docs = [
        {
            "title": passage.title,
            "text": passage.text,
            "passage": f"{passage.title}\n{passage.text}",
            "extracted_entities": found.entities[row],
            "extracted_triples": by_passage[row],
        }
        for row, passage in enumerate(found.extraction.passages)
    ]
    names = [name for names in found.entities for name in names]
    num_names = max(1, len(names))
    averages = {
        "avg_ent_chars": sum(len(name) for name in names) / num_names,
        "avg_ent_words": sum(len(name.split()) for name in names) / num_names,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps({"docs": docs, **averages}, ensure_ascii=False, indent=1), encoding="utf-8")
    partial.replace(path)


def _windows(row: int, passage: Passage, engine: Engine) -> Iterator[_Window]:
    """A passage, cut between sentences where it is too long for one prompt (facts told across a cut are lost)."""
    sentences = [passage.text[start:end] for start, end in split_sentences(passage.text)]
    limit = engine.max_context_tokens - _PROMPT_TOKENS - 2 * PROMPTS["openie_triples"].max_tokens
    lengths = engine.count_tokens(sentences)
    kept: list[str] = []
    used = 0
    for sentence, length in zip(sentences, lengths, strict=True):
        if kept and used + length > limit:
            yield _Window(row, tuple(kept))
            kept, used = [], 0
        kept.append(sentence)
        used += length
    if kept:
        yield _Window(row, tuple(kept))


def _read_chunk(windows: Sequence[_Window], found: ModelExtraction, engine: Engine, sampling: Sampling | None) -> None:
    passages = found.extraction.passages
    titles = [passages[window.passage].title for window in windows]
    texts = [" ".join(window.sentences) for window in windows]
    requests = [
        make_request("openie_entities", _where(window, passages), title=title, text=text)
        for window, title, text in zip(windows, titles, texts, strict=True)
    ]
    replies = engine.generate(requests, sampling_for("openie_entities", sampling or engine.sampling))
    entities = [_entities(reply, text) for reply, text in zip(replies, texts, strict=True)]
    requests = [
        make_request(
            "openie_triples", _where(window, passages), title=title, sentences=window.sentences, entities=names
        )
        for window, title, names in zip(windows, titles, entities, strict=True)
    ]
    triple_replies = engine.generate(requests, sampling_for("openie_triples", sampling or engine.sampling))
    for window, names, first, second in zip(windows, entities, replies, triple_replies, strict=True):
        found.entities[window.passage] += [name for name in names if name not in found.entities[window.passage]]
        for step, reply in (("entities", first), ("triples", second)):
            if not reply.ok:
                where, reason = _where(window, passages), f"no usable {step} reply: {reply.reason}"
                found.extraction.rejected.append(Rejected(where, reason, reply.text[:_EXCERPT_CHARACTERS]))
        _take_triples(window, second, found)


def _entities(reply: Reply, text: str) -> list[str]:
    """The entities that stand in the passage as written; others are the model's own."""
    if reply.parsed is None:
        return []
    cleaned = [clean_name(name) for name in getattr(reply.parsed, "entities", [])]
    return [name for name in dict.fromkeys(cleaned) if name and name in text]


def _take_triples(window: _Window, reply: Reply, found: ModelExtraction) -> None:
    """Keep the rows that hold; list the others with their reason."""
    passage = found.extraction.passages[window.passage]
    text = f"{passage.title} {' '.join(window.sentences)}".casefold()
    seen = {row[1:] for row in found.extraction.rows if row[0] == window.passage}
    for row in getattr(reply.parsed, "triples", []):
        parts = [clean_name(part) for part in row[:3] if isinstance(part, str)]
        reason = _fault(row, parts, text)
        if not reason and tuple(parts) in seen:
            reason = "said twice"
        if reason:
            where = _where(window, found.extraction.passages)
            found.extraction.rejected.append(Rejected(where, reason, str(list(row))[:_EXCERPT_CHARACTERS]))
            continue
        head, relation, tail = parts
        seen.add((head, relation, tail))
        number = row[3] if len(row) > 3 and isinstance(row[3], int) else 0
        found.extraction.rows.append((window.passage, head, relation, tail))
        found.sentences.append(window.sentences[number - 1] if 1 <= number <= len(window.sentences) else "")


def _fault(row: Sequence[Any], parts: Sequence[str], text: str) -> str:
    """Why a row is no triple of this passage; "" where it is one."""
    if len(row) not in (3, 4) or len(parts) != 3:
        return "not head, relation, tail and a sentence number"
    empty = [name for name, part in zip(("head", "relation", "tail"), parts, strict=True) if not part]
    if empty:
        return f"empty {empty[0]}"
    if parts[0].casefold() == parts[2].casefold():
        return "head and tail are the same"
    if parts[0].casefold() not in text and parts[2].casefold() not in text:
        return "neither head nor tail stands in the passage"
    return ""


def _where(window: _Window, passages: Sequence[Passage]) -> str:
    title = passages[window.passage].title
    return f"passage {window.passage + 1} ({title})" if title else f"passage {window.passage + 1}"


def _with_sentences(kg: Kg, found: ModelExtraction) -> Kg:
    """The KG with each edge's text replaced by the sentence that the model named, where it named one."""
    said: dict[tuple[int, str, str, str], str] = {}
    for (passage, head, relation, tail), sentence in zip(found.extraction.rows, found.sentences, strict=True):
        if sentence:
            said.setdefault((passage, head.casefold(), relation, tail.casefold()), sentence)
    folded = [clean_name(name).casefold() for name in kg.entity_names]
    texts = list(kg.triple_texts)
    first_passages = kg.triple_passages[kg.triple_passage_offsets[:-1]] if len(texts) else np.zeros(0, np.int32)
    for row, passage in enumerate(first_passages.tolist()):
        relation = kg.relation_names[int(kg.relations[row])]
        key = (passage, folded[int(kg.heads[row])], relation, folded[int(kg.tails[row])])
        texts[row] = said.get(key, texts[row])
    notes = {**dict(kg.manifest.get("notes", {})), **found.summary()}
    changed = replace(kg, triple_texts=texts, manifest={**kg.manifest, "notes": notes})
    return _remade(changed)


def _remade(kg: Kg) -> Kg:
    """Checked and hashed anew, since the texts are part of the hash."""
    fields = {name: getattr(kg, name) for name in Kg.__dataclass_fields__ if name != "content_hash"}
    return make_kg(**fields)
