"""Files, processes, cores and memory of the machine."""
