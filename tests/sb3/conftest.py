"""Networks of these tests are tiny: several threads would only wait for each other."""

import contextlib

with contextlib.suppress(ModuleNotFoundError):
    import torch

    torch.set_num_threads(1)
