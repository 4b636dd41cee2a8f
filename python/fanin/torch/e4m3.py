"""The sum of 8-bit floats (e4m3) as an operator of one's own: a WebAssembly module that is put together here.

Its memory has the table of all sums, as PyTorch rounds them: to the nearest, ties to even. A sum too large to be rounded to 448, and
one with a NaN, is a NaN. The table has rows of numbers without a sign only, since ``-a + b`` is ``-(a - b)``; for the
sum to be the same in both orders, zeros and NaNs have no sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from fanin.operators import CustomOperator

__all__ = ["LARGEST", "e4m3_sum"]

#: The largest number that there is.
LARGEST = 448.0

_I32 = 0x7F

#: ``combine(acc, in, n)``: acc[i] := table[acc[i] without sign][in[i], its sign turned where acc[i] has one], its sign turned likewise.
#: Locals: 0 acc, 1 in, 2 n, 3 sign, 4 sum, 5 sum without sign.
_COMBINE = bytes.fromhex(
    "02400340"  # block loop
    "200245 0d01"  # n == 0: leave
    "2000 2d0000 2203"  # local 3 := acc[0], kept on the stack
    "41ff0071 410874"  # (it & 127) << 8
    "2001 2d0000"  # in[0]
    "2003 41800171 2203 73"  # local 3 := its sign; in[0] ^ sign
    "72 2d0000"  # table[..]
    "2003 73 2204 41ff0071 2105"  # local 4 := it ^ sign; local 5 := local 4 & 127
    "2000"  # where it goes
    "2005 2004"  # without or with its sign
    "2005 45 2005 41ff0046 72"  # local 5 == 0 or local 5 == 127
    "1b 3a0000"  # select, store
    "2000 41016a 2100 2001 41016a 2101 2002 41016b 2102"  # on to the next
    "0c00 0b 0b 0b"
)


def _number(value: int) -> bytes:
    """LEB128, without a sign."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _vector(items: Sequence[bytes]) -> bytes:
    return _number(len(items)) + b"".join(items)


def _section(number: int, content: bytes) -> bytes:
    return bytes([number]) + _number(len(content)) + content


def _export(name: str, kind: int, index: int) -> bytes:
    return _number(len(name)) + name.encode() + bytes([kind, index])


def _body(local_count: int, code: bytes) -> bytes:
    body = (_vector([_number(local_count) + bytes([_I32])]) if local_count else _vector([])) + code
    return _number(len(body)) + body


def _table() -> bytes:
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float32)
    sums = (numbers[:128, None] + numbers[None, :]).to(torch.float8_e4m3fn)
    return sums.view(torch.uint8).numpy().tobytes()


def module() -> bytes:
    """The module's bytes: the same in every process."""
    one = bytes([0x41, 1, 0x0B])
    return b"".join(
        [
            b"\0asm\x01\0\0\0",
            # () -> i32 and (i32, i32, i32) -> ().
            _section(1, _vector([bytes([0x60, 0, 1, _I32]), bytes([0x60, 3, _I32, _I32, _I32, 0])])),
            _section(3, _vector([b"\0", b"\0", b"\x01"])),
            # One page of 64 KiB, of which the table takes half.
            _section(5, _vector([bytes([0, 1])])),
            _section(
                7,
                _vector([_export("memory", 2, 0), _export("fanin_abi", 0, 0), _export("element_bytes", 0, 1), _export("combine", 0, 2)]),
            ),
            _section(10, _vector([_body(0, one), _body(0, one), _body(3, _COMBINE)])),
            _section(11, _vector([bytes([0, 0x41, 0, 0x0B]) + _number(1 << 15) + _table()])),
        ]
    )


@cache
def e4m3_sum() -> CustomOperator:
    """The operator, for ``Options(operators=...)`` of a group and for :func:`fanin.torch.all_reduce` of bytes.

    It rounds each sum, so with more than two ranks the last bits depend on the order of contributions: over UDP on that of packets.
    """
    return CustomOperator.from_wasm(module(), "u1", name="e4m3_sum")
