"""Where requests for approval, votes and grants are kept."""
