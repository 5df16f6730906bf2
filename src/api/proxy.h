/* proxy.h - traffic to the ports of a sandbox. */
#ifndef SPACE_API_PROXY_H
#define SPACE_API_PROXY_H

#include "api/api.h"

/* Is the request for a sandbox's port by its Host (PORT-ID.DOMAIN) or by E2B's routing headers? Then it is relayed (or
 * refused, in E2B's words), and true is the answer. No key: the id is the capability, as in E2B. */
bool proxy_by_host(struct req *r);

/* PORT and ID out of "PORT-ID.DOMAIN[:n]". */
bool proxy_host_parse(struct str host, const char *domain, int *port, struct str *id);
/* May this path of the agent's port be reached from outside? Its control calls trust our address. */
bool proxy_agent_path(struct str path);

#endif
