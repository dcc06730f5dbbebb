"""Structured output for transformers: llguidance keeps every generated token inside the reply's JSON schema.

White space is not part of the grammar, so a model cannot fill its limit with blanks.
"""

from collections.abc import Sequence
from typing import Any

import torch


class Grammars:
    """Grammars over one tokenizer, compiled once per schema."""

    def __init__(self, tokenizer: Any, vocab_size: int):
        import llguidance
        import llguidance.hf

        self._lib = llguidance
        self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocab_size)
        self._grammars: dict[str, str] = {}

    def processor(self, json_schemas: Sequence[str | None], prompt_width: int) -> "JsonProcessor":
        """A logits processor for a batch; rows without a schema are left alone."""
        matchers = [self._matcher(schema) if schema else None for schema in json_schemas]
        return JsonProcessor(matchers, self._tokenizer.vocab_size, prompt_width)

    def _matcher(self, json_schema: str) -> Any:
        if json_schema not in self._grammars:
            options: Any = {"whitespace_flexible": False}
            grammar = self._lib.LLMatcher.grammar_from_json_schema(json_schema, overrides=options)
            self._grammars[json_schema] = grammar
        return self._lib.LLMatcher(self._tokenizer, self._grammars[json_schema])


class JsonProcessor:
    """Masks, at each step, the tokens that would leave the schema. Follows each row's own generated tokens."""

    def __init__(self, matchers: Sequence[Any], vocab_size: int, prompt_width: int):
        import llguidance.torch

        self._masks = llguidance.torch
        self._matchers = matchers
        self._width = prompt_width
        self._bits = self._masks.allocate_token_bitmask(len(matchers), vocab_size)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > self._width:
            for matcher, token in zip(self._matchers, input_ids[:, -1].tolist(), strict=True):
                if matcher is not None and not matcher.is_stopped():
                    matcher.consume_token(token)
        self._bits.fill_(-1)
        for row, matcher in enumerate(self._matchers):
            if matcher is not None and not matcher.is_stopped():
                self._masks.fill_next_token_bitmask(matcher, self._bits, row)
        scores = scores.clone()
        self._masks.apply_token_bitmask_inplace(scores, self._bits.to(scores.device))
        return scores
