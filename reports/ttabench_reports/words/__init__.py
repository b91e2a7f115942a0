"""Names and sentences."""
