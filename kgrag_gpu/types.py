"""The few records that travel between stages. All are frozen; none knows where it came from or where it goes.

Row numbers: `*_id(s)` fields are row numbers of the question set's or the KG's tables, never names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Source = Literal["graph", "passages", "cot", "none"]


class UserError(Exception):
    """The user's input is wrong. Pipelines print the message as one line and exit with code 2.

    The message says what was wrong, what was expected, and what to do.
    """


@dataclass(frozen=True, slots=True)
class Rejected:
    """One record of an input that could not be used, and why."""

    where: str  # "dev.jsonl:17" or a record id
    reason: str
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of text. Its identity is (title, text): titles repeat with different texts in the real sets."""

    title: str
    text: str
    external_id: str = ""


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """One accepted answer with its other spellings. A question may have several (a set of entities)."""

    name: str
    aliases: tuple[str, ...] = ()
    external_id: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """The name first, then the aliases."""
        return (self.name, *self.aliases)


@dataclass(frozen=True, slots=True)
class EntityRef:
    """An entity named from outside the KG: a gold topic entity, or an anchor written to a result row."""

    name: str
    external_id: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One question and what its data set says about it. Only `id` and `text` are needed to answer it."""

    id: str
    text: str
    golden_answers: tuple[GoldAnswer, ...] = ()
    gold_passage_ids: tuple[int, ...] = ()  # rows of QuestionSet.passages
    context_passage_ids: tuple[int, ...] = ()  # rows of QuestionSet.passages that came with the question, in its order
    supporting_facts: tuple[tuple[int, int], ...] = ()  # (row of QuestionSet.passages, sentence number)
    topic_entities: tuple[EntityRef, ...] = ()
    num_hops: int | None = None
    type: str = ""
    answerable: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields carried through unread


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions with the pooled passages of their source, exact duplicates of (title, text) stored once."""

    name: str
    questions: tuple[Question, ...]
    passages: tuple[Passage, ...]
    source: str  # one line for people: "file /data/dev.jsonl" or "embedded sample, 64 questions, not MuSiQue"
    content_hash: str
    is_sample: bool = False
    rejected: tuple[Rejected, ...] = ()
    passage_sentences: tuple[tuple[str, ...], ...] | None = None  # where the source cuts its passages into sentences


@dataclass(frozen=True, slots=True)
class EvidenceStep:
    """One triple (or sentence edge) of an evidence path, in words, with its place in the KG."""

    head: str
    relation: str
    tail: str
    text: str
    passage_ids: tuple[int, ...] = ()  # rows of the KG's passages
    edge_id: int = -1  # row of the KG's triples; -1 where the step is not a triple
    is_inverse: bool = False


@dataclass(frozen=True, slots=True)
class EvidencePath:
    """Connected steps that support an answer; `score` higher is better, comparable within one question only."""

    steps: tuple[EvidenceStep, ...]
    score: float
    notes: Mapping[str, Any] = field(default_factory=dict)  # what a method wants shown: round, agent, words covered


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered. `names` holds the whole answer set, best first; `text` is the one prediction."""

    text: str
    source: Source
    names: tuple[str, ...] = ()
    reply: str = ""  # the model's full reply, for the trace
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What a method found for one question.

    `passage_ids` are rows of the KG's passages, best first, without repeats; `passage_scores` runs beside it.
    `answer` is set by methods that answer by themselves (KGQA, no-retrieval baselines); otherwise the reader answers.
    """

    passage_ids: tuple[int, ...] = ()
    passage_scores: tuple[float, ...] = ()
    evidence: tuple[EvidencePath, ...] = ()
    anchors: tuple[EntityRef, ...] = ()
    evidence_entities: tuple[EntityRef, ...] = ()  # every entity in the retrieved evidence, for answer coverage
    answer: Answer | None = None
    trace: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """One question's outcome: one row of a shard. A failed question has `error` set and an empty answer."""

    question: Question
    retrieval: Retrieval
    answer: Answer
    gold_passage_ids: tuple[int, ...] = ()  # rows of the KG's passages; -1 for a gold passage that the KG lacks
    error: str = ""
