/* metrics.h - what /metrics counts. Labels come from fixed sets only, so that nothing from outside makes a new series. */
#ifndef SPACE_API_METRICS_H
#define SPACE_API_METRICS_H

#include "api/api.h"

struct metrics *metrics_new(void); /* NULL when out of memory */
void metrics_free(struct metrics *m);
/* A request is over. ROUTE NULL: none was found. STATUS 0: the client left before there was one. */
void metrics_request(struct api *api, const struct route *route, unsigned status);
/* A sandbox was created: how long each phase took. */
void metrics_created(struct api *api, const struct sandbox *sb);
/* Prometheus' text format, version 0.0.4. */
int metrics_write(struct api *api, struct buf *out);

#endif
