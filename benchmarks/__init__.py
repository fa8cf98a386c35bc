"""What the library is worth, in figures: a script writes a page; README.md says what each
measures."""
