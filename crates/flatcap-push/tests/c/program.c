/* Uses every function of the header. Without a recorder it counts what it drops. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <flatcap_push.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                  \
    do {                                                                  \
        if (!(condition)) {                                               \
            char reason[200];                                             \
            flatcap_error(client, reason, sizeof reason);                 \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, reason); \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

int main(int argc, char **argv) {
    flatcap_options_t options = {.size = sizeof options, .socket = argc > 1 ? argv[1] : NULL, .name = "program", .block_limit_ns = 3600000000000ULL};
    flatcap_t *client = flatcap_open_with(&options);
    if (client == NULL) {
        return 1;
    }
    flatcap_t *second = flatcap_open("/nowhere", "second");
    CHECK(second != NULL && !flatcap_is_connected(second));
    flatcap_close(second);
    CHECK(flatcap_open(NULL, NULL) == NULL && flatcap_open(NULL, "") == NULL);
    CHECK(flatcap_source(client, "", NULL, NULL, 0, FLATCAP_DROP_NEWEST) == NULL);
    CHECK(flatcap_source(client, "orders", NULL, NULL, 0, 7) == NULL);
    flatcap_source_t *orders = flatcap_source(client, "orders", NULL, NULL, 0, FLATCAP_BLOCK);
    CHECK(orders != NULL);
    CHECK(flatcap_push(NULL, "x", 1) < 0 && flatcap_push(orders, NULL, 1) < 0);
    CHECK(flatcap_commit(orders, 0) < 0);
    flatcap_cancel(orders);

    flatcap_budget_t budget = {.size = sizeof budget};
    CHECK(flatcap_budget(NULL, &budget) < 0 && flatcap_budget(client, NULL) < 0);

    if (!flatcap_is_connected(client)) {
        CHECK(flatcap_push(orders, "parent", 6) < 0);
        CHECK(flatcap_begin(orders, 10) == NULL);
        size_t length = 1;
        CHECK(flatcap_push_many(orders, "x", &length, 1) == 0);
        CHECK(flatcap_trigger(client, "fire", 0) < 0);
        CHECK(flatcap_budget(client, &budget) < 0);
        printf("no recorder: %llu dropped\n", (unsigned long long)flatcap_dropped(orders));
        flatcap_close(client);
        return 0;
    }

    CHECK(flatcap_push(orders, "parent", 6) == 0);
    CHECK(flatcap_gauge(client, "motor.torque", "Nm", 12.5) == 0);
    CHECK(flatcap_gauge(client, "motor.torque", "Nm\n", 12.5) == -EINVAL);
    CHECK(flatcap_gauge(client, NULL, NULL, 12.5) == -EINVAL);
    CHECK(flatcap_budget(client, &budget) == 0 && budget.cpu_ns_per_second > 0);
    flatcap_budget_t small = {.size = sizeof small - 1};
    CHECK(flatcap_budget(client, &small) < 0);
    size_t lengths[] = {4, 6};
    CHECK(flatcap_push_many(orders, "manymany 2", lengths, 2) == 2);
    CHECK(flatcap_push_many(orders, NULL, NULL, 0) == 0);
    char *place = flatcap_begin(orders, 100);
    CHECK(place != NULL);
    CHECK(flatcap_push(orders, "busy", 4) < 0 && flatcap_dropped(orders) == 1);
    memcpy(place, "built", 5);
    CHECK(flatcap_commit(orders, 5) == 0);
    CHECK(flatcap_begin(orders, 100) != NULL);
    flatcap_cancel(orders);
    CHECK(flatcap_trigger(client, "fire", 0) == 0);

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The first push registers the child; its parent's lane is not touched. */
        CHECK(flatcap_push(orders, "child", 5) == 0 && flatcap_dropped(orders) <= 1);
        flatcap_close(client);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    flatcap_close(client);
    puts("pushed by parent and child");
    return 0;
}
