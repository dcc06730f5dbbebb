"""Scores for what an expansion found: relations, entities, evidence, passages."""
