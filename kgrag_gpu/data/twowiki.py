"""2WikiMultiHopQA, official records: HotpotQA's shape with `type` and `evidences` (the reasoning triples)."""

from collections.abc import Mapping
from typing import Any

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.hotpotqa import parse_sentence_record
from kgrag_gpu.data.pool import PassagePool
from kgrag_gpu.data.records import ParseOptions, require_mapping
from kgrag_gpu.types import Question

EXPECTED = "`_id`, `type`, `question`, `context` (list of [title, [sentences]]), `supporting_facts` and `evidences`"
FILE_PATTERNS = ("dev.json*", "dev.parquet", "validation*", "train.json*", "train.parquet")
HUB = HubConfig(path="framolfese/2WikiMultihopQA", split="validation")
# Compositional, inference and comparison questions need two steps; a bridge-comparison compares the ends of two.
HOPS_OF_TYPE = {"compositional": 2, "inference": 2, "comparison": 2, "bridge_comparison": 4}


def matches(record: Any) -> bool:
    """Whether the record carries 2Wiki's `evidences` beside its context."""
    return isinstance(record, Mapping) and "context" in record and "evidences" in record


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One 2Wiki record. Aliases are taken where the file has them (`answer_aliases`), and `answer_id` as the gold id.

    Raises:
        RecordError: no id, question or context.
    """
    record = require_mapping(record)
    kind = record.get("type")
    return parse_sentence_record(
        record,
        pool,
        options,
        num_hops=HOPS_OF_TYPE.get(kind) if isinstance(kind, str) else None,
        extra={"evidences": record.get("evidences") or []},
    )
