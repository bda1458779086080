"""The load driver: the same work, at the same times, for a baseline and a candidate."""
