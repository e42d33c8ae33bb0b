"""How a fit reports on itself: printed lines and scikit-learn's callbacks.

The callback protocol came with scikit-learn 1.9. With an older one the estimators work
the same but have no ``set_callbacks``.
"""

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    # Frames between the body of a fit method and the caller of fit.
    FIT_STACKLEVEL = 4
except ImportError:

    class CallbackSupportMixin:
        """Stands where scikit-learn has no callbacks yet."""

    def with_callbacks(method):
        """Leave the method as it is: there are no callbacks to tear down."""
        return method

    FIT_STACKLEVEL = 3


class FitProgress:
    """The report of one fit: a task for the fit, one for each run, one an iteration.

    Parameters
    ----------
    estimator : estimator
        Being fitted. Its `verbose` decides whether lines are printed, in the words of
        scikit-learn's KMeans.

    data : dict
        ``X``, ``y`` and ``metadata`` as the callbacks get them.

    n_runs : int
        Number of runs to come.
    """

    def __init__(self, estimator, data, n_runs):
        self.estimator = estimator
        self.verbose = estimator.verbose
        self.data = {"estimator": estimator, **data}
        self.stopped = False
        # No callbacks, no tasks: a fit on small data takes less time than they do.
        self.task = None
        if getattr(estimator, "_skl_callbacks", None) or hasattr(
            estimator, "_parent_callback_ctx"
        ):
            self.task = estimator._init_callback_context(max_subtasks=n_runs)
            self.task.call_on_fit_task_begin(**self.data)

    def say(self, line):
        """Print a line if the user asked for them."""
        if self.verbose:
            print(line)

    def run(self, max_iter):
        """Begin the next run; returns its `RunProgress`."""
        return RunProgress(self, max_iter)

    def end(self, fitted):
        """Close the task of the fit; `fitted` holds the attributes it ends with."""
        if self.task is not None:
            self.task.call_on_fit_task_end(
                **self.data, reconstruction_attributes=fitted
            )


class RunProgress:
    """The report of one run from one start.

    Parameters
    ----------
    fit : FitProgress

    max_iter : int
    """

    def __init__(self, fit, max_iter):
        self.fit = fit
        self.n_iterations = 0
        self.task = None
        if fit.task is not None:
            self.task = fit.task.subcontext("run", max_subtasks=max_iter)
            self.task.call_on_fit_task_begin(**fit.data)

    @property
    def is_followed(self):
        """Whether anybody wants to know of the iterations."""
        return bool(self.fit.verbose) or self.task is not None

    def iteration(self, objective, fitted):
        """Report an iteration that is over.

        Parameters
        ----------
        objective : float
            Of the centers that the iteration began with.

        fitted : callable
            Returns the attributes of the estimator as if it had stopped here; called
            only if a callback asks for a fitted estimator.

        Returns
        -------
        stop : bool
            Whether a callback asks to stop.
        """
        self.fit.say(f"Iteration {self.n_iterations}, inertia {objective}.")
        self.n_iterations += 1
        if self.task is None:
            return False
        step = self.task.subcontext("iteration")
        step.call_on_fit_task_begin(**self.fit.data)
        stop = step.call_on_fit_task_end(
            **self.fit.data, reconstruction_attributes=fitted
        )
        self.fit.stopped |= stop
        return stop

    def end(self, fitted):
        """Close the task of the run."""
        if self.task is not None:
            self.task.call_on_fit_task_end(
                **self.fit.data, reconstruction_attributes=fitted
            )
