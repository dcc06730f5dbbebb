"""The embedded sample: our own multi-hop questions over true facts, as records in MuSiQue's official form.

`sample/passages.jsonl` is the pool (`key`, `title`, `text`), `sample/questions.jsonl` the questions with one passage
key a step; this module assembles full records from them and does not know who reads them. The id's prefix names the
shape:

    2hop, 3hop1, 4hop1   chains
    3hop2                two independent first hops, joined in the last
    4hop2                the same join with one more hop behind it
    4hop3                a chain of two and an independent hop, joined in the last
    2hopcmp, 4hopcmp     comparisons: of two stated facts, or of two facts that each lie behind a bridge

In a comparison the steps yield the values to compare, and `answer` is the name that wins or "no": unlike MuSiQue's own
shapes, it is not the last step's answer.

Choices are made by hashing ids, not by a random generator, so the records are the same on every Python version.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from typing import Any

MIN_PARAGRAPHS = 10
MAX_PARAGRAPHS = 20
RELATED_SHARE = 2 / 3  # of the distractors; the others are drawn blindly, as noise of another domain
RARE_SHARE = 0.08  # a word in more of the passages than this says nothing about being related
LINK_WEIGHT = 20.0  # one passage names the other's title, which outweighs a few shared words
NAME_WEIGHT = 3.0  # a shared name ties two passages together more than a shared rare word

_SEED = "kgrag-sample-1"
_PARENTHESIS = re.compile(r" \(.*\)$")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class _SamplePassage:
    key: str
    title: str
    text: str
    words: frozenset[str]

    @property
    def name(self) -> str:
        return _PARENTHESIS.sub("", self.title)

    def is_linked_to(self, other: "_SamplePassage") -> bool:
        return self.name in other.text or other.name in self.text or self.name == other.name


def sample_records() -> list[dict[str, Any]]:
    """All questions of the embedded sample, in file order, as MuSiQue records.

    Each has 10 to 20 paragraphs: the supporting ones and distractors, most of which share rare words or names with the
    question or its supporting passages. Sub-questions refer to earlier answers by `#1`, `#2`. Sub-questions that are
    word for word the same have the same `id`. The records are built anew by every call, so callers may change them.
    """
    passages = _load_passages()
    weights = _word_weights(passages.values())
    step_ids: dict[tuple[str, str, str], int] = {}
    return [_record(question, passages, weights, step_ids) for question in _read_rows("questions.jsonl")]


def _read_rows(name: str) -> list[dict[str, Any]]:
    text = files("kgrag_gpu.data").joinpath("sample", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _load_passages() -> dict[str, _SamplePassage]:
    passages = {}
    for row in _read_rows("passages.jsonl"):
        words = _words(f"{row['title']} {row['text']}")
        passages[row["key"]] = _SamplePassage(row["key"], row["title"], row["text"], words)
    return passages


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))  # the case stays: a capital tells names from words


def _word_weights(passages: Collection[_SamplePassage]) -> dict[str, float]:
    """Inverse document frequency of each word that is rare enough to hint at a common subject; names count more."""
    counts = Counter(word for passage in passages for word in passage.words)
    num_passages = len(passages)
    return {
        word: math.log(num_passages / count) * (NAME_WEIGHT if word[0].isupper() else 1.0)
        for word, count in counts.items()
        if 1 < count <= RARE_SHARE * num_passages
    }


def _record(
    question: Mapping[str, Any],
    passages: Mapping[str, _SamplePassage],
    weights: Mapping[str, float],
    step_ids: dict[tuple[str, str, str], int],
) -> dict[str, Any]:
    support = list(dict.fromkeys(step["passage"] for step in question["steps"]))
    chosen = support + _distractors(question, support, passages, weights)
    chosen.sort(key=lambda key: _hash(question["id"], "position", key))
    position = {key: idx for idx, key in enumerate(chosen)}
    return {
        "id": question["id"],
        "paragraphs": [
            {
                "idx": idx,
                "title": passages[key].title,
                "paragraph_text": passages[key].text,
                "is_supporting": key in support,
            }
            for key, idx in position.items()
        ],
        "question": question["question"],
        "question_decomposition": [
            {
                "id": step_ids.setdefault((step["question"], step["answer"], step["passage"]), len(step_ids) + 1),
                "question": step["question"],
                "answer": step["answer"],
                "paragraph_support_idx": position[step["passage"]],
            }
            for step in question["steps"]
        ],
        "answer": question["answer"],
        "answer_aliases": list(question["answer_aliases"]),
        "answerable": True,
    }


def _distractors(
    question: Mapping[str, Any],
    support: Sequence[str],
    passages: Mapping[str, _SamplePassage],
    weights: Mapping[str, float],
) -> list[str]:
    """Keys of the distractors: the most related passages first, then passages taken blindly from the rest."""
    num_paragraphs = MIN_PARAGRAPHS + _hash(question["id"], "count") % (MAX_PARAGRAPHS - MIN_PARAGRAPHS + 1)
    num_wanted = num_paragraphs - len(support)
    topic = _words(question["question"]).union(*(passages[key].words for key in support))

    def relatedness(key: str) -> float:
        num_links = sum(passages[key].is_linked_to(passages[other]) for other in support)
        # sorted, since a float sum depends on its order and a set's order on the process
        return LINK_WEIGHT * num_links + sum(weights.get(word, 0.0) for word in sorted(topic & passages[key].words))

    others = [key for key in passages if key not in support]
    others.sort(key=lambda key: (-relatedness(key), _hash(question["id"], "tie", key)))
    num_related = math.ceil(RELATED_SHARE * num_wanted)
    blind = sorted(others[num_related:], key=lambda key: _hash(question["id"], "blind", key))
    return others[:num_related] + blind[: num_wanted - num_related]


def _hash(*parts: str) -> int:
    return int.from_bytes(blake2b("\0".join((_SEED, *parts)).encode(), digest_size=8).digest(), "big")
