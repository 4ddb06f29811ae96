/* The least that two servers can do which hold each other's stores, to know what this machine allows.
 *
 * Each takes requests of one length from its clients, copies them into a table, and sends what one turn of its loop has
 * brought to the other as one message. The other copies that into its own table, and says so in its next message; only
 * then are the clients answered. There is nothing else: no protocol is read, no key is compared, nothing can fail.
 *
 *   limit CLIENT_PORT LINK_PORT PEER_LINK_PORT REQUEST_BYTES
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
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FDS 4096
#define CLIENT_BYTES (1 << 16)
#define LINK_BYTES (1 << 22)
#define ROUNDS (1 << 12) /* turns whose stores the other has not acknowledged; a power of two, like the next one */
#define WAITING (1 << 16)
#define SLOTS (1 << 17)
#define SLOT_BYTES 256
#define AT_ONCE 1024
#define ANSWER "+OK\r\n"
#define ANSWER_BYTES 5

typedef struct {
    char *buffer;
    size_t bytes;
} Input;

typedef struct {
    uint32_t bytes; /* of the message, with this header */
    uint32_t acknowledged; /* how many messages have come since the last one of this side */
} Header;

static size_t request_bytes;
static char *table;
static char answers[ANSWER_BYTES * CLIENT_BYTES / 32];
static Input clients[MAX_FDS];
/* Who waits for the acknowledgement of the other: descriptors and how many answers, and where each turn ends. */
static int waiting_fd[WAITING], waiting_count[WAITING];
static size_t waiting_begin, waiting_end, round_ends[ROUNDS], round_begin, round_end;

static void fail(const char *what) {
    fprintf(stderr, "limit: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static int listening(int port) {
    struct sockaddr_in at = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (void *)&at, sizeof at) || listen(fd, AT_ONCE)) fail("listen");
    return fd;
}

static int taken(int listening_fd) {
    int fd = accept(listening_fd, NULL, NULL), on = 1;
    if (fd < 0 || fd >= MAX_FDS) fail("accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static int connected(int port) {
    struct sockaddr_in at = loopback(port);
    int on = 1;
    for (int tries = 0; tries < 500; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(fd, (void *)&at, sizeof at)) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return fd;
        }
        close(fd);
        usleep(20000);
    }
    fail("connect");
    return -1;
}

static void store(const char *request) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < request_bytes; i += 8) hash = (hash ^ (uint8_t)request[i]) * 16777619u;
    memcpy(table + (size_t)(hash % SLOTS) * SLOT_BYTES, request, request_bytes);
}

/* Answer all of the oldest turn that the other has not acknowledged before. */
static void answer_round(void) {
    size_t end = round_ends[round_begin++ % ROUNDS];
    for (; waiting_begin < end; waiting_begin++) {
        size_t at = waiting_begin % WAITING;
        send(waiting_fd[at], answers, ANSWER_BYTES * (size_t)waiting_count[at], MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* Take what the other has sent; answers how many messages with stores that were. */
static uint32_t take_link(int fd) {
    static char buffer[LINK_BYTES];
    static size_t bytes;
    uint32_t messages = 0;
    ssize_t come = recv(fd, buffer + bytes, LINK_BYTES - bytes, 0);
    if (come <= 0) exit(0); /* The other has ended. */
    bytes += (size_t)come;
    size_t at = 0;
    Header header;
    while (bytes - at >= sizeof header) {
        memcpy(&header, buffer + at, sizeof header);
        if (bytes - at < header.bytes) break;
        for (size_t each = at + sizeof header; each < at + header.bytes; each += request_bytes) store(buffer + each);
        messages += header.bytes > sizeof header;
        while (header.acknowledged--) answer_round();
        at += header.bytes;
    }
    memmove(buffer, buffer + at, bytes - at);
    bytes -= at;
    return messages;
}

/* Take what a client has sent, and put its requests behind the others of the turn; answers where these end now. */
static size_t take_client(int fd, char *batch, size_t end) {
    Input *client = &clients[fd];
    ssize_t come = recv(fd, client->buffer + client->bytes, CLIENT_BYTES - client->bytes, 0);
    if (come <= 0) {
        if (come == 0 || errno != EAGAIN) close(fd);
        return end;
    }
    client->bytes += (size_t)come;
    size_t at = 0;
    int count = 0;
    for (; client->bytes - at >= request_bytes; at += request_bytes, count++) {
        store(client->buffer + at);
        memcpy(batch + end, client->buffer + at, request_bytes);
        end += request_bytes;
    }
    memmove(client->buffer, client->buffer + at, client->bytes - at);
    client->bytes -= at;
    if (count) {
        waiting_fd[waiting_end % WAITING] = fd;
        waiting_count[waiting_end++ % WAITING] = count;
    }
    return end;
}

static void send_link(int fd, char *batch, size_t bytes, uint32_t acknowledged) {
    Header header = {.bytes = (uint32_t)bytes, .acknowledged = acknowledged};
    memcpy(batch, &header, sizeof header);
    for (size_t sent = 0; sent < bytes;) {
        ssize_t now = send(fd, batch + sent, bytes - sent, MSG_NOSIGNAL);
        if (now <= 0) exit(0);
        sent += (size_t)now;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: limit CLIENT_PORT LINK_PORT PEER_LINK_PORT REQUEST_BYTES\n");
        return 2;
    }
    request_bytes = strtoul(argv[4], NULL, 10);
    if (request_bytes > SLOT_BYTES) return 2;
    table = malloc((size_t)SLOTS * SLOT_BYTES);
    memset(table, 1, (size_t)SLOTS * SLOT_BYTES);
    for (size_t i = 0; i < sizeof answers; i++) answers[i] = ANSWER[i % ANSWER_BYTES];
    int door = listening(atoi(argv[1])), link_door = listening(atoi(argv[2]));
    int out = connected(atoi(argv[3])), in = taken(link_door), ready = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = door}, events[AT_ONCE];
    epoll_ctl(ready, EPOLL_CTL_ADD, door, &event);
    event.data.fd = in;
    epoll_ctl(ready, EPOLL_CTL_ADD, in, &event);
    char *batch = malloc(LINK_BYTES);
    for (;;) {
        int count = epoll_wait(ready, events, AT_ONCE, -1);
        size_t end = sizeof(Header), before = waiting_end;
        uint32_t acknowledged = 0;
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == in) {
                acknowledged += take_link(in);
            } else if (fd == door) {
                event.data.fd = taken(door);
                if (!clients[event.data.fd].buffer) clients[event.data.fd].buffer = malloc(CLIENT_BYTES);
                clients[event.data.fd].bytes = 0;
                epoll_ctl(ready, EPOLL_CTL_ADD, event.data.fd, &event);
            } else {
                end = take_client(fd, batch, end);
            }
        }
        if (waiting_end > before) round_ends[round_end++ % ROUNDS] = waiting_end;
        if (end > sizeof(Header) || acknowledged) send_link(out, batch, end, acknowledged);
    }
}
