"""The table of cells, as reports read it."""
