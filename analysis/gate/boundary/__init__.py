"""P8: does a verdict stand on an edge? Both sides replayed at other rates, modelled."""
