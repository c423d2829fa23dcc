"""Kernelyard: build a GPU kernel, prove it, time it against the speed of light."""

__version__ = "0.1.0"
