"""What a paper is: its files, what is read out of them, and what it says about itself."""
