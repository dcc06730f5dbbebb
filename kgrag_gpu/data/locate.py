"""Which file of a folder holds the questions. Knows file names only, not what is in the files."""

from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.types import UserError

DATA_SUFFIXES = (".json", ".jsonl", ".ndjson", ".tsv", ".csv", ".txt", ".parquet")
# Files that lie beside questions and hold something else.
NOT_QUESTIONS = (
    "corpus",
    "openie",
    "kb",
    "triples",
    "entities",
    "aliases",
    "readme",
    "license",
    "manifest",
    "rejected",
)
SPLITS = ("dev", "validation", "valid", "test", "train")


def data_files(folder: Path) -> list[Path]:
    """The folder's files that could hold questions, by name; hidden files and sub-folders are left out."""
    found = []
    for path in sorted(folder.iterdir()):
        name = path.name.lower().removesuffix(".gz")
        if path.is_file() and not name.startswith(".") and name.endswith(DATA_SUFFIXES):
            found.append(path)
    return found


def _words(path: Path) -> set[str]:
    name = "".join(c if c.isalnum() else " " for c in path.name.lower())
    return set(name.split())


def choose_file(folder: Path, patterns: Sequence[str], dataset: str) -> Path:
    """The file of `folder` to read for `dataset`.

    The loader's `patterns` are tried in order, then the splits dev, validation, test, train, then a lone file.

    Raises:
        UserError: no candidate, or several that nothing tells apart; the message lists them.
    """
    files = data_files(folder)
    candidates = [p for p in files if not _words(p) & set(NOT_QUESTIONS)]
    for pattern in patterns:
        matches = [p for p in candidates if p.match(pattern)]
        if matches:
            return _only(matches, folder, dataset)
    for split in SPLITS:
        matches = [p for p in candidates if split in _words(p)]
        if matches:
            return _only(matches, folder, dataset)
    if not candidates:
        listing = ", ".join(p.name for p in files[:8]) or "nothing"
        raise UserError(f"{folder}: no question file for {dataset} here (found {listing}); name the file with --data")
    return _only(candidates, folder, dataset)


def _only(paths: list[Path], folder: Path, dataset: str) -> Path:
    if len(paths) == 1:
        return paths[0]
    listing = ", ".join(p.name for p in paths[:8]) + (" ..." if len(paths) > 8 else "")
    raise UserError(f"{folder}: several files could be {dataset}: {listing}; name one of them with --data")
