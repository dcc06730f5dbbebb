"""HippoRAG's OpenIE JSON: {"docs": [{"title", "text" or "passage", "extracted_triples": [[h, r, t], ...]}, ...]}.

A row that does not have three filled fields is a model's slip: rejected and listed, never a reason to stop. A document
that is no document counts against `max_rejected_share`. Documents without triples keep their passage.

Extracted names are spelled by a model, so spellings that differ in white space, wrapping quotes or case are one entity;
a title is taken as written, and the other spellings become aliases. Titles that differ in case stay apart.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kgrag_gpu.data.pool import nfc
from kgrag_gpu.data.records import excerpt, read_text
from kgrag_gpu.kg.collapse import collapse_triples
from kgrag_gpu.kg.sentences import split_sentences
from kgrag_gpu.kg.store import Kg, make_kg
from kgrag_gpu.kg.triples_kg import check_rejected
from kgrag_gpu.types import Passage, Rejected, UserError

_WORD = re.compile(r"\w+")
_QUOTES = ('"“”«»', "'‘’`")  # either kind may wrap a name, and stays where it also stands inside


@dataclass(slots=True)
class Extraction:
    """Passages with the triples a model read in them. `rows` are (passage, head, relation, tail) as spelled."""

    passages: list[Passage] = field(default_factory=list)
    rows: list[tuple[int, str, str, str]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def import_openie(path: Path, max_rejected_share: float = 0.01) -> Kg:
    """Build a KG from a HippoRAG OpenIE file.

    Raises:
        UserError: unreadable, of another form, or too many documents that are none.
    """
    extraction = read_openie(path, max_rejected_share)
    return build_extraction_kg(extraction, "openie", f"openie {path}")


def is_openie(value: Any) -> bool:
    """Whether a JSON value is of this form."""
    docs = value.get("docs") if isinstance(value, Mapping) else None
    return isinstance(docs, list) and any(isinstance(doc, Mapping) and "extracted_triples" in doc for doc in docs)


def read_openie(path: Path, max_rejected_share: float = 0.01) -> Extraction:
    """Read and check the rows; a passage that stands twice is one passage.

    Raises:
        UserError: unreadable, of another form, or too many documents that are none.
    """
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not complete JSON ({error.msg}); copy or download it again") from None
    if not is_openie(value):
        raise UserError(
            f'{path}: not an OpenIE file; {{"docs": [{{"title", "text", "extracted_triples"}}]}} is expected'
        )
    result = Extraction()
    bad_docs: list[Rejected] = []
    numbers: dict[tuple[str, str], int] = {}
    for i, doc in enumerate(value["docs"]):
        where = f"{path.name} docs[{i}]"
        passage = _passage(doc)
        triples = doc.get("extracted_triples") if isinstance(doc, Mapping) else None
        if passage is None or not isinstance(triples, list):
            reason = "no text" if passage is None else "`extracted_triples` is not a list"
            bad_docs.append(Rejected(where, reason, excerpt(doc)))
            continue
        key = (passage.title, passage.text)
        if numbers.setdefault(key, len(result.passages)) == len(result.passages):
            result.passages.append(passage)
        _take_rows(result, triples, numbers[key], where)
    check_rejected(path, bad_docs, len(value["docs"]), max_rejected_share)
    result.rejected.extend(bad_docs)
    return result


def _passage(doc: Any) -> Passage | None:
    """Title and text; HippoRAG 2 has them as one `passage`, the title on its first line."""
    if not isinstance(doc, Mapping):
        return None
    title, text = doc.get("title"), doc.get("text")
    if not isinstance(text, str) and isinstance(doc.get("passage"), str):
        first, newline, rest = doc["passage"].partition("\n")
        title, text = (title or first, rest) if newline else (title, first)
    if not isinstance(text, str) or not (text.strip() or title):
        return None
    return Passage(nfc(str(title or "")).strip(), nfc(text).strip())


def _take_rows(result: Extraction, triples: Sequence[Any], passage: int, where: str) -> None:
    for j, row in enumerate(triples):
        reason = ""
        fields: list[str] = []
        if not isinstance(row, list | tuple):
            reason = f"a list of three fields expected, got {type(row).__name__}"
        elif len(row) != 3:
            reason = f"3 fields expected, got {len(row)}"
        else:
            fields = [clean_name(str(value)) if isinstance(value, str | int | float) else "" for value in row]
            empty = [name for name, value in zip(("head", "relation", "tail"), fields, strict=True) if not value]
            reason = f"empty {empty[0]}" if empty else ""
        if reason:
            result.rejected.append(Rejected(f"{where}.extracted_triples[{j}]", reason, excerpt(row)))
        else:
            result.rows.append((passage, fields[0], fields[1], fields[2]))


def clean_name(text: str) -> str:
    """NFC, white space runs as one space, quotes that wrap the whole cut off."""
    cleaned = " ".join(nfc(text).split())
    for marks in _QUOTES:
        inner = cleaned[1:-1]
        if inner and cleaned[0] in marks and cleaned[-1] in marks and not set(inner) & set(marks):
            return inner.strip() or cleaned
    return cleaned


def build_extraction_kg(extraction: Extraction, kind: str, source: str, config: Mapping[str, Any] | None = None) -> Kg:
    """A KG of extracted triples with their passages.

    Entities: titles in first-seen order, then extracted names. Equal triples of several passages are one, its passages
    merged. An edge's text is the sentence of its (first) passage that shares most words with the triple (ties: the
    first), "head relation tail" where none shares any. Relations differ as written, after white space.
    """
    passages = extraction.passages
    table = _NameTable(passages, extraction.rows)
    relations = list(dict.fromkeys(row[2] for row in extraction.rows))
    relation_rows = {name: i for i, name in enumerate(relations)}
    raw = np.array(
        [(table.row(h), relation_rows[r], table.row(t), p) for p, h, r, t in extraction.rows], dtype=np.int64
    ).reshape(-1, 4)
    kept = collapse_triples(raw[:, 0], raw[:, 1], raw[:, 2], raw[:, 3])
    heads, relation_ids, tails, _ = raw[kept.rows].T
    words_of = _SentenceFinder(passages)
    texts = [words_of.text(extraction.rows[row]) for row in kept.rows]
    notes = {"num_rows": len(extraction.rows), "num_duplicates": len(extraction.rows) - len(kept.rows)}
    return make_kg(
        entity_names=table.names,
        entity_aliases=table.aliases(),
        relation_names=relations,
        heads=heads,
        relations=relation_ids,
        tails=tails,
        triple_texts=texts,
        triple_passage_offsets=kept.offsets,
        triple_passages=kept.passages,
        passages=passages,
        passage_entities=np.array([table.titles.get(p.title, -1) for p in passages], dtype=np.int32),
        kind=kind,
        manifest={"source": source, "notes": notes, "config": dict(config or {})},
        rejected=extraction.rejected,
    )


class _NameTable:
    """Which entity a spelling means: a title as written, else the title or name that it equals but for case."""

    def __init__(self, passages: Sequence[Passage], rows: Sequence[tuple[int, str, str, str]]):
        self.titles: dict[str, int] = {}
        for passage in passages:
            if passage.title:
                self.titles.setdefault(passage.title, len(self.titles))
        self.names: list[str] = list(self.titles)
        self._by_exact = {clean_name(title): row for title, row in reversed(self.titles.items())}
        self._by_folded = {clean_name(title).casefold(): row for title, row in reversed(self.titles.items())}
        self._spellings: dict[int, Counter[str]] = {}
        for _, head, _, tail in rows:
            for spelling in (head, tail):
                row = self._by_exact.get(spelling)
                if row is None:
                    row = self._by_folded.setdefault(spelling.casefold(), len(self.names))
                    if row == len(self.names):
                        self.names.append(spelling)
                self._spellings.setdefault(row, Counter())[spelling] += 1
        for row in range(len(self.titles), len(self.names)):
            self.names[row] = self._spellings[row].most_common(1)[0][0]

    def row(self, spelling: str) -> int:
        """The entity of a spelling that was there at construction."""
        row = self._by_exact.get(spelling)
        return self._by_folded[spelling.casefold()] if row is None else row

    def aliases(self) -> list[tuple[str, ...]]:
        """The other spellings of each entity, most frequent first."""
        from kgrag_gpu.kg.mentions import title_forms

        result = []
        for row, name in enumerate(self.names):
            forms = title_forms(name, comma_forms=False) if row < len(self.titles) else ()
            spelled = [s for s, _ in self._spellings.get(row, Counter()).most_common()]
            result.append(tuple(dict.fromkeys(s for s in (*forms, *spelled) if s != name)))
        return result


class _SentenceFinder:
    """The sentence of a passage that says a triple best."""

    def __init__(self, passages: Sequence[Passage]):
        self._passages = passages
        self._cache: dict[int, list[tuple[str, set[str]]]] = {}

    def text(self, row: tuple[int, str, str, str]) -> str:
        passage, head, relation, tail = row
        if passage not in self._cache:
            text = self._passages[passage].text
            cut = [text[start:end] for start, end in split_sentences(text)]
            self._cache[passage] = [(s, set(_WORD.findall(s.lower()))) for s in cut]
        wanted = set(_WORD.findall(f"{head} {relation} {tail}".lower()))
        best, best_shared = "", 0
        for sentence, words in self._cache[passage]:
            shared = len(wanted & words)
            if shared > best_shared:
                best, best_shared = sentence, shared
        return best or f"{head} {relation} {tail}"
