"""What a page loads, and from where: its elements, styles and scripts."""
