"""Settings of the test run."""

import torch

# The tensors of the tests are small: a second thread only waits for the first, and for
# whatever else the machine is doing.
torch.set_num_threads(1)
