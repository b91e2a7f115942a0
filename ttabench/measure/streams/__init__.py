"""Long streams: many corruptions in one cell, scored batch by batch in constant memory, with saved states."""
