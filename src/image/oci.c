#include "image/images.h"
int image_build_oci(struct pool *p, const char *name, const char *ref, const struct progress *pr, struct image_info *out, struct fail *why)
{
	return fail_as(why, ERR_unsupported, "not yet");
}
