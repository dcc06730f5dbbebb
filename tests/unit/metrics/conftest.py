"""Small results for the metric tests."""

import pytest

from kgrag_gpu.types import Answer, EntityRef, EvidencePath, EvidenceStep, GoldAnswer, Question, Result, Retrieval


@pytest.fixture
def make_result():
    """Builds a result from the few values that a test is about."""

    def make(
        prediction="",
        gold=("A",),
        *,
        id="q",
        source="graph",
        ranked=(),
        gold_rows=(),
        asked_rows=None,
        anchors=(),
        topics=(),
        evidence_entities=(),
        support=(),
        hops=None,
        type="",
        answerable=True,
        error="",
        facts=(),
        extra=None,
    ):
        steps = tuple(EvidenceStep("h", "r", "t", text, (row,)) for row, text in support)
        return Result(
            Question(
                id,
                "?",
                tuple(g if isinstance(g, GoldAnswer) else GoldAnswer(g) for g in gold),
                gold_passage_ids=tuple(range(len(gold_rows))) if asked_rows is None else tuple(asked_rows),
                topic_entities=tuple(EntityRef(*t) for t in topics),
                supporting_facts=tuple(facts),
                num_hops=hops,
                type=type,
                answerable=answerable,
                extra=extra or {},
            ),
            Retrieval(
                tuple(ranked),
                tuple(1.0 / (1 + i) for i in range(len(ranked))),
                (EvidencePath(steps, 1.0),) if steps else (),
                tuple(EntityRef(*a) for a in anchors),
                tuple(EntityRef(*e) for e in evidence_entities),
            ),
            Answer(prediction, source),
            tuple(gold_rows),
            error,
        )

    return make
