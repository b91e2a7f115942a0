"""What changes a number, and nothing else."""
