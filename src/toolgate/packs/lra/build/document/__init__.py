"""What happens to a document between Pandoc's reader and Pandoc's writer."""
