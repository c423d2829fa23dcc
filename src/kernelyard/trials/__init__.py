"""The judge on trial: solutions that cheat, crash or attack, honest ones that look as if they did, and the verdicts."""
