/* A judge that costs nearly nothing: one thread, one fixed reply after a fixed time, any number of kept connections.
 *
 *   cc -O2 -o judge judge.c && ./judge 100 '<score>3</score>'      prints its port, and ends with its standard input
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536
#define ROOM 65536

struct client { char *data; size_t have; };
struct due { double at; int fd; unsigned age; };

static struct client clients[MOST];
static unsigned ages[MOST];
static struct due queue[MOST]; /* every reply takes equally long, so that who came first is due first */
static size_t head, tail;
static char reply[8192];
static size_t reply_size;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void leave(int fd) {
    ages[fd]++;
    clients[fd].have = 0;
    close(fd);
}

/* whole requests that lie in the buffer are taken out of it; their replies are due later */
static void take(int fd, double latency) {
    struct client *c = &clients[fd];
    for (;;) {
        char *end, *length;
        size_t size;
        c->data[c->have] = 0;
        if (!(end = strstr(c->data, "\r\n\r\n"))) return;
        length = strcasestr(c->data, "content-length:");
        size = (size_t)(end - c->data) + 4 + (length && length < end ? strtoul(length + 15, 0, 10) : 0);
        if (c->have < size) return;
        memmove(c->data, c->data + size, c->have - size);
        c->have -= size;
        queue[tail++ % MOST] = (struct due){now() + latency, fd, ages[fd]};
    }
}

int main(int argc, char **argv) {
    double latency = argc > 1 ? atof(argv[1]) / 1e3 : 0.1;
    const char *text = argc > 2 ? argv[2] : "<score>3</score>";
    char body[4096];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0), on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, found[512];

    snprintf(body, sizeof body,
             "{\"id\":\"r\",\"object\":\"chat.completion\",\"model\":\"judge-1\",\"choices\":[{\"index\":0,\"finish_reason\":\"stop\","
             "\"message\":{\"role\":\"assistant\",\"content\":\"%s\"}}],\"usage\":{\"prompt_tokens\":500,\"completion_tokens\":20}}",
             text);
    reply_size = (size_t)snprintf(reply, sizeof reply,
                                  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 4096)) return 1;
    getsockname(listening, (struct sockaddr *)&at, &size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    event.data.fd = 0;
    epoll_ctl(poll, EPOLL_CTL_ADD, 0, &event);
    for (;;) {
        double wait = head < tail ? queue[head % MOST].at - now() : 10;
        int n = epoll_wait(poll, found, 512, wait <= 0 ? 0 : (int)(wait * 1e3) + 1);
        for (int i = 0; i < n; i++) {
            int fd = found[i].data.fd;
            if (fd == 0) {
                char any[64];
                if (read(0, any, sizeof any) <= 0) return 0;
            } else if (fd == listening) {
                while ((fd = accept4(listening, 0, 0, SOCK_NONBLOCK)) >= 0) {
                    if (fd >= MOST) { close(fd); continue; }
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    if (!clients[fd].data) clients[fd].data = malloc(ROOM + 1);
                    event.data.fd = fd;
                    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
                }
            } else {
                ssize_t got = read(fd, clients[fd].data + clients[fd].have, ROOM - clients[fd].have);
                if (got <= 0) {
                    if (got == 0 || errno != EAGAIN) leave(fd);
                } else {
                    clients[fd].have += (size_t)got;
                    take(fd, latency);
                }
            }
        }
        while (head < tail && queue[head % MOST].at <= now()) {
            struct due *due = &queue[head++ % MOST];
            if (due->age == ages[due->fd] && write(due->fd, reply, reply_size) < 0) leave(due->fd);
        }
    }
}
