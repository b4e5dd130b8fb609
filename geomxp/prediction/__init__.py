"""Kriging, simulation and validation of fitted models."""
