"""The sections of the page, one module each; `SECTIONS` in `page.py` has their order."""
