"""Backbones: what each encoder accepts, and the small ones trained on the spot."""
