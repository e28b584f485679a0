"""How much memory each table of a store may use for what is not in RocksDB yet, or is needed often."""


class CacheShare:
    """One for a store: its tables get equal parts of it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._tables = 0

    def join(self) -> None:
        self._tables += 1

    @property
    def bytes(self) -> int:
        """What one table may use now."""
        return self._total // max(self._tables, 1)
