"""Vectors and inverted lists over texts: encoder, caches, dense and lexical search, fusion."""
