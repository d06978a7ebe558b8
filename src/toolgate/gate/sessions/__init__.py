"""What outlives one call: sealed session ids, streams of changes, what a message asks beside a call, questions to a client."""
