/* For measurements: a program that lets everything pass. A veth with a program at one end segments at the other, and copies frames; this shows
 * what of the time that is. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";
