"""The exceptions that a user can meet. Each message names the problem, the value and what to do next."""


class SurelabelError(Exception):
    """Base of every error that surelabel raises on purpose."""


class InvalidInputError(SurelabelError, ValueError):
    """An argument, a setting or an array that cannot be used as given."""


class DataError(InvalidInputError):
    """A file or table that cannot be read as samples and labels."""


class UnreachableError(DataError):
    """A place or an address that does not answer, or not with what was asked for; what lies there may be whole."""


class SampleKindError(InvalidInputError):
    """Samples that are stored as whole numbers, for a network that takes floats."""


class UntrustedTypesError(InvalidInputError):
    """A model file with types that are not known to be safe."""


class NotStochasticError(InvalidInputError):
    """A network whose repeated passes do not differ, so that its uncertainty would silently be 0."""


class RunError(SurelabelError):
    """A run folder that cannot be used as asked."""


class RunExistsError(RunError):
    """The folder already holds something; nothing was overwritten."""


class RunLockedError(RunError):
    """Another process is writing this run."""


class DamagedFileError(RunError):
    """A file of the run does not match its checksum, or is missing."""


class ChangedFileError(RunError):
    """A file that a run depends on has changed since the run began."""


class NewerRunError(RunError):
    """The run was written by a newer version of surelabel."""


class UntrustedCodeError(RunError):
    """A run that this user has not signed names code that is on no list; nothing of it was imported."""


class ElsewhereError(SurelabelError):
    """The cause of an error that was raised, and is reported, in another process."""


class UnsignedRunWarning(UserWarning):
    """The user's key cannot be created, so runs are not signed."""
