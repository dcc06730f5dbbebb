"""A small run for the report tests: outcomes of every kind, hostile names, several scripts."""

import pytest

from kgrag_gpu.metrics import compute_metrics
from kgrag_gpu.metrics.cost import sum_costs
from kgrag_gpu.types import (
    Answer,
    EntityRef,
    EvidencePath,
    EvidenceStep,
    GoldAnswer,
    Passage,
    Question,
    Result,
    Retrieval,
)

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"


@pytest.fixture
def passages():
    texts = ["Aino was born in Oulu.", "Oulu lies on the Oulujoki.", HOSTILE, "北京是首都。", "No title here."]
    return [Passage(title, text) for title, text in zip(["Aino", "Oulu", HOSTILE, "北京", ""], texts, strict=True)]


@pytest.fixture
def make_run(passages):
    """Builds results, metrics and manifest; `num` questions, the second of which failed."""

    def make(num=8, source="file dev.jsonl", is_sample=False):
        results = []
        for i in range(num):
            question = Question(
                f"q{i:05d}", f"Which river runs through {HOSTILE if i == 3 else 'Oulu'}?",
                (GoldAnswer("Oulujoki", ("Ule älv",)),), gold_passage_ids=(0, 1), num_hops=2 + i % 2, type="bridge",
            )  # fmt: skip
            if i == 1:
                results.append(Result(question, Retrieval(), Answer("", "none"), (0, 1), f"RuntimeError: {HOSTILE}"))
                continue
            steps = (
                EvidenceStep("Aino", "born in", "Oulu", "Aino was born in Oulu.", (0,), 4),
                EvidenceStep("Oulu", HOSTILE, "Oulujoki", HOSTILE, (1, 2), 5),
            )
            retrieval = Retrieval(
                (0, 2, 1, 3, 4), (0.9, 0.8, 0.7, 0.6, 0.5),
                (EvidencePath(steps, 0.75, {"round": 1, "words_covered": ["river"], HOSTILE: HOSTILE}),),
                (EntityRef("Aino"), EntityRef(HOSTILE)), (), None, {"note": HOSTILE},
            )  # fmt: skip
            prediction = ("Oulujoki", "the Oulujoki river", HOSTILE, "")[i % 4]
            results.append(
                Result(
                    question,
                    retrieval,
                    Answer(prediction, "graph" if prediction else "none"),
                    (0, -1) if i == 2 else (0, 1),
                )
            )
        usage = [{"stage": "read", "kind": HOSTILE, "llm_calls": 3, "prompt_tokens": 1234, "seconds": 0.5}]
        cost = sum_costs([{"stages": {"search": 1.5, HOSTILE: 0.25}, "usage": usage}], len(results))
        metrics = compute_metrics(results, cost, source, "musique", num_resamples=100)
        manifest = {
            "dataset": "musique", "method": "ppr", "fingerprint": "abcd1234", "source": source, "is_sample": is_sample,
            "device": "cpu", "seed": 7, "engine": {"name": "none", "model": HOSTILE}, "num_shards": 1,
        }  # fmt: skip
        return results, metrics, manifest

    return make
