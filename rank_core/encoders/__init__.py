"""Backbones: every kind of encoder, its own fast forward passes, and the small ones made on use."""
