"""A chat, and what it cost."""


async def ask(session, url, text):
    body = {"model": "storyteller", "messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0}
    async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
        said = await answer.text()
        assert answer.status == 200, said
        return (await answer.json())["usage"]
