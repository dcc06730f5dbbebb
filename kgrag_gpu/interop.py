"""KGs and evidence in the forms of other libraries: torch_geometric's `Data`, NetworkX's `MultiDiGraph`.

Edges are the KG's triples in their own direction, in its order; row numbers are the KG's, so results map back.
torch_geometric and networkx are imported only when asked for.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kgrag_gpu.kg.store import Kg, make_kg
from kgrag_gpu.types import EvidencePath

if TYPE_CHECKING:
    from networkx import MultiDiGraph
    from torch_geometric.data import Data


def to_pyg(kg: Kg, entity_vectors: np.ndarray | None = None, edge_vectors: np.ndarray | None = None) -> "Data":
    """The KG's triples as a torch_geometric `Data`.

    Args:
        kg: the graph; its passages are left out.
        entity_vectors: [entities, d], become `x` as float32; int16 is read as the fixed point of stored vectors.
        edge_vectors: [triples, d], become `edge_attr` likewise.

    Returns:
        `edge_index` int64 [2, triples], `edge_type` int64 [triples], and as lists of texts `entity_names`,
        `entity_ids`, `relation_names`, `relation_texts`, `edge_texts`.

    Raises:
        ValueError: vectors that do not have one row an entity or triple.
    """
    from torch_geometric.data import Data

    data = Data(
        edge_index=torch.from_numpy(np.stack([kg.heads, kg.tails]).astype(np.int64)),
        edge_type=torch.from_numpy(kg.relations.astype(np.int64)),
        num_nodes=kg.num_entities,
    )
    if entity_vectors is not None:
        data.x = _floats(entity_vectors, kg.num_entities, "entity_vectors")
    if edge_vectors is not None:
        data.edge_attr = _floats(edge_vectors, kg.num_triples, "edge_vectors")
    data.entity_names, data.entity_ids = list(kg.entity_names), list(kg.entity_external_ids)
    data.relation_names, data.relation_texts = list(kg.relation_names), list(kg.relation_texts)
    data.edge_texts = list(kg.triple_texts)
    return data


def from_pyg(data: "Data") -> Kg:
    """A KG out of what `to_pyg` makes, or of any `Data` with `edge_index`; texts that miss are numbers as texts.

    Repeated triples are kept once, at their first place; aliases, descriptions and passages do not travel.

    Raises:
        ValueError: no `edge_index`, or a row number that no name belongs to.
    """
    if data.edge_index is None:
        raise ValueError("the Data has no edge_index")
    num_edges = int(data.edge_index.shape[1])
    kinds = getattr(data, "edge_type", None)
    relations = np.zeros(num_edges, np.int64) if kinds is None else kinds.cpu().numpy()
    rows = np.stack([data.edge_index[0].cpu().numpy(), relations, data.edge_index[1].cpu().numpy()], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    kept = np.sort(first)
    names = _texts(data, "entity_names", int(data.num_nodes or 0))
    relation_names = _texts(data, "relation_names", int(relations.max(initial=-1)) + 1)
    relation_texts = list(getattr(data, "relation_texts", None) or relation_names)
    texts = getattr(data, "edge_texts", None)
    if texts is None:
        texts = [f"{names[h]} {relation_texts[r]} {names[t]}" for h, r, t in rows.tolist()]
    return make_kg(
        entity_names=names,
        entity_external_ids=list(getattr(data, "entity_ids", None) or [""] * len(names)),
        relation_names=relation_names,
        relation_texts=relation_texts,
        heads=rows[kept, 0],
        relations=rows[kept, 1],
        tails=rows[kept, 2],
        triple_texts=[texts[i] for i in kept.tolist()],
        kind="triples",
        manifest={"source": "torch_geometric"},
    )


def evidence_graph(paths: Sequence[EvidencePath]) -> "MultiDiGraph":
    """A question's evidence as a NetworkX graph: a node per name, an edge per step that names both its ends.

    An edge's key is (relation, text), so a step of several paths is one edge; it carries `relation`, `text`,
    `passage_ids`, `edge_id` and the best `score` of its paths.
    """
    from networkx import MultiDiGraph

    graph = MultiDiGraph()
    for path in paths:
        for step in path.steps:
            if not (step.head and step.tail):
                continue
            key = (step.relation, step.text)
            known = graph.get_edge_data(step.head, step.tail, key)
            score = path.score if known is None else max(path.score, known["score"])
            values: dict[str, Any] = {"relation": step.relation, "text": step.text, "edge_id": step.edge_id}
            graph.add_edge(step.head, step.tail, key=key, score=score, passage_ids=list(step.passage_ids), **values)
    return graph


def _floats(vectors: np.ndarray, num_rows: int, name: str) -> torch.Tensor:
    if len(vectors) != num_rows:
        raise ValueError(f"{name} has {len(vectors)} rows, {num_rows} expected")
    scale = 2.0**-15 if vectors.dtype == np.int16 else 1.0
    return torch.from_numpy(vectors.astype(np.float32) * np.float32(scale))


def _texts(data: "Data", name: str, count: int) -> list[str]:
    values = getattr(data, name, None)
    return [str(i) for i in range(count)] if values is None else list(values)
