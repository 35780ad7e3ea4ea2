import { globSync } from "node:fs";
import { relative } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import LONG_TESTS from "./long-tests.json" with { type: "json" };

const REST = "";
/** Of the files of every run, those that take longest: one that begins last would run alone. */
const SLOW = [
  "apps/trainer/src/run/trainer.test.ts",
  "apps/master/src/orchestration/tasks-end-to-end.test.ts",
  "apps/worker/src/tasks/processes/process-tasks.test.ts",
  "apps/master/src/acceptance/jobs/training-jobs.test.ts",
  "apps/master/src/inference/dispatch/inference-dispatch.test.ts",
  "apps/console/src/console.test.ts",
  "apps/master/src/control-plane/raft/master-group.test.ts",
  "apps/cli/src/up/run-up.test.ts",
  "apps/master/src/acceptance/api/batches-sdk.test.ts",
  "libs/engines/src/llama/parent/smollm.test.ts",
  "apps/master/src/acceptance/models/sharded-models.test.ts",
  "apps/master/src/acceptance/api/openai-sdk.test.ts",
  "apps/master/src/acceptance/masters/responses-masters.test.ts",
  "tools/docs/pages.test.ts",
  "apps/cli/src/main.test.ts",
  "apps/master/src/run-master.test.ts",
  "apps/cli/src/up/whole-cluster.test.ts",
  "tools/release/release.test.ts",
  "tools/nx.test.ts",
  "tools/tidy.test.ts",
];
/** The long tests take more than about ten seconds of CPU each. What may be left out begins last. */
const ORDER =
  process.env["HEDDLE_TESTS_UNTIL"] === undefined
    ? [...LONG_TESTS, ...SLOW, REST]
    : [...SLOW, REST, ...LONG_TESTS];

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

/** The slow files first, then those that have a process of their own, then the rest; large ones first. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { root } = this.ctx.config;
    const placeOf = ({ moduleId }: TestSpecification) => {
      const place = ORDER.indexOf(relative(root, moduleId));
      return place < 0 ? ORDER.indexOf(REST) : place;
    };
    return (await super.sort(files)).toSorted((a, b) => placeOf(a) - placeOf(b));
  }
}
