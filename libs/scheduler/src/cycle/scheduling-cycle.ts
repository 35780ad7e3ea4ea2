import type { Steps } from "@heddle/base/async/steps";
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

/** The input of one scheduling cycle, as plain data. */
export interface SchedulingInput {
  readonly snapshot: ClusterSnapshot;
  readonly queue: readonly QueuedJob[];
  readonly nowMs: number;
  readonly settings: SchedulerSettings;
}

/** The same with an indexed view of the cluster, and with lazy look-ups of projects. */
export interface SchedulingSnapshot {
  /** The log index of the snapshot. */
  readonly index: number;
  readonly view: ClusterView;
  readonly projectOf: (project: string) => ProjectState | undefined;
  readonly shared: SharedSupply;
  readonly queue: readonly QueuedJob[];
  readonly nowMs: number;
  readonly settings: SchedulerSettings;
}

/** The working state of one cycle. */
export interface SchedulingCycle {
  readonly snapshot: SchedulingSnapshot;
  readonly view: ClusterView;
  /** Places gangs on what is free now. */
  readonly placer: GangPlacer;
  readonly fairShare: FairShare;
  readonly admission: Admission;
  readonly releases: Releases;
}

/** Builds a view of plain data, at a cost in proportion to the cluster. */
export function snapshotFrom({
  snapshot,
  queue,
  nowMs,
  settings,
}: SchedulingInput): SchedulingSnapshot {
  const { index, nodes, running } = snapshot;
  const projects = new Map(snapshot.projects.map((project) => [project.project, project]));
  return {
    index,
    view: new ClusterView(nodes, running, settings.overcommitRatio),
    projectOf: (project) => projects.get(project),
    shared: snapshot.shared ?? { limit: NOTHING_SHARED, free: NOTHING_SHARED },
    queue,
    nowMs,
    settings,
  };
}

/** Opens a cycle; a caller that takes from its ledger must release it again at the end. */
export function openCycle(snapshot: SchedulingSnapshot): SchedulingCycle {
  const { view, projectOf, queue, nowMs, settings } = snapshot;
  const { targets, fairShareHalfLifeMs: halfLifeMs } = settings;
  view.free.shared = snapshot.shared.free;
  view.capacity.shared = snapshot.shared.limit;
  const { running, roster } = view;
  const expected = targets.length > 0 ? targets : running.targets.with(queue).targets();
  const heldBy = (project: string) => running.heldBy(project);
  return {
    snapshot,
    view,
    placer: view.placerFor(expected),
    fairShare: new FairShare({ capacity: roster.totals, projectOf, heldBy, nowMs, halfLifeMs }),
    admission: new Admission(running, projectOf, nowMs, settings),
    releases: new Releases(view, settings, nowMs),
  };
}

/**
 * The job's gang under its queue's strategy; the first job with new filters evaluates every node.
 */
export function* gangOf(
  { settings, view }: Pick<SchedulingSnapshot, "settings" | "view">,
  job: QueuedJob,
): Steps<GangRequest> {
  const { queues, defaultStrategy } = settings;
  return {
    shape: yield* view.shapes.ofInSteps(job.request),
    tasks: job.tasks,
    sameRack: job.sameRack,
    strategy: queues[job.queue]?.strategy ?? defaultStrategy,
    shared: job.shared,
  };
}
