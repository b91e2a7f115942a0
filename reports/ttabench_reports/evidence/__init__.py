"""What the numbers show: intervals, tests, places."""
