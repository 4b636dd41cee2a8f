#!/usr/bin/env python3
"""A program in TNA on v1model: the same text, so that bmv2 can play golden packets through it, without a Tofino.

What is translated: registers and their actions (read, apply, write), hashes, checksums, the packages' wiring. All else of a program
(parsers of the ingress, tables, actions, what is decided and in which order) is compiled as it stands. What is not played: the ingress's
deparser and the egress's parser, for v1model hands headers from one to the other; placement, for which the compiler for Tofino is there
(`scripts/p4.py tna`).
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The fields of a frame, by name.
Formats = Callable[[bytes], dict[str, int]]


class UntranslatableError(Exception):
    """A program has what is not translated."""


#: What TNA declares, on v1model.
ARCHITECTURE = """#include <core.p4>
#include <v1model.p4>
const bit<16> PARSER_ERROR_OK = 0;
struct ingress_intrinsic_metadata_t { bit<9> ingress_port; bit<48> ingress_mac_tstamp; }
struct ingress_intrinsic_metadata_from_parser_t { bit<48> global_tstamp; bit<16> parser_err; }
struct ingress_intrinsic_metadata_for_deparser_t { bit<3> drop_ctl; }
struct ingress_intrinsic_metadata_for_tm_t { bit<9> ucast_egress_port; bit<16> mcast_grp_a; bit<1> bypass_egress; }
struct egress_intrinsic_metadata_t { bit<9> egress_port; bit<16> pkt_length; }
struct egress_intrinsic_metadata_from_parser_t { bit<16> parser_err; }
struct egress_intrinsic_metadata_for_deparser_t { bit<3> drop_ctl; }
struct egress_intrinsic_metadata_for_output_port_t { bit<1> capture_tstamp_on_tx; }
"""

#: v1model's controls around a program's.
WIRING = """
struct shim_t { IM meta; EM egress_meta; ingress_intrinsic_metadata_t standard; }

parser ShimParser(packet_in packet, out headers_t hdr, inout shim_t shim, inout standard_metadata_t standard) {
    IPARSER() ingress_parser;
    state start {
        shim.standard.ingress_port = standard.ingress_port;
        shim.standard.ingress_mac_tstamp = standard.ingress_global_timestamp;
        transition select(standard.instance_type) { 4: again; default: parse; }
    }
    state again {
        shim.standard.ingress_port = AGAIN_PORT;
        transition parse;
    }
    state parse {
        ingress_parser.apply(packet, hdr, shim.meta, shim.standard);
        transition accept;
    }
}

control ShimVerify(inout headers_t hdr, inout shim_t shim) { apply { VERIFY } }

control ShimIngress(inout headers_t hdr, inout shim_t shim, inout standard_metadata_t standard) {
    INGRESS() ingress;
    apply {
        ingress_intrinsic_metadata_from_parser_t parsed;
        ingress_intrinsic_metadata_for_deparser_t deparsed;
        ingress_intrinsic_metadata_for_tm_t manager;
        parsed.global_tstamp = standard.ingress_global_timestamp;
        parsed.parser_err = standard.parser_error == error.NoError ? 16w0 : 16w2;
        deparsed.drop_ctl = 0;
        manager.ucast_egress_port = 511;
        manager.mcast_grp_a = 0;
        manager.bypass_egress = 0;
        CHECKED
        ingress.apply(hdr, shim.meta, shim.standard, parsed, deparsed, manager);
        if (deparsed.drop_ctl != 0) {
            mark_to_drop(standard);
        } else if (manager.mcast_grp_a != 0) {
            standard.mcast_grp = manager.mcast_grp_a;
        } else {
            standard.egress_spec = manager.ucast_egress_port;
        }
    }
}

control ShimEgress(inout headers_t hdr, inout shim_t shim, inout standard_metadata_t standard) {
    EGRESS() egress;
    apply {
        egress_intrinsic_metadata_t own;
        egress_intrinsic_metadata_from_parser_t parsed;
        egress_intrinsic_metadata_for_deparser_t deparsed;
        egress_intrinsic_metadata_for_output_port_t output;
        own.egress_port = standard.egress_port;
        own.pkt_length = 0;
        parsed.parser_err = 0;
        deparsed.drop_ctl = 0;
        output.capture_tstamp_on_tx = 0;
        egress.apply(hdr, shim.egress_meta, own, parsed, deparsed, output);
        if (deparsed.drop_ctl != 0) {
            mark_to_drop(standard);
        } else if (standard.egress_port == AGAIN_PORT) {
            recirculate_preserving_field_list(0);
        }
    }
}

control ShimCompute(inout headers_t hdr, inout shim_t shim) { apply { UPDATE } }

control ShimDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(ShimParser(), ShimVerify(), ShimIngress(), ShimEgress(), ShimCompute(), ShimDeparser()) main;
"""


def preprocessed(source: Path, defines: list[str]) -> str:
    """The program's text with its macros expanded, and without the architecture's."""
    command = ["cpp", "-P", "-undef", "-nostdinc", "-DARCH_P4", *defines, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UntranslatableError(done.stderr)
    # Where a macro's argument ends, the preprocessor may leave a blank.
    return re.sub(r"\s+(?=[>,])", "", done.stdout.replace("> >", ">>"))


def block(text: str, at: int) -> int:
    """The end of the block whose brace is at `at`, behind its closing one."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    raise UntranslatableError("a brace is not closed")


def parenthesis(text: str, at: int) -> int:
    """The end of the parenthesis at `at`, behind its closing one."""
    return at + block(text[at:].replace("{", "<").replace("}", ">").replace("(", "{").replace(")", "}"), 0)


@dataclass(frozen=True)
class Cells:
    """A register: its type, and its fields where that is a structure."""

    type_: str
    fields: tuple[tuple[str, str], ...]

    def parts(self, name: str) -> list[tuple[str, str, str]]:
        """By register of v1model: its name, the type of a cell, and what of a held value it has."""
        return [(f"{name}__{field}", type_, f".{field}") for type_, field in self.fields] or [(name, self.type_, "")]


def unsigned(type_: str) -> str:
    """The type that a register of v1model has."""
    return type_.replace("int<", "bit<")


def structures(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """The fields of structures."""
    found = {}
    for name, body in re.findall(r"struct (\w+)\s*\{([^}]*)\}", text):
        found[name] = tuple(re.findall(r"((?:bit|int)<\d+>)\s+(\w+);", body))
    return found


def registers(text: str) -> tuple[str, dict[str, Cells]]:
    """The text with v1model's registers, and the registers."""
    known = structures(text)
    found: dict[str, Cells] = {}

    def one(match: re.Match[str]) -> str:
        type_, size, name = match.group(1), match.group(2).split(",")[0], match.group(3)
        cells = Cells(type_, known.get(type_, ()))
        if found.setdefault(name, cells) != cells:
            raise UntranslatableError(f"two registers of different types are called {name}")
        return " ".join(f"register<{unsigned(cell)}>({size}) {part};" for part, cell, _ in cells.parts(name))

    return re.sub(r"\bRegister<([\w<>]+), bit<\d+>>\(([^;]*)\) (\w+);", one, text), found


PREDICATE = re.compile(r"result = this\.predicate\((.*?), (.*?)\);", re.DOTALL)


def actions(text: str, known: dict[str, Cells]) -> tuple[str, dict[str, str]]:
    """The text with v1model's actions in place of registers' ones, and by action the type of its result."""
    begin = re.compile(r"RegisterAction<([\w<>]+), bit<\d+>, ([\w<>]+)>\((\w+)\) (\w+) = ")
    results = {}
    while match := begin.search(text):
        type_, result, register, name = match.groups()
        end = block(text, match.end())
        inside = text[match.end() : end]
        body = inside[inside.index("{", 1) :]
        body = body[1 : block(body, 0) - 1]
        if predicate := PREDICATE.search(body):
            # Of what was held before.
            low, high = predicate.groups()
            one_hot = f"if ({high}) {{ if ({low}) {{ result = 8; }} else {{ result = 4; }} }}"
            one_hot += f" else {{ if ({low}) {{ result = 2; }} else {{ result = 1; }} }}"
            body = one_hot + body[: predicate.start()] + body[predicate.end() :]
        reads, writes = "", ""
        for part, cell, field in known[register].parts(register):
            reads += f"{unsigned(cell)} raw_{part}; {part}.read(raw_{part}, cell_); held{field} = ({cell}) raw_{part};\n"
            writes += f"{part}.write(cell_, ({unsigned(cell)}) held{field});\n"
        new = f"action {name}__action(in bit<32> cell_, out {result} result) {{ {type_} held;\n{reads} {body} {writes} }}"
        results[name] = result
        text = text[: match.start()] + new + text[end:].lstrip(";")
    return text, results


def calls(text: str, results: dict[str, str]) -> str:
    """The text with v1model's actions called."""
    statement = re.compile(r"(?:(\w+(?:<\d+>)?) (?=\w+ = ))?(?:([\w.]+) = )?(\([\w<>]+\) )?\b(\w+)\.execute(?=\()")
    number = 0
    while match := statement.search(text):
        kind, target, cast, name = match.groups()
        end = parenthesis(text, match.end())
        index = text[match.end() + 1 : end - 1]
        declared = f"{kind} {target};\n" if kind else ""
        assigned = f"{target} = {cast or ''}result_{number};" if target else ""
        new = f"{declared}{results[name]} result_{number}; {name}__action((bit<32>) ({index}), result_{number}); {assigned}"
        number += 1
        text = text[: match.start()] + new + text[end:].lstrip(";")
    return text


def hashes(text: str) -> str:
    """The text with v1model's hashes."""
    all_hashes = re.findall(r"Hash<bit<(\d+)>>\(HashAlgorithm_t\.(\w+)\) (\w+);", text)
    declared = {name: (int(bits), kind) for bits, kind, name in all_hashes}
    text = re.sub(r"Hash<bit<\d+>>\(HashAlgorithm_t\.\w+\) \w+;", "", text)

    def one(match: re.Match[str]) -> str:
        target, cast, name, data = match.groups()
        bits, kind = declared[name]
        if kind == "IDENTITY":
            return f"{target} = (bit<{bits}>) ({data.strip('{} ')});"
        call = f"hash(of_{name}, HashAlgorithm.{kind.lower()}, {bits}w0, {data}, {bits + 1}w{1 << bits});"
        return f"bit<{bits}> of_{name}; {call} {target} = {cast or ''}of_{name};"

    return re.sub(r"([\w.]+) = (\([\w<>]+\) )?(\w+)\.get\((\{[^}]*\})\);", one, text)


def removed(text: str, kind: str, name: str) -> str:
    """The text without a parser or control."""
    match = re.search(rf"{kind} {name}\(", text)
    if match is None:
        raise UntranslatableError(f"there is no {kind} {name}")
    signature = parenthesis(text, match.end() - 1)
    return text[: match.start()] + text[block(text, text.index("{", signature)) :]


def translated(source: Path, defines: list[str], again_port: int) -> str:
    """A program's text on v1model."""
    text = preprocessed(source, [*defines, f"-DAGAIN_PORT={again_port}"])
    package = re.search(r"Pipeline\((.*?)\)\s*pipeline;\s*Switch\(pipeline\) main;", text, re.DOTALL)
    if package is None:
        raise UntranslatableError(f"{source.name} has no pipeline")
    parser, ingress, ingress_deparser, egress_parser, egress, egress_deparser = re.findall(r"(\w+)\(\)", package.group(1))
    text = text[: package.start()]
    checksum = re.search(r"hdr\.ipv4\.checksum = checksum\.update\((\{.*?\})\);", text, re.DOTALL)
    for kind, name in (("control", ingress_deparser), ("parser", egress_parser), ("control", egress_deparser)):
        text = removed(text, kind, name)
    for gone in (r"packet\.extract\(standard\);", r"packet\.advance\(PORT_METADATA_SIZE\);", r"Checksum\(\) checksum;",
                 r"checksum\.add\(.*?\);", r"\S+ = \(bit<1>\) checksum\.verify\(\);", r"@pa_\w+\(.*?\)"):
        text = re.sub(gone, "", text)
    text = text.replace("out ingress_intrinsic_metadata_t", "inout ingress_intrinsic_metadata_t")
    text = text.replace("struct egress_meta_t { }", "struct egress_meta_t { bit<1> unused; }")
    text, known = registers(text)
    text, results = actions(text, known)
    text = hashes(calls(text, results))
    fields = checksum.group(1) if checksum else ""
    arguments = f"hdr.ipv4.isValid(), {fields}, hdr.ipv4.checksum, HashAlgorithm.csum16"
    values = {
        "IPARSER": parser, "INGRESS": ingress, "EGRESS": egress, "IM": "meta_t", "EM": "egress_meta_t", "AGAIN_PORT": str(again_port),
        "VERIFY": f"verify_checksum({arguments});" if checksum else "",
        "UPDATE": f"update_checksum({arguments});" if checksum else "",
        "CHECKED": "shim.meta.checksum_error = standard.checksum_error;" if checksum else "",
    }  # fmt: skip
    wiring = re.sub(rf"\b({'|'.join(values)})\b", lambda match: values[match.group(1)], WIRING)
    return ARCHITECTURE + text + wiring


#: So many rounds before a job's first, the control plane writes into versions that nobody has used.
BEFORE_FIRST = 5


def commands_of_switchml(text: str, defines: dict[str, int]) -> str:
    """The control plane's commands for SwitchML's program: entries by version, and a round before a job's first."""
    before = defines["SWITCHML_FIRST_ROUND"] - BEFORE_FIRST & 0xFFFF_FFFF
    lines: list[str] = []
    written: set[int] = set()
    for line in text.splitlines():
        if not line.startswith("table_add member "):
            lines.append(line)
            continue
        key, parameters = line.split(" => ")
        bit, all_, first, slots, ahead, last, group = map(int, parameters.split())
        for version in (0, 1):
            place = version << 15
            cell = first + version * slots
            values = (bit, all_ & ~bit, cell - place & 0xFFFF, -ahead & 0xFFFF_FFFF, last, group)
            lines.append(f"{key} {place}->{place + slots - 1} => {' '.join(map(str, values))} 1")
            for each in range(cell, cell + slots):
                if each not in written:
                    written.add(each)
                    lines += [f"register_write {name} {each} {before}" for name in ("newest", "versions__round")]
    return "\n".join(lines) + "\n"


def commands_of_canary(text: str, defines: dict[str, int]) -> str:
    """The control plane's commands for Canary's program, which gets its last pass's first cell and ports' numbers as well."""
    lines = []
    for line in text.splitlines():
        if line.startswith("table_set_default own set_own "):
            last = int(line.split()[8])
            line += f" {last << defines['CANARY_PLACE_BITS']}"
        if line.startswith("table_add one_hot set_port_bit "):
            line += f" {line.split()[3]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def commands_of_atp(text: str, defines: dict[str, int]) -> str:
    """The control plane's commands for ATP's program: with the other workers, and whether there are any."""
    del defines
    lines = []
    for line in text.splitlines():
        if line.startswith("table_add member "):
            key, parameters = line.split(" => ")
            all_, port, _ = map(int, parameters.split())
            bit = int(key.split()[6])
            line = f"{key} => {all_} {all_ & ~bit} {all_ & ~bit | 1 << 31} {int(all_ == bit)} {port}"
        lines.append(line)
    return "\n".join(lines) + "\n"


#: The first operation of a trace.
FIRST_OPERATION = 0xFFFE


def commands_of_rina(text: str, defines: dict[str, int]) -> str:
    """The control plane's commands for Rina's program: members by 16 bits, who calls itself what, and an operation before the first."""
    del defines
    lines = []
    for line in text.splitlines():
        if line.startswith("table_set_default own set_own "):
            all_ = int(line.split()[3])
            line = f"table_set_default own set_own {all_ ^ 0xFFFF}"
            lines.append(f"table_set_default onward find_onward {all_ + 1}")
        if line.startswith("table_add member set_member "):
            port, _, bit, number, node = line.split()[3:]
            line = f"table_add member set_member {port} => {bit} {int(bit) ^ 0xFFFF} {node}"
            lines += [f"table_add named name_it {port} {number} =>", f"table_add home is_for_sender {port} {node} =>"]
        lines.append(line)
    lines.append(f"register_write operations 0 {FIRST_OPERATION - 1}")
    return "\n".join(lines) + "\n"


#: By program, what makes its commands of those for v1model.
COMMANDS: dict[str, Callable[[str, dict[str, int]], str]] = {
    "switchml": commands_of_switchml,
    "canary": commands_of_canary,
    "atp": commands_of_atp,
    "rina": commands_of_rina,
}

#: A packet: when it comes, by which port, its frame.
Coming = tuple[int, int, bytes]


def seen_of_switchml(packets: Sequence[Coming], formats: Formats, defines: dict[str, int], switch: dict[str, Any]) -> Iterator[Coming]:
    """Packets that the program in TNA judges as the state machine does.

    Others are those of a wrong length, which a Tofino's ingress does not know; those that a version's first use would begin with, although
    they are not of the job's first rounds; and those of a later round that come while one is not complete, which no worker sends: after
    such a packet, the program lets no round before that begin.
    """
    jobs = {job["job"]: job for job in switch["jobs"]}
    rounds: dict[tuple[int, int], tuple[int, set[str]]] = {}
    for at, port, frame in packets:
        fields = formats(frame)
        job = jobs.get(fields.get("switchml.job", -1))
        source = ".".join(str(byte) for byte in frame[26:30])
        is_member = job is not None and any((each["port"], each["at"]["ip"]) == (port, source) for each in job["members"])
        if job is None or "switchml.slot" not in fields or not is_member:
            yield at, port, frame
            continue
        if len(frame) != fields["udp.length"] + 34 or len(frame) != 52 + 4 * job["elements"]:
            continue
        place = (fields["switchml.job"], fields["switchml.slot"] << 1 | fields["switchml.version"])
        since = fields["switchml.tsi"] - defines["SWITCHML_FIRST_ROUND"] + BEFORE_FIRST & 0xFFFF_FFFF
        if place not in rounds and not 0 < since <= BEFORE_FIRST + 1:
            continue
        now, ranks = rounds.get(place, (since, set()))
        later = since - now & 0xFFFF_FFFF
        if later == 0:
            rounds[place] = (since, ranks | {source})
        elif later <= 2 * job["slots"] + 4:
            if len(ranks) < len(job["members"]):
                continue
            rounds[place] = (since, {source})
        yield at, port, frame


#: A packet of ATP: Ethernet, IPv4, its header, 62 words, its tail.
ATP_BYTES = 14 + 20 + 15 + 4 * 62 + 12
#: Clock packets, by Ethernet's type.
CLOCK = b"\x88\xb6"
#: Of a trace; clock packets that say more are damaged.
SCANS_MAX = 1_000
#: Hosts of a block in a trace; packets that say more are damaged.
HOSTS_MAX = 16_383
#: So much longer bmv2 lets a packet become.
GROWTH_BYTES = 512


def seen_of_canary(packets: Sequence[Coming], formats: Formats, defines: dict[str, int], switch: dict[str, Any]) -> Iterator[Coming]:
    """Packets that the program in TNA judges as the state machine does.

    Others are those of a wrong length, clock packets for more descriptors than there are, and clock packets for sums that are longer by
    more than bmv2 lets a packet grow.

    Others are contributions of more hosts than the program counts, which has 15 bits for what is missing.

    Time is 16 bits of scans, of which half are the past: it begins with 1 here, for a switch's is 0 before its first clock packet.
    """
    del defines
    full = 33 + 4 * switch["elements"]
    first = None
    for at, port, frame in packets:
        if len(frame) != full:
            continue
        if frame[12:14] == CLOCK:
            batch, entry = struct.unpack(">II", frame[14:22])
            first = batch if first is None else first
            scans = batch - first + 1 & 0xFFFF_FFFF
            if entry >= switch["descriptors"] or full > GROWTH_BYTES or scans > SCANS_MAX:
                continue
            frame = frame[:14] + struct.pack(">I", scans) + frame[18:]
        fields = formats(frame)
        if max(fields.get("canary.counter", 0), fields.get("canary.hosts", 0)) <= HOSTS_MAX:
            yield at, port, frame


def seen_of_atp(packets: Sequence[Coming], formats: Formats, defines: dict[str, int], switch: dict[str, Any]) -> Iterator[Coming]:
    """Packets that the program in TNA judges as the state machine does: those that are too short behind their first half are others."""
    del formats, defines, switch
    for at, port, frame in packets:
        if frame[12:14] != b"\x07\x00" or len(frame) >= ATP_BYTES:
            yield at, port, frame


#: A packet of Rina with elements: Ethernet, its headers, 64 integers.
RINA_BYTES = 14 + 16 + 8 + 4 * 64
#: The least length of a frame.
FRAME_BYTES_MIN = 60


def seen_of_rina(packets: Sequence[Coming], formats: Formats, defines: dict[str, int], switch: dict[str, Any]) -> Iterator[Coming]:
    """Packets that the program in TNA judges as the state machine does: filled up to the least length, and of no wrong length else."""
    del formats, defines, switch
    for at, port, frame in packets:
        filled = frame.ljust(FRAME_BYTES_MIN, b"\0")
        due = {1: FRAME_BYTES_MIN, 3: RINA_BYTES, 5: RINA_BYTES}.get(filled[14], len(filled))
        if filled[12:14] != b"\x88\xb5" or len(filled) == due:
            yield at, port, filled


#: By program, the packets of a trace that are played.
SEEN: dict[str, Callable[[Sequence[Coming], Formats, dict[str, int], dict[str, Any]], Iterator[Coming]]] = {
    "switchml": seen_of_switchml,
    "canary": seen_of_canary,
    "atp": seen_of_atp,
    "rina": seen_of_rina,
}


def of_canary(switch: dict[str, Any]) -> dict[str, int]:
    """What Canary's program is compiled with for a switch, which gets a power of two of descriptors."""
    bits = max(switch["descriptors"].bit_length() - 1, 0)
    switch["descriptors"] = 1 << bits
    return {"CANARY_PLACE_BITS": bits, "SHARD_PORTS": -(-len(switch["neighbours"]) // switch["shards"])}


def of_rina(switch: dict[str, Any]) -> dict[str, int]:
    """What Rina's program is compiled with for a switch."""
    return {"RINA_WINDOW_BITS": switch["window"].bit_length() - 1}


#: By program, what it is compiled with for a switch, which may be changed for it.
SIZES: dict[str, Callable[[dict[str, Any]], dict[str, int]]] = {"canary": of_canary, "rina": of_rina}
#: By program and type of Ethernet: bytes of packets that are shorter here.
SHORT = {("canary", CLOCK): 22}


def sizes(program: str, switch: dict[str, Any]) -> dict[str, int]:
    """What a program is compiled with for a switch, which may be changed for it."""
    return SIZES[program](switch) if program in SIZES else {}


def commands(program: str, text: str, defines: dict[str, int]) -> str:
    """The control plane's commands for a program, made of those for v1model."""
    return COMMANDS[program](text, defines) if program in COMMANDS else text


def seen(program: str, packets: Sequence[Coming], formats: Formats, defines: dict[str, int], switch: dict[str, Any]) -> Iterator[Coming]:
    """The packets of a trace that a program judges as the state machine does."""
    return SEEN[program](packets, formats, defines, switch) if program in SEEN else iter(packets)


def shortened(program: str, frame: bytes) -> bytes:
    """A packet as the program gets it."""
    return frame[: SHORT.get((program, frame[12:14]), len(frame))]
