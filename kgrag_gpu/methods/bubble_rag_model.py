"""What a language model does in BubbleRAG: it names the anchor groups (4.2) and grows the best subgraphs (4.4).

Groups: explicit keywords and latent concepts (a thing that the question describes and the model can name), each with
its kind and, where it is a general word, a specific form. An entity part is matched by the names of the KG; one that
no name holds is matched by the nodes whose texts are nearest to it. Names that the question holds word for word are
groups even where the model leaves them out.

Growth: hop by hop the model picks, by number, facts beside a subgraph that complete it, until it picks none.

All questions of a batch are asked at once, and all their subgraphs. A reply that cannot be used leaves the parts that
are read without a model, or the subgraph as it is; the engine keeps the reason.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from kernels import csr_expand
from kgrag_gpu.anchors.group import GroupConfig, Part, QuestionParts
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.bubble import BubbleGraph
from kgrag_gpu.index.dense import DenseIndex
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.bubble_rag_search import Bubble, Candidate
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.ranking.question_units import pair_cosines
from kgrag_gpu.ranking.relations import keep_best
from kgrag_gpu.types import Question


class GrowthConfig(ConfigModel):
    """Reasoning-aware growth; `num_subgraphs: 0` leaves it out."""

    num_subgraphs: Annotated[int, Field(ge=0)] = 2  # n: best subgraphs of a question that grow
    max_hops: Annotated[int, Field(ge=1)] = 2  # d
    max_options: Annotated[int, Field(ge=1)] = 20  # facts beside a subgraph in one prompt, most like the question first
    max_added: Annotated[int, Field(ge=1)] = 3  # facts that one subgraph takes up in a hop


class _Growing(NamedTuple):
    """A subgraph that may still grow: its question and its place among the question's candidates."""

    question: int
    place: int


class BubbleModel:
    """The model's side of the search; built once, where an engine is open."""

    def __init__(
        self, engine: Engine, config: GroupConfig, growth: GrowthConfig, parts: QuestionParts, graph: BubbleGraph,
        node_vectors: np.ndarray, edge_vectors: np.ndarray, resources: Resources,
    ):  # fmt: skip
        """Vectors are int16 fixed point, [entities, dim] and [triples, dim]."""
        self._engine = engine
        self._config = config
        self._growth = growth
        self._parts = parts
        self._graph = graph
        self._edges = edge_vectors
        self._resources = resources
        self._kg = resources.kg
        with resources.stage("build node index"):
            self._nodes = DenseIndex(node_vectors, resources.config.index) if len(node_vectors) else None

    def groups(self, questions: Sequence[Question], read: Sequence[Sequence[Part]]) -> list[list[Part]]:
        """The parts of each question as the model names them; `read` are those found without it."""
        requests = [make_request("anchor_groups", question.id, question=question.text) for question in questions]
        replies = self._engine.generate(requests, sampling_for("anchor_groups")) if requests else []
        named = [list(getattr(reply.parsed, "groups", ())) if reply.ok else [] for reply in replies]
        entities = self._entities(
            [[group.text for group in row if group.kind == "entity"] for row in named],
            [[self._specific(group) for group in row if group.kind == "entity"] for row in named],
        )
        out = []
        for row, found, own in zip(named, entities, read, strict=True):
            rows = iter(found)
            parts = [self._part(group, next(rows) if group.kind == "entity" else ()) for group in row]
            known = {entity for part in parts for entity in part.entities}
            left_out = [part for part in own if part.kind == "entity" and not known.intersection(part.entities)]
            out.append(list(dict.fromkeys([*left_out, *parts])) if parts else list(own))
        return out

    def grow(self, questions: Sequence[Question], vectors: Tensor, bubbles: Sequence[Bubble]) -> None:
        """Adds to the best subgraphs of each bubble what the model picks beside them.

        Args:
            questions: the batch.
            vectors: int16 [questions, dim].
            bubbles: one a question; their candidates are replaced in place.
        """
        growing = [
            _Growing(question, place)
            for question, bubble in enumerate(bubbles)
            for place in range(min(self._growth.num_subgraphs, len(bubble.candidates)))
        ]
        for _ in range(self._growth.max_hops):
            options = self._beside(vectors, bubbles, growing)
            growing = [which for which in growing if options[which]]
            if not growing:
                return
            picked = self._pick(questions, bubbles, growing, options)
            for which in growing:
                own = bubbles[which.question].candidates
                own[which.place] = self._with_edges(own[which.place], picked[which])
            growing = [which for which in growing if picked[which]]

    def _part(self, group, entities: tuple[int, ...]) -> Part:
        """A group of the model's as a part; an entity that no node stands for is looked for among the edges."""
        kind = group.kind if group.kind != "entity" or entities else "relation"
        return Part(group.text, kind, self._specific(group), entities)

    def _specific(self, group) -> str:
        return group.specific if self._config.specialise and group.specific else group.text

    def _entities(
        self, names: Sequence[Sequence[str]], described: Sequence[Sequence[str]]
    ) -> list[list[tuple[int, ...]]]:
        """Nodes of each entity part: those with its name, else those nearest to its specific form."""
        flat = [name for row in names for name in row]
        texts = [text for row in described for text in row]
        found = self._parts.entities(flat)
        missing = [place for place, rows in enumerate(found) if not rows]
        if missing and self._nodes is not None:
            vectors = self._resources.vectors([texts[place] for place in missing])
            nearest = self._nodes.search(vectors, self._config.max_entities)
            for place, ranking in zip(missing, nearest, strict=True):
                kept = ranking.rows[ranking.scores >= self._config.taus[0]]
                found[place] = tuple(int(row) for row in kept)
        rows = iter(found)
        return [[next(rows) for _ in row] for row in names]

    def _beside(
        self, vectors: Tensor, bubbles: Sequence[Bubble], growing: Sequence[_Growing]
    ) -> dict[_Growing, list[int]]:
        """Edges at the nodes of each subgraph that are not in it, most like the question first; ties by row."""
        graph, device = self._graph, self._graph.edge_ids.device
        subgraphs = [bubbles[which.question].candidates[which.place] for which in growing]
        nodes = torch.from_numpy(np.concatenate([s.node_ids for s in subgraphs] or [np.zeros(0, np.int64)])).to(device)
        owners = torch.repeat_interleave(
            torch.arange(len(subgraphs), device=device),
            torch.tensor([len(s.node_ids) for s in subgraphs], dtype=torch.int64, device=device),
        )
        slots, places = csr_expand(graph.relax.offsets, nodes)
        size = max(1, len(self._edges))
        inside = torch.tensor(
            [i * size + edge for i, s in enumerate(subgraphs) for edge in s.edge_ids.tolist()], device=device
        )
        keys = torch.unique(owners[places] * size + graph.edge_ids[slots])
        keys = keys[~torch.isin(keys, inside.long())]
        owners, edges = keys // size, keys % size
        questions = torch.tensor([which.question for which in growing], dtype=torch.int64, device=device)
        scores = pair_cosines(vectors, self._edges, questions[owners], edges)
        kept = keep_best(scores, owners, self._growth.max_options)
        kept = kept[torch.argsort(scores[kept], descending=True, stable=True)]
        found: dict[_Growing, list[int]] = {which: [] for which in growing}
        for owner, edge in zip(owners[kept].tolist(), edges[kept].tolist(), strict=True):
            found[growing[owner]].append(edge)
        return found

    def _pick(
        self, questions: Sequence[Question], bubbles: Sequence[Bubble], growing: Sequence[_Growing],
        options: dict[_Growing, list[int]],
    ) -> dict[_Growing, list[int]]:  # fmt: skip
        texts = self._kg.triple_texts
        requests = [
            make_request(
                "grow", questions[which.question].id, len(options[which]), question=questions[which.question].text,
                facts=[str(texts[edge]) for edge in bubbles[which.question].candidates[which.place].edge_ids.tolist()],
                options=[str(texts[edge]) for edge in options[which]],
            )
            for which in growing
        ]  # fmt: skip
        picked = {}
        for which, reply in zip(growing, self._engine.generate(requests, sampling_for("grow")), strict=True):
            numbers = getattr(reply.parsed, "add", ()) if reply.ok else ()
            picked[which] = [options[which][number - 1] for number in numbers[: self._growth.max_added]]
        return picked

    def _with_edges(self, candidate: Candidate, edges: Sequence[int]) -> Candidate:
        """The subgraph with these edges and their ends; a new node is a hop behind the old node that it hangs on."""
        hops = dict(zip(candidate.node_ids.tolist(), candidate.node_hops.tolist(), strict=True))
        for edge in edges:
            ends = (int(self._kg.heads[edge]), int(self._kg.tails[edge]))
            behind = min((hops[end] for end in ends if end in hops), default=0) + 1
            for end in ends:
                hops.setdefault(end, behind)
        return replace(
            candidate,
            node_ids=np.array(list(hops), dtype=np.int64),
            node_hops=np.array(list(hops.values()), dtype=np.int64),
            edge_ids=np.array([*candidate.edge_ids.tolist(), *edges], dtype=np.int64),
            num_grown=candidate.num_grown + len(edges),
        )
