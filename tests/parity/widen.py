"""Writes a GGUF file's tensors as F32, exactly: `widen.py IN.gguf OUT.gguf`. Needs the package gguf."""

import sys

import gguf
from gguf import GGUFReader, GGUFValueType, GGUFWriter

source = GGUFReader(sys.argv[1])
architecture = source.fields["general.architecture"].contents()
writer = GGUFWriter(sys.argv[2], architecture)
for name, field in source.fields.items():
    if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type", "general.quantization_version"):
        continue
    kind = field.types[0]
    inner = field.types[1] if kind == GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents(), kind, *([inner] if inner is not None else []))
for tensor in source.tensors:
    writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
