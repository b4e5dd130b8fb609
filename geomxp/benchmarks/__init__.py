"""Benchmarks, and models of schedules on described machines."""
