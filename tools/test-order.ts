import { globSync } from "node:fs";
import { relative } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that take longest, longest first: one that begins last would run alone. */
const LONG = [
  "apps/trainer/src/run/trainer-faults.test.ts",
  "apps/master/src/acceptance/masters/secrets-at-rest.test.ts",
  "apps/trainer/src/run/trainer.test.ts",
  "tools/installed-package.test.ts",
  "apps/master/src/acceptance/masters/runbooks-live.test.ts",
  "apps/master/src/inference/dispatch/inference-dispatch.test.ts",
  "apps/master/src/acceptance/masters/runbooks.test.ts",
  "apps/master/src/nodes/cluster-link.test.ts",
  "apps/worker/src/tasks/processes/training-executor.test.ts",
  "apps/master/src/acceptance/masters/disk-faults.test.ts",
  "apps/master/src/acceptance/masters/rolling-upgrade.test.ts",
  "apps/parameter-server/src/parameter-server.test.ts",
  "apps/master/src/control-plane/raft/master-group.test.ts",
  "apps/master/src/acceptance/jobs/training-jobs.test.ts",
  "libs/simulation/src/simulation.test.ts",
  "libs/engines/src/llama/parent/llama-scheduling.test.ts",
  "apps/parameter-server/src/faults.test.ts",
  "apps/parameter-server/src/consistency.test.ts",
  "apps/master/src/acceptance/masters/state-memory.test.ts",
  "libs/engines/src/llama/parent/smollm.test.ts",
  "apps/master/src/acceptance/jobs/elastic-nodes.test.ts",
  "apps/master/src/acceptance/api/client-stream.test.ts",
  "apps/master/src/orchestration/tasks-end-to-end.test.ts",
  "libs/control/src/jobs/commands/lifecycle-invariants.test.ts",
  "apps/master/src/acceptance/masters/master-faults.test.ts",
  "apps/master/src/acceptance/masters/node-tls.test.ts",
  "apps/trainer/src/run/lost-shards.test.ts",
  "apps/master/src/acceptance/masters/membership-changes.test.ts",
  "apps/master/src/offline/offline-command.test.ts",
  "apps/cli/src/up/run-up.test.ts",
  "apps/master/src/acceptance/masters/partitions.test.ts",
  "apps/master/src/orchestration/job-faults.test.ts",
  "apps/master/src/orchestration/replaced-tasks.test.ts",
  "apps/trainer/src/run/elastic.test.ts",
  "apps/worker/src/tasks/processes/process-tasks.test.ts",
  "apps/master/src/acceptance/jobs/jobs-command-line.test.ts",
  "apps/cli/src/main.test.ts",
  "tools/documented-commands.test.ts",
  "apps/cli/src/up/up-masters.test.ts",
  "apps/cli/src/up/up-tls.test.ts",
  "apps/cli/src/up/whole-cluster.test.ts",
  "apps/trainer/src/export/full-disk-at-export.test.ts",
  "apps/trainer/src/plans/weave/weave-bar.test.ts",
  "apps/master/src/run-master.test.ts",
  "apps/master/src/orchestration/job-group.test.ts",
  "apps/master/src/orchestration/task-fields.test.ts",
  "apps/master/src/acceptance/masters/faults.test.ts",
  "apps/master/src/acceptance/masters/load.test.ts",
  "apps/master/src/control-plane/raft/raft-control-plane.test.ts",
  "libs/consensus/src/transport/raft-tls.test.ts",
  "libs/node-agent/src/mutual-tls.test.ts",
  "apps/master/src/acceptance/jobs/train-to-serve.test.ts",
  "apps/master/src/acceptance/jobs/trainer-crashes.test.ts",
  "apps/parameter-server/src/refusals.test.ts",
  "libs/engines/src/llama/parent/engine-child.test.ts",
];

/** Files that may share a process with others, which loads modules once; they leave nothing behind in it. */
const TOGETHER = [
  "apps/*/src/**/*.test.ts",
  "bench/**/*.test.ts",
  "tools/{docs,mutation}/**/*.test.ts",
  "tools/{launch,programs,proto-types,raft-script,setup,summarize-tests}.test.ts",
  "libs/{auth,base,client,consensus,contracts,control,event-store,kernels,node-agent}/src/**/*.test.ts",
  // Native libraries, as llama's, are loaded once in a process.
  "libs/engines/src/!(llama)/**/*.test.ts",
  "libs/{observability,parameters,raft,rpc,scheduler,simulation,storage,training}/src/**/*.test.ts",
];

/** The files that share a process with others, as paths from the repository's root. */
export function filesRunTogether(root: string): string[] {
  return globSync(TOGETHER, { cwd: root });
}

/** The long files first, then those that have a process of their own, then the rest; large ones first. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { root } = this.ctx.config;
    const placeOf = ({ moduleId }: TestSpecification) => {
      const place = LONG.indexOf(relative(root, moduleId));
      return place < 0 ? LONG.length : place;
    };
    return (await super.sort(files)).toSorted((a, b) => placeOf(a) - placeOf(b));
  }
}
