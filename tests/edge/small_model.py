"""Makes a small model out of a real one: its first layers, as plain 16-bit floats.

Fewer layers answer faster, with text of no meaning. Floats, because the kernels for packed integers in the prebuilt
server want AVX-VNNI, which many processors lack that have all else it was compiled for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

NOT_COPIED = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture")
MOSTLY_F16 = 1
"""``general.file_type`` of such a file (GGUF's list of file types)."""


def write_small_model(source: Path, target: Path, layers: int) -> None:
    """Write the first *layers* layers of the GGUF file *source* to *target*, with tokenizer and chat template."""
    import gguf  # only where the real server is installed

    reader = gguf.GGUFReader(source)
    family = reader.get_field("general.architecture").contents()
    changed: dict[str, Any] = {f"{family}.block_count": layers, "general.file_type": MOSTLY_F16}
    writer = gguf.GGUFWriter(target, family)
    for field in reader.fields.values():
        if field.name not in NOT_COPIED:
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, changed.get(field.name, field.contents()), field.types[0], inner)
    for tensor in reader.tensors:
        if _layer(tensor.name) < layers:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, values.astype("float16" if values.ndim > 1 else "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _layer(name: str) -> int:
    """The layer that a tensor belongs to; -1 for the tensors that all of them share."""
    block, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if block == "blk" else -1
