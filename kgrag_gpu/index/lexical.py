"""BM25 over texts (bm25s), with every question scored on its own tokens and ties broken by row."""

from collections.abc import Sequence

import bm25s
import numpy as np
import Stemmer
from bm25s.tokenization import Tokenizer

from kgrag_gpu.config.schema import IndexConfig
from kgrag_gpu.index.fuse import Ranking, top_ranking


class LexicalIndex:
    """An in-memory BM25 index (Lucene's variant) over `texts`."""

    def __init__(self, texts: Sequence[str], config: IndexConfig):
        stem = {"stemmer": Stemmer.Stemmer(config.stemmer)} if config.stemmer else {}
        self._tokenizer = Tokenizer(stopwords="en" if config.stopwords else [], lower=True, **stem)
        tokens = self._tokenizer.tokenize(list(texts), update_vocab=True, show_progress=False)
        self._index = bm25s.BM25(k1=config.bm25_k1, b=config.bm25_b)
        self._index.index((tokens, self._tokenizer.get_vocab_dict()), show_progress=False)
        self.num_texts = len(texts)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """BM25 score of every text for every query, float32 [queries, texts]; 0 where no word is shared."""
        out = np.zeros((len(queries), self.num_texts), dtype=np.float32)
        tokens = self._tokenizer.tokenize(list(queries), update_vocab="never", show_progress=False)
        for row, token_ids in enumerate(tokens):
            if token_ids:
                out[row] = self._index.get_scores_from_ids([int(i) for i in token_ids])  # pyright: ignore
        return out

    def search(self, queries: Sequence[str], k: int, block: int = 64) -> list[Ranking]:
        """The best `k` texts a query, best first, ties to the lowest row; texts that share no word are left out."""
        rankings: list[Ranking] = []
        for start in range(0, len(queries), block):
            scores = self.scores(queries[start : start + block])
            rankings += [top_ranking(row, k, minimum=0.0) for row in scores]
        return rankings
