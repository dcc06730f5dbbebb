"""What a KG looks like: counts, degrees, hubs, components, missing names, sample triples. Knows no files."""

import io
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from kgrag_gpu.kg.store import Kg

_QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class KgSummary:
    """The figures of one KG. A degree counts triples at an entity in both directions, a self-loop once."""

    counts: dict[str, int]
    num_self_loops: int
    num_isolated: int  # entities without a triple
    num_unnamed: int  # entities whose name is empty or only their id in the source
    degree_mean: float
    degree_quantiles: dict[str, int]  # "50 %" -> degree; the lower value where a quantile falls between two
    degree_histogram: list[tuple[int, int, int]]  # lowest and highest degree of a bin, entities in it
    num_components: int  # of the graph without directions; an isolated entity is one
    largest_component: int  # entities
    hubs: list[tuple[str, int]]  # names and degrees, highest first, ties by row
    top_relations: list[tuple[str, int]]  # names and triples, most first, ties by row
    samples: list[str]  # triple texts, evenly spread over the rows


def degrees(kg: Kg) -> np.ndarray:
    """Triples at each entity in both directions, int64 [entities]; a self-loop counts once."""
    counts = np.bincount(kg.heads, minlength=kg.num_entities)
    return counts + np.bincount(kg.tails[kg.heads != kg.tails], minlength=kg.num_entities)


def summarise(kg: Kg, num_shown: int = 10) -> KgSummary:
    """The figures of a KG; `num_shown` hubs, relations and sample triples are listed."""
    degree = degrees(kg)
    num_components, largest = _components(kg)
    by_relation = np.bincount(kg.relations, minlength=kg.num_relations)
    rows = np.unique(np.linspace(0, kg.num_triples - 1, num_shown).astype(np.int64)) if kg.num_triples else []
    quantiles = np.quantile(degree, _QUANTILES, method="lower") if len(degree) else np.zeros(len(_QUANTILES))
    unnamed = (not name or name == own for name, own in zip(kg.entity_names, kg.entity_external_ids, strict=True))
    return KgSummary(
        counts=kg.counts,
        num_self_loops=int((kg.heads == kg.tails).sum()),
        num_isolated=int((degree == 0).sum()),
        num_unnamed=sum(unnamed),
        degree_mean=float(degree.mean()) if len(degree) else 0.0,
        degree_quantiles={f"{q:.0%}".replace("%", " %"): int(v) for q, v in zip(_QUANTILES, quantiles, strict=True)},
        degree_histogram=_histogram(degree),
        num_components=num_components,
        largest_component=largest,
        hubs=[(kg.entity_names[row], int(degree[row])) for row in _highest(degree, num_shown)],
        top_relations=[(kg.relation_names[row], int(by_relation[row])) for row in _highest(by_relation, num_shown)],
        samples=[kg.triple_texts[int(row)] for row in rows],
    )


def degree_plot(kg: Kg) -> bytes:
    """A PNG of the share of entities that have at least so many triples, both axes logarithmic."""
    degree = np.sort(degrees(kg))
    degree = degree[degree > 0]
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if len(degree):
        values, first = np.unique(degree, return_index=True)
        axes.loglog(values, 1 - first / len(degree), marker=".", linestyle="none", color="#0f766e")
    axes.set(xlabel="triples at an entity (degree)", ylabel="share of entities with at least so many")
    axes.grid(visible=True, color="#e2e8f0")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=144)
    return stream.getvalue()


def _components(kg: Kg) -> tuple[int, int]:
    if not kg.num_entities:
        return 0, 0
    ones = np.ones(kg.num_triples, dtype=bool)  # parallel triples join by "or": no sum runs over
    graph = coo_matrix((ones, (kg.heads, kg.tails)), shape=(kg.num_entities, kg.num_entities))
    count, labels = connected_components(graph, directed=False)
    return int(count), int(np.bincount(labels).max())


def _highest(values: np.ndarray, count: int) -> list[int]:
    rows = np.argsort(-values, kind="stable")[:count]
    return [int(row) for row in rows if values[row] > 0]


def _histogram(degree: np.ndarray) -> list[tuple[int, int, int]]:
    """Entities by degree: 0, 1, 2-3, 4-7, 8-15 and so on up to the highest; empty bins within are kept."""
    highest = int(degree.max()) if len(degree) else -1
    starts = [0, *(1 << i for i in range(highest.bit_length()))] if highest >= 0 else []
    ends = [0, *(2 * start - 1 for start in starts[1:])]
    return [
        (start, end, int(((degree >= start) & (degree <= end)).sum()))
        for start, end in zip(starts, ends[: len(starts)], strict=True)
    ]
