/* See pcap.h. Both byte orders and both resolutions of the format are read; nanoseconds are written. */
#include "pcap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t MICROSECONDS = 0xa1b2c3d4, NANOSECONDS = 0xa1b23c4d, ETHERNET = 1;

struct file_header {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, accuracy, longest, link;
};

struct packet_header {
    uint32_t seconds, fraction, kept, length;
};

static int fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    return -1;
}

static int add(struct pcap_trace *trace, struct pcap_packet packet)
{
    /* A power of two has been filled. */
    if ((trace->count & (trace->count - 1)) == 0) {
        size_t room = trace->count == 0 ? 1 : 2 * (size_t)trace->count;
        struct pcap_packet *larger = realloc(trace->packets, room * sizeof(*larger));
        if (larger == NULL)
            return -1;
        trace->packets = larger;
    }
    packet.number = trace->count;
    trace->packets[trace->count++] = packet;
    return 0;
}

static int read_packets(struct pcap_trace *trace, FILE *file, const char *path, uint32_t port)
{
    struct file_header start;
    struct packet_header header;
    size_t got;
    int swapped, nanoseconds;
    if (fread(&start, sizeof(start), 1, file) != 1)
        return fail(path, "shorter than the header of a pcap file");
    swapped = start.magic == __builtin_bswap32(MICROSECONDS) || start.magic == __builtin_bswap32(NANOSECONDS);
#define WORD(value) (swapped ? __builtin_bswap32(value) : (value))
    nanoseconds = WORD(start.magic) == NANOSECONDS;
    if (!nanoseconds && WORD(start.magic) != MICROSECONDS)
        return fail(path, "no pcap file");
    if (WORD(start.link) != ETHERNET)
        return fail(path, "no packets of Ethernet");
    while ((got = fread(&header, 1, sizeof(header), file)) == sizeof(header)) {
        uint32_t length = WORD(header.kept);
        uint64_t at_ns = (uint64_t)WORD(header.seconds) * 1000000000u + (uint64_t)WORD(header.fraction) * (nanoseconds ? 1 : 1000);
        uint8_t *bytes;
        if (length != WORD(header.length) || length > PCAP_FRAME_MAX)
            return fail(path, "a packet that is cut or longer than 9216 bytes");
        bytes = malloc(length + 1);
        if (bytes == NULL || (length > 0 && fread(bytes, length, 1, file) != 1))
            return fail(path, "the file ends inside a packet");
        if (add(trace, (struct pcap_packet){.at_ns = at_ns, .port = port, .length = length, .bytes = bytes}) != 0)
            return fail(path, "no memory");
    }
#undef WORD
    return got == 0 ? 0 : fail(path, "the file ends inside a packet");
}

int pcap_read(struct pcap_trace *trace, const char *path, uint32_t port)
{
    FILE *file = fopen(path, "rb");
    int failed;
    if (file == NULL)
        return errno == ENOENT ? 0 : fail(path, strerror(errno));
    failed = read_packets(trace, file, path, port);
    fclose(file);
    return failed;
}

static int earlier(const void *left, const void *right)
{
    const struct pcap_packet *one = left, *other = right;
    if (one->at_ns != other->at_ns)
        return one->at_ns < other->at_ns ? -1 : 1;
    if (one->port != other->port)
        return one->port < other->port ? -1 : 1;
    /* The same file: as they stand there. */
    return one->number < other->number ? -1 : 1;
}

void pcap_sort(struct pcap_trace *trace)
{
    if (trace->count > 0)
        qsort(trace->packets, trace->count, sizeof(*trace->packets), earlier);
}

FILE *pcap_create(const char *path)
{
    const struct file_header start = {.magic = NANOSECONDS, .major = 2, .minor = 4, .longest = PCAP_FRAME_MAX, .link = ETHERNET};
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(&start, sizeof(start), 1, file) != 1) {
        fail(path, strerror(errno));
        return NULL;
    }
    return file;
}

int pcap_write(FILE *file, uint64_t at_ns, const uint8_t *bytes, uint32_t length)
{
    const struct packet_header header = {
        .seconds = (uint32_t)(at_ns / 1000000000u), .fraction = (uint32_t)(at_ns % 1000000000u), .kept = length, .length = length};
    return fwrite(&header, sizeof(header), 1, file) == 1 && (length == 0 || fwrite(bytes, length, 1, file) == 1) ? 0 : -1;
}
