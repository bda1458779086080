"""The subcommands of `preempt`, one module each; thin over library functions."""
