"""From places to covariances."""
