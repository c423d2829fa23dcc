"""Prove, then time: the numbers of one operator at every size of its sweeps."""
