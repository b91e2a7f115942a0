"""How cells run: workers, and what executes them."""
