"""The pooled passages of a question set: exact duplicates of (title, text) are stored once, in first-seen order."""

import unicodedata
from collections.abc import Sequence

from kgrag_gpu.types import Passage


def nfc(text: str) -> str:
    """Unicode NFC: one spelling per accented letter. Nothing is folded to ASCII and case stays as written."""
    return unicodedata.normalize("NFC", text)


def join_sentences(sentences: Sequence[str]) -> str:
    """Join a file's own sentence cuts into one text.

    HotpotQA's sentences carry their leading space, 2Wiki's do not: a space is put in only where neither side has one.
    """
    text = ""
    for sentence in sentences:
        needs_space = text and sentence and not text[-1].isspace() and not sentence[0].isspace()
        text += f" {sentence}" if needs_space else sentence
    return text.strip()


class PassagePool:
    """Collects passages. A passage's row number is fixed when it is first added."""

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self.sentences: list[tuple[str, ...]] = []
        self.has_sentences = False
        self._rows: dict[tuple[str, str], int] = {}

    def add(self, title: str, text: str, sentences: Sequence[str] | None = None, external_id: str = "") -> int:
        """Return the row of the passage (title, text), adding it when it is new. Both are NFC-normalised here.

        `sentences`, where the source cuts its passages, keeps the source's numbering: empty ones stay in place.
        """
        title, text = nfc(title).strip(), nfc(text).strip()
        row = self._rows.get((title, text))
        if row is not None:
            return row
        row = len(self.passages)
        self._rows[title, text] = row
        self.passages.append(Passage(title, text, external_id))
        self.sentences.append(tuple(nfc(s).strip() for s in sentences) if sentences is not None else (text,))
        self.has_sentences |= sentences is not None
        return row

    def __len__(self) -> int:
        return len(self.passages)

    def truncate(self, num_passages: int) -> None:
        """Take back what was added after the pool had `num_passages`: a record that turned out bad leaves nothing."""
        for passage in self.passages[num_passages:]:
            del self._rows[passage.title, passage.text]
        del self.passages[num_passages:]
        del self.sentences[num_passages:]
