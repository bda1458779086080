"""The version of the whole distribution; receipts name it."""

__version__ = "0.1.0"
