"""Vecchia's approximation from nearest predecessors: neighbour graph, blocks, their factors."""
