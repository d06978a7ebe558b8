"""`lra build`: one Markdown file becomes a paper directory. Same input, same bytes; what cannot be resolved is an error."""
