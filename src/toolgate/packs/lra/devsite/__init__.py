"""The site an author reads while writing: pages, live reload, findings beside the text."""
