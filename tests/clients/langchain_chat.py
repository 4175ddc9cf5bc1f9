"""LangChain's OpenAI classes: invoke, stream, batch, logprobs, the completion class. Usage: langchain_chat.py BASE_URL"""

import sys

from langchain_openai import ChatOpenAI, OpenAI

ours = dict(base_url=f"{sys.argv[1]}/v1", api_key="unused", model="storyteller", max_retries=0)
chat = ChatOpenAI(temperature=0, max_tokens=20, **ours)

answer = chat.invoke([("system", "You tell stories."), ("human", "Tell me a story about a fox named Pip.")])
assert answer.content and answer.response_metadata["finish_reason"] in ("stop", "length"), answer
assert answer.usage_metadata["output_tokens"] <= 20

pieces = list(chat.stream([("system", "You tell stories."), ("human", "Tell me a story about a fox named Pip.")]))
assert "".join(piece.content for piece in pieces) == answer.content

both = chat.batch(["Tell me about an owl.", "Tell me about a fox."])
assert [type(message).__name__ for message in both] == ["AIMessage", "AIMessage"]

logged = chat.bind(logprobs=True, top_logprobs=2).invoke("Tell me about a fox.")
assert len(logged.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2

text = OpenAI(temperature=0, max_tokens=12, **ours)
assert text.invoke("Once upon a time") == "".join(text.stream("Once upon a time"))
print("langchain-openai ok")
