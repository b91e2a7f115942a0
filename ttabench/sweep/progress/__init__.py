"""Progress of cells and of training on stderr: bars on a terminal, lines elsewhere."""
