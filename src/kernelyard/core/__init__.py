"""The nouns everything else is made of; imports nothing of the rest of the package."""
