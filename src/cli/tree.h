/* tree.h - the nodes of GET /v1/tree as a drawing: who came from whom. */
#ifndef SPACE_CLI_TREE_H
#define SPACE_CLI_TREE_H

#include "cli/cli.h"

/* One line of the drawing. ITEM is a node, or with SANDBOX one of the "sandboxes" of a node. */
typedef void tree_line_fn(const char *branches, const json_t *item, bool sandbox, void *arg);

/* Calls FN for each node, the sandboxes of a node right after it, then what came from it. NODES: as the API has them, parents before
 * children; a node whose parent is not there is a root. ONLY (may be NULL): a node's id or label, or a sandbox's id or name: only what
 * leads to it, and what came from it. Takes time linear in the nodes, and no deeper recursion for deep trees. The number of lines;
 * 0 with ONLY: there is no such thing; negative errno. */
int tree_draw(const json_t *nodes, const char *only, tree_line_fn *fn, void *arg);

#endif
