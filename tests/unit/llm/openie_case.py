"""Three passages and a scripted model that reads them, with every fault that a model's rows have."""

import json
from collections.abc import Iterator, Sequence

from kgrag_gpu.llm.records import Completion, Message, Prompt, Sampling
from kgrag_gpu.types import Passage

PASSAGES = [
    Passage("Ada", "Ada was born in London. She married Basil in 1981."),
    Passage("Basil", "Basil wrote books. He lived in Paris."),
    Passage("Dull", "Nothing is said here."),
]
ENTITIES = {
    "Ada": ["Ada", "London", "Basil", "Atlantis", "1981"],
    "Basil": ["Basil", "Paris"],
    "Dull": [],
}
TRIPLES = {
    "Ada": [
        ["Ada", "was born in", "London", 1],
        ["Ada", "married", "Basil", 2],
        ["Ada", "married", "Basil", 2],
        ["Ada", "knows", "", 1],
        ["Ada", "is", "ada", 1],
        ["Zeus", "rules", "Olympus", 1],
        ["Ada", "lives"],
        ["Ada", "married in", "1981", 9],
    ],
    "Basil": [["Basil", "lived in", "Paris", 2]],
    "Dull": [],
}


class OpenIe:
    """Answers both prompts of a passage from the tables above; `dies_on` raises for that title's triples."""

    name, model_id, revision, max_context_tokens, detail = "scripted", "tiny", "r", 4096, ""

    def __init__(self, dies_on: str = "", broken: str = "", max_context_tokens: int = 4096):
        self.dies_on, self.broken, self.max_context_tokens = dies_on, broken, max_context_tokens
        self.asked: list[tuple[str, str]] = []

    def render(self, messages: Sequence[Message]) -> str:
        return "\n".join(message.content for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for row, prompt in enumerate(prompts):
            user = prompt.messages[1].content
            title = user.split("\n")[0].removeprefix("Title: ")
            step = "entities" if "\nPassage: " in user else "triples"
            if step == "triples" and title == self.dies_on:
                raise RuntimeError("killed")
            self.asked.append((title, step))
            table = ENTITIES if step == "entities" else TRIPLES
            text = "no JSON" if title == self.broken else json.dumps({step: table[title]})
            yield row, Completion(text, 10, 5, "stop")

    def close(self) -> None:
        pass
