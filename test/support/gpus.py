"""The GPUs of this machine, as NVIDIA's tool tells of them."""

import subprocess


def listed():
    """Lines of nvidia-smi, one a GPU; none where there is no GPU."""
    try:
        told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return []
    return [line for line in told.stdout.splitlines() if line.startswith("GPU ")]
