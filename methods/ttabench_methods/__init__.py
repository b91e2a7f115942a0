"""The built-in test-time adaptation methods, registered exactly as a third party would."""
