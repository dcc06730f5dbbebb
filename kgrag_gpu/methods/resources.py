"""What methods share within a process: the KG, its tensors, vectors and indexes, each built on first use."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from kgrag_gpu.config.schema import ConfigModel, RunConfig
from kgrag_gpu.index.dense import DenseIndex
from kgrag_gpu.index.embeddings import EmbeddingCache
from kgrag_gpu.index.encoder import Encoder
from kgrag_gpu.index.lexical import LexicalIndex
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.registry import Method, method_class
from kgrag_gpu.tensors.csr_graph import CsrGraph
from kgrag_gpu.types import Passage


class StageClock:
    """Seconds per named stage. A stage inside another is taken out of the outer one, so that they add up."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Books the time spent inside to `name`."""
        self._book()
        self._running.append(name)
        try:
            yield
        finally:
            self._book()
            self._running.pop()

    def take(self) -> dict[str, float]:
        """The seconds booked since the last call."""
        self._book()
        taken, self.seconds = self.seconds, {}
        return taken

    def _book(self) -> None:
        now = time.perf_counter()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def passage_text(passage: Passage) -> str:
    """The text of a passage as the encoder and the indexes see it."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


class Resources:
    """Everything a method may need. Nothing is loaded before a method asks for it."""

    def __init__(
        self,
        config: RunConfig,
        kg: Kg,
        cache_dir: Path,
        device: torch.device | str = "cpu",
        engine: Engine | None = None,
    ):
        self.config = config
        self.kg = kg
        self.cache_dir = cache_dir
        self.device = torch.device(device)
        self.engine = engine
        self.clock = StageClock()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Books the seconds spent inside, and the model's calls and tokens, under `name`."""
        with self.clock.stage(name), self.engine.usage.stage(name) if self.engine else nullcontext():
            yield

    @cached_property
    def encoder(self) -> Encoder:
        """The sentence encoder."""
        with self.stage("load encoder"):
            return Encoder(self.config.encoder, self.device)

    @cached_property
    def embeddings(self) -> EmbeddingCache:
        """Vectors of any text, cached on disk."""
        return EmbeddingCache(self.cache_dir / "embeddings", self.encoder)

    @cached_property
    def graph(self) -> CsrGraph:
        """The KG's edges in both directions on the device."""
        with self.stage("load graph"):
            graph = CsrGraph.from_triples(self.kg.heads, self.kg.relations, self.kg.tails, self.kg.num_entities)
            return graph.to(self.device)

    @cached_property
    def unit_texts(self) -> list[str]:
        """What passage retrieval ranks: the passages, or the triples' texts where the KG has no passages."""
        if self.kg.passages:
            return [passage_text(passage) for passage in self.kg.passages]
        return list(self.kg.triple_texts)

    @cached_property
    def unit_vectors(self) -> np.ndarray:
        """Vectors of `unit_texts`, int16 [units, dim]."""
        return self.vectors(self.unit_texts, "encode passages")

    @cached_property
    def triple_vectors(self) -> np.ndarray:
        """Vectors of the edges' texts, int16 [triples, dim]."""
        return self.vectors(list(self.kg.triple_texts), "encode triples")

    @cached_property
    def entity_vectors(self) -> np.ndarray:
        """Vectors of the entities' names, int16 [entities, dim]."""
        return self.vectors(self.kg.entity_names, "encode entities")

    @cached_property
    def relation_vectors(self) -> np.ndarray:
        """Vectors of the relations' readable texts, int16 [relations, dim]."""
        return self.vectors(self.kg.relation_texts, "encode relations")

    @cached_property
    def lexical(self) -> LexicalIndex:
        """BM25 over `unit_texts`, with the titles repeated: a title says what a passage is about."""
        repeats = self.config.index.title_repeats - 1
        with self.stage("build BM25"):
            titles = (f"{p.title}. " * repeats if p.title else "" for p in self.kg.passages)
            texts = (
                [a + b for a, b in zip(titles, self.unit_texts, strict=True)] if self.kg.passages else self.unit_texts
            )
            return LexicalIndex(texts, self.config.index)

    @cached_property
    def dense(self) -> DenseIndex:
        """Nearest neighbours among `unit_vectors`."""
        vectors = self.unit_vectors
        with self.stage("build dense index"):
            return DenseIndex(vectors, self.config.index)

    def vectors(self, texts: Sequence[str], progress: str | None = None) -> np.ndarray:
        """Vectors of any texts, int16 [texts, dim], from the cache where they are known."""
        embeddings = self.embeddings
        with self.stage(progress or "encode"):
            return embeddings.vectors(texts, progress)

    def base_retriever(self, name: str, config: ConfigModel | None = None) -> Method:
        """Another registered method, for those that build on one (GeAR, PageRank's restart); built once a name."""
        built = self.__dict__.setdefault("_retrievers", {})
        if name not in built:
            chosen = method_class(name)
            built[name] = chosen(config or chosen.Config(), self)
        return built[name]
