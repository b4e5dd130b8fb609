"""Observations, tables, spatial files, formulas and the shipped data sets."""
