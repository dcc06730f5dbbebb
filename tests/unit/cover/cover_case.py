"""Small corpora for the tests of connected coverage, an encoder without a model, and the definition in plain Python.

The oracle follows methods/cover.md's words with loops over lists. It shares no code with the library: it finds names
with regular expressions, and knows tokens as the encoder gives them.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Sequence

import numpy as np
import torch

from kgrag_gpu.index.encoder import TokenStates
from kgrag_gpu.index.sentence_graph import SentenceGraphConfig, build_sentence_graph
from kgrag_gpu.index.tokens import TokensConfig, build_token_index
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.ranking.coverage import ConnectedCoverage, CoverageConfig
from kgrag_gpu.tensors.fixed_point import to_fixed
from kgrag_gpu.types import Passage

DIM = 24
_PIECE = re.compile(r"\w+|[^\w\s]")


class WordEncoder:
    """Stands in for the encoder: a word's state is a fixed random direction, bent a little by the word before it."""

    dim = DIM
    revision = "words-1"
    description = "words of a test"

    def __init__(self):
        self.num_texts = 0

    def token_states(self, texts: Sequence[str], progress: str | None = None) -> TokenStates:
        self.num_texts += len(texts)
        rows, pieces, spans, counts, vectors = [], [], [], [], []
        for text in texts:
            found = [(m.group().lower(), m.span()) for m in _PIECE.finditer(text)]
            before = ["", *(word for word, _ in found)]
            states = [
                _unit(_direction(word) + 0.3 * _direction(b)) for (word, _), b in zip(found, before, strict=False)
            ]
            rows += states
            pieces += [piece_id(word) for word, _ in found]
            spans += [span for _, span in found]
            counts.append(len(found))
            vectors.append(_unit(sum(states, np.full(DIM, 1e-3))))
        return TokenStates(
            vectors=to_fixed(np.array(vectors).reshape(-1, DIM)),
            states=np.array(rows).reshape(-1, DIM).astype(np.float16),
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            piece_ids=np.array(pieces, dtype=np.int32),
            spans=np.array(spans, dtype=np.int32).reshape(-1, 2),
        )


def piece_id(word: str) -> int:
    return int(hashlib.sha256(word.encode()).hexdigest()[:3], 16)


def _direction(word: str) -> np.ndarray:
    seed = int(hashlib.sha256(word.encode()).hexdigest()[:8], 16)
    return np.random.default_rng(seed).standard_normal(DIM)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def encoded_text(passage: Passage) -> str:
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


class Corpus:
    """Passages with everything that `ConnectedCoverage` needs."""

    def __init__(self, passages: Sequence[Passage], cache_dir, form="fp16", graph: SentenceGraphConfig | None = None):
        self.passages = list(passages)
        self.encoder = WordEncoder()
        self.graph_config = graph or SentenceGraphConfig()
        self.kg: Kg = build_mentions_kg(self.passages)
        config = TokensConfig(form=form, pca_dim=16, shard_texts=3)
        index = build_token_index([encoded_text(p) for p in self.passages], self.encoder, cache_dir, config)
        assert index is not None
        self.index = index
        self.graph = build_sentence_graph(self.kg, self.graph_config)
        self.title_chars = np.array([len(p.title) for p in self.passages], dtype=np.int64)

    def coverage(self, config: CoverageConfig) -> ConnectedCoverage:
        return ConnectedCoverage(self.index, self.graph, self.title_chars, config, torch.device("cpu"))

    def rank(self, questions: Sequence[str], config: CoverageConfig, seeds=None, near=None):
        return self.coverage(config).rank(questions, self.encoder.token_states(questions), seeds, near=near)

    def scores(self, questions: Sequence[str], config: CoverageConfig, seeds=None) -> list[dict[int, float]]:
        found = self.rank(questions, config, seeds)
        return [dict(zip(r.ranking.rows.tolist(), r.ranking.scores.tolist(), strict=True)) for r in found]


class Oracle:
    """Connected coverage of one question at a time, by the definition."""

    def __init__(self, corpus: Corpus, config: CoverageConfig):
        self.c = config
        self.graph_config = corpus.graph_config
        kg = corpus.kg
        encoder = WordEncoder()
        self.encoder = encoder
        self.titles = [int(e) for e in kg.passage_entities]
        self.names = [[n for n in (name, *aliases) if len(n) >= 4]
                      for name, aliases in zip(kg.entity_names, kg.entity_aliases, strict=True)]  # fmt: skip
        self.unit_of, self.mentions, self.tokens = [], [], []
        texts = [encoded_text(p) for p in corpus.passages]
        states = encoder.token_states(texts)
        pieces: list[set[int]] = []
        for unit, passage in enumerate(corpus.passages):
            rows = range(states.offsets[unit], states.offsets[unit + 1])
            pieces.append({int(states.piece_ids[i]) for i in rows})
            base = len(passage.title) + 2 if passage.title else 0
            title = [i for i in rows if states.spans[i][0] < len(passage.title)]
            for match in re.finditer(r"[^.]+\.", passage.text):
                start, end = match.start() + base, match.end() + base
                own = [i for i in rows if start <= states.spans[i][0] < end]
                self.unit_of.append(unit)
                self.tokens.append([states.states[i].astype(np.float64) for i in title + own])
                self.mentions.append(self._named(match.group(), exact_case=True))
        self.piece_df = lambda piece: sum(piece in unit for unit in pieces)
        self.num_units = len(corpus.passages)
        self.entity_df = [
            len({self.unit_of[s] for s, found in enumerate(self.mentions) if entity in found})
            for entity in range(len(self.names))
        ]

    def _named(self, text: str, exact_case: bool) -> dict[int, float]:
        """Entity -> weight. The test corpora hold no name inside another, so every match is maximal."""
        out: dict[int, float] = {}
        for entity, names in enumerate(self.names):
            for name in names:
                if re.search(rf"\b{re.escape(name)}\b", text):
                    out[entity] = 1.0
                elif not exact_case and re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE):
                    out.setdefault(entity, self.graph_config.other_case_weight)
        return out

    def scores(self, question: str, seeds=None) -> dict[int, float]:
        self._prepare(question)
        seeds = set(range(self.num_units)) if seeds is None else set(seeds) | {u for u, h in enumerate(self.h) if h > 0}
        best: dict[int, float] = {}
        c = self.c.sets

        def book(members, worth, terms):
            for place, s in enumerate(members):
                unit = self.unit_of[s]
                alone = self._c([s])
                if len(members) == 1:
                    credit = c.single_factor * alone + c.single_name_bonus * self.h[unit] - c.single_cost
                else:
                    rest = self._c([m for i, m in enumerate(members) if i != place])
                    credit = worth + c.own_share * (alone + c.name_bonus * self.h[unit])
                    credit += c.marginal_share * (worth - terms - rest)
                best[unit] = max(best.get(unit, -math.inf), credit)

        for s in range(len(self.unit_of)):
            if self.unit_of[s] in seeds:
                book([s], 0.0, 0.0)
        sets = []
        if c.max_sentences > 1:
            for a, b in itertools.combinations(range(len(self.unit_of)), 2):
                if self.unit_of[a] in seeds or self.unit_of[b] in seeds:
                    for edge in self._edges(a, b):
                        terms = edge + c.name_bonus * self._best_h([a, b])
                        sets.append(([a, b], terms))
            sets += self._joins(seeds)
        size = 2
        while sets:
            scored = [(members, terms, self._c(members) + terms) for members, terms in sets]
            for members, terms, worth in scored:
                book(members, worth, terms)
            size += 1
            if size > c.max_sentences:
                break
            grown = []
            for members, terms, _ in scored:  # the configurations of the tests let every set grow
                for m in members:
                    for y in range(len(self.unit_of)):
                        if self.unit_of[y] not in {self.unit_of[x] for x in members}:
                            for edge in self._edges(m, y):
                                step = edge + c.name_bonus * self._best_h([*members, y])
                                grown.append(([*members, y], c.later_share * (terms + step) - c.later_cost))
            sets = grown
        return best

    def _prepare(self, question: str) -> None:
        found = self.encoder.token_states([question])
        idf = [math.log(1 + self.num_units / (1 + self.piece_df(int(p)))) for p in found.piece_ids]
        self.w = [x / sum(idf) if sum(idf) else 0.0 for x in idf]
        states = [row.astype(np.float64) for row in found.states]
        c = self.c.tokens
        cosines = [[max(float(t @ q) for t in tokens) if tokens else -1.0 for q in states] for tokens in self.tokens]

        def covered(m):
            excess = min(max((m - c.threshold) / (1 - c.threshold), 0), 1)
            return max(0.0, c.linear_share * m + (1 - c.linear_share) * excess**2)

        own = [[covered(m) for m in row] for row in cosines]
        self.f = []
        for s, row in enumerate(own):
            mates = [own[t] for t in range(len(own)) if self.unit_of[t] == self.unit_of[s]]
            self.f.append([max(x, c.unit_share * max(m[j] for m in mates)) for j, x in enumerate(row)])
        self.named = self._named(question, exact_case=False)
        self.h = [0.0] * self.num_units
        self.spelling: dict[int, str] = {}
        for entity, weight in self.named.items():
            spelled = next(n for n in self.names[entity] if re.search(rf"\b{re.escape(n)}\b", question, re.IGNORECASE))
            units = [u for u in range(self.num_units) if self.titles[u] == entity]
            sharing = [u for u in range(self.num_units)
                       if self.titles[u] >= 0 and spelled in self.names[self.titles[u]]]  # fmt: skip
            for unit in units:
                self.h[unit] = weight / math.sqrt(len(sharing))
                self.spelling[unit] = spelled.lower()

    def _c(self, members) -> float:
        return sum(w * max(self.f[s][j] for s in members) for j, w in enumerate(self.w))

    def _best_h(self, members) -> float:
        return max(self.h[self.unit_of[s]] for s in members)

    def _edges(self, a: int, b: int):
        if self.unit_of[a] == self.unit_of[b]:
            return
        c = self.c.sets
        limit = self.graph_config.hub_limit(self.num_units)
        for entity, df in enumerate(self.entity_df):
            if not 0 < df <= limit:
                continue
            in_a, in_b = entity in self.mentions[a], entity in self.mentions[b]
            title_a, title_b = self.titles[self.unit_of[a]] == entity, self.titles[self.unit_of[b]] == entity
            cost = c.hub_cost * math.log2(max(2, df)) + c.named_cost * (entity in self.named)
            if in_a and in_b:
                yield -cost
            if (in_a and title_b) or (in_b and title_a):
                yield c.title_edge - cost

    def _joins(self, seeds):
        c = self.c.sets
        for u, v in itertools.combinations(sorted(self.spelling), 2):
            if self.spelling[u] != self.spelling[v]:
                for a in range(len(self.unit_of)):
                    for b in range(len(self.unit_of)):
                        if self.unit_of[a] == u and self.unit_of[b] == v:
                            yield [a, b], c.join_bonus + c.name_bonus * max(self.h[u], self.h[v])
