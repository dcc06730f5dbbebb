"""Prompts as files, rendered in one place (registry.py) with the schema of the reply (schemas.py)."""
