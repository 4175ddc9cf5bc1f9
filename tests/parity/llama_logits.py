"""llama.cpp's logits for a text, through the bindings of llama-cpp-python: what `divergence.py` compares.

`llama_logits.py SOURCE LIBRARIES MODEL TEXT TOKENS OUT [SEQUENCES LENGTH]`: SOURCE is the unpacked llama-cpp-python, of which
only the bindings are used; LIBRARIES is the folder of libllama.so. Where TOKENS is missing it is made: TEXT in the model's own
tokens, a sequence per line. OUT gets `[vocab]` numbers for each token, as float32.
"""

import ctypes
import os
import pathlib
import sys
import types

import numpy

source, libraries, model_path, text_path, tokens_path, out_path = sys.argv[1:7]
sequences, length = (int(argument) for argument in sys.argv[7:9] or (4, 128))

# The package's own __init__ wants web templates and a disk cache; its bindings want nothing.
os.environ["LLAMA_CPP_LIB_PATH"] = libraries
package = types.ModuleType("llama_cpp")
package.__path__ = [str(pathlib.Path(source) / "llama_cpp")]
sys.modules["llama_cpp"] = package
import llama_cpp.llama_cpp as llama  # noqa: E402

quiet = llama.llama_log_callback(lambda level, text, data: None)
llama.llama_log_set(quiet, None)
llama.llama_backend_init()

# As exact as it can be: a cache in F32, no repacking (see parity.py).
options = llama.llama_model_default_params()
options.use_extra_bufts = False
model = llama.llama_model_load_from_file(str(model_path).encode(), options)
vocabulary = llama.llama_model_get_vocab(model)
width = llama.llama_vocab_n_tokens(vocabulary)


def tokenised():
    text = pathlib.Path(text_path).read_bytes()
    room = (llama.llama_token * len(text))()
    count = llama.llama_tokenize(vocabulary, text, len(text), room, len(text), False, False)
    if count < sequences * length:
        sys.exit(f"llama_logits: the text has {count} tokens, not {sequences * length}")
    return [list(room[start * length:(start + 1) * length]) for start in range(sequences)]


tokens = pathlib.Path(tokens_path)
if not tokens.exists():
    tokens.write_text("".join(" ".join(map(str, line)) + "\n" for line in tokenised()))
lines = [[int(token) for token in line.split()] for line in tokens.read_text().splitlines()]

options = llama.llama_context_default_params()
options.n_ctx = options.n_batch = options.n_ubatch = options.n_outputs_max = max(map(len, lines))
options.n_threads = options.n_threads_batch = 2
options.type_k = options.type_v = 0  # GGML_TYPE_F32
options.flash_attn_type = 0  # off
context = llama.llama_init_from_model(model, options)
if not context:
    sys.exit("llama_logits: no context")

with open(out_path, "wb") as out:
    for line in lines:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        batch = llama.llama_batch_init(len(line), 0, 1)
        batch.n_tokens = len(line)
        for position, token in enumerate(line):
            batch.token[position], batch.pos[position] = token, position
            batch.n_seq_id[position], batch.seq_id[position][0], batch.logits[position] = 1, 0, 1
        if llama.llama_decode(context, batch) != 0:
            sys.exit("llama_logits: llama_decode failed")
        for position in range(len(line)):
            row = llama.llama_get_logits_ith(context, position)
            out.write(numpy.ctypeslib.as_array(ctypes.cast(row, ctypes.POINTER(ctypes.c_float)), (width,)).tobytes())
        llama.llama_batch_free(batch)
