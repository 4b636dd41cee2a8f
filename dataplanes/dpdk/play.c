/*
 * Plays packets through a `.spec` on DPDK's software switch pipeline: `FOLDER/pN_in.pcap` in, `FOLDER/pN_out.pcap` out, one packet at a
 * time in the order of their times, so that the same packets give the same files. Needs neither huge pages nor a network card nor root.
 *
 * Usage: play [--config FILE] [--out FOLDER] SPEC PORTS FOLDER
 *
 * The program sees ports 0 to PORTS - 1. What it sends is copied by `mirror N N`, which is port N; the packet itself may go to a port (`tx`)
 * or nowhere (`drop`). In front of each
 * packet the program finds its length, two bytes, most significant first: the pipeline has no instruction for that, and its `extract` does not
 * look whether there are so many bytes. What comes out has the time of the packet that caused it. A line of FILE is
 *     register NAME INDEX VALUE
 *     table NAME match VALUES action NAME VALUES     (as rte_swx_ctl_pipeline_table_entry_read() has it)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_swx_ctl.h>
#include <rte_swx_pipeline.h>
#include <rte_swx_port_ring.h>

#include "pcap.h"
#include "spec.h"

enum {
    PORTS_MAX = 64,
    /* More than a packet can become: its copies, one a port. */
    RING_PACKETS = 256,
    PACKETS = 1023,
    /* In front of a packet: its headers may become longer by all elements. */
    HEADROOM = 2048,
    /* What runs between two looks at whether the packet has left, and how often that may be. Programs have no loops but recirculation. */
    INSTRUCTIONS_AT_ONCE = 4096,
    LOOKS_MAX = 10000,
    /* In front of each frame. */
    LENGTH_BYTES = 2,
};

struct player {
    struct rte_swx_pipeline *pipeline;
    struct rte_swx_ctl_pipeline *control;
    struct rte_mempool *pool;
    uint32_t ports;
    struct rte_ring *in[PORTS_MAX];
    /* One more for what is dropped. */
    struct rte_ring *out[PORTS_MAX + 1];
    FILE *files[PORTS_MAX];
};

static int fail(const char *what, const char *name)
{
    fprintf(stderr, "play: %s%s%s\n", what, name[0] == '\0' ? "" : ": ", name);
    return -1;
}

/* DPDK without huge pages, devices, or anything that another process could see. */
static int start_dpdk(void)
{
    char *arguments[] = {"play", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry", "-l", "0", "--log-level", "4", NULL};
    return rte_eal_init(sizeof(arguments) / sizeof(arguments[0]) - 1, arguments) < 0 ? fail("DPDK does not start", rte_strerror(rte_errno)) : 0;
}

/* What DPDK's own reader of the language says: it makes C of the program, which nobody wants. */
static int accepted_by_dpdk(const char *spec)
{
    FILE *file = fopen(spec, "r"), *code = fopen("/dev/null", "w");
    const char *message = "";
    uint32_t line = 0;
    int failed = file == NULL || code == NULL || rte_swx_pipeline_codegen(file, code, &line, &message) != 0;
    if (failed)
        fprintf(stderr, "%s:%u: DPDK's reader: %s\n", spec, line, message != NULL && message[0] != '\0' ? message : strerror(errno));
    if (file != NULL)
        fclose(file);
    if (code != NULL)
        fclose(code);
    return failed ? -1 : 0;
}

static struct rte_ring *ring(const char *direction, uint32_t port, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s%u", direction, port);
    return rte_ring_create(name, RING_PACKETS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

/* Ports of the pipeline, whose number in has to be a power of two, and a mirroring session for each port out. */
static int make_ports(struct player *player)
{
    char name[RTE_RING_NAMESIZE];
    uint32_t in_count = 1;
    struct rte_swx_pipeline_mirroring_params copies = {.n_slots = PORTS_MAX, .n_sessions = PORTS_MAX};
    while (in_count < player->ports)
        in_count *= 2;
    for (uint32_t port = 0; port < in_count; port++) {
        struct rte_swx_port_ring_reader_params reader = {.name = name, .burst_size = 1};
        player->in[port] = ring("in", port, name, sizeof(name));
        if (player->in[port] == NULL || rte_swx_pipeline_port_in_config(player->pipeline, port, "ring", &reader) != 0)
            return fail("no port in", name);
    }
    for (uint32_t port = 0; port <= player->ports; port++) {
        struct rte_swx_port_ring_writer_params writer = {.name = name, .burst_size = 1};
        player->out[port] = ring("out", port, name, sizeof(name));
        if (player->out[port] == NULL || rte_swx_pipeline_port_out_config(player->pipeline, port, "ring", &writer) != 0)
            return fail("no port out", name);
    }
    return rte_swx_pipeline_mirroring_config(player->pipeline, &copies) == 0 ? 0 : fail("no mirroring", "");
}

/* See the top. */
static int configure_line(struct player *player, char *line)
{
    char name[RTE_SWX_NAME_SIZE];
    long long index, value;
    struct rte_swx_table_entry *entry;
    int begin = 0, blank = 0;
    line[strcspn(line, "#\r\n")] = '\0';
    if (line[strspn(line, " \t")] == '\0')
        return 0;
    if (sscanf(line, "register %63s %lli %lli", name, &index, &value) == 3)
        return rte_swx_ctl_pipeline_regarray_write(player->pipeline, name, (uint32_t)index, (uint64_t)value) == 0 ? 0 : fail("no such register", line);
    if (sscanf(line, "table %63s %n", name, &begin) != 1 || begin == 0)
        return fail("expected register NAME INDEX VALUE or table NAME match ...", line);
    entry = rte_swx_ctl_pipeline_table_entry_read(player->control, name, line + begin, &blank);
    if (entry == NULL || blank || rte_swx_ctl_pipeline_table_entry_add(player->control, name, entry) != 0)
        return fail("no entry of this table", line);
    return 0;
}

/* Entries and registers, and sessions: N copies to port N. */
static int configure(struct player *player, const char *path)
{
    char line[1024];
    int failed = 0;
    for (uint32_t port = 0; port < player->ports; port++) {
        struct rte_swx_pipeline_mirroring_session_params session = {.port_id = port, .fast_clone = 0};
        if (rte_swx_ctl_pipeline_mirroring_session_set(player->pipeline, port, &session) != 0)
            return fail("no mirroring session", "");
    }
    if (path != NULL) {
        FILE *file = fopen(path, "r");
        if (file == NULL)
            return fail(path, strerror(errno));
        while (failed == 0 && fgets(line, sizeof(line), file) != NULL)
            failed = configure_line(player, line);
        fclose(file);
    }
    return failed != 0 || rte_swx_ctl_pipeline_commit(player->control, 1) == 0 ? failed : fail("the tables cannot be filled", "");
}

static int build(struct player *player, const char *spec, const char *config)
{
    player->pool = rte_pktmbuf_pool_create("packets", PACKETS, 0, 0, HEADROOM + PCAP_FRAME_MAX, SOCKET_ID_ANY);
    if (player->pool == NULL)
        return fail("no memory for packets", rte_strerror(rte_errno));
    if (rte_swx_pipeline_config(&player->pipeline, "fanin", 0) != 0)
        return fail("no pipeline", "");
    if (make_ports(player) != 0 || spec_configure(player->pipeline, spec) != 0)
        return -1;
    errno = -rte_swx_pipeline_build(player->pipeline);
    if (errno != 0)
        return fail("DPDK cannot build this pipeline", strerror(errno));
    player->control = rte_swx_ctl_pipeline_create(player->pipeline);
    return player->control != NULL ? configure(player, config) : fail("no control of the pipeline", "");
}

/* Writes what has come out, which may be several segments. */
static int write_out(struct player *player, uint32_t port, uint64_t at_ns)
{
    static uint8_t bytes[2 * PCAP_FRAME_MAX];
    struct rte_mbuf *packet = NULL;
    while (rte_ring_dequeue(player->out[port], (void **)&packet) == 0) {
        uint32_t length = rte_pktmbuf_pkt_len(packet);
        const uint8_t *whole = length <= sizeof(bytes) ? rte_pktmbuf_read(packet, 0, length, bytes) : NULL;
        int failed = 0;
        if (port < player->ports)
            failed = whole == NULL || pcap_write(player->files[port], at_ns, whole, length) != 0;
        rte_pktmbuf_free(packet);
        if (failed)
            return fail("a packet that came out cannot be written", strerror(errno));
    }
    return 0;
}

/* A packet goes in, and all that comes of it out. It has ended when the pipeline has let go of it: then only our own reference is left, for
 * copies are deep. */
static int play_packet(struct player *player, const struct pcap_packet *packet)
{
    struct rte_mbuf *buffer = rte_pktmbuf_alloc(player->pool);
    uint8_t *bytes;
    int looks = 0;
    if (buffer != NULL)
        buffer->data_off = HEADROOM;
    bytes = buffer != NULL ? (uint8_t *)rte_pktmbuf_append(buffer, (uint16_t)(LENGTH_BYTES + packet->length)) : NULL;
    if (bytes == NULL)
        return fail("no room for a packet", "");
    rte_mbuf_refcnt_update(buffer, 1);
    bytes[0] = (uint8_t)(packet->length >> 8);
    bytes[1] = (uint8_t)packet->length;
    memcpy(bytes + LENGTH_BYTES, packet->bytes, packet->length);
    if (rte_ring_enqueue(player->in[packet->port], buffer) != 0)
        return fail("no room in a ring", "");
    do {
        if (looks++ == LOOKS_MAX)
            return fail("a packet stays in the pipeline", "");
        rte_swx_pipeline_run(player->pipeline, INSTRUCTIONS_AT_ONCE);
        rte_swx_pipeline_flush(player->pipeline);
        for (uint32_t port = 0; port <= player->ports; port++) {
            if (write_out(player, port, packet->at_ns) != 0)
                return -1;
        }
    } while (rte_mbuf_refcnt_read(buffer) != 1);
    rte_pktmbuf_free(buffer);
    return 0;
}

static int play(struct player *player, const char *in, const char *out)
{
    struct pcap_trace trace = {0};
    char path[4096];
    int failed = 0;
    for (uint32_t port = 0; port < player->ports; port++) {
        snprintf(path, sizeof(path), "%s/p%u_in.pcap", in, port);
        if (pcap_read(&trace, path, port) != 0)
            return -1;
        snprintf(path, sizeof(path), "%s/p%u_out.pcap", out, port);
        player->files[port] = pcap_create(path);
        if (player->files[port] == NULL)
            return -1;
    }
    if (trace.count == 0)
        return fail("no packets in", in);
    pcap_sort(&trace);
    for (uint32_t number = 0; number < trace.count && failed == 0; number++)
        failed = play_packet(player, &trace.packets[number]);
    printf("%u packets in\n", trace.count);
    for (uint32_t port = 0; port < player->ports; port++)
        failed |= fclose(player->files[port]) != 0;
    /* A copy that nobody has written would be a packet of the golden trace's that is missing; one of the pool's is one that leaks. */
    if (failed == 0 && rte_mempool_in_use_count(player->pool) != 0)
        return fail("packets stay in the pipeline", "");
    return failed ? -1 : 0;
}

int main(int count, char **arguments)
{
    static struct player player;
    const char *config = NULL, *out = NULL;
    int at = 1;
    for (; at + 1 < count && strncmp(arguments[at], "--", 2) == 0; at += 2) {
        if (strcmp(arguments[at], "--config") == 0)
            config = arguments[at + 1];
        else if (strcmp(arguments[at], "--out") == 0)
            out = arguments[at + 1];
        else
            break;
    }
    player.ports = count - at == 3 ? (uint32_t)strtoul(arguments[at + 1], NULL, 10) : 0;
    if (player.ports < 1 || player.ports > PORTS_MAX) {
        fputs("usage: play [--config FILE] [--out FOLDER] SPEC PORTS FOLDER, with 1 to 64 ports\n", stderr);
        return 2;
    }
    if (out == NULL)
        out = arguments[at + 2];
    if (accepted_by_dpdk(arguments[at]) != 0 || start_dpdk() != 0 || build(&player, arguments[at], config) != 0)
        return 1;
    return play(&player, arguments[at + 2], out) == 0 ? 0 : 1;
}
