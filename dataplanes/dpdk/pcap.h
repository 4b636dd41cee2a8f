/* Packets in files of the classic pcap format, as bmv2 names them: one file a port and direction. */
#ifndef FANIN_PCAP_H
#define FANIN_PCAP_H

#include <stdint.h>
#include <stdio.h>

enum { PCAP_FRAME_MAX = 9216 };

/* A packet of a trace. */
struct pcap_packet {
    uint64_t at_ns;
    uint32_t port;
    uint32_t length;
    /* How many were read before it. */
    uint32_t number;
    const uint8_t *bytes;
};

struct pcap_trace {
    struct pcap_packet *packets;
    uint32_t count;
};

/* Adds all packets of a file to the trace as packets of `port`. A file that is not there has none. Returns 0, or -1 with a message. */
int pcap_read(struct pcap_trace *trace, const char *path, uint32_t port);

/* Puts the packets in the order in which they came; those of the same time by port. */
void pcap_sort(struct pcap_trace *trace);

/* Begins a file, or NULL with a message; adds a packet to it. */
FILE *pcap_create(const char *path);
int pcap_write(FILE *file, uint64_t at_ns, const uint8_t *bytes, uint32_t length);

#endif
