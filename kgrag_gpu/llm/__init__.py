"""Language-model engines: one protocol, several ways to run a model, one cache and one account of what it cost."""
