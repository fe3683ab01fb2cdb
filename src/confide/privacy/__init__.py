"""Guarantees, adjacency, events and costs. See the house page of the docs for how they fit together."""
