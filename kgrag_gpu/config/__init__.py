"""Typed configuration: schema, loading, fingerprint."""
