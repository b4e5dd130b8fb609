"""Data as other libraries hold it: frames, grids, files of places and rasters, and back."""
