"""Pieces of a decoder layer: each is a function that appends ops to a Draft."""
