"""Tables: which rows and columns, before any format."""
