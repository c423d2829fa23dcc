"""Gated linear units, activation(gate) * up, for every operator that is one: swiglu and geglu differ in the curve."""
