/*
 * A load client: many HTTP/1.1 connections in one epoll loop, each repeating one request for ever.
 *
 *   load_client PORT REQUESTS SECONDS RATE [GOAL]
 *
 * REQUESTS is a file of requests, one connection each: a 4-byte little-endian length, then the bytes. RATE 0 sends the next
 * request as soon as the answer is there (closed loop); otherwise RATE requests a second are due over all connections.
 *
 * A stamp is `@` + 16 digits of microseconds since 1970 + `@`. One in a request is rewritten before each send with the
 * time at which the request was due, so that a server that falls behind cannot hide it. Stamps found in answers are
 * taken as one delivery each, and their age as its latency. A long poll and a write are the same thing to this program.
 *
 * GOAL ends the run before SECONDS have passed: with a RATE, once so many requests are answered in all, and without, a
 * moment after every connection has got so many deliveries. That moment is for what must not come any more.
 *
 * Prints `ready` when every connection is open, and at the end one JSON object: requests, failures, deliveries, the fewest
 * and the most on one connection, how many were not younger than the one before them there, the time from the oldest stamp
 * to the last delivery, bytes, and percentiles of delivery age and of answer time in us.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_SAMPLES 4000000
#define STAMP 18
#define EXTRA_US 200000

struct connection {
    int fd;
    char *request;
    size_t request_size, sent;
    char *stamp; /* in request, or NULL */
    char *answer;
    size_t answer_size, answer_room;
    int64_t started_us, last_stamp;
    unsigned long deliveries;
    int is_busy;
};

struct samples {
    uint32_t *values;
    size_t count;
};

static struct samples ages, answer_times;
static unsigned long requests, failures, deliveries, disordered, bytes;
static int64_t first_stamp = INT64_MAX, last_delivery;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void add(struct samples *samples, int64_t value) {
    if (samples->count < MAX_SAMPLES) samples->values[samples->count++] = value < 0 ? 0 : (uint32_t)value;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t percentile(struct samples *samples, double part) {
    return samples->count ? samples->values[(size_t)(part * (double)(samples->count - 1))] : 0;
}

static char *find_stamp(char *from, char *end) {
    while (end - from >= STAMP) {
        char *at = memchr(from, '@', end - from - STAMP + 1);
        if (!at) return NULL;
        int digits = 0;
        while (digits < 16 && at[1 + digits] >= '0' && at[1 + digits] <= '9') digits++;
        if (digits == 16 && at[17] == '@') return at;
        from = at + 1;
    }
    return NULL;
}

static void pump_out(struct connection *connection) {
    while (connection->sent < connection->request_size) {
        ssize_t size = write(connection->fd, connection->request + connection->sent, connection->request_size - connection->sent);
        if (size < 0) {
            if (errno == EAGAIN) return; /* level-triggered EPOLLOUT is not needed: requests are far below a socket buffer */
            fail("write");
        }
        connection->sent += size;
    }
}

static void send_request(struct connection *connection, int64_t due_us) {
    if (connection->stamp) {
        char text[32];
        snprintf(text, sizeof text, "%016lld", (long long)due_us);
        memcpy(connection->stamp + 1, text, 16);
    }
    connection->sent = 0;
    connection->answer_size = 0;
    connection->started_us = due_us;
    connection->is_busy = 1;
    pump_out(connection);
}

/* The whole answer's size once its head is there, or 0. */
static size_t expected_size(struct connection *connection) {
    char *end = memmem(connection->answer, connection->answer_size, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = end + 4 - connection->answer, body = 0;
    for (char *line = connection->answer; line < end;) {
        char *next = memmem(line, end + 2 - line, "\r\n", 2);
        if (!strncasecmp(line, "content-length:", 15)) body = strtoul(line + 15, NULL, 10);
        line = next + 2;
    }
    return head + body;
}

static void take_answer(struct connection *connection, int64_t at_us) {
    char *end = connection->answer + connection->answer_size;
    requests++;
    bytes += connection->answer_size;
    add(&answer_times, at_us - connection->started_us);
    if (connection->answer_size < 12 || connection->answer[9] != '2') {
        if (!failures++) fprintf(stderr, "%.*s\n", (int)(connection->answer_size > 600 ? 600 : connection->answer_size), connection->answer);
    }
    for (char *at = connection->answer; (at = find_stamp(at, end)); at += STAMP) {
        int64_t stamp = strtoll(at + 1, NULL, 10);
        deliveries++;
        connection->deliveries++;
        if (stamp <= connection->last_stamp) disordered++;
        connection->last_stamp = stamp;
        if (stamp < first_stamp) first_stamp = stamp;
        last_delivery = at_us;
        add(&ages, at_us - stamp);
    }
    connection->is_busy = 0;
}

static int read_answer(struct connection *connection) {
    for (;;) {
        if (connection->answer_room - connection->answer_size < 65536) {
            connection->answer_room = connection->answer_room * 2 + 131072;
            connection->answer = realloc(connection->answer, connection->answer_room);
            if (!connection->answer) fail("realloc");
        }
        ssize_t size = read(connection->fd, connection->answer + connection->answer_size, connection->answer_room - connection->answer_size - 1);
        if (size == 0) {
            fprintf(stderr, "the server closed a connection\n");
            exit(1);
        }
        if (size < 0) {
            if (errno == EAGAIN) return 0;
            fail("read");
        }
        connection->answer_size += size;
        size_t expected = expected_size(connection);
        if (expected && connection->answer_size >= expected) return 1;
    }
}

static void open_connection(struct connection *connection, int port, FILE *file) {
    uint32_t size;
    if (fread(&size, 4, 1, file) != 1) fail("requests");
    connection->request = malloc(size);
    connection->request_size = size;
    if (!connection->request || fread(connection->request, 1, size, file) != size) fail("requests");
    connection->stamp = find_stamp(connection->request, connection->request + size);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0 || connect(connection->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    int one = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
}

static int count_requests(FILE *file) {
    uint32_t size;
    int count = 0;
    while (fread(&size, 4, 1, file) == 1 && !fseek(file, size, SEEK_CUR)) count++;
    rewind(file);
    return count;
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: load_client PORT REQUESTS SECONDS RATE [GOAL]\n");
        return 2;
    }
    FILE *file = fopen(argv[2], "rb");
    if (!file) fail(argv[2]);
    int count = count_requests(file);
    double rate = atof(argv[4]);
    unsigned long goal = argc == 6 ? strtoul(argv[5], NULL, 10) : 0;
    struct connection *connections = calloc(count, sizeof *connections);
    int *idle = calloc(count, sizeof *idle);
    struct epoll_event *ready = calloc(count, sizeof *ready);
    ages.values = malloc(MAX_SAMPLES * sizeof(uint32_t));
    answer_times.values = malloc(MAX_SAMPLES * sizeof(uint32_t));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!connections || !idle || !ready || !ages.values || !answer_times.values || epoll < 0) fail("start");
    for (int i = 0; i < count; i++) {
        open_connection(&connections[i], atoi(argv[1]), file);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event)) fail("epoll_ctl");
    }
    int64_t start = now_us(), end = start + (int64_t)(atof(argv[3]) * 1e6);
    int idle_count = 0, reached = 0;
    unsigned long due = 0;
    for (int i = 0; i < count; i++) {
        if (rate > 0) idle[idle_count++] = i;
        else send_request(&connections[i], start);
    }
    printf("ready\n");
    fflush(stdout);
    for (int64_t now = start; now < end; now = now_us()) {
        while (rate > 0 && idle_count && (!goal || due < goal)) {
            int64_t due_us = start + (int64_t)((double)due * 1e6 / rate);
            if (due_us > now) break;
            due++;
            send_request(&connections[idle[--idle_count]], due_us);
        }
        int wait_ms = rate > 0 ? 1 : 50;
        int found = epoll_wait(epoll, ready, count, wait_ms);
        for (int i = 0; i < found; i++) {
            struct connection *connection = &connections[ready[i].data.u32];
            if (!read_answer(connection)) continue;
            int64_t at_us = now_us();
            unsigned long before = connection->deliveries;
            take_answer(connection, at_us);
            if (goal && rate > 0 && requests == goal) end = at_us;
            if (goal && rate == 0 && before < goal && connection->deliveries >= goal && ++reached == count) {
                if (end > at_us + EXTRA_US) end = at_us + EXTRA_US;
            }
            if (rate > 0) idle[idle_count++] = ready[i].data.u32;
            else send_request(connection, at_us);
        }
    }
    double seconds = (double)(now_us() - start) / 1e6;
    unsigned long fewest = connections[0].deliveries, most = fewest;
    for (int i = 1; i < count; i++) {
        if (connections[i].deliveries < fewest) fewest = connections[i].deliveries;
        if (connections[i].deliveries > most) most = connections[i].deliveries;
    }
    qsort(ages.values, ages.count, sizeof(uint32_t), compare);
    qsort(answer_times.values, answer_times.count, sizeof(uint32_t), compare);
    printf("{\"seconds\": %.3f, \"requests\": %lu, \"failures\": %lu, \"deliveries\": %lu, "
           "\"fewest\": %lu, \"most\": %lu, \"disordered\": %lu, "
           "\"span_us\": %lld, \"bytes\": %lu, "
           "\"age_p50_us\": %u, \"age_p99_us\": %u, \"answer_p50_us\": %u, \"answer_p99_us\": %u}\n",
           seconds, requests, failures, deliveries, fewest, most, disordered,
           deliveries ? (long long)(last_delivery - first_stamp) : 0LL, bytes, percentile(&ages, 0.5), percentile(&ages, 0.99),
           percentile(&answer_times, 0.5), percentile(&answer_times, 0.99));
    return 0;
}
