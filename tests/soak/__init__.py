"""Attacks on surelabel, counted: kills, generated inputs, damaged run folders; `python -m soak` runs them all."""
