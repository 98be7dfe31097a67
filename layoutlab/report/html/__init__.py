"""report.html: one page with everything of a run, to read anywhere."""
