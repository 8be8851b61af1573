"""Questions asked by LiteLLM, half of them as streams: ``python sums_litellm.py QUESTIONS MODEL``.

Four threads ask with its synchronous functions, and four tasks with its asynchronous ones. Whatever is raised ends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import litellm

AT_ONCE = 4


def arguments(text: str, model: str, *, stream: bool) -> dict[str, object]:
    """What both kinds of function are called with; where the gateway is they find in the environment."""
    messages = [{"role": "user", "content": text}]
    return {
        "model": f"openai/{model}",
        "messages": messages,
        "stream": stream,
        "num_retries": 0,
        "max_retries": 0,
    }


def ask(text: str, model: str, *, stream: bool) -> str:
    """Ask, and wait for it."""
    reply = litellm.completion(**arguments(text, model, stream=stream))
    if stream:
        return "".join(chunk.choices[0].delta.content or "" for chunk in reply)
    return reply.choices[0].message.content


async def ask_async(text: str, model: str, *, stream: bool) -> str:
    """The same in asyncio."""
    reply = await litellm.acompletion(**arguments(text, model, stream=stream))
    if stream:
        return "".join([chunk.choices[0].delta.content or "" async for chunk in reply])
    return reply.choices[0].message.content


async def main(questions: str, model: str) -> None:
    """Ask every question once, and write the answers in their order as one document."""
    lines = Path(questions).read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["input"] for line in lines]
    free = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, pool: ThreadPoolExecutor) -> str:
        stream = number % 4 < 2
        if number % 2:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, lambda: ask(texts[number], model, stream=stream))
        async with free:
            return await ask_async(texts[number], model, stream=stream)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = await asyncio.gather(*(one(number, pool) for number in range(len(texts))))
    print(json.dumps({"answers": answers}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
