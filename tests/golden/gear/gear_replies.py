"""Scripted replies by a prompt's kind and its last lines, for methods that ask in rounds."""

from collections.abc import Iterator, Sequence

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Completion, Prompt, Sampling

_KINDS = {
    "write down the facts that help": "read_triples",
    "Decide whether the question can be answered": "reason",
    "could not be answered yet": "rewrite",
    "You answer a question step by step": "ircot_step",
    "You answer questions from the given passages": "answer",
}


class RecordedModel:
    """Plays recorded replies: for each kind and question a list, one a round; what is not recorded is rubbish.

    Attributes:
        asked: (kind, user text) of every request that was not a retry, in the order they came.
        batches: the kinds of each call of `complete`.
    """

    engine: Engine  # that it runs behind, set by a test that wants its failures
    name, model_id, revision, detail = "recorded", "recorded", "1", ""
    max_context_tokens = 100_000

    def __init__(self, replies: dict[str, dict[str, list[str]]]):
        self._left = {kind: {text: list(rows) for text, rows in texts.items()} for kind, texts in replies.items()}
        self.asked: list[tuple[str, str]] = []
        self.batches: list[set[str]] = []

    def render(self, messages) -> str:
        return "\n".join(message.content for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        kinds = []
        for row, prompt in enumerate(prompts):
            system, user = prompt.messages[0].content, prompt.messages[1].content
            kind = next(kind for start, kind in _KINDS.items() if start in system)
            is_retry = len(prompt.messages) > 2
            if not is_retry:
                kinds.append(kind)
                self.asked.append((kind, user))
            left = [] if is_retry else next((r for t, r in self._left.get(kind, {}).items() if t in user), [])
            reply = left.pop(0) if left else "I would rather not say."
            yield row, Completion(reply, len(prompt.text.split()), len(reply.split()), "stop")
        if kinds:
            self.batches.append(set(kinds))

    def choice_logprobs(self, prompts, choices) -> Iterator[tuple[int, list[float], int]]:
        raise AssertionError("no choices are scored here")

    def close(self) -> None:
        pass

    def texts(self, kind: str) -> list[str]:
        """The user texts of one kind."""
        return [user for asked, user in self.asked if asked == kind]
