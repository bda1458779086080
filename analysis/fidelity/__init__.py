"""How well a replay describes the engine it claims to: scores, distances and where they part."""
