"""Two KGs over one: entities are one where their ids, or else their names, are; passages where title and text are."""

from collections.abc import Sequence

import numpy as np

from kgrag_gpu.kg.collapse import collapse_triples
from kgrag_gpu.kg.store import Kg, make_kg
from kgrag_gpu.types import Passage


def merge_kgs(first: Kg, second: Kg) -> Kg:
    """The union; rows of `first` keep their numbers, what only `second` has follows.

    An entity of `second` without id is the one of `first` that bears its name, or its only bearer as an alias. Of
    equal triples with different texts both stay: the text is the edge's content.
    """
    entity_rows = _match_entities(first, second)
    relation_names = list(dict.fromkeys([*first.relation_names, *second.relation_names]))
    relation_row = {name: i for i, name in enumerate(relation_names)}
    relation_rows = np.array([relation_row[name] for name in second.relation_names], dtype=np.int64)
    passages = list(dict.fromkeys([*first.passages, *second.passages]))
    passage_rows = {(p.title, p.text): i for i, p in reversed(list(enumerate(passages)))}
    second_passages = np.array([passage_rows[p.title, p.text] for p in second.passages], dtype=np.int64)
    columns = [
        np.concatenate([first.heads, entity_rows[second.heads]]),
        np.concatenate([first.relations, relation_rows[second.relations]]),
        np.concatenate([first.tails, entity_rows[second.tails]]),
    ]
    texts = [*first.triple_texts, *second.triple_texts]
    raw_rows, raw_passages = _passage_pairs(first, second, second_passages)
    numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    text_ids = np.array([numbers[text] for text in texts], dtype=np.int64)
    heads, relations, tails = (column[raw_rows] for column in columns)
    kept = collapse_triples(heads, relations, tails, raw_passages, text_ids[raw_rows])
    rows = raw_rows[kept.rows]
    names, aliases, descriptions, external_ids = _entity_columns(first, second, entity_rows)
    relation_texts = dict(zip(second.relation_names, second.relation_texts, strict=True))
    relation_texts |= dict(zip(first.relation_names, first.relation_texts, strict=True))
    return make_kg(
        entity_names=names,
        entity_aliases=aliases,
        entity_descriptions=descriptions,
        entity_external_ids=external_ids,
        relation_names=relation_names,
        relation_texts=[relation_texts[name] for name in relation_names],
        heads=heads[kept.rows],
        relations=relations[kept.rows],
        tails=tails[kept.rows],
        triple_texts=[texts[row] for row in rows],
        triple_passage_offsets=kept.offsets,
        triple_passages=kept.passages,
        passages=passages,
        passage_entities=_passage_entities(first, second, entity_rows, second_passages, passages),
        kind=f"{first.kind}+{second.kind}",
        manifest={"source": f"{first.manifest.get('source', '')} + {second.manifest.get('source', '')}"},
        rejected=(*first.rejected, *second.rejected),
    )


def _match_entities(first: Kg, second: Kg) -> np.ndarray:
    """The row in the union of each entity of `second`: int64 [entities of second]."""
    by_id = {x: i for i, x in reversed(list(enumerate(first.entity_external_ids))) if x}
    by_name = {x: i for i, x in reversed(list(enumerate(first.entity_names)))}
    bearers: dict[str, set[int]] = {}
    for i, aliases in enumerate(first.entity_aliases):
        for alias in aliases:
            bearers.setdefault(alias, set()).add(i)
    rows = np.zeros(second.num_entities, dtype=np.int64)
    following = first.num_entities
    for i, (name, external_id) in enumerate(zip(second.entity_names, second.entity_external_ids, strict=True)):
        row = by_id.get(external_id) if external_id else by_name.get(name)
        if row is None and not external_id and len(bearers.get(name, ())) == 1:
            row = next(iter(bearers[name]))
        if row is None:
            row = following
            following += 1
        rows[i] = row
    return rows


def _entity_columns(
    first: Kg, second: Kg, rows: np.ndarray
) -> tuple[list[str], list[tuple[str, ...]], list[str], list[str]]:
    names, aliases = list(first.entity_names), list(first.entity_aliases)
    descriptions, external_ids = list(first.entity_descriptions), list(first.entity_external_ids)
    for i, row in enumerate(rows):
        if row == len(names):
            names.append(second.entity_names[i])
            aliases.append(second.entity_aliases[i])
            descriptions.append(second.entity_descriptions[i])
            external_ids.append(second.entity_external_ids[i])
        else:
            spelled = (*aliases[row], second.entity_names[i], *second.entity_aliases[i])
            aliases[row] = tuple(dict.fromkeys(s for s in spelled if s != names[row]))
            descriptions[row] = descriptions[row] or second.entity_descriptions[i]
    return names, aliases, descriptions, external_ids


def _passage_pairs(first: Kg, second: Kg, second_passages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row of the concatenated triples, passage or -1), a row for each passage and one for a triple without any."""
    rows, passages = [], []
    for kg, base, renumber in ((first, 0, None), (second, first.num_triples, second_passages)):
        counts = np.diff(kg.triple_passage_offsets)
        owners = np.repeat(np.arange(kg.num_triples), counts)
        values = kg.triple_passages.astype(np.int64)
        bare = np.flatnonzero(counts == 0)
        all_rows = np.concatenate([owners, bare])
        all_passages = np.concatenate([values if renumber is None else renumber[values], np.full(len(bare), -1)])
        order = np.argsort(all_rows, kind="stable")
        rows.append(all_rows[order] + base)
        passages.append(all_passages[order])
    return np.concatenate(rows), np.concatenate(passages).astype(np.int64)


def _passage_entities(
    first: Kg, second: Kg, entity_rows: np.ndarray, second_passages: np.ndarray, passages: Sequence[Passage]
) -> np.ndarray:
    result = np.full(len(passages), -1, dtype=np.int64)
    titled = second.passage_entities >= 0
    result[second_passages[titled]] = entity_rows[second.passage_entities[titled]]
    of_first = first.passage_entities
    result[: len(of_first)] = np.where(of_first >= 0, of_first, result[: len(of_first)])
    return result
