import { Admission } from "./admission.ts";
import { FairShare } from "./fair-share.ts";
import { GangPlacer, type GangRequest } from "./gang.ts";
import { Ledger, locate, nodePositions } from "./ledger.ts";
import type { ClusterSnapshot, QueuedJob, SchedulerSettings } from "./model.ts";
import { latestEndMs, type Release, releaseOf } from "./releases.ts";
import { ShapeTable } from "./shape.ts";
import { Stranding } from "./stranding.ts";
import { countTargets, targetMix } from "./targets.ts";

/** What one scheduling decision sees. */
export interface SchedulingInput {
  readonly snapshot: ClusterSnapshot;
  readonly queue: readonly QueuedJob[];
  readonly nowMs: number;
  readonly settings: SchedulerSettings;
}

/** The working state of one decision: the free capacity and who has claims on it. */
export interface Round {
  readonly input: SchedulingInput;
  /** The cluster with nothing on it. */
  readonly capacity: Ledger;
  /** Places on what is free now. */
  readonly placer: GangPlacer;
  readonly shapes: ShapeTable;
  readonly positions: ReadonlyMap<string, number>;
  readonly fairShare: FairShare;
  readonly admission: Admission;
  /** By job id, what it gives back and when at the latest: running jobs, then the started ones. */
  readonly releases: Map<string, Release>;
}

/** Lays out the snapshot: what is free, who holds what, and what the cluster expects. */
export function openRound(input: SchedulingInput): Round {
  const { snapshot, queue, nowMs, settings } = input;
  const capacity = Ledger.ofCapacity(snapshot.nodes, settings.overcommitRatio);
  const shapes = new ShapeTable(snapshot.nodes);
  const positions = nodePositions(snapshot);
  const free = capacity.clone();
  const fairShare = new FairShare(
    snapshot.nodes,
    snapshot.projects,
    nowMs,
    settings.fairShareHalfLifeMs,
  );
  const releases = new Map<string, Release>();
  for (const job of snapshot.running) {
    const shape = shapes.of(job.request);
    for (const { node, devices } of locate(job.placements, positions)) {
      free.take(node, shape, devices);
    }
    fairShare.charge(job);
    const atMs = latestEndMs(job, nowMs, settings);
    releases.set(job.id, releaseOf(job, atMs, shapes, positions));
  }
  const { targets } = settings;
  const expected = targets.length > 0 ? targets : countTargets([...snapshot.running, ...queue]);
  const gpuTypes = snapshot.nodes.map(({ gpuType }) => gpuType);
  const stranding = new Stranding(targetMix(expected), gpuTypes);
  return {
    input,
    capacity,
    placer: new GangPlacer(free, stranding),
    shapes,
    positions,
    fairShare,
    admission: new Admission(snapshot, nowMs, settings),
    releases,
  };
}

/** The job's gang under its queue's strategy. */
export function gangOf({ input, shapes }: Round, job: QueuedJob): GangRequest {
  const { queues, defaultStrategy } = input.settings;
  return {
    shape: shapes.of(job.request),
    tasks: job.tasks,
    sameRack: job.sameRack,
    strategy: queues[job.queue]?.strategy ?? defaultStrategy,
  };
}
