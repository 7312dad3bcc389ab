"""Benchmarks: how many messages, how late, at what cost; our transports and other brokers side by side."""
