/* stale.h - connections of the machine that this one continues. Whoever was at the other end talks to the original, or to nobody. */
#ifndef SPACE_AGENT_STALE_H
#define SPACE_AGENT_STALE_H

/* Resets every TCP connection of user processes over eth0: a read or write on it fails with ECONNRESET once they run again. Those of the agent's own
 * port are left alone. The number of connections that were reset. Costs two small files where there are none. A connection that no process has
 * accepted yet has no descriptor and stays; the peer answers its first packet with a reset. */
unsigned stale_reset(void);

#endif
