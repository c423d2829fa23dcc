"""The same operator in every backend, on one page: cost, proof, time and distance to the floor."""
