"""The search of BubbleRAG: parts of questions to groups, fronts, meetings and ranked candidate subgraphs, in batches.

Questions none of whose fronts meet are searched again, a level of relaxation and a hop further, until some do or
nothing is left to relax; the others are done. A round is one set of tensor ops for all questions that are in it.
(Relaxing whenever some group stays alone was tried: without a model to say which parts matter it lost 1 to 4 points.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernels import csr_expand
from kernels.frontier_relax import RelaxLabels, RelaxSeeds
from kgrag_gpu.anchors.group import NUM_LEVELS, Part, kind_weights, level_texts
from kgrag_gpu.expansion.bubble import BubbleGraph, Candidates, MatchedEdges, candidates, expand, meetings
from kgrag_gpu.index.dense import DenseIndex
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.subgraphs import composite_scores, density, keep_dense, paper_scores
from kgrag_gpu.tensors.fixed_point import exact_dot

_COST_CELLS = 50_000_000  # (question, node or edge) costs in memory at once


@dataclass(frozen=True, eq=False)
class Candidate:
    """A ranked candidate subgraph of one question."""

    meeting: int
    cost: float
    score: float
    terms: dict[str, float]
    covered: np.ndarray
    node_ids: np.ndarray
    node_hops: np.ndarray
    edge_ids: np.ndarray
    num_grown: int = 0  # edges that a model added

    def hops_from(self, sources: Sequence[int], ends: np.ndarray) -> np.ndarray:
        """int64 [nodes]: steps inside the subgraph from the nearest source; as the fronts came where there is none."""
        place = {int(node): i for i, node in enumerate(self.node_ids)}
        front = [place[node] for node in sources if node in place]
        if not front:
            return self.node_hops
        beside: dict[int, list[int]] = {i: [] for i in range(len(place))}
        for head, tail in ends[self.edge_ids].tolist():
            beside[place[head]].append(place[tail])
            beside[place[tail]].append(place[head])
        hops = np.full(len(place), -1, dtype=np.int64)
        hops[front] = 0
        while front:
            number = hops[front[0]] + 1
            front = list(dict.fromkeys(new for node in front for new in beside[node] if hops[new] < 0))
            hops[front] = number
        return hops


class Reached(NamedTuple):
    """Final labels of one question: the field that its fronts left."""

    nodes: np.ndarray
    groups: np.ndarray
    hops: np.ndarray
    costs: np.ndarray


@dataclass(eq=False)
class Bubble:
    """What was found for one question."""

    parts: list[Part]
    weights: np.ndarray
    levels: list[int]
    num_hops: int
    num_meetings: int
    num_sampled: int  # edges of hubs that the fronts did not cross
    fronts: list[list[int]]  # per group, nodes by hop
    closeness: np.ndarray  # float64 [entities]: sum over groups of weight * exp(-cost), 0 where no front came
    anchors: list[int]
    candidates: list[Candidate] = field(default_factory=list)
    reached: Reached | None = None  # kept with `debug`, as are the costs
    node_costs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    def answers(self, ends: np.ndarray) -> list[int]:
        """Nodes of the best subgraph that no entity of the question is, farthest from those first; ties by row.

        Args:
            ends: int64 [triples, 2], heads and tails.
        """
        for candidate in self.candidates:
            hops = candidate.hops_from(self.anchors, ends)
            order = np.lexsort((candidate.node_ids, -hops))
            found = [int(node) for node in candidate.node_ids[order] if int(node) not in self.anchors]
            if found:
                return found
        return []

    def trace(self, names: Sequence[str]) -> dict[str, Any]:
        """What is shown of the search."""
        return {
            "groups": [
                {"text": p.text, "kind": p.kind, "weight": round(float(w), 4), "level": level, "front": front}
                for p, w, level, front in zip(self.parts, self.weights, self.levels, self.fronts, strict=True)
            ],
            "hops": self.num_hops,
            "meetings": self.num_meetings,
            "hub_edges_left_out": self.num_sampled,
            "candidates": [
                {
                    "meeting": names[c.meeting],
                    "cost": round(c.cost, 4),
                    "score": round(c.score, 4),
                    "nodes": len(c.node_ids),
                    "grown": c.num_grown,
                }
                for c in self.candidates
            ],
        }


@dataclass(frozen=True, eq=False)
class _Matches:
    """Members of the groups of a round, as seeds: one row for each (question, group, node)."""

    questions: list[int]
    groups: list[int]
    nodes: list[int]
    costs: list[float]
    edges: list[int]  # -1: the node is matched itself


class BubbleSearch:
    """The graph's side of the search; built once."""

    def __init__(
        self, config: Any, graph: BubbleGraph, node_vectors: np.ndarray, edge_vectors: np.ndarray, resources: Resources
    ):
        """`config` is a `BubbleRagConfig`; vectors are int16 fixed point, [entities, dim] and [triples, dim]."""
        self._config = config
        self._graph = graph
        self._resources = resources
        self._device = resources.device
        self._nodes = torch.from_numpy(node_vectors)
        self._edges = torch.from_numpy(np.array(edge_vectors))
        self._num_nodes = len(node_vectors)
        with resources.stage("build edge index"):
            self._edge_index = DenseIndex(edge_vectors, resources.config.index) if len(edge_vectors) else None
        self.ends = np.stack([resources.kg.heads, resources.kg.tails], axis=1).astype(np.int64)

    def run(self, vectors: Tensor, parts: Sequence[Sequence[Part]]) -> list[Bubble]:
        """One bubble a question.

        Args:
            vectors: int16 [questions, dim] of the questions.
            parts: of each question.
        """
        size = max(1, _COST_CELLS // max(1, self._num_nodes + len(self._edges)))
        out: list[Bubble] = []
        for start in range(0, len(parts), size):
            out += self._run_part(vectors[start : start + size], [list(row) for row in parts[start : start + size]])
        return out

    def _run_part(self, vectors: Tensor, parts: list[list[Part]]) -> list[Bubble]:
        config = self._config
        levels = [[0] * len(row) for row in parts]
        done: list[Bubble | None] = [None] * len(parts)
        open_rows = list(range(len(parts)))
        matched = self._match(parts, levels, open_rows)
        num_rounds = NUM_LEVELS if config.groups.relax else 1
        hops = config.num_hops
        for number in range(num_rounds):
            found = self._round(vectors, parts, levels, open_rows, matched, hops)
            again = []
            for row, bubble in zip(open_rows, found, strict=True):
                done[row] = bubble
                can_relax = [g for g, part in enumerate(parts[row]) if not part.entities]
                if can_relax and not bubble.num_meetings and number + 1 < num_rounds:
                    for group in can_relax:
                        levels[row][group] += 1
                    again.append(row)
            if not again:
                break
            open_rows, hops = again, min(hops + 1, config.max_hops)
            matched = {**matched, **self._match(parts, levels, open_rows)}
        return [bubble for bubble in done if bubble is not None]

    def _match(
        self, parts: list[list[Part]], levels: list[list[int]], rows: Sequence[int]
    ) -> dict[tuple[int, int], list[tuple[int, float]]]:
        """Edges that match each relation or attribute part at its level: (edge, cosine), best first."""
        config = self._config.groups
        wanted = [(row, g) for row in rows for g, part in enumerate(parts[row]) if not part.entities]
        if not wanted or self._edge_index is None:
            return {key: [] for key in wanted}
        texts = [level_texts(parts[row][g], levels[row][g]) for row, g in wanted]
        vectors = self._resources.vectors(texts)
        with self._resources.stage("match edges"):
            rankings = self._edge_index.search(vectors, config.max_edges)
        return {
            key: [
                (int(edge), float(score))
                for edge, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)
                if score >= config.taus[levels[key[0]][key[1]]]
            ]
            for key, ranking in zip(wanted, rankings, strict=True)
        }

    def _round(
        self, vectors: Tensor, parts: list[list[Part]], levels: list[list[int]], rows: list[int],
        matched: dict[tuple[int, int], list[tuple[int, float]]], hops: int,
    ) -> list[Bubble]:  # fmt: skip
        config, device = self._config, self._device
        own = [parts[row] for row in rows]
        has_match = [
            [bool(part.entities) or bool(matched[row, g]) for g, part in enumerate(parts[row])] for row in rows
        ]
        flat = kind_weights(own, has_match, config.groups)
        width = max((len(row) for row in own), default=0)
        weights = np.zeros((len(rows), max(1, width)))
        place = 0
        for i, row in enumerate(own):
            weights[i, : len(row)] = flat[place : place + len(row)]
            place += len(row)
        with self._resources.stage("cost field"):
            left = vectors[rows].cpu()
            node_costs, edge_costs = self._costs(left)
            seeds, starts = self._seeds(own, rows, matched, edge_costs)
        group_weights = torch.from_numpy(weights).to(device)
        edges = None if config.cost_field == "uniform" else edge_costs * config.edge_weight
        nodes = torch.ones_like(node_costs) if config.cost_field == "uniform" else node_costs
        with self._resources.stage("expand bubbles"):
            labels = expand(self._graph, seeds, nodes, edges, hops, config.max_labels, max(1, width))
            met = meetings(labels, nodes, group_weights)
            found = candidates(
                labels, met, len(rows), max(1, width), self._num_nodes, self._graph, config.num_meetings, starts
            )
        with self._resources.stage("rank subgraphs"):
            bubbles = self._bubbles(own, [levels[row] for row in rows], has_match, weights, labels, met, hops)
            self._rank(bubbles, found, node_costs, edge_costs, group_weights)
        if config.debug:
            _keep_fronts(bubbles, labels, nodes)
        return bubbles

    def _costs(self, left: Tensor) -> tuple[Tensor, Tensor]:
        """float32 [questions, entities] and [questions, triples]: 1 - cosine with the question, in [0, 2]."""
        nodes = (1.0 - exact_dot(left, self._nodes)).clamp(0, 2).float()
        edges = (1.0 - exact_dot(left, self._edges)).clamp(0, 2).float()
        return nodes.to(self._device), edges.to(self._device)

    def _seeds(
        self, own: list[list[Part]], rows: list[int], matched: dict[tuple[int, int], list[tuple[int, float]]],
        edge_costs: Tensor,
    ) -> tuple[RelaxSeeds, MatchedEdges]:  # fmt: skip
        """Entities at no cost; both ends of a matched edge at the edge's own cost. Also which edge starts where."""
        seeds = _Matches([], [], [], [], [])
        host = edge_costs.cpu()
        for i, row in enumerate(rows):
            for g, part in enumerate(own[i]):
                ends = [(entity, 0.0, -1) for entity in part.entities]
                if not part.entities:
                    ends = [
                        (int(end), float(host[i, edge]) * self._config.edge_weight, edge)
                        for edge, _ in matched[row, g]
                        for end in self.ends[edge]
                    ]
                for node, cost, edge in ends:
                    seeds.questions.append(i)
                    seeds.groups.append(g)
                    seeds.nodes.append(node)
                    seeds.costs.append(cost)
                    seeds.edges.append(edge)
        columns = (seeds.questions, seeds.groups, seeds.nodes)
        questions, groups, nodes = (torch.tensor(c, dtype=torch.int64, device=self._device) for c in columns)
        costs = torch.tensor(seeds.costs, device=self._device)
        width = max((len(row) for row in own), default=0)
        keys = (questions * max(1, width) + groups) * self._num_nodes + nodes
        edges = torch.tensor(seeds.edges, dtype=torch.int64, device=self._device)
        return RelaxSeeds(questions, groups, nodes, costs), self._starts(keys, edges, costs)

    def _starts(self, keys: Tensor, edges: Tensor, costs: Tensor) -> MatchedEdges:
        """The cheapest matched edge of each start; of equal ones the one matched best."""
        rows = torch.nonzero(edges >= 0).flatten()
        order = torch.argsort(costs[rows], stable=True)
        order = order[torch.argsort(keys[rows][order], stable=True)]
        keys, edges = keys[rows][order], edges[rows][order]
        first = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
        first[1:] = keys[1:] != keys[:-1]
        return MatchedEdges(keys[first], edges[first], torch.from_numpy(self.ends).to(keys.device))

    def _bubbles(
        self, own: list[list[Part]], levels: list[list[int]], has_match: list[list[bool]], weights: np.ndarray,
        labels: RelaxLabels, met: Any, hops: int,
    ) -> list[Bubble]:  # fmt: skip
        final = torch.nonzero(labels.is_final).flatten()
        questions, groups = labels.question_ids[final], labels.group_ids[final]
        share = torch.from_numpy(weights).to(questions.device)[questions, groups]
        closeness = torch.zeros(len(own) * self._num_nodes, dtype=torch.float64, device=questions.device)
        closeness.index_add_(
            0, questions * self._num_nodes + labels.node_ids[final], share * torch.exp(-labels.costs[final].double())
        )
        width = weights.shape[1]
        cells = (questions * width + groups) * (hops + 1) + labels.hops[final]
        fronts = torch.bincount(cells, minlength=len(own) * width * (hops + 1)).view(len(own), width, hops + 1)
        sampled = torch.zeros(len(own), dtype=torch.int64, device=questions.device)
        reached = torch.unique(questions * self._num_nodes + labels.node_ids[final])
        sampled.index_add_(0, reached // self._num_nodes, self._graph.num_dropped[reached % self._num_nodes])
        num_met = torch.bincount(met.question_ids, minlength=len(own)).tolist()
        rows = closeness.view(len(own), self._num_nodes).cpu().numpy().round(9)
        return [
            Bubble(
                parts=row,
                weights=weights[i, : len(row)],
                levels=[level if has else -1 for level, has in zip(levels[i], has_match[i], strict=True)],
                num_hops=hops,
                num_meetings=num_met[i],
                num_sampled=int(sampled[i]),
                fronts=fronts[i, : len(row)].tolist(),
                closeness=rows[i],
                anchors=list(dict.fromkeys(e for part in row if part.kind == "entity" for e in part.entities)),
            )
            for i, row in enumerate(own)
        ]

    def _rank(
        self, bubbles: list[Bubble], found: Candidates, node_costs: Tensor, edge_costs: Tensor, weights: Tensor
    ) -> None:
        """Scores the candidates, drops sparse ones, and hands them to their bubbles, best first."""
        config = self._config.subgraphs
        num = len(found.question_ids)
        if not num:
            return
        node_sums, num_nodes = _sums(found.node_offsets, found.node_ids, found.question_ids, node_costs)
        edge_sums, num_edges = _sums(found.edge_offsets, found.edge_ids, found.question_ids, edge_costs)
        own_weights = weights[found.question_ids]
        value = density(num_nodes - node_sums, num_edges - edge_sums, num_nodes, num_edges)
        kept = keep_dense(found.question_ids, value, config.min_density)
        rows = torch.nonzero(kept).flatten()
        scores, terms = composite_scores(
            found.question_ids[rows], found.covered[rows], own_weights[rows], found.diameters[rows], num_nodes[rows],
            value[rows], config,
        )  # fmt: skip
        if config.form == "paper":
            missed = 1.0 - terms["coverage"]
            scores = paper_scores((node_sums / num_nodes.clamp(min=1))[rows], missed, config.alpha)
        elif config.form == "none":
            scores = -torch.arange(len(rows), dtype=torch.float64, device=rows.device)
        order = torch.argsort(scores.mul(1e9).round(), descending=True, stable=True)
        host = {name: column.tolist() for name, column in terms.items()}
        for i in order.tolist():
            row = int(rows[i])
            nodes = slice(int(found.node_offsets[row]), int(found.node_offsets[row + 1]))
            edges = slice(int(found.edge_offsets[row]), int(found.edge_offsets[row + 1]))
            bubbles[int(found.question_ids[row])].candidates.append(
                Candidate(
                    meeting=int(found.meeting_ids[row]),
                    cost=float(found.costs[row]),
                    score=float(scores[i]),
                    terms={name: column[i] for name, column in host.items()},
                    covered=found.covered[row].cpu().numpy(),
                    node_ids=found.node_ids[nodes].cpu().numpy(),
                    node_hops=found.node_hops[nodes].cpu().numpy(),
                    edge_ids=found.edge_ids[edges].cpu().numpy(),
                )
            )


def _keep_fronts(bubbles: Sequence[Bubble], labels: RelaxLabels, node_costs: Tensor) -> None:
    """Hands each bubble its final labels and its costs."""
    rows = torch.nonzero(labels.is_final).flatten()
    rows = rows[torch.argsort(labels.question_ids[rows], stable=True)]
    counts = torch.bincount(labels.question_ids[rows], minlength=len(bubbles)).tolist()
    columns = (labels.node_ids, labels.group_ids, labels.hops, labels.costs)
    host = [column[rows].cpu().numpy() for column in columns]
    start = 0
    for i, (bubble, count) in enumerate(zip(bubbles, counts, strict=True)):
        bubble.reached = Reached(*(column[start : start + count] for column in host))
        bubble.node_costs = node_costs[i].cpu().numpy()
        start += count


def _sums(offsets: Tensor, ids: Tensor, questions: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of costs and count of each candidate's nodes or edges."""
    slots, owners = csr_expand(offsets, torch.arange(len(questions), device=questions.device))
    total = torch.zeros(len(questions), dtype=torch.float64, device=questions.device)
    total.index_add_(0, owners, costs[questions[owners], ids[slots]].double())
    return total, offsets[1:] - offsets[:-1]
