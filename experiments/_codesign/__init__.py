"""Parts of the `codesign` experiment."""
