"""Responses that are kept: OpenAI's `store` and `previous_response_id`, for every target."""
