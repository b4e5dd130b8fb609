"""Number formats, and who gets which."""
