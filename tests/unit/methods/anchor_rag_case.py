"""A tiny world for AnchorRAG's tests: vectors from words alone, two small graphs, and a model that plays a script."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.kg.store import Kg, make_kg
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Completion, Message, Prompt, Sampling
from kgrag_gpu.methods.anchor_rag import AnchorRag, AnchorRagConfig
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.tensors.fixed_point import to_fixed
from kgrag_gpu.types import Passage, Question
from kgrag_gpu.words import FUNCTION_WORDS, split_words

DIM = 96

PASSAGES = [
    Passage("Silver Harbour", "Silver Harbour is a 1994 film directed by Ada Lindqvist. It was shot in Bergen."),
    Passage("Ada Lindqvist", "Ada Lindqvist is a Swedish director. She was born in the town of Ystad."),
    Passage("Ystad", "Ystad is a town on the Baltic coast of Sweden."),
    Passage("Bergen", "Bergen is a rainy city in Norway."),
    Passage("Copper Gate", "Copper Gate is a 1987 film directed by Otto Falk."),
    Passage("Otto Falk", "Otto Falk was a Danish director. He was born in Aarhus."),
    Passage("Aarhus", "Aarhus is a city in Denmark."),
    Passage("Lighthouses", "A lighthouse warns ships of rocks. Ada Lindqvist collects pictures of them."),
]

TRIPLES = [
    ("Silver Harbour", "directed by", "Ada Lindqvist"),
    ("Silver Harbour", "starring", "Nils Berg"),
    ("Silver Harbour", "release year", "1994"),
    ("Ada Lindqvist", "born in", "Ystad"),
    ("Ada Lindqvist", "married to", "Otto Falk"),
    ("Ystad", "located in", "Sweden"),
    ("Copper Gate", "directed by", "Otto Falk"),
    ("Otto Falk", "born in", "Aarhus"),
    ("Nils Berg", "born in", "Oslo"),
]


def word_vectors(texts: Sequence[str], progress: str | None = None) -> np.ndarray:
    """int16 [texts, DIM]: the normalised sum of a fixed random vector for each content word."""
    del progress
    out = np.zeros((len(texts), DIM))
    for row, text in enumerate(texts):
        for word in split_words(text):
            if word not in FUNCTION_WORDS:
                seed = xxhash.xxh32_intdigest(word[:5].encode())
                out[row] += np.random.default_rng(seed).standard_normal(DIM)
    norms = np.linalg.norm(out, axis=1, keepdims=True)
    return to_fixed(np.divide(out, norms, out=np.zeros_like(out), where=norms > 0))


class WordResources(Resources):
    """Resources whose encoder knows words by their first letters."""

    def vectors(self, texts: Sequence[str], progress: str | None = None) -> np.ndarray:
        return word_vectors(texts, progress)


def passage_kg(passages: Sequence[Passage] = PASSAGES) -> Kg:
    return build_mentions_kg(passages)


def triple_kg(triples: Sequence[tuple[str, str, str]] = TRIPLES) -> Kg:
    names = list(dict.fromkeys(end for head, _, tail in triples for end in (head, tail)))
    relations = list(dict.fromkeys(relation for _, relation, _ in triples))
    return make_kg(
        entity_names=names,
        relation_names=relations,
        heads=np.array([names.index(head) for head, _, _ in triples]),
        relations=np.array([relations.index(relation) for _, relation, _ in triples]),
        tails=np.array([names.index(tail) for _, _, tail in triples]),
        triple_texts=[" ".join(triple) for triple in triples],
        kind="triples",
    )


def resources_of(kg: Kg, folder: Path, engine: Engine | None = None) -> WordResources:
    return WordResources(load_run_config("musique", "hybrid"), kg, folder, engine=engine)


def anchor_rag(kg: Kg, folder: Path, engine: Engine | None = None, **config) -> AnchorRag:
    """The method over a small graph; passages are scored by clauses, which need no token states."""
    values = {"passages": {"evidence_scorer": "sentence"}, **config}
    return AnchorRag(AnchorRagConfig.model_validate(values), resources_of(kg, folder, engine))


def question(text: str, number: int = 0) -> Question:
    return Question(f"q{number}", text)


_KINDS = {
    "Find what a question must be matched by": "anchor_groups",
    "Evidence for a question has been collected": "grow",
    "Split a question into": "sub_questions",
    "of the entity keep every one": "choose_relations",
    "From the numbered facts keep every one": "choose_entities",
    "what the facts tell about it": "note_progress",
    "or go back to some of the numbered entities": "reflect",
    "from what you know. Reply": "io",
    "from what you know. Think": "cot_examples",
    "Several solutions of one question": "pick_answer",
    "List the named things": "keywords",
    "From the numbered relations": "rank_relations",
    "From the numbered facts keep those": "filter_facts",
    "From the numbered facts": "rank_entities",
    "Decide which of the numbered facts": "verify_evidence",
    "Decide whether the facts are enough": "enough",
    "Several searches": "rank_agents",
    "Think step by step": "cot",
}


@dataclass
class ScriptedModel:
    """A backend that answers each prompt kind by a function of its user text; a kind without one replies rubbish."""

    script: dict[str, Callable[[str], str]]
    name: str = "scripted"
    model_id: str = "scripted"
    revision: str = "1"
    max_context_tokens: int = 100_000
    detail: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)

    def render(self, messages: Sequence[Message]) -> str:
        return "\n".join(message.content for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for row, prompt in enumerate(prompts):
            system, user = prompt.messages[0].content, prompt.messages[1].content
            kind = next(kind for start, kind in _KINDS.items() if start in system)
            self.asked.append((kind, user))
            reply = self.script.get(kind, lambda text: "I would rather not say.")(user)
            yield row, Completion(reply, len(prompt.text.split()), len(reply.split()), "stop")

    def choice_logprobs(self, prompts, choices) -> Iterator[tuple[int, list[float], int]]:
        raise AssertionError("no choices are scored here")

    def close(self) -> None:
        pass

    def kinds(self) -> list[str]:
        """The kinds asked, in order, repeats of a batch together."""
        return [kind for kind, _ in self.asked]


def choose_with(key: str, *words: str) -> Callable[[str], str]:
    """A reply that names, in order of `words`, the numbered options holding each word."""

    def reply(user: str) -> str:
        options = [line.split(". ", 1) for line in user.splitlines() if line.split(". ", 1)[0].isdigit()]
        numbers = [int(number) for word in words for number, text in options if word in text]
        return f'{{"{key}":{list(dict.fromkeys(numbers))}}}'

    return reply


NOT_ENOUGH = '{"enough":false,"answers":[]}'


def enough_when(fact: str, answer: str) -> Callable[[str], str]:
    """A reply to `enough` that knows the answer where the prompt shows the fact."""
    return lambda user: f'{{"enough":true,"answers":["{answer}"]}}' if fact in user else NOT_ENOUGH
