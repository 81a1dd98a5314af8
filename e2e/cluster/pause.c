/* What a pod's sandbox runs, and what holds a node's namespaces: it sleeps, collects ended children that nobody else
   waits for, and ends at SIGTERM or SIGINT. Linked statically, because its image has nothing else in it. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
    (void)number;
    _exit(0);
}

static void collect(int number) {
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    /* As process 1 of a namespace it gets no default actions: without a handler SIGTERM would do nothing. */
    struct sigaction on_end = {.sa_handler = end};
    struct sigaction on_child = {.sa_handler = collect, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGTERM, &on_end, NULL) < 0 || sigaction(SIGINT, &on_end, NULL) < 0 ||
        sigaction(SIGCHLD, &on_child, NULL) < 0) {
        return EXIT_FAILURE;
    }
    for (;;) {
        pause();
    }
}
