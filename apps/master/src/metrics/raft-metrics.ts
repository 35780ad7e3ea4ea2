import type { DurationCounts } from "@heddle/consensus/thread/thread-counts";
import { ReadMetric, type Sample } from "@heddle/observability/read-metric";
import { Counter, Gauge, type Registry } from "prom-client";
import type { ControlGroup, GroupStatus, RaftCounts } from "../control-plane/control-group.ts";
import { peerLags } from "./cluster-metrics.ts";

const GAUGES: readonly [name: string, help: string, read: (status: GroupStatus) => number][] = [
  ["term", "The term that this master is in.", ({ term }) => term],
  ["leader", "1 on the master that leads, else 0.", ({ role }) => (role === "leader" ? 1 : 0)],
  [
    "has_leader",
    "1 where a leader is known, else 0.",
    ({ leader }) => (leader === undefined ? 0 : 1),
  ],
  ["commit_index", "The last entry known to be committed.", ({ commit }) => commit],
  ["applied_index", "The last entry applied here.", ({ applied }) => applied],
  ["snapshot_index", "The entry of the newest snapshot.", ({ snapshotIndex }) => snapshotIndex],
  [
    "behind",
    "1 where this master has long not applied what is committed, else 0.",
    ({ isBehind }) => (isBehind ? 1 : 0),
  ],
  ["voters", "Masters with a vote.", ({ members }) => members.filter(({ votes }) => votes).length],
];

const COUNTERS: readonly [name: string, help: string, read: (counts: RaftCounts) => number][] = [
  ["proposals_total", "Changes that this master proposed.", (counts) => counts.proposals],
  [
    "proposals_failed_total",
    "Proposals that were not made, or not known to be.",
    (counts) => counts.proposalsFailed,
  ],
  [
    "proposal_seconds_total",
    "Time from proposals to their replies.",
    (counts) => counts.proposalSeconds,
  ],
  ["elections_total", "Times that this master stood for election.", (counts) => counts.elections],
  ["snapshots_taken_total", "Snapshots of the state taken.", (counts) => counts.snapshotsTaken],
  [
    "snapshots_installed_total",
    "Snapshots taken over from the leader.",
    (counts) => counts.snapshotsInstalled,
  ],
  [
    "snapshots_damaged_total",
    "Snapshots of this master whose files could not be read.",
    (counts) => counts.snapshotsDamaged,
  ],
];

/** Exposes the replica's counters in /metrics as `heddle_raft_*`, read at every scrape. */
export function exposeRaftMetrics(registry: Registry, group: ControlGroup): void {
  const registers = [registry];
  for (const [name, help, read] of GAUGES) {
    new Gauge({
      name: `heddle_raft_${name}`,
      help,
      registers,
      collect() {
        this.set(read(group.status()));
      },
    });
  }
  for (const [name, help, read] of COUNTERS) {
    new Counter({
      name: `heddle_raft_${name}`,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(read(group.counts()));
      },
    });
  }
  new Counter({
    name: "heddle_state_refusals_total",
    help: "Changes that this master proposed and that the state had no room for.",
    labelNames: ["kind"],
    registers,
    collect() {
      this.reset();
      for (const [kind, count] of Object.entries(group.counts().refusedForRoom)) {
        this.inc({ kind }, count);
      }
    },
  });
  new Gauge({
    name: "heddle_raft_peer_lag_entries",
    help: "Committed entries that another master is not known to have; on the leader only.",
    labelNames: ["peer"],
    registers,
    async collect() {
      const lags = group.status().role === "leader" ? await peerLags(group) : [];
      this.reset();
      for (const { master, lag } of lags) this.set({ peer: master }, lag);
    },
  });
  const fsync = "heddle_raft_append_fsync_seconds";
  const help = "Time of durable writes to the log.";
  new ReadMetric(registry, { name: fsync, help, type: "histogram" }, () =>
    durationSamples(fsync, group.counts().appends),
  );
}

function durationSamples(
  name: string,
  { boundsSeconds, counts, sumSeconds }: DurationCounts,
): Sample[] {
  let total = 0;
  const buckets = counts.map((count, at) => {
    total += count;
    const le = boundsSeconds[at] ?? "+Inf";
    return { metricName: `${name}_bucket`, labels: { le }, value: total };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels: {}, value: sumSeconds },
    { metricName: `${name}_count`, labels: {}, value: total },
  ];
}
