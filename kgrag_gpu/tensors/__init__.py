"""Device-side forms of the KG and of vectors."""
