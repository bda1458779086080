"""The charts of a page as Vega-Lite specifications: plain values, one figure a module."""
