"""Devices, traces, progress and background tasks; this layer contains no mathematics."""
