"""What lm-evaluation-harness' `local-completions` sends and reads, on a task of our own: which ending does the model find
more likely? Checked against probabilities that are put together token by token. Usage: lm_eval.py BASE_URL"""

import json
import sys
import urllib.request

url = sys.argv[1]


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def tokens(text):
    return post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def payload(prompts, max_tokens):
    """LocalCompletionsAPI._create_payload, for loglikelihood requests."""
    return {"model": "storyteller", "prompt": prompts, "temperature": 0, "max_tokens": max_tokens, "logprobs": 1,
            "seed": 1234, "echo": True}


def parse_logprobs(answer, context_lengths, drawn):
    """LocalCompletionsAPI.parse_logprobs; its `[:-1]` drops the one token that is drawn."""
    results = []
    for choice, length in zip(sorted(answer["choices"], key=lambda c: c["index"]), context_lengths):
        assert length > 0
        end = -1 if drawn else None
        logprobs = choice["logprobs"]["token_logprobs"][length:end]
        top = choice["logprobs"]["top_logprobs"][length:end]
        greedy = all(token == max(best.values()) for token, best in zip(logprobs, top))
        results.append((sum(logprobs), greedy))
    return results


stories = [
    ("Once upon a time", " there was a little fox.", " xq zzt 93 of of of."),
    ("The little owl wanted to see the", " sea.", " of."),
    ("The fox was happy. The", " fox smiled.", " smiled fox the."),
]
right = 0
for context, good, bad in stories:
    prompts, lengths = [], []
    for ending in (good, bad):
        head = tokens(context)
        prompts.append(head + tokens(ending))
        lengths.append(len(head))
    with_one = parse_logprobs(post("/v1/completions", payload(prompts, 1)), lengths, drawn=True)
    with_none = parse_logprobs(post("/v1/completions", payload(prompts, 0)), lengths, drawn=False)
    assert with_one == with_none, "drawing a token does not change the prompt's logprobs"
    (likely, _), (unlikely, _) = with_one
    right += likely > unlikely

    # The definition: draw nothing, ask for the most likely next token's neighbours at each place of the ending.
    prompt, length = prompts[0], lengths[0]
    whole = post("/v1/completions", payload([prompt], 1))["choices"][0]
    logprobs = whole["logprobs"]
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert len(logprobs["tokens"]) == len(logprobs["text_offset"]) == len(prompt) + 1
    # Greedy continuation: each drawn token's own logprob is what echo says of it once it is part of the prompt.
    body = {"prompt": prompt[:length], "max_tokens": 8, "temperature": 0, "logprobs": 1, "return_token_ids": True}
    drawn = post("/v1/completions", body)["choices"][0]
    again = payload([prompt[:length] + drawn["token_ids"]], 0)
    echoed = post("/v1/completions", again)["choices"][0]["logprobs"]
    assert echoed["token_logprobs"][length:] == drawn["logprobs"]["token_logprobs"]
    total, greedy = parse_logprobs(post("/v1/completions", {**again, "max_tokens": 1}), [length], drawn=True)[0]
    assert greedy and total == sum(drawn["logprobs"]["token_logprobs"])
assert right == len(stories), f"{right} of {len(stories)}"
print("loglikelihood ok")
