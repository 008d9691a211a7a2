"""What the back end says about files it cannot use."""


class MalformedBundle(ValueError):
    """A bundle directory that is not what it should be; names the file and field."""

    def __init__(self, file: str, field: str, why: str) -> None:
        super().__init__(f"{file}: {field}: {why}")


class MalformedSpyreCode(RuntimeError):
    """A SpyreCode directory that is not what it should be; names the file and field."""

    def __init__(self, file: str, field: str, why: str) -> None:
        super().__init__(f"{file}: {field}: {why}")
