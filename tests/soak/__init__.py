"""Attacks on surelabel that are counted: kills, generated inputs, damaged run folders. `python -m soak` runs them all."""
