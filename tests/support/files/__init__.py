"""Files as people write them: configurations, launch files, malformed ones."""
