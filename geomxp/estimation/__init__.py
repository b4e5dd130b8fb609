"""Maximum-likelihood fits, their uncertainty, and model comparison."""
