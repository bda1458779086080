"""The predicates, one module per kind: `read` asks the database, `judge` is pure."""
