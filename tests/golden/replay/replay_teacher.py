"""Replays of the methods with a teacher or a memory."""
