"""What is measured beside the accuracy."""
