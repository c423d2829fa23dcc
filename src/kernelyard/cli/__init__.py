"""The verbs, one file each; this package's modules are found by their names."""
