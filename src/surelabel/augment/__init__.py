"""Batched augmentations that run on the device the batch is on.

`chain.Augment` is the chain; its operations are functions over a batch, in `color` and `geometry`.
"""
