"""Pictures by subject; `geomxp.plots` is where their names are public."""
