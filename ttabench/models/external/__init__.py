"""Models from elsewhere, one module per origin; `bring` measures them on clean images first."""
