"""Model architectures, source training and checkpoints."""
