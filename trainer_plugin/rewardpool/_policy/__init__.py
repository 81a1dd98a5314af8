"""From a policy's tokens and texts back to conversations, steps and ends."""
