"""``python -m cake_moe.selftest``: whether the kernels are right on this very machine, as a report for a ticket."""
