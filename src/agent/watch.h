/* watch.h - changes of a directory, by inotify, with everything below it if asked for.
 *
 * A new directory is watched as soon as it is seen and then read, so that what was made in it meanwhile is reported too, and
 * once. Events that the kernel or a client's limit dropped end the watch with data_loss: nothing is lost in silence. */
#ifndef SPACE_AGENT_WATCH_H
#define SPACE_AGENT_WATCH_H

#include "agent/rpc.h"

rpc_fn rpc_watch_dir, rpc_create_watcher, rpc_get_watcher_events, rpc_remove_watcher;
void watchers_clear(void); /* those of CreateWatcher */

#endif
