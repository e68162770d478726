"""Backbones: the supported encoder types, their fast forward passes, and the embedded ones."""
