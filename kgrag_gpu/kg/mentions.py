"""A KG from passages without a model: titles and capitalised phrases are entities, a mention is an edge.

An edge is (title entity of the passage) -mentions-> (mentioned entity); its text is the sentence of the mention and it
knows its passage. The rule for entities is that of methods/cover.md, step 2: titles whole, without "(...)" and up to
the first comma; capitalised phrases that stand in 2 to max(20, 2 %) of the passages; at least 4 characters; maximal
spans at word borders. Title forms are matched in any script; phrases need a script with capital letters.

A spelling that several titles share ("Mercury" of "Mercury (planet)" and "Mercury (element)") is a mention of each.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kgrag_gpu.config.schema import MentionsConfig
from kgrag_gpu.kg.collapse import collapse_triples
from kgrag_gpu.kg.mention_index import Mentions, find_mentions, fold, long_enough
from kgrag_gpu.kg.phrases import capitalised_phrases
from kgrag_gpu.kg.sentences import split_sentences
from kgrag_gpu.kg.store import Kg, make_kg
from kgrag_gpu.types import Passage

RELATION = "mentions"
_PARENTHESES = re.compile(r"\s*[(（][^()（）]*[)）]")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class MentionTable:
    """Which entity stands where in the passages, sorted by (passage, start). All arrays are int64 [mentions].

    `sentence_ids` number the sentences of all passages through; `starts` and `ends` are characters of the passage text.
    `sentence_offsets` int64 [passages + 1] cuts the sentences into passages; `sentence_spans` int64 [sentences, 2] are
    their characters. A passage without text has no sentence.
    """

    passage_ids: np.ndarray
    sentence_ids: np.ndarray
    entity_ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    sentence_offsets: np.ndarray
    sentence_spans: np.ndarray


def title_forms(title: str, comma_forms: bool = True) -> tuple[str, ...]:
    """The spellings under which a title is looked for: whole, without "(...)", and that up to its first comma."""
    whole = _SPACES.sub(" ", title).strip()
    bare = _SPACES.sub(" ", _PARENTHESES.sub("", whole)).strip()
    forms = [whole, bare]
    if comma_forms and "," in bare:
        forms.append(bare.split(",", 1)[0].strip())
    return tuple(dict.fromkeys(form for form in forms if form))


def build_mentions_kg(
    passages: Sequence[Passage], config: MentionsConfig | None = None, source: str = "passages"
) -> Kg:
    """Build the mentions KG.

    Entities: the distinct titles in first-seen order, then phrases by first place. In a passage without a title the
    first entity of a sentence takes the title's place. A title's mention in its own passage makes no edge.
    Edges come in reading order; the same pair in two sentences makes two edges.

    Args:
        passages: rows keep their order and number in the KG, also those without any entity.
        config: limits of the entity rule.
        source: where the passages are from, for the manifest.
    """
    config = config or MentionsConfig()
    passages = list(passages)
    titles = list(dict.fromkeys(p.title for p in passages if p.title))
    forms = [title_forms(title, config.comma_forms) for title in titles]
    limit = max(config.max_phrase_passages, int(config.max_phrase_share * len(passages)))
    known = {fold(form) for entity_forms in forms for form in entity_forms}
    texts = [p.text for p in passages]
    phrases = capitalised_phrases(texts, config.min_chars, config.min_phrase_passages, limit)
    names = titles + [phrase for phrase in phrases if fold(phrase) not in known]
    aliases = [tuple(f for f in entity_forms if f != t) for t, entity_forms in zip(titles, forms, strict=True)]
    aliases += [()] * (len(names) - len(titles))
    table, aliases = _limited_table(texts, names, aliases, len(titles), config.min_chars, limit)
    title_rows = {title: row for row, title in enumerate(titles)}
    passage_entities = np.array([title_rows.get(p.title, -1) for p in passages], dtype=np.int32)
    heads, tails, rows = _edges(table, passage_entities)
    used = _used_entities(len(titles), len(names), heads, tails)
    renumber = np.cumsum(used) - 1
    heads, tails = renumber[heads], renumber[tails]
    sentences, text_ids = _sentence_texts(passages, table, table.sentence_ids[rows])
    relations = np.zeros(len(heads), dtype=np.int32)
    kept = collapse_triples(heads, relations, tails, table.passage_ids[rows], text_ids)
    return make_kg(
        entity_names=[name for name, keep in zip(names, used, strict=True) if keep],
        entity_aliases=[a for a, keep in zip(aliases, used, strict=True) if keep],
        relation_names=[RELATION],
        heads=heads[kept.rows],
        relations=relations[kept.rows],
        tails=tails[kept.rows],
        triple_texts=[sentences[i] for i in text_ids[kept.rows]],
        triple_passage_offsets=kept.offsets,
        triple_passages=kept.passages,
        passages=passages,
        passage_entities=passage_entities,
        kind="mentions",
        manifest={"source": source, "config": config.model_dump()},
    )


def mention_table(
    texts: Sequence[str], names: Sequence[str], aliases: Sequence[Sequence[str]], min_chars: int = 4
) -> MentionTable:
    """All mentions of entities in passages, each in its sentence.

    Args:
        texts: passage texts.
        names, aliases: the entities' spellings; those shorter than `min_chars` are not looked for.
    """
    spellings, owners = _spellings(names, aliases, min_chars)
    return _table(texts, find_mentions(texts, spellings), owners)


def _spellings(names: Sequence[str], aliases: Sequence[Sequence[str]], min_chars: int) -> tuple[list[str], np.ndarray]:
    """Every spelling that is looked for, names first, and its entity int64 [spellings]."""
    pairs = [(name, entity) for entity, name in enumerate(names)]
    pairs += [(alias, entity) for entity, row in enumerate(aliases) for alias in row]
    pairs = [(name, entity) for name, entity in pairs if long_enough(name, min_chars)]
    return [name for name, _ in pairs], np.array([entity for _, entity in pairs], dtype=np.int64)


def _limited_table(
    texts: Sequence[str],
    names: Sequence[str],
    aliases: Sequence[tuple[str, ...]],
    num_titles: int,
    min_chars: int,
    limit: int,
) -> tuple[MentionTable, list[tuple[str, ...]]]:
    """The mention table without spellings that say too little, and the aliases that are left.

    What stands in more than `limit` passages goes, unless it is a whole title or one without "(...)": phrases, and
    the "John" of "John, King of England", which every other John would be taken for.
    """
    spellings, owners = _spellings(names, aliases, min_chars)
    found = find_mentions(texts, spellings)
    pairs = np.unique(found.name_ids * max(1, len(texts)) + found.text_ids) // max(1, len(texts))
    num_passages = np.bincount(pairs, minlength=len(spellings))
    dropped = num_passages > limit
    for i in np.flatnonzero(dropped):
        entity = int(owners[i])
        dropped[i] = entity >= num_titles or spellings[i] not in title_forms(names[entity], comma_forms=False)
    kept = ~dropped[found.name_ids]
    found = Mentions(found.text_ids[kept], found.name_ids[kept], found.starts[kept], found.ends[kept])
    gone = {(int(owners[i]), spellings[i]) for i in np.flatnonzero(dropped)}
    left = [tuple(a for a in row if (entity, a) not in gone) for entity, row in enumerate(aliases)]
    return _table(texts, found, owners), left


def _table(texts: Sequence[str], found: Mentions, owners: np.ndarray) -> MentionTable:
    columns = _distinct_rows(found, owners)
    cuts = [split_sentences(text) for text in texts]
    counts = np.array([len(spans) for spans in cuts], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    spans = np.array([span for row in cuts for span in row], dtype=np.int64).reshape(-1, 2)
    return MentionTable(
        passage_ids=columns[0],
        sentence_ids=_sentence_of(texts, columns[0], columns[1], offsets, spans),
        entity_ids=columns[3],
        starts=columns[1],
        ends=columns[2],
        sentence_offsets=offsets,
        sentence_spans=spans,
    )


def kg_mention_table(kg: Kg, min_chars: int = 4) -> MentionTable:
    """The mention table of any KG that has passages, from its entities' names and aliases."""
    return mention_table([p.text for p in kg.passages], kg.entity_names, kg.entity_aliases, min_chars)


def _distinct_rows(found: Mentions, entity_of: np.ndarray) -> list[np.ndarray]:
    """(passage, start, end, entity) once each: an alias may fold to the same letters as its name."""
    if not len(found):
        return [np.zeros(0, dtype=np.int64)] * 4
    rows = np.stack([found.text_ids, found.starts, found.ends, entity_of[found.name_ids]])
    return list(np.unique(rows, axis=1))


def _sentence_of(
    texts: Sequence[str], passage_ids: np.ndarray, starts: np.ndarray, offsets: np.ndarray, spans: np.ndarray
) -> np.ndarray:
    """The sentence in which each mention begins: one search over the sentences of all passages laid end to end."""
    bases = np.concatenate([[0], np.cumsum([len(t) + 1 for t in texts])]).astype(np.int64)
    owners = np.repeat(np.arange(len(texts)), np.diff(offsets))
    sentence_starts = spans[:, 0] + bases[owners]
    return np.searchsorted(sentence_starts, starts + bases[passage_ids], side="right") - 1


def _edges(table: MentionTable, passage_entities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(head, tail, row of the mention) of each edge, in reading order."""
    heads = passage_entities[table.passage_ids].astype(np.int64)
    if len(heads):
        first_of_sentence = np.concatenate([[True], table.sentence_ids[1:] != table.sentence_ids[:-1]])
        leaders = np.maximum.accumulate(np.where(first_of_sentence, np.arange(len(heads)), 0))
        heads = np.where(heads < 0, table.entity_ids[leaders], heads)
    rows = np.flatnonzero(heads != table.entity_ids)
    return heads[rows], table.entity_ids[rows], rows


def _used_entities(num_titles: int, num_names: int, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """Every title stays; a phrase that only ever stands inside longer names has no edge and goes: bool [names]."""
    used = np.zeros(num_names, dtype=bool)
    used[:num_titles] = True
    used[heads] = True
    used[tails] = True
    return used


def _sentence_texts(
    passages: Sequence[Passage], table: MentionTable, sentence_ids: np.ndarray
) -> tuple[list[str], np.ndarray]:
    """The distinct sentences of the edges, and which of them each edge has. Equal sentences of two passages are one."""
    unique, inverse = np.unique(sentence_ids, return_inverse=True)
    owners = np.searchsorted(table.sentence_offsets, unique, side="right") - 1
    numbers: dict[str, int] = {}
    codes = np.zeros(len(unique), dtype=np.int64)
    for i, (owner, sentence) in enumerate(zip(owners, unique, strict=True)):
        start, end = table.sentence_spans[sentence]
        codes[i] = numbers.setdefault(passages[owner].text[start:end], len(numbers))
    return list(numbers), codes[inverse.reshape(-1)]
