/* Maps that the programs share with the switch's process, which fills them (crates/xdp). */
#pragma once

/* Which job a UDP port is for: places in `jobs`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JOBS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JOBS_MAX);
	__type(key, __u32);
	__type(value, struct fanin_job);
} jobs SEC(".maps");

/* Ranks by the socket that they send from. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JOBS_MAX * RANKS_MAX);
	__type(key, struct fanin_member);
	__type(value, __u32);
} members SEC(".maps");

/* Rank r of the job at place j is at RANKS_MAX j + r. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JOBS_MAX * RANKS_MAX);
	__type(key, __u32);
	__type(value, struct fanin_rank);
} ranks SEC(".maps");

/* Ranks behind a device, as bits; the key has the job's place in its upper half. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JOBS_MAX * RANKS_MAX);
	__type(key, __u64);
	__type(value, __u64);
} behind SEC(".maps");

/* Where a job's results go: its ranks' devices, one entry for each rank. */
struct targets_of_job {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, RANKS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, JOBS_MAX);
	__type(key, __u32);
	__array(values, struct targets_of_job);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VERSIONS_MAX);
	__type(key, __u32);
	__type(value, struct fanin_version);
} versions SEC(".maps");

/* Which numbers have come from a rank, of systems that need that: rank r of the job at place j is at RANKS_MAX j + r. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JOBS_MAX * RANKS_MAX);
	__type(key, __u32);
	__type(value, struct fanin_window);
} windows SEC(".maps");

/* What time it is for a job, where that matters. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JOBS_MAX);
	__type(key, __u32);
	__type(value, struct fanin_clock);
} clocks SEC(".maps");

/* Whom the copies of a packet are for that have not left yet, as bits, where no version knows; the last entry counts packets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COPIES_MAX + 1);
	__type(key, __u32);
	__type(value, __u64);
} copies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JOBS_MAX);
	__type(key, __u32);
	__type(value, struct fanin_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fanin_scratch);
} scratch SEC(".maps");
