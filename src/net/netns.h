/* netns.h - makes one network namespace with its tap, addresses and filter. slot.c keeps the books.
 *
 * The making happens on a thread of its own that ends with it, so that no thread of ours is ever seen in a foreign namespace. */
#ifndef SPACE_NET_NETNS_H
#define SPACE_NET_NETNS_H

#include "base/fail.h"

/* A namespace, complete and verified, that lives as long as *ns_fd (the caller's, like *tap_fd). Nothing is left on failure. */
int netns_make(int *ns_fd, int *tap_fd, struct fail *why);

/* A descriptor of our own namespace, kept for good; made at the first call, which is best the start. */
int netns_home(void);

/* A TCP socket (non-blocking, close-on-exec) that belongs to the namespace; the calling thread is back home on return. */
int netns_socket(int ns_fd, struct fail *why);

#endif
