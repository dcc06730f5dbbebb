"""GeAR's beam search against the encoder alone: how many chain texts are encoded, and what the search adds in time.

The beam stage's hot path is encoding candidate chains. Here the search runs over a question set with no chain known,
part by part; after each part the encoder alone encodes the same texts, so that a busy machine slows both alike. A
second search, every chain known, must find the same beams: its time is what the graph and the tensors cost.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.data.registry import load_questions
from kgrag_gpu.expansion.triple_beam import Beams
from kgrag_gpu.index.encoder import Encoder
from kgrag_gpu.kg.build import kg_for_run
from kgrag_gpu.methods.gear import Gear, GearConfig
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.types import Question
from pipelines.command_line import EXIT_DONE, say

_PART = 16  # questions between two turns of the encoder alone


class _NotingEncoder(Encoder):
    """Keeps the texts that it was given since they were last taken."""

    def __init__(self, *args, **kwargs):
        self.texts: list[str] = []
        super().__init__(*args, **kwargs)

    def encode(self, texts: Sequence[str], progress: str | None = None) -> np.ndarray:
        """Encodes as ever."""
        self.texts.extend(texts)
        return super().encode(texts, progress)


def run_bench(dataset: str, data: str | None, kg_path: str | None, limit: int | None, base: str) -> tuple[dict, int]:
    """The figures by name, and the exit code: 3 where the second search found other beams.

    Args:
        dataset, data, kg_path, limit: the questions and the KG, as in batch_eval.
        base: the retriever that the expansion starts from.
    """
    options = {"dataset.data": data, "dataset.limit": limit, "kg.path": kg_path}
    config = load_run_config(dataset, "gear", (), (), options)
    questions = load_questions(config.dataset)
    say(questions.source)
    with tempfile.TemporaryDirectory() as folder:
        resources = Resources(config, kg_for_run(config.kg, questions, Path(folder)), Path(folder))
        encoder = _NotingEncoder(config.encoder)
        resources.encoder = encoder
        gear = Gear(GearConfig(base=base), resources)
        figures = _measure(gear, resources, encoder, questions.questions)
    return figures, EXIT_DONE if figures["equal"] else 3


def _measure(gear: Gear, resources: Resources, encoder: _NotingEncoder, questions: Sequence[Question]) -> dict:
    starts = [gear.passage_facts(found.ranking) for found in gear.find_base(questions)]
    vectors = torch.from_numpy(np.array(resources.vectors([question.text for question in questions])))
    encoder.encode(["the first pass is slower than any other"])
    encoder.texts.clear()
    seconds = {"beam": 0.0, "encoder": 0.0, "known": 0.0}
    num_candidates = num_encoded = 0
    equal = True
    for start in range(0, len(questions), _PART):
        part = slice(start, start + _PART)
        took, (beams, counts) = _timed(lambda part=part: gear.expand(starts[part], vectors[part]))
        texts, encoder.texts = encoder.texts, []
        seconds["beam"] += took
        seconds["encoder"] += _timed(lambda texts=texts: encoder.encode(texts))[0]
        encoder.texts = []
        took, (again, _) = _timed(lambda part=part: gear.expand(starts[part], vectors[part]))
        seconds["known"] += took
        equal = equal and not encoder.texts and all(map(_same, beams, again))
        num_candidates += sum(counts) - sum(len(np.unique(row)) for row in starts[part])
        num_encoded += len(texts)
    return {
        "questions": len(questions),
        "facts": len(gear.facts.texts),
        "candidate chains scored": num_candidates,
        "chain texts encoded": num_encoded,
        "encoded / scored": round(num_encoded / max(1, num_candidates), 3),
        "beam stage, s": round(seconds["beam"], 2),
        "encoder alone, same texts, s": round(seconds["encoder"], 2),
        "beam stage / encoder": round(seconds["beam"] / max(1e-9, seconds["encoder"]), 3),
        "beam stage, every chain known, ms a question": round(1000 * seconds["known"] / max(1, len(questions)), 2),
        "equal": equal,
    }


def _timed(work):
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def _same(first: Beams, second: Beams) -> bool:
    return torch.equal(first.chains, second.chains) and torch.equal(first.scores, second.scores)
