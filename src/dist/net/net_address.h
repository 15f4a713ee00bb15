/* Numeric addresses of TCP, IPv4 or IPv6, as ranks give them to each other (net_connect.c) and as
 * UCX is given the interface that has one (ucx_connect.c). */
#ifndef LEVIN_DIST_NET_NET_ADDRESS_H
#define LEVIN_DIST_NET_NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

typedef union lvni_net_address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} lvni_net_address;

/* "10.0.0.2", "fd00::2", "fe80::2%eth0"; the port is 0. False: no such address. */
bool lvni_net_address_parse(const char *text, lvni_net_address *out);
/* In bytes, as bind() and connect() need it. */
socklen_t lvni_net_address_size(const lvni_net_address *address);
/* "10.0.0.2:4000", "[fd00::2]:4000" */
enum { LVNI_NET_ADDRESS_TEXT = 80 };
void lvni_net_address_print(const lvni_net_address *address, char out[LVNI_NET_ADDRESS_TEXT]);
/* The same host's, whatever the port; other: of any family, or NULL. */
bool lvni_net_address_is(const lvni_net_address *address, const struct sockaddr *other);

#endif
