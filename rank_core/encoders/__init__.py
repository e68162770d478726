"""Backbones: every kind of encoder, its fast paths, and the small encoders made on first use."""
