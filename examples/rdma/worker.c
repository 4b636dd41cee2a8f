/* A worker of a NetReduce ring with nothing but libibverbs: RDMA writes to its successor, sums from its predecessor.
 *
 *     cc -O2 -o worker worker.c -libverbs
 *     ./worker --rank 0 --addresses 10.0.0.1,10.0.0.2,10.0.0.3 --ring 7 --type i32 --elements 100000 --operations 3
 *
 * A message is the 16 bytes of the INA header and a part of the vector; it is written at the same place of the successor's memory that it
 * has in the worker's own. Its immediate data is its number, so that the receiver hears of it. What `fanin switch --transparent --rdma-ring`
 * puts there in place of what the predecessor wrote is the sum; docs/transparent.md says more. Beside the writes there is one TCP connection
 * to each neighbour, in which the two ends of a queue pair tell their numbers (--port: another one for each ring of the same hosts).
 *
 * The vectors are made by a formula, so every worker knows the sum and compares every element. Exits with 1 where one is wrong.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* How long neighbours are waited for, in seconds: their machines may only be starting. */
enum { MEET_S = 300 };
enum { PORT = 7711, MTU = 1024, INA = 16, TAG = 0x1AE7FA41, WORLD_MAX = 64, GIDS = 16 };

/* What the two ends of a queue pair tell each other, in network byte order. */
struct card {
    uint8_t gid[16];
    uint32_t queue_pair, psn, key, address_high, address_low;
};

struct options {
    int rank, world, ring, is_float, operations, first_operation, packets, window, late_ms, retries, port;
    long elements, psn;
    char *addresses[WORLD_MAX];
};

static void die(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    exit(2);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Element `index` of a rank's vector in an operation; small enough for floats, but of sums that depend on their order. */
static uint32_t element(const struct options *options, int rank, int operation, long index) {
    uint64_t mixed = (uint64_t)index * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xbf58476d1ce4e5b9u + (uint64_t)operation * 0x94d049bb133111ebu;
    mixed = (mixed ^ mixed >> 31) * 0xd6e8feb86659fd93u;
    uint32_t bits = mixed >> 32;
    if (options->is_float) {
        float value = (float)(int32_t)bits * 1e-3f;
        memcpy(&bits, &value, 4);
    }
    return bits;
}

static uint32_t sum(const struct options *options, int operation, long index) {
    uint32_t total = element(options, 0, operation, index);
    for (int rank = 1; rank < options->world; rank++) {
        uint32_t next = element(options, rank, operation, index);
        if (options->is_float) {
            float left, right;
            memcpy(&left, &total, 4);
            memcpy(&right, &next, 4);
            left += right;
            memcpy(&total, &left, 4);
        } else {
            total += next;
        }
    }
    return total;
}

static void parse(struct options *options, int count, char **words) {
    *options = (struct options){.packets = 170, .window = 2, .operations = 1, .elements = 1 << 16, .rank = -1, .retries = 6, .psn = -1, .port = PORT};
    for (int at = 1; at + 1 < count; at += 2) {
        const char *name = words[at], *value = words[at + 1];
        if (!strcmp(name, "--rank")) options->rank = atoi(value);
        else if (!strcmp(name, "--ring")) options->ring = atoi(value);
        else if (!strcmp(name, "--elements")) options->elements = atol(value);
        else if (!strcmp(name, "--operations")) options->operations = atoi(value);
        else if (!strcmp(name, "--first-operation")) options->first_operation = atoi(value);
        else if (!strcmp(name, "--retries")) options->retries = atoi(value);
        else if (!strcmp(name, "--port")) options->port = atoi(value);
        else if (!strcmp(name, "--psn")) options->psn = atol(value);
        else if (!strcmp(name, "--packets")) options->packets = atoi(value);
        else if (!strcmp(name, "--window")) options->window = atoi(value);
        else if (!strcmp(name, "--late-ms")) options->late_ms = atoi(value);
        else if (!strcmp(name, "--type") && (!strcmp(value, "i32") || !strcmp(value, "f32"))) options->is_float = value[0] == 'f';
        else if (!strcmp(name, "--addresses")) {
            char *list = strdup(value);
            for (char *word = strtok(list, ","); word && options->world < WORLD_MAX; word = strtok(NULL, ",")) options->addresses[options->world++] = word;
        } else die("%s %s is no option", name, value);
    }
    if (options->world < 2 || options->rank < 0 || options->rank >= options->world) die("--rank %d of --addresses %d", options->rank, options->world);
    if (options->elements < 1 || options->operations < 1 || options->packets < 1 || options->packets > 65535 || options->window < 1)
        die("--elements, --operations, --packets and --window are at least 1");
    if (options->retries < 0 || options->retries > 7 || options->psn >= 1 << 24) die("--retries is 0 to 7, and --psn less than 2^24");
}

static struct sockaddr_in address_of(const char *text, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1) die("%s is no IPv4 address", text);
    return address;
}

static void transfer(int fd, void *bytes, size_t length, int out) {
    for (size_t done = 0; done < length;) {
        ssize_t moved = out ? write(fd, (char *)bytes + done, length - done) : read(fd, (char *)bytes + done, length - done);
        if (moved <= 0) die("a neighbour has gone: %s", moved ? strerror(errno) : "end of stream");
        done += moved;
    }
}

/* A neighbour whose machine has gone says nothing: after about ten seconds without a sign of it nobody waits for it any longer. And what is
 * still under way to a neighbour when a worker ends gets there first. */
static void patience(int fd) {
    int on = 1, idle_s = 5, every_s = 1, times = 5;
    struct linger linger = {.l_onoff = 1, .l_linger = 5};
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) || setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s) ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s) || setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times) ||
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger))
        die("a socket's options: %s", strerror(errno));
}

/* The neighbours' sockets: to the successor, from the predecessor. */
static void meet(const struct options *options, int sockets[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in own = address_of(options->addresses[options->rank], options->port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (void *)&own, sizeof own) || listen(listener, 1)) die("listen at %s: %s", options->addresses[options->rank], strerror(errno));
    struct sockaddr_in successor = address_of(options->addresses[(options->rank + 1) % options->world], options->port);
    for (double begin = now_s();; usleep(100000)) {
        sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(sockets[0], (void *)&successor, sizeof successor)) break;
        if (now_s() - begin > MEET_S) die("the successor does not answer: %s", strerror(errno));
        close(sockets[0]);
    }
    if ((sockets[1] = accept(listener, NULL, NULL)) < 0) die("accept: %s", strerror(errno));
    close(listener);
    patience(sockets[0]), patience(sockets[1]);
}

/* The index of the GID of the worker's IPv4 address for RoCEv2. */
static int gid_index(struct ibv_context *context, const char *address, union ibv_gid *gid) {
    struct ibv_gid_entry entries[GIDS];
    ssize_t count = ibv_query_gid_table(context, entries, GIDS, 0);
    uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff};
    inet_pton(AF_INET, address, wanted + 12);
    for (ssize_t at = 0; at < count; at++)
        if (entries[at].gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(entries[at].gid.raw, wanted, 16)) {
            *gid = entries[at].gid;
            return entries[at].gid_index;
        }
    die("no RDMA device has the address %s", address);
    return -1;
}

static struct ibv_qp *queue_pair(struct ibv_pd *domain, struct ibv_cq *completions, int depth) {
    struct ibv_qp_init_attr how = {.send_cq = completions, .recv_cq = completions, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *pair = ibv_create_qp(domain, &how);
    if (!pair) die("cannot make a queue pair: %s", strerror(errno));
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    if (ibv_modify_qp(pair, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) die("init: %s", strerror(errno));
    return pair;
}

static void join(struct ibv_qp *pair, int index, uint32_t own_psn, const struct card *other, int retries) {
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = ntohl(other->queue_pair),
        .rq_psn = ntohl(other->psn), .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = index, .hop_limit = 64}}};
    memcpy(ready.ah_attr.grh.dgid.raw, other->gid, 16);
    if (ibv_modify_qp(pair, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        die("ready to receive: %s", strerror(errno));
    /* A card that gets no answer sends again after 4.096 us * 2^timeout (IBTA 9.7.6.1.3; cards may take up to four times that), and gives up when
     * it has done so retry_cnt times and waited once more; retry_cnt has three bits. 17 is 0.54 s, so with 6 retries a worker may be 3.8 s late,
     * for which the others' packets are held, before their connections end. A longer timeout allows more, and is what a packet lost twice costs.
     * With 7 retries the kernel's own RoCE sends again for ever; the switch ends what waits for somebody dead all the same. */
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = retries, .rnr_retry = 7, .sq_psn = own_psn, .max_rd_atomic = 1};
    if (ibv_modify_qp(pair, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        die("ready to send: %s", strerror(errno));
}

static struct card card_of(const union ibv_gid *gid, const struct ibv_qp *pair, uint32_t psn, const struct ibv_mr *region) {
    uint64_t address = (uintptr_t)region->addr;
    struct card card = {.queue_pair = htonl(pair->qp_num), .psn = htonl(psn), .key = htonl(region->rkey),
        .address_high = htonl(address >> 32), .address_low = htonl((uint32_t)address)};
    memcpy(card.gid, gid->raw, 16);
    return card;
}

static void put16(uint8_t *at, uint16_t value) { at[0] = value >> 8, at[1] = value; }
static void put32(uint8_t *at, uint32_t value) { put16(at, value >> 16), put16(at + 2, value); }
static uint32_t get32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

int main(int count, char **words) {
    struct options options;
    parse(&options, count, words);
    int devices = 0;
    struct ibv_device **list = ibv_get_device_list(&devices);
    if (!list || devices < 1) die("there is no RDMA device");
    struct ibv_context *context = ibv_open_device(list[0]);
    if (!context) die("cannot open %s: %s", ibv_get_device_name(list[0]), strerror(errno));
    union ibv_gid gid;
    int index = gid_index(context, options.addresses[options.rank], &gid);
    struct ibv_pd *domain = ibv_alloc_pd(context);

    /* Memory: all messages of an operation, their headers among them. Results never overwrite what may have to be sent again. */
    long per_message = ((long)options.packets * MTU - INA) / 4, messages = (options.elements + per_message - 1) / per_message;
    size_t bytes = messages * INA + options.elements * 4;
    uint8_t *input = calloc(1, bytes), *output = calloc(1, bytes);
    struct ibv_mr *from = ibv_reg_mr(domain, input, bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *to = ibv_reg_mr(domain, output, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    int depth = 2 * options.window + 2;
    struct ibv_cq *completions = ibv_create_cq(context, 2 * depth, NULL, NULL, 0);
    if (!from || !to || !completions) die("memory cannot be registered: %s", strerror(errno));
    struct ibv_qp *out = queue_pair(domain, completions, depth), *in = queue_pair(domain, completions, depth);

    /* Random numbers, as is good practice: what is still under way of a run before is not taken for this one's. */
    uint32_t psn = 0, unused = 0;
    FILE *random = fopen("/dev/urandom", "r");
    if (!random || fread(&psn, 3, 1, random) != 1) die("there is no /dev/urandom");
    fclose(random);
    if (options.psn >= 0) psn = options.psn;
    int sockets[2];
    meet(&options, sockets);
    struct card own_out = card_of(&gid, out, psn, from), own_in = card_of(&gid, in, unused, to), successor, predecessor;
    transfer(sockets[0], &own_out, sizeof own_out, 1);
    transfer(sockets[1], &predecessor, sizeof predecessor, 0);
    transfer(sockets[1], &own_in, sizeof own_in, 1);
    transfer(sockets[0], &successor, sizeof successor, 0);
    for (int at = 0; at < depth; at++) {
        struct ibv_recv_wr wish = {.wr_id = 0}, *bad;
        if (ibv_post_recv(in, &wish, &bad)) die("receive: %s", strerror(errno));
    }
    join(out, index, psn, &successor, options.retries);
    join(in, index, unused, &predecessor, options.retries);
    /* Both ends are ready before anything is sent. */
    char ready = 1;
    transfer(sockets[1], &ready, 1, 1);
    transfer(sockets[0], &ready, 1, 0);
    uint64_t remote = (uint64_t)ntohl(successor.address_high) << 32 | ntohl(successor.address_low);

    long wrong = 0, unsummed = 0;
    uint32_t numbered = 0;
    for (int operation = options.first_operation; operation < options.first_operation + options.operations; operation++) {
        for (long at = 0; at < options.elements; at++) {
            uint32_t value = element(&options, options.rank, operation, at);
            memcpy(input + (at / per_message + 1) * INA + at * 4, &value, 4);
        }
        memset(output, 0xee, bytes);
        /* Nobody's results may come before the memory is ready for them. */
        transfer(sockets[1], &ready, 1, 1);
        transfer(sockets[0], &ready, 1, 0);
        usleep(operation == options.first_operation ? options.late_ms * 1000 : 0);
        double begin = now_s();
        long sent = 0, received = 0, acknowledged = 0;
        while (received < messages || acknowledged < messages) {
            /* netreduce 5.1: at most `window` messages beyond those whose sums are here. */
            while (sent < messages && sent < received + options.window && sent < acknowledged + 2 * options.window) {
                long first = sent * per_message, part = options.elements - first < per_message ? options.elements - first : per_message;
                size_t offset = sent * INA + first * 4, length = INA + part * 4;
                uint8_t *ina = input + offset;
                put32(ina, TAG), put16(ina + 4, options.ring), put16(ina + 6, options.rank), put32(ina + 8, numbered);
                put16(ina + 12, (length + MTU - 1) / MTU);
                /* What is summed, so that a switch that was told something else says so: float32 (0) or int32 (2), and sum (0). */
                put16(ina + 14, 0x8000 | (options.is_float ? 0 : 2) << 8);
                struct ibv_sge piece = {.addr = (uintptr_t)ina, .length = length, .lkey = from->lkey};
                struct ibv_send_wr write = {.wr_id = 1, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                    .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(numbered), .wr.rdma = {.remote_addr = remote + offset, .rkey = ntohl(successor.key)}};
                struct ibv_send_wr *bad;
                if (ibv_post_send(out, &write, &bad)) die("write: %s", strerror(errno));
                sent++, numbered++;
            }
            struct ibv_wc done;
            int got = ibv_poll_cq(completions, 1, &done);
            if (got < 0 || (got > 0 && done.status != IBV_WC_SUCCESS))
                die("operation %d: %s after %ld messages", operation, ibv_wc_status_str(done.status), received);
            if (got == 0) {
                if (now_s() - begin > 300) die("nothing more has come after %ld messages", received);
                usleep(200);
                continue;
            }
            if (done.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
                struct ibv_recv_wr wish = {.wr_id = 0}, *bad;
                if (ibv_post_recv(in, &wish, &bad)) die("receive: %s", strerror(errno));
                received++;
            } else {
                acknowledged++;
            }
        }
        double elapsed = now_s() - begin;
        for (long message = 0; message < messages; message++) {
            const uint8_t *ina = output + message * (INA + per_message * 4);
            unsummed += get32(ina) != TAG || (ina[14] << 8 | ina[15]) != options.world;
        }
        for (long at = 0; at < options.elements; at++) {
            uint32_t value;
            memcpy(&value, output + (at / per_message + 1) * INA + at * 4, 4);
            wrong += value != sum(&options, operation, at);
        }
        printf("operation=%d elements=%ld messages=%ld seconds=%.4f wrong=%ld unsummed=%ld\n", operation, options.elements, messages, elapsed, wrong, unsummed);
        fflush(stdout);
    }
    /* Not before both neighbours are done: the predecessor's card may still lack an acknowledgement that only this one's gives, and sends
     * again until it has it. */
    for (int side = 0; side < 2; side++) transfer(sockets[side], &ready, 1, 1);
    for (int side = 0; side < 2; side++) transfer(sockets[side], &ready, 1, 0);
    close(sockets[0]), close(sockets[1]);
    printf("done rank=%d wrong=%ld unsummed=%ld\n", options.rank, wrong, unsummed);
    return wrong || unsummed ? 1 : 0;
}
