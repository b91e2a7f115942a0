"""Tables as a reader sees them: which columns, rows, marks and words. LaTeX and Markdown print them."""
