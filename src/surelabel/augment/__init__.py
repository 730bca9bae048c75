"""Batched augmentations that run on the device the batch is on.

`chain.Augment` is the chain; each operation is also a function over a batch: `points`, `color`, `geometry`, `holes`.
"""
