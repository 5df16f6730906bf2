/* process_rpc.h - process.Process: E2B's calls on commands, and our additions to them
 * (docs/agent.md). */
#ifndef SPACE_AGENT_PROCESS_RPC_H
#define SPACE_AGENT_PROCESS_RPC_H

#include "agent/rpc.h"

rpc_fn rpc_list, rpc_start_process, rpc_connect, rpc_update, rpc_send_input, rpc_stream_input,
	rpc_send_signal, rpc_close_stdin;
void rpc_stream_input_body(struct http_exchange *x, struct str body);

/* A reader that takes nothing for so long is let go. 60 s; tests shorten it. */
extern int64_t slow_reader_ms;

#endif
