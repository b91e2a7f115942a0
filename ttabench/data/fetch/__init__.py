"""Downloads of the published datasets: `fetch` runs `download`, checks the checksums, and runs `extract`."""
