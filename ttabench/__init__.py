"""ttabench: a benchmark harness for test-time adaptation of image classifiers."""

__version__ = "0.1.0"
