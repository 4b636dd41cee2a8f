/* For tests: a classifier that loses one of 50 UDP packets, in whichever direction it is attached. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ONE_OF 50
#define ETHERNET_IPV4 0x0800
#define IP_PROTOCOL 23
#define IP_UDP 17

SEC("classifier")
int lose(struct __sk_buff *skb)
{
	__u8 protocol;

	if (skb->protocol != bpf_htons(ETHERNET_IPV4) || bpf_skb_load_bytes(skb, IP_PROTOCOL, &protocol, 1) || protocol != IP_UDP)
		return TC_ACT_OK;
	return bpf_get_prandom_u32() % ONE_OF ? TC_ACT_OK : TC_ACT_SHOT;
}

char _license[] SEC("license") = "Apache-2.0";
