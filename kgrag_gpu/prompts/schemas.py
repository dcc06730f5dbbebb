"""The form of each structured reply. Compact: short field names, numbers instead of texts wherever there is a choice.

Numbers of options are 1-based, as the prompt prints them. A list of numbers is put right here rather than refused:
repeats and numbers that no option has are dropped, since small models write them; a list with nothing left but wrong
numbers is refused. JSON schema's `uniqueItems` is not used: grammar libraries do not enforce it.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)


class ReplySchema(BaseModel):
    """Base of reply forms: frozen, further keys ignored, white space at the ends of texts removed."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)


def _known_numbers(numbers: list[int], info: ValidationInfo) -> list[int]:
    num_options = (info.context or {}).get("num_options", 0)
    limit = num_options or max(numbers, default=0)
    kept = [number for number in dict.fromkeys(numbers) if 1 <= number <= limit]
    if numbers and not kept:
        raise ValueError(f"no number of an option in {numbers[:5]} (options are 1 to {num_options})")
    return kept


def _distinct_texts(texts: list[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


# The bounds on array lengths are for the grammar: a small model that repeats itself is stopped before its token limit.
# Readers do not hold a reply to them.
_NUMBERS = WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 32})
_TEXTS = WithJsonSchema({"type": "array", "items": {"type": "string"}, "maxItems": 64})

OptionNumbers = Annotated[list[int], BeforeValidator(_as_list), AfterValidator(_known_numbers), _NUMBERS]
DistinctTexts = Annotated[list[str], BeforeValidator(_as_list), AfterValidator(_distinct_texts), _TEXTS]
ShortText = Annotated[str, Field(min_length=1, max_length=200)]


class Mention(ReplySchema):
    """A named thing in a question, as written and with its spelling corrected."""

    mention: ShortText
    corrected: str = ""


class Keywords(ReplySchema):
    """Reply to `keywords`."""

    mentions: list[Mention]

    @field_validator("mentions", mode="before")
    @classmethod
    def _plain_names(cls, value: Any) -> Any:
        return [{"mention": item} if isinstance(item, str) else item for item in _as_list(value)]


class Best(ReplySchema):
    """Reply to `rank_relations`, `rank_entities`, `pick_answer`: option numbers, best first."""

    best: OptionNumbers


class Keep(ReplySchema):
    """Reply to `verify_evidence`, `filter_facts`, `rank_agents`, `choose_...`: option numbers, possibly none."""

    keep: OptionNumbers


class Add(ReplySchema):
    """Reply to `grow`: option numbers, possibly none."""

    add: OptionNumbers


class BackTo(ReplySchema):
    """Reply to `reflect`: option numbers, possibly none."""

    back_to: OptionNumbers


class Enough(ReplySchema):
    """Reply to `enough`: whether the evidence suffices, and then the answers."""

    enough: bool
    answers: DistinctTexts = []


class AnchorGroup(ReplySchema):
    """A part of a question to be matched in the graph."""

    text: ShortText
    kind: Literal["entity", "relation", "attribute"] = "entity"
    specific: str = ""


class AnchorGroups(ReplySchema):
    """Reply to `anchor_groups`."""

    groups: list[AnchorGroup]


class Triples(ReplySchema):
    """Reply to `read_triples`: head, relation, tail; triples that lack a part are dropped."""

    triples: list[tuple[str, str, str]]

    @field_validator("triples", mode="before")
    @classmethod
    def _whole_triples(cls, value: Any) -> Any:
        rows = [_row(item, ("head", "relation", "tail")) for item in _as_list(value)]
        return [row for row in rows if len(row) == 3 and all(isinstance(part, str) and part.strip() for part in row)]


class Reason(ReplySchema):
    """Reply to `reason`."""

    answerable: bool
    why: str = ""


class Query(ReplySchema):
    """Reply to `rewrite`."""

    query: ShortText


class Parts(ReplySchema):
    """Reply to `sub_questions`."""

    parts: DistinctTexts


class Known(ReplySchema):
    """Reply to `note_progress`: a text for each sub-question in order, empty where nothing is known."""

    known: Annotated[list[str], BeforeValidator(_as_list), _TEXTS]


class Entities(ReplySchema):
    """Reply to `openie_entities`."""

    entities: DistinctTexts


class SentenceTriples(ReplySchema):
    """Reply to `openie_triples`: rows as sent. kg/extract.py judges each, so that each reject has its reason."""

    triples: list[tuple[str, str, str, int]]

    @field_validator("triples", mode="wrap")
    @classmethod
    def _any_rows(cls, value: Any, handler: Any) -> Any:
        del handler  # the annotation is the form that the model is held to; reading is lenient
        if not isinstance(value, list):
            raise ValueError("triples is not a list")
        return [_row(item, ("head", "relation", "tail", "sentence")) for item in value]


def _row(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    """A triple that came as a list, or as an object with the usual key names."""
    if isinstance(item, dict):
        other = {"subject": "head", "predicate": "relation", "object": "tail"}
        named = {other.get(str(key).lower(), str(key).lower()): part for key, part in item.items()}
        return tuple(named[key] for key in keys if key in named)
    return tuple(item) if isinstance(item, list | tuple) else (item,)
