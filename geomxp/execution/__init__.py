"""Who runs which step, and what happened."""
