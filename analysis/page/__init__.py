"""One HTML file of a gate's answer: the same result object, and figures of the same store."""
