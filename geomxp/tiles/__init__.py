"""A symmetric matrix as a triangle of tiles."""
