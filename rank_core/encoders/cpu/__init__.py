"""Faster attention and layers on CPUs; each must equal the plain encoder."""
