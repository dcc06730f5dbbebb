"""Walking the graph: neighbours, personalised PageRank, bubbles, beams of triples."""
