/* oci.h - what of reading OCI images can be tested without one. */
#ifndef SPACE_IMAGE_OCI_H
#define SPACE_IMAGE_OCI_H

#include "image/image.h"

/* Is REF one of the references that we hand to skopeo? */
int oci_ref_check(const char *ref, struct fail *why);

/* An OCI image configuration: fills in user, workdir, env and cmd. */
int oci_config_read(struct str text, struct image_info *info, struct fail *why);

#endif
