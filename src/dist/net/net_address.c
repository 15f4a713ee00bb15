/* Numeric addresses of both families (net_address.h). */
#include "dist/net/net_address.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

bool lvni_net_address_parse(const char *text, lvni_net_address *out)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    memset(out, 0, sizeof *out); /* all of it is sent */
    if (getaddrinfo(text, NULL, &hints, &found) != 0) {
        return false;
    }
    const bool fits = found->ai_addrlen <= sizeof *out;
    if (fits) {
        memcpy(out, found->ai_addr, found->ai_addrlen);
    }
    freeaddrinfo(found);
    return fits;
}

socklen_t lvni_net_address_size(const lvni_net_address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->six : sizeof a->four;
}

void lvni_net_address_print(const lvni_net_address *a, char out[LVNI_NET_ADDRESS_TEXT])
{
    enum { HOST = 64 };
    char host[HOST] = "?";
    const bool six = a->any.sa_family == AF_INET6;
    (void)getnameinfo(&a->any, lvni_net_address_size(a), host, sizeof host, NULL, 0,
                      NI_NUMERICHOST);
    snprintf(out, LVNI_NET_ADDRESS_TEXT, six ? "[%s]:%d" : "%s:%d", host,
             (int)ntohs(six ? a->six.sin6_port : a->four.sin_port));
}

bool lvni_net_address_is(const lvni_net_address *a, const struct sockaddr *other)
{
    lvni_net_address b;
    if (other == NULL || other->sa_family != a->any.sa_family) {
        return false;
    }
    memcpy(&b, other, lvni_net_address_size(a));
    return a->any.sa_family == AF_INET6
               ? memcmp(&a->six.sin6_addr, &b.six.sin6_addr, sizeof b.six.sin6_addr) == 0
               : a->four.sin_addr.s_addr == b.four.sin_addr.s_addr;
}
