"""Pages of `/metrics` in, samples under canonical names out: no network, no clock, no file."""
