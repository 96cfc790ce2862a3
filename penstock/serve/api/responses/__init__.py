"""POST /v1/responses, OpenAI's Responses API: the same way through the engine as a chat, with items in place of messages."""
