"""What a kriging mean may stand for besides a point: blocks, polygons, cells of a raster."""
