"""Conversations in the tokens of the model that scores them."""
