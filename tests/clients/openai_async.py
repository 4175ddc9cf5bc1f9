"""Many requests at once and a stream that is left early, with the official package's async client. Usage: openai_async.py BASE_URL"""

import asyncio
import sys

import openai

client = openai.AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)


async def story(seed, **extra):
    messages = [{"role": "user", "content": f"Tell me a story about {seed} owls."}]
    return await client.chat.completions.create(model="default", messages=messages, seed=seed, max_tokens=24, **extra)


async def streamed(seed):
    text = ""
    async for chunk in await story(seed, stream=True):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
    return text


async def main():
    alone = [(await story(seed)).choices[0].message.content for seed in range(6)]
    together = await asyncio.gather(*(streamed(seed) for seed in range(6)))
    assert alone == list(together), "streamed among others equals alone"

    # Leaving early ends the request; the client goes on.
    async with await story(1, stream=True) as stream:
        async for _ in stream:
            break
    penalised = await story(2, presence_penalty=1.5, frequency_penalty=0.5, logit_bias={"300": -100})
    assert penalised.choices[0].message.content

    raw = await client.chat.completions.with_raw_response.create(
        model="default", messages=[{"role": "user", "content": "hi"}], max_tokens=2, metadata={"run": "7"}, store=True
    )
    ignored = raw.headers["x-ignored-params"].split(",")
    assert sorted(ignored) == ["metadata", "store"], ignored
    assert raw.headers["x-effective-sampling"].startswith("temperature=")
    try:
        await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "hi"}], store=True, extra_query={"strict": "1"}
        )
    except openai.BadRequestError as error:
        assert (error.code, error.param) == ("unsupported_parameter", "store"), error
    else:
        raise AssertionError("strict refuses what it would ignore")


asyncio.run(main())
print("openai async ok")
