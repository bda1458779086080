"""A recorder's spool becomes the tables of a run: all at once, or as it grows."""
