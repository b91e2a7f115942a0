"""Three methods in the form that public repositories have, and how ttabench runs them."""
