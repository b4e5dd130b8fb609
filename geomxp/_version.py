"""The version of geomxp."""

__version__ = "0.1.0"
