/* watch_rpc.h - WatchDir, and the watchers that are polled: CreateWatcher, GetWatcherEvents,
 * RemoveWatcher. */
#ifndef SPACE_AGENT_WATCH_RPC_H
#define SPACE_AGENT_WATCH_RPC_H

#include "agent/rpc.h"

rpc_fn rpc_watch_dir, rpc_create_watcher, rpc_get_watcher_events, rpc_remove_watcher;

#endif
