"""`python -m preempt` is `preempt`."""

from preempt.main import main

main()
