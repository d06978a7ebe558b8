"""Reading documents, indexing their words, finding and showing them."""
