/* Where the store listens once all ranks are there: at the addresses over which they came, so that
 * it is not found over another network of its host. Called by the store's thread. */
#include "store_impl.h"

#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

/* IPv4 as IPv6 writes it, which is how a socket of both reports it; ports are of no interest. */
typedef struct place {
    struct in6_addr at;
} place;

static bool place_of(const uv_tcp_t *tcp, place *out)
{
    struct sockaddr_storage own;
    int size = sizeof own;
    memset(&own, 0, sizeof own);
    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&own, &size) != 0) {
        return false;
    }
    if (own.ss_family == AF_INET6) {
        out->at = ((const struct sockaddr_in6 *)&own)->sin6_addr;
        return !IN6_IS_ADDR_LINKLOCAL(&out->at); /* which needs the interface's number, too */
    }
    const struct in_addr four = ((const struct sockaddr_in *)&own)->sin_addr;
    out->at = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&out->at.s6_addr[12], &four, sizeof four);
    return own.ss_family == AF_INET;
}

static bool is_everywhere(const place *p)
{
    static const unsigned char none[4];
    return IN6_IS_ADDR_UNSPECIFIED(&p->at) ||
           (IN6_IS_ADDR_V4MAPPED(&p->at) && memcmp(&p->at.s6_addr[12], none, sizeof none) == 0);
}

/* How many there are; -1: more than there is room for, or one that cannot be named. */
static int find_places(const lvni_control_store *store, place *out)
{
    int n = 0;
    for (int r = 0; r < store->o.world; r++) {
        place p;
        if (store->ranks[r].conn == NULL) {
            continue;
        }
        if (!place_of(&store->ranks[r].conn->tcp, &p)) {
            return -1;
        }
        int k = 0;
        while (k < n && memcmp(&out[k], &p, sizeof p) != 0) {
            k++;
        }
        if (k == LVNI_STORE_PLACES) {
            return -1;
        }
        out[k] = p;
        n = k == n ? n + 1 : n;
    }
    return n;
}

static void listen_at_place(lvni_control_store *store, const place *p)
{
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)store->port), .sin6_addr = p->at};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)store->port)};
    memcpy(&four.sin_addr, &p->at.s6_addr[12], sizeof four.sin_addr);
    const bool is_four = IN6_IS_ADDR_V4MAPPED(&p->at);
    uv_tcp_t *listener = &store->place[store->n_places];
    if (uv_tcp_init(&store->loop, listener) != 0) {
        return;
    }
    store->n_places++;
    listener->data = store;
    if (uv_tcp_bind(listener,
                    is_four ? (const struct sockaddr *)&four : (const struct sockaddr *)&six,
                    0) == 0) {
        /* fails where another process was quicker: all ranks are here already */
        (void)uv_listen((uv_stream_t *)listener, SOMAXCONN, lvni_control_store_on_connection);
    }
}

void lvni_control_store_narrow(lvni_control_store *store)
{
    place wide, found[LVNI_STORE_PLACES];
    const int n =
        place_of(&store->listener, &wide) && is_everywhere(&wide) ? find_places(store, found) : -1;
    if (n < 0) {
        return;
    }
    /* first: a port of every address cannot be had at one of them */
    uv_close((uv_handle_t *)&store->listener, NULL);
    for (int i = 0; i < n; i++) {
        listen_at_place(store, &found[i]);
    }
}
