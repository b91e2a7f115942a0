"""Tables, LaTeX, plots and comparisons made from stored results; never imports torch."""
