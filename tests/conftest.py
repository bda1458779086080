"""Settings of all tests: none of them is a measurement of time."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
