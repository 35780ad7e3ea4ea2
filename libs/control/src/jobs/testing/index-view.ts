import type { JobIndex } from "../index/job-index.ts";
import type { JobsState } from "../records/records.ts";
import { SERVING_PROJECT } from "../records/task-request.ts";

/** What an index says of a state, to compare indexes that were built in different ways. */
export function indexView(index: JobIndex, { jobs, nodes, projects }: JobsState): object {
  const { holdings } = index;
  const keys = (names: Iterable<string>) => [...names].sort();
  const sets = (map: ReadonlyMap<string, Iterable<unknown>>) =>
    [...map].map(([key, values]) => [key, [...values].sort()] as const).sort(byKey);
  const held = [...projects.keys(), SERVING_PROJECT].map((project) => [
    project,
    holdings.gpuMilli(project),
    keys(holdings.jobs(project)),
  ]);
  return {
    held: [holdings.size, holdings.sharedStorageMb, ...held],
    servingNodes: keys(index.servingNodes),
    replicasByNode: sets(index.replicasByNode),
    submitted: [...index.submitted.newestBefore()],
    live: [...index.live],
    byName: [...index.byName].sort(byKey),
    dependents: sets(index.dependents),
    tasksByNode: sets(index.tasksByNode),
    counts: [index.liveTasks, index.placedJobs],
    dues: [...index.dues].sort(byKey),
    suspected: keys(index.suspected),
    shardsByServer: sets(index.shardsByServer),
    unregistered: keys(index.unregistered),
    queueLengths: [...index.queueLengths].sort(byKey),
    ended: index.ended.map(({ id }) => id),
    ranked: keys(index.ranked),
    storage: keys(index.storage.projects).map((name) => [name, index.storage.useOf(name)]),
    requests: [...jobs.values()].map((job) => index.requestOf(job)),
    snapshots: [...nodes.values()].map((node) => index.snapshotOf(node)),
  };
}

function byKey([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number {
  return left < right ? -1 : 1;
}
