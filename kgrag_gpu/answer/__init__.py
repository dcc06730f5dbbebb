"""From ranked passages and evidence to an answer."""
