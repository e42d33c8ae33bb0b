"""Where tensors live: the ``device`` parameter resolved to a ``torch.device``."""

import torch


def available_devices():
    """Names of the devices that this machine can run on, the CPU first.

    Returns
    -------
    names : list of str
        For example ``["cpu", "cuda:0"]``.
    """
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *cuda]


def resolve_device(device, X=None):
    """Turn the ``device`` parameter of an estimator into a ``torch.device``.

    Parameters
    ----------
    device : None, str or torch.device
        None is the device on which `X` lives, the CPU for anything but a
        tensor; ``"auto"`` is the first CUDA device, or the CPU where there is
        none; otherwise a device or its name.

    X : object, default=None
        The data, looked at only when `device` is None.

    Returns
    -------
    device : torch.device
        A device that exists on this machine.

    Raises
    ------
    ValueError
        If the name is no device, or the device does not exist here.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device is None:
        return X.device if isinstance(X, torch.Tensor) else torch.device("cpu")
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        resolved = None
    names = available_devices()
    known = resolved is not None and (
        resolved.type == "cpu"
        or (resolved.type == "cuda" and (resolved.index or 0) < len(names) - 1)
    )
    if not known:
        raise ValueError(
            f"device must be None, 'auto' or one of {names}. Got {device!r} instead."
        )
    return resolved


def usable_device(device):
    """The device of a fitted estimator where it exists, the CPU where it does not.

    So that what was fitted on a GPU predicts on a machine without one.

    Parameters
    ----------
    device : torch.device

    Returns
    -------
    device : torch.device
    """
    try:
        return resolve_device(device)
    except ValueError:
        return torch.device("cpu")
