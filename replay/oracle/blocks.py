"""The block pool of the vllm-v1 walk: who holds how many blocks, and what can be found in them.

Without prefix caching blocks are only counted. With it each block is an object: free ones stand in
a list from whose front they are taken, and a block that was named can be found by its name, held
or free, until it is taken (docs/vllm-v1.md, "Prefix caching").
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replay.workload import Request, Workload

if TYPE_CHECKING:
    from replay.oracle.requests import Progress

# Content of a block: a chain of shared chunks, or one request (below 0), and the block's place.
Name = tuple[int, int]


@dataclass(eq=False, slots=True)
class Block:
    """One block: how many requests hold it, and what it is known by."""

    number: int
    holders: int = 0
    name: Name | None = None


class Pool:
    """Blocks as a count."""

    def __init__(self, capacity_blocks: int, block_size: int) -> None:
        self.capacity, self.free, self.block_size = capacity_blocks, capacity_blocks, block_size

    @property
    def occupied(self) -> int:
        """Blocks that at least one request holds."""
        return self.capacity - self.free

    def blocks(self, tokens: int) -> int:
        """Blocks that so many tokens of one request fill."""
        return -(-tokens // self.block_size)

    def find(self, who: "Progress") -> list[Block]:  # noqa: ARG002 - nothing is ever found here
        """Return the longest cached prefix of a waiting request."""
        return []

    def lacks(self, who: "Progress", tokens: int, hits: Sequence[Block] = ()) -> int:
        """Fall of the free count if a request got blocks for `tokens`, the hits among them."""
        unheld = sum(block.holders == 0 for block in hits)
        return max(self.blocks(tokens) - who.held - len(hits), 0) + unheld

    def take(self, who: "Progress", tokens: int, hits: Sequence[Block] = ()) -> int:
        """Give a request blocks for `tokens`, the hits among them; gives the fall of `free`."""
        taken = self.lacks(who, tokens, hits)
        self.free -= taken
        who.held = max(who.held, self.blocks(tokens))
        return taken

    def name(self, who: "Progress", tokens: int) -> None:
        """Make a request's full blocks of its first `tokens` findable."""

    def would_free(self, who: "Progress") -> int:
        """Rise of the free count if this request let go of its blocks."""
        return who.held

    def release(self, who: "Progress") -> int:
        """Take all blocks from a request; gives the rise of `free`."""
        freed = self.would_free(who)
        self.free += freed
        who.held = 0
        return freed


class CachingPool(Pool):
    """Blocks with content that can be found again."""

    def __init__(
        self, workload: Workload, capacity_blocks: int, block_size: int, *, nameless_first: bool
    ) -> None:
        super().__init__(capacity_blocks, block_size)
        self.nameless_first = nameless_first
        blocks = (Block(number) for number in range(capacity_blocks))
        self.line = OrderedDict((block.number, block) for block in blocks)  # the free ones
        self.by_name: dict[Name, dict[int, Block]] = {}  # in the order they were named
        self.chunk = workload.prefix_block_tokens or 0
        known: dict[tuple[int, int], int] = {}
        self.chains = [_chain(request, known) for request in workload.requests]

    def find(self, who: "Progress") -> list[Block]:
        """Return the longest cached prefix, at most `known - 1` tokens."""
        hits: list[Block] = []
        for place in range((who.known - 1) // self.block_size):
            same = self.by_name.get(self._content(who, place))
            if not same:
                break
            hits.append(next(iter(same.values())))
        return hits

    def take(self, who: "Progress", tokens: int, hits: Sequence[Block] = ()) -> int:
        """Hold the hits, then take blocks from the front of the free list."""
        if hits:
            who.named = len(hits)
        for block in hits:
            if block.holders == 0:
                del self.line[block.number]
            block.holders += 1
            who.blocks.append(block)
        for _ in range(self.blocks(tokens) - len(who.blocks)):
            _, block = self.line.popitem(last=False)
            self._forget(block)
            block.holders = 1
            who.blocks.append(block)
        taken = self.free - len(self.line)
        self.free = len(self.line)
        who.held = len(who.blocks)
        return taken

    def name(self, who: "Progress", tokens: int) -> None:
        """Name full blocks by their content."""
        for place in range(who.named, tokens // self.block_size):
            block = who.blocks[place]
            block.name = self._content(who, place)
            self.by_name.setdefault(block.name, {})[block.number] = block
            who.named = place + 1

    def would_free(self, who: "Progress") -> int:
        """Count the blocks that nobody else holds."""
        return sum(block.holders == 1 for block in who.blocks)

    def release(self, who: "Progress") -> int:
        """Free blocks last to first, into the places of the release."""
        for block in who.blocks:
            block.holders -= 1
        freed = [block for block in reversed(who.blocks) if block.holders == 0]
        if self.nameless_first:
            self._to_front(block for block in freed[::-1] if block.name is None)
            freed_last = [block for block in freed if block.name is not None]
        else:
            freed_last = freed
        self.line.update((block.number, block) for block in freed_last)
        self.free = len(self.line)
        who.blocks, who.named, who.held = [], 0, 0
        return len(freed)

    def _to_front(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.line[block.number] = block
            self.line.move_to_end(block.number, last=False)

    def _forget(self, block: Block) -> None:
        if block.name is not None:
            same = self.by_name[block.name]
            del same[block.number]
            if not same:
                del self.by_name[block.name]
            block.name = None

    def _content(self, who: "Progress", place: int) -> Name:
        end = (place + 1) * self.block_size
        chain = self.chains[who.index]
        if end <= min(who.request.prompt_tokens, len(chain) * self.chunk):
            return chain[(end - 1) // self.chunk], place
        return -1 - who.index, place


def _chain(request: Request, known: dict[tuple[int, int], int]) -> list[int]:
    """Return a number for the text up to each chunk, equal for equal text in all requests."""
    chain: list[int] = []
    for chunk in request.prefix_blocks or ():
        before = chain[-1] if chain else -1
        chain.append(known.setdefault((before, chunk), len(known)))
    return chain
