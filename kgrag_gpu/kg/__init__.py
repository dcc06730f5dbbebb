"""Knowledge graphs: how they are built from passages, triples or extractions, and how they lie on disk."""
