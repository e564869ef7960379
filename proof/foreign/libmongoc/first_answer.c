/* Prints the microseconds from the creation of a single-threaded client to its first primary, and
 * to the answer to its first ping. */

#include <mongoc/mongoc.h>
#include <stdio.h>

static int fail(const char *what, const bson_error_t *error) {
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

int main(int argc, char **argv) {
    bson_error_t error = {0};
    bson_t ping = BSON_INITIALIZER;
    if (argc != 2) {
        fprintf(stderr, "usage: first_answer URI\n");
        return 2;
    }
    mongoc_init();
    BSON_APPEND_INT32(&ping, "ping", 1);

    int64_t started = bson_get_monotonic_time();
    mongoc_uri_t *uri = mongoc_uri_new_with_error(argv[1], &error);
    if (!uri) {
        return fail("the connection string", &error);
    }
    mongoc_client_t *client = mongoc_client_new_from_uri(uri);
    mongoc_server_description_t *primary = mongoc_client_select_server(client, true, NULL, &error);
    if (!primary) {
        return fail("the selection", &error);
    }
    int64_t selected = bson_get_monotonic_time();
    if (!mongoc_client_command_simple(client, "admin", &ping, NULL, NULL, &error)) {
        return fail("the ping", &error);
    }
    int64_t answered = bson_get_monotonic_time();
    printf("%lld %lld\n", (long long)(selected - started), (long long)(answered - started));

    mongoc_server_description_destroy(primary);
    mongoc_client_destroy(client);
    mongoc_uri_destroy(uri);
    bson_destroy(&ping);
    mongoc_cleanup();
    return 0;
}
