"""The version of the recorder; every spool names it."""

__version__ = "0.1.0"
