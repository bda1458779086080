"""The conservation oracle: a second reading of the rules, sharing no code with the schedulers."""
