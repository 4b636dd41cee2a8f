/* Reads a `.spec` of DPDK's software switch pipeline and configures a pipeline from it. */
#ifndef FANIN_SPEC_H
#define FANIN_SPEC_H

#include <rte_swx_pipeline.h>

/*
 * Configures `pipeline` with what the file says; ports and mirroring sessions are the caller's. Debian's DPDK reads a `.spec` only to make C
 * from it that includes headers which no package has, so the reading is done here, and DPDK's own reader judges the same file (see play.c).
 *
 * Of the language (rte_swx_pipeline_spec.c of DPDK 22.11) this knows: struct, header, metadata, action, table, regarray, apply. Whatever else
 * stands in the file is an error. Returns 0; on an error prints "FILE:LINE: what is wrong" and returns -1.
 */
int spec_configure(struct rte_swx_pipeline *pipeline, const char *path);

#endif
