"""Times connected coverage over a corpus of any size: building, memory, milliseconds a question, recall.

    python -m pipelines.bench_cover --dataset 2wikimultihopqa --data dev.json --corpus corpus_6119.json
    python -m pipelines.bench_cover --dataset musique --data dev.jsonl --corpus corpus_6119.json --passages 100000

The corpus is the question set's passages, those of `--corpus` (a JSON list of {title, text}), and distractors up to
`--passages`. In the same process plain numpy takes MaxSim of the same questions over the same states (fp32, every
sentence), the part of the work that needs no graph: the table gives the ratio.
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.data.records import read_text
from kgrag_gpu.data.registry import DATASETS, load_questions
from kgrag_gpu.index.sentence_graph import build_sentence_graph
from kgrag_gpu.index.tokens import build_token_index
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.methods.cover import Cover, CoverConfig
from kgrag_gpu.methods.resources import Resources, passage_text
from kgrag_gpu.ranking.coverage_tokens import sentence_token_ranges
from kgrag_gpu.types import Passage, Question, Retrieval, UserError
from pipelines.bench_cover_corpus import add_distractors
from pipelines.command_line import EXIT_DONE, HelpFormatter, run_command, say


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.bench_cover", description=__doc__, formatter_class=HelpFormatter
    )
    parser.add_argument("--dataset", required=True, help=", ".join(DATASETS))
    parser.add_argument("--data", help="file or folder (default: $KGRAG_DATA, the hub, the embedded sample)")
    parser.add_argument("--corpus", type=Path, help="more passages: a JSON list of {title, text}")
    parser.add_argument("--passages", type=int, default=0, help="fill up with distractors to this many")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", help="override one value, repeatable"
    )
    parser.add_argument("--run-root", type=Path, default=Path("runs"), help="its cache/ holds the token index")
    parser.add_argument("--threads", type=int, default=2, help="processor threads")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each batch size; the median counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    figures = measure(args)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return EXIT_DONE


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Every figure of one configuration, by name."""
    config = load_run_config(args.dataset, "cover", (), args.set, {"dataset.data": args.data})
    method_config = config.method
    assert isinstance(method_config, CoverConfig)
    question_set = load_questions(config.dataset)
    extra = [p for p in _corpus(args.corpus) if p not in set(question_set.passages)]
    passages = sorted([*question_set.passages, *dict.fromkeys(extra)], key=lambda p: (p.title, p.text))
    cache_dir = args.run_root / "cache"
    figures: dict[str, object] = {"threads": args.threads, "num_real_passages": len(passages)}
    with tempfile.TemporaryDirectory() as folder:
        resources = Resources(config, build_mentions_kg(passages), cache_dir)
        encoder = resources.encoder
        started = time.perf_counter()
        tokens = build_token_index([passage_text(p) for p in passages], encoder, cache_dir, method_config.index)
        assert tokens is not None
        figures["open_or_build_tokens_s"] = round(time.perf_counter() - started, 2)
        if args.passages > len(passages):
            graph = build_sentence_graph(resources.kg, method_config.graph)
            own = set(question_set.passages)
            is_source = np.array([p not in own for p in passages])
            if not is_source.any():
                raise UserError(
                    "--passages needs --corpus: distractors take no sentence of the questions' own passages"
                )
            passages, tokens = add_distractors(passages, tokens, graph, is_source, args.passages, Path(folder))
            say(f"{len(passages):,} passages with distractors")
        started = time.perf_counter()
        kg = build_mentions_kg(passages)
        figures["build_kg_s"] = round(time.perf_counter() - started, 2)
        resources = Resources(config, kg, cache_dir)
        resources.__dict__["encoder"] = encoder
        started = time.perf_counter()
        method = Cover(method_config, resources, tokens)
        figures["build_graph_and_dense_s"] = round(time.perf_counter() - started, 2)
        graph = method.coverage.graph
        figures |= {
            "num_passages": kg.num_passages,
            "num_sentences": graph.num_sentences,
            "num_neighbour_slots": len(graph.neighbours),
            "index_mb": round(tokens.num_bytes / 1e6, 1),
            "index_kb_per_passage": round(tokens.num_bytes / 1e3 / kg.num_passages, 2),
        }
        row_of = {(p.title, p.text): row for row, p in enumerate(kg.passages)}
        mapped = [row_of[p.title, p.text] for p in question_set.passages]
        gold = [{mapped[i] for i in q.gold_passage_ids} for q in question_set.questions]
        figures |= timed(method, question_set.questions, gold, args.repeats)
        figures |= numpy_maxsim(method, [q.text for q in question_set.questions[:8]], encoder)
    figures["ratio_to_numpy_maxsim"] = round(
        float(str(figures["numpy_maxsim_ms"])) / float(str(figures["ms_per_question_batch_64"])), 2
    )
    figures["peak_memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return figures


def _corpus(path: Path | None) -> list[Passage]:
    if path is None:
        return []
    try:
        return [Passage(str(row["title"]), str(row["text"])) for row in json.loads(read_text(path))]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: expected a JSON list of objects with `title` and `text` ({error!r})") from None


def timed(method: Cover, questions: Sequence[Question], gold: list[set[int]], repeats: int) -> dict[str, object]:
    """Recall over all questions, and milliseconds a question in batches of 64 and of 1."""
    found: list[Retrieval] = []
    for start in range(0, len(questions), 64):
        found += method.retrieve(questions[start : start + 64])
    figures: dict[str, object] = {}
    for k in (2, 5, 10):
        shares = [len(g & set(r.passage_ids[:k])) / len(g) for g, r in zip(gold, found, strict=True) if g]
        figures[f"recall@{k}"] = round(float(np.mean(shares)), 4)
    for size in (64, 1):
        batches = [questions[i : i + size] for i in range(0, min(len(questions), 64), size)]
        seconds = [_seconds(partial(_retrieve_all, method, batches)) for _ in range(repeats)]
        count = sum(len(batch) for batch in batches)
        figures[f"ms_per_question_batch_{size}"] = round(1e3 * statistics.median(s for s, _ in seconds) / count, 2)
        figures[f"cpu_ms_per_question_batch_{size}"] = round(1e3 * statistics.median(c for _, c in seconds) / count, 2)
    return figures


def _retrieve_all(method: Cover, batches: list[Sequence[Question]]) -> None:
    for batch in batches:
        method.retrieve(batch)


def numpy_maxsim(method: Cover, texts: Sequence[str], encoder) -> dict[str, object]:
    """Milliseconds that plain numpy takes a question for MaxSim over every sentence's own tokens, states in fp32."""
    tokens, graph = method.coverage.tokens, method.coverage.graph
    runs = sentence_token_ranges(tokens, graph, np.array([len(p.title) for p in method.passages], dtype=np.int64))[:, 1]
    bounds = np.unique(runs[runs[:, 1] > runs[:, 0], 0])
    states = np.asarray(tokens.states, dtype=np.float32)
    if tokens.scales is not None:
        states *= tokens.scales[:, None]
    found = encoder.token_states(texts)
    asked = tokens.question_states(found.states).float().numpy()
    offsets = found.offsets.tolist()

    def ask() -> None:
        for start, stop in itertools.pairwise(offsets):
            np.maximum.reduceat(states @ asked[start:stop].T, bounds, axis=0)

    ask()
    seconds, _ = min(_seconds(ask) for _ in range(3))
    return {"numpy_maxsim_ms": round(1e3 * seconds / len(texts), 2)}


def _seconds(run: Callable[[], object]) -> tuple[float, float]:
    """(wall, processor) seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    run_command(main)
