"""N-Triples, including Freebase's tab-separated dumps. Lines are matched by Arrow; Python sees distinct terms only.

Terms come out as identities: a URI without its brackets, `_:node` for a blank node, and a literal as its own text
(language and datatype dropped). Escapes (\\uXXXX, \\n, percent, Freebase's $XXXX) are decoded. Label, alias and
description statements in a wanted language (by default English) or in none become names, not edges.
"""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.kg.lines import LineBlock

_URI = r"<[^<>]*>"
_LITERAL = r'"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^<>]*>)?'
_LINE = rf"^\s*(?P<head>{_URI}|_:\S+)\s+(?P<relation>{_URI})\s+(?P<tail>{_URI}|_:\S+|{_LITERAL})\s*\.\s*(?:#.*)?$"
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[tbnrf\"'\\])")
_CONTROL = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
_FREEBASE_KEY = re.compile(r"\$([0-9A-F]{4})")
_LANGUAGE = r'"@(?P<language>[A-Za-z0-9-]+)$'
_NAME_ENDS = ("#label", "/label", "foaf/0.1/name", "#prefLabel", "type.object.name", "schema.org/name")
_ALIAS_ENDS = ("#altLabel", "common.topic.alias", "schema.org/alternateName")
_DESCRIPTION_ENDS = ("#comment", "common.topic.description", "schema.org/description", "/abstract")


class NTriplesReader:
    """Reads block after block; what it learns about names stays in `names`, `aliases` and `descriptions`.

    `languages` (such as "en" or "pt-br") are those that names are taken from and that tagged literals must have; None
    takes names from English, and keeps literals of every language as ends of edges.
    """

    def __init__(self, languages: tuple[str, ...] | None = None) -> None:
        self._languages = None if languages is None else tuple(language.lower() for language in languages)
        self.names: dict[str, str] = {}
        self.aliases: dict[str, list[str]] = {}
        self.descriptions: dict[str, str] = {}
        self._said: list[tuple[int, str, str]] = []

    def take_said(self) -> list[tuple[int, str, str]]:
        """What was learned about names since the last call, for `learn` in another process."""
        said, self._said = self._said, []
        return said

    def learn(self, said: Iterable[tuple[int, str, str]]) -> None:
        """Book (kind, entity, text) of label, alias and description statements, in the file's order."""
        for kind, entity, text in said:
            if kind == 1 and entity not in self.names:
                self.names[entity] = text
            elif kind == 3:
                self.descriptions.setdefault(entity, text)
            elif text not in self.aliases.setdefault(entity, []) and self.names.get(entity) != text:
                self.aliases[entity].append(text)

    def read(self, block: LineBlock) -> tuple[dict[str, Any], np.ndarray, list[tuple[int, str, str]]]:
        """The triples of a block.

        Returns:
            (columns head, relation, tail; line numbers int64 [triples]; rejected lines as (number, reason, text)).
        """
        matched = ops.extract(block.lines, _LINE)
        is_triple = np.asarray(matched.is_valid()) & ~block.not_utf8
        trimmed = ops.strip(block.lines)
        content = ~ops.is_blank(trimmed) & ~np.asarray(ops.starts_with(trimmed, "#"))
        rejected = []
        for row in np.flatnonzero(content & ~is_triple):
            reason = "not UTF-8" if block.not_utf8[row] else "not an N-Triples line: <s> <p> <o> . is expected"
            rejected.append((block.first_number + int(row), reason, block.lines[int(row)].as_py()))
        rows = np.flatnonzero(is_triple)
        fields = [ops.concat([matched.field(name).take(pa.array(rows))]) for name in ("head", "relation", "tail")]
        decoded = [_decode_column(column) for column in fields]
        keep = self._take_names(fields, decoded)
        mask = pa.array(keep)
        columns = {
            role: column.filter(mask) for role, column in zip(("head", "relation", "tail"), decoded, strict=True)
        }
        return columns, rows[keep] + block.first_number, rejected

    def _take_names(self, raw: list[Any], decoded: list[Any]) -> np.ndarray:
        """Book label, alias and description statements; False for the rows that are such: bool [triples]."""
        relations, codes = ops.encode(decoded[1])
        kinds = np.array([_statement_kind(str(r)) for r in relations.to_pylist()] or [0], dtype=np.int8)
        row_kinds = kinds[codes] if len(codes) else np.zeros(0, dtype=np.int8)
        is_literal = np.asarray(ops.starts_with(raw[2], '"'))
        about_names = (row_kinds > 0) & is_literal
        is_wanted = self._wanted(raw[2], self._languages or ("en",))
        said = np.flatnonzero(about_names & is_wanted)
        entities, texts = (decoded[i].take(pa.array(said)).to_pylist() for i in (0, 2))
        self._said = list(zip(row_kinds[said].tolist(), entities, texts, strict=True))
        self.learn(self._said)
        return ~about_names if self._languages is None else ~about_names & is_wanted

    def _wanted(self, terms: Any, languages: tuple[str, ...]) -> np.ndarray:
        """Whether terms have no language tag, or one of these languages or a variety of it: bool [terms]."""
        tags, codes = ops.encode(ops.field(ops.extract(terms, _LANGUAGE), "language"))
        known = np.array(
            [any(f"{tag}-".lower().startswith(f"{wanted}-") for wanted in languages) if tag else True
             for tag in tags.to_pylist()] or [True]
        )  # fmt: skip
        return known[codes] if len(codes) else np.zeros(0, dtype=bool)


def _statement_kind(relation: str) -> int:
    """1 for a label, 2 for an alias, 3 for a description, 0 for an edge."""
    for kind, ends in ((1, _NAME_ENDS), (2, _ALIAS_ENDS), (3, _DESCRIPTION_ENDS)):
        if relation.endswith(ends):
            return kind
    return 0


def _decode_column(column: Any) -> Any:
    terms, codes = ops.encode(column)
    decoded = pa.array([decode_term(term) for term in terms.to_pylist()], pa.large_string())
    return decoded.take(pa.array(codes))


def decode_term(term: str) -> str:
    """A term's identity: the URI, the blank node's label, or the literal's text, escapes decoded."""
    if term.startswith("<"):
        return unescape(term[1:-1])
    if term.startswith('"'):
        return unescape(term[1 : term.rindex('"')])
    return term


def unescape(text: str) -> str:
    r"""Decode \uXXXX, \UXXXXXXXX and \t \n \" and their like."""
    return _ESCAPE.sub(_unescape_one, text) if "\\" in text else text


def _unescape_one(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape[0] in "uU" and len(escape) > 1:
        code = int(escape[1:], 16)
        return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else "\ufffd"
    return _CONTROL.get(escape, escape)


def is_uri(identity: str) -> bool:
    """Whether an identity of this module is a URI."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]", identity) is not None and not identity.startswith("_:")


def local_name(uri: str) -> str:
    """The last part of a URI, decoded: what there is to show where nothing names it."""
    last = re.split(r"[/#]", uri.rstrip("/#"))[-1] or uri
    last = _FREEBASE_KEY.sub(lambda m: chr(int(m.group(1), 16)), last)
    return unquote(last)
