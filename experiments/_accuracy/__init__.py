"""Parts of the `accuracy` experiment: scoring, the simplest baseline, dropped terms, reasons, figures."""
