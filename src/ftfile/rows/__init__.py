"""Arrow and NumPy helpers: buffers, nested types, words, varints, text of numbers and times."""
