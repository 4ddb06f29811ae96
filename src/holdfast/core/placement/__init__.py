"""Where should each replica live, and by which steps does it get there? Pure."""
