/* oci.h - what of reading OCI images can be tested without one. */
#ifndef SPACE_IMAGE_OCI_H
#define SPACE_IMAGE_OCI_H

#include "image/image.h"

/* Is REF one of the references that we hand to skopeo? */
int oci_ref_check(const char *ref, struct fail *why);

/* Is it of a registry on this host itself? Plain HTTP will do there, and only who may use the local
 * socket is let near it. */
static inline bool oci_ref_is_loopback(const char *ref)
{
	static const char *const hosts[] = { "docker://127.", "docker://localhost:",
		"docker://localhost/", "docker://[::1]" };

	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		if (!strncasecmp(ref, hosts[i], strlen(hosts[i])))
			return true;
	return false;
}

/* An OCI image configuration: fills in user, workdir, env and cmd. */
int oci_config_read(struct str text, struct image_info *info, struct fail *why);

#endif
