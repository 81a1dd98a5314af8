"""What a teacher's wire costs: bytes and time of an answer, and the client beside a bare session."""
