import { FairShare } from "../cluster/fair-share.ts";
import { NOTHING_SHARED } from "../cluster/shared-amounts.ts";
import type {
  ClusterSnapshot,
  ProjectState,
  QueuedJob,
  SchedulerSettings,
  SharedSupply,
} from "../model.ts";
import type { GangPlacer, GangRequest } from "../placement/gang.ts";
import { Admission } from "./admission.ts";
import { ClusterView } from "./cluster-view.ts";
import { Releases } from "./releases.ts";

/** What one scheduling decision sees, as plain data. */
export interface SchedulingInput {
  readonly snapshot: ClusterSnapshot;
  readonly queue: readonly QueuedJob[];
  readonly nowMs: number;
  readonly settings: SchedulerSettings;
}

/** The same with the cluster laid out, and projects looked up as they are asked for. */
export interface SchedulingSnapshot {
  /** The log index that it stands at. */
  readonly index: number;
  readonly layout: ClusterView;
  readonly projectOf: (project: string) => ProjectState | undefined;
  readonly shared: SharedSupply;
  readonly queue: readonly QueuedJob[];
  readonly nowMs: number;
  readonly settings: SchedulerSettings;
}

/** The working state of one decision: the free capacity and who has claims on it. */
export interface SchedulingCycle {
  readonly standing: SchedulingSnapshot;
  readonly layout: ClusterView;
  /** Places on what is free now. */
  readonly placer: GangPlacer;
  readonly fairShare: FairShare;
  readonly admission: Admission;
  readonly releases: Releases;
}

/** Lays plain data out, at a cost in proportion to the cluster. */
export function layOut({ snapshot, queue, nowMs, settings }: SchedulingInput): SchedulingSnapshot {
  const { index, nodes, running } = snapshot;
  const projects = new Map(snapshot.projects.map((project) => [project.project, project]));
  return {
    index,
    layout: new ClusterView(nodes, running, settings.overcommitRatio),
    projectOf: (project) => projects.get(project),
    shared: snapshot.shared ?? { limit: NOTHING_SHARED, free: NOTHING_SHARED },
    queue,
    nowMs,
    settings,
  };
}

/** Begins a decision. What it takes of the layout must be given back by \`closeRound\`. */
export function openCycle(standing: SchedulingSnapshot): SchedulingCycle {
  const { layout, projectOf, queue, nowMs, settings } = standing;
  const { targets, fairShareHalfLifeMs: halfLifeMs } = settings;
  layout.free.shared = standing.shared.free;
  layout.capacity.shared = standing.shared.limit;
  const { running, roster } = layout;
  const expected = targets.length > 0 ? targets : running.targets.with(queue).targets();
  const heldBy = (project: string) => running.heldBy(project);
  return {
    standing,
    layout,
    placer: layout.placerFor(expected),
    fairShare: new FairShare({ capacity: roster.totals, projectOf, heldBy, nowMs, halfLifeMs }),
    admission: new Admission(running, projectOf, nowMs, settings),
    releases: new Releases(layout, settings, nowMs),
  };
}

/** The job's gang under its queue's strategy. */
export function gangOf(
  { settings, layout }: Pick<SchedulingSnapshot, "settings" | "layout">,
  job: QueuedJob,
): GangRequest {
  const { queues, defaultStrategy } = settings;
  return {
    shape: layout.shapes.of(job.request),
    tasks: job.tasks,
    sameRack: job.sameRack,
    strategy: queues[job.queue]?.strategy ?? defaultStrategy,
    shared: job.shared,
  };
}
