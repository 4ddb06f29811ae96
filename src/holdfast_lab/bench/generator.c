/* The load generator: sends requests that were encoded ahead over connections that are already open, and times the answers.
 *
 * It knows nothing of the protocol but this: all requests have one length, all answers have one length and begin with the
 * same bytes. So it measures a grid and Redis alike, and costs less than either.
 *
 *   generator SECONDS COUNT DEPTH REQUEST_BYTES ANSWER_BYTES ANSWER_PREFIX_HEX (FRAMES_FILE FD,FD,...)...
 *
 * Each connection has DEPTH requests in flight, sent in one piece; the next DEPTH follow when all are answered. It stops
 * after SECONDS, or after COUNT requests if COUNT is not 0 (then each frame of the files is sent once, in order). The
 * result is one line of JSON on standard output. A wrong answer ends it with status 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 16384
#define BUFFER_BYTES (1 << 16)
#define MAX_SAMPLES (1u << 24)
#define HISTORY_BYTES 64

typedef struct {
    const char *frames;
    size_t count, cursor;
} Group;

typedef struct {
    int fd;
    Group *group;
    const char *rest; /* what of the current requests is still to be sent */
    size_t rest_bytes;
    size_t answered;   /* bytes of answers to the current requests so far */
    char prefix[HISTORY_BYTES]; /* the beginning of the answer that is arriving */
    uint64_t sent_ns;
    int idle; /* nothing in flight and nothing to come */
} Connection;

static size_t depth, request_bytes, answer_bytes, prefix_bytes;
static char prefix[HISTORY_BYTES];
static Connection connections[MAX_CONNECTIONS];
static Group groups[MAX_CONNECTIONS];
static uint32_t *samples;
static uint32_t sample_count;
static int epoll_fd;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "generator: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(Connection *c, uint32_t events, int how) {
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, how, c->fd, &e) < 0) fail("epoll_ctl");
}

static void push(Connection *c, int waits_for_room) {
    while (c->rest_bytes) {
        ssize_t n = send(c->fd, c->rest, c->rest_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("send");
            if (!waits_for_room) watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            return;
        }
        c->rest += n;
        c->rest_bytes -= (size_t)n;
    }
    if (waits_for_room) watch(c, EPOLLIN, EPOLL_CTL_MOD);
}

static void send_next(Connection *c, uint64_t now) {
    Group *g = c->group;
    if (g->cursor + depth > g->count) g->cursor = 0;
    c->rest = g->frames + g->cursor * request_bytes;
    c->rest_bytes = depth * request_bytes;
    g->cursor += depth;
    c->answered = 0;
    c->sent_ns = now;
    push(c, 0);
}

/* Look at the first bytes of each answer in this piece. */
static void check(Connection *c, const char *piece, size_t bytes) {
    size_t at = c->answered % answer_bytes, i = 0;
    while (i < bytes) {
        while (i < bytes && at < prefix_bytes) c->prefix[at++] = piece[i++];
        if (at < prefix_bytes) return;
        if (memcmp(c->prefix, prefix, prefix_bytes)) {
            fprintf(stderr, "generator: a wrong answer begins with ");
            for (size_t k = 0; k < prefix_bytes; k++) fprintf(stderr, "%02x", (unsigned char)c->prefix[k]);
            fprintf(stderr, "\n");
            exit(1);
        }
        i += answer_bytes - at;
        at = 0;
    }
}

static int receive(Connection *c, char *buffer) {
    size_t expected = depth * answer_bytes;
    while (c->answered < expected) {
        ssize_t n = recv(c->fd, buffer, BUFFER_BYTES, MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return 0;
            fail("recv");
        }
        if (n == 0) {
            fprintf(stderr, "generator: the server closed a connection\n");
            exit(1);
        }
        check(c, buffer, (size_t)n);
        c->answered += (size_t)n;
        if (n < BUFFER_BYTES && c->answered < expected) return 0;
    }
    if (c->answered != expected) {
        fprintf(stderr, "generator: answers are longer than expected\n");
        exit(1);
    }
    return 1;
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile_us(double q) {
    return sample_count ? samples[(uint32_t)(q * (sample_count - 1))] / 1000.0 : 0.0;
}

static int open_groups(int argc, char **argv) {
    int total = 0;
    for (int a = 7, g = 0; a + 1 < argc; a += 2, g++) {
        int file = open(argv[a], O_RDONLY);
        struct stat info;
        if (file < 0 || fstat(file, &info) < 0) fail(argv[a]);
        groups[g].frames = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
        if (groups[g].frames == MAP_FAILED) fail("mmap");
        groups[g].count = (size_t)info.st_size / request_bytes;
        for (char *fd = strtok(argv[a + 1], ","); fd && total < MAX_CONNECTIONS; fd = strtok(NULL, ",")) {
            connections[total].fd = atoi(fd);
            connections[total].group = &groups[g];
            total++;
        }
    }
    return total;
}

int main(int argc, char **argv) {
    if (argc < 9) {
        fprintf(stderr, "usage: generator SECONDS COUNT DEPTH REQUEST_BYTES ANSWER_BYTES PREFIX_HEX (FILE FD,FD..)..\n");
        return 2;
    }
    double seconds = atof(argv[1]);
    uint64_t limit = strtoull(argv[2], NULL, 10), started = 0, finished = 0;
    depth = strtoul(argv[3], NULL, 10);
    request_bytes = strtoul(argv[4], NULL, 10);
    answer_bytes = strtoul(argv[5], NULL, 10);
    prefix_bytes = strlen(argv[6]) / 2;
    for (size_t k = 0; k < prefix_bytes && k < HISTORY_BYTES; k++) sscanf(argv[6] + 2 * k, "%2hhx", &prefix[k]);
    samples = malloc(sizeof(uint32_t) * MAX_SAMPLES);
    epoll_fd = epoll_create1(0);
    int total = open_groups(argc, argv), busy = 0;
    char *buffer = malloc(BUFFER_BYTES);
    struct epoll_event *events = malloc(sizeof(struct epoll_event) * MAX_CONNECTIONS);
    double cpu_before = cpu_seconds();
    uint64_t begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9), now = begin;
    for (int i = 0; i < total; i++) {
        watch(&connections[i], EPOLLIN, EPOLL_CTL_ADD);
        connections[i].idle = limit && started >= limit;
        if (connections[i].idle) continue;
        started += depth;
        busy++;
        send_next(&connections[i], now_ns());
    }
    while (busy) {
        int ready = epoll_wait(epoll_fd, events, MAX_CONNECTIONS, 30000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) fail("no answer for 30 seconds");
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) push(c, 1);
            if (c->idle || !receive(c, buffer)) continue;
            now = now_ns();
            finished += depth;
            if (sample_count < MAX_SAMPLES) {
                uint64_t took = now - c->sent_ns;
                samples[sample_count++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
            }
            if (limit ? started < limit : now < end) {
                started += depth;
                send_next(c, now);
            } else {
                c->idle = 1;
                busy--;
            }
        }
    }
    double took = (double)(now - begin) / 1e9, cpu = cpu_seconds() - cpu_before;
    qsort(samples, sample_count, sizeof(uint32_t), by_size);
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, "
           "\"cpu_seconds\": %.4f}\n",
           (unsigned long long)finished, took, quantile_us(0.5), quantile_us(0.99), quantile_us(1.0), cpu);
    return 0;
}
