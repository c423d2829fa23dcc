"""Proof, time and floor; knows no operator by name."""
