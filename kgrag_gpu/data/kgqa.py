"""What the loaders of knowledge-base question sets share: answers and topic entities in Freebase's and RoG's forms.

These sets come without passages: the graph is given apart (`--kg`), and gold names and ids are compared with its
entities by id where both sides have ids, else by normalised name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kgrag_gpu.data.pool import nfc
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, record_id, text_list
from kgrag_gpu.types import EntityRef, GoldAnswer, Question


def topic_refs(value: Any) -> tuple[EntityRef, ...]:
    """Topic entities from `{id: name}`, a list of names, or a list of objects with `name` and `id`; {} gives none.

    Raises:
        RecordError: another form.
    """
    if value is None:
        return ()
    if isinstance(value, Mapping):
        # Parquet readers fill a map's missing keys with None.
        return tuple(EntityRef(_name(name), str(identity)) for identity, name in value.items() if name is not None)
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        raise RecordError("the topic entities are neither an object {id: name} nor a list")
    refs = []
    for item in value:
        if isinstance(item, str) and item.strip():
            refs.append(EntityRef(_name(item)))
        elif isinstance(item, Mapping) and isinstance(item.get("name"), str):
            refs.append(EntityRef(_name(item["name"]), str(item.get("id") or "")))
        else:
            raise RecordError("the topic entities hold an item that is neither a name nor an object with `name`")
    return tuple(dict.fromkeys(refs))


def freebase_answers(items: Any, name_key: str, argument_key: str) -> list[GoldAnswer]:
    """Answers of Freebase's record form: entities with id and name, literals by their value.

    An entity that the record does not name is called by its id.

    Raises:
        RecordError: not a list of objects with `argument_key`.
    """
    if not isinstance(items, list | tuple):
        raise RecordError("the answers are not a list")
    answers = []
    for item in items:
        argument = item.get(argument_key) if isinstance(item, Mapping) else None
        if argument is None or not str(argument).strip():
            raise RecordError(f"an answer has no `{argument_key}`")
        name, argument = item.get(name_key), str(argument).strip()
        if isinstance(name, str) and name.strip():
            answers.append(GoldAnswer(_name(name), (), argument))
        else:
            answers.append(GoldAnswer(argument))
    return answers


def distinct(answers: Iterable[GoldAnswer]) -> tuple[GoldAnswer, ...]:
    """The answers in first-seen order; the same id, or the same name without an id, counts once."""
    seen: dict[tuple[str, str], GoldAnswer] = {}
    for answer in answers:
        seen.setdefault(("id", answer.external_id) if answer.external_id else ("name", answer.name), answer)
    return tuple(seen.values())


def is_rog(record: Any) -> bool:
    """Whether a record is of RoG's form on the hub: `id`, `question`, `answer`, `q_entity`, `a_entity`, `graph`."""
    return isinstance(record, Mapping) and "q_entity" in record and "question" in record


def parse_rog(record: Mapping[str, Any], options: ParseOptions) -> Question:
    """One record of RoG's form. Its `graph` is left out: the KG is one for all questions and given apart.

    Raises:
        RecordError: no id or question.
    """
    names = text_list(record.get("a_entity")) or text_list(record.get("answer"))
    return Question(
        id=record_id(record, "id"),
        text=question_text(record, options, "question"),
        golden_answers=tuple(GoldAnswer(name) for name in names),
        topic_entities=topic_refs(list(text_list(record.get("q_entity")))),
    )


def spaced_answer(name: str) -> GoldAnswer:
    """A gold answer whose name may write spaces as `_`; the readable spelling is kept beside it."""
    name = nfc(name).strip()
    readable = spaced(name)
    return GoldAnswer(name, (readable,) if readable != name else ())


def spaced(text: str) -> str:
    """`_` as spaces, runs of white space as one."""
    return " ".join(text.replace("_", " ").split())


def _name(text: str) -> str:
    return nfc(text).strip()
