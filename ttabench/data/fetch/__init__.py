"""Downloads of the published datasets: fetched from mirrors, checked by checksum, unpacked safely."""
