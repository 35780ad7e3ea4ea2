import { globSync } from "node:fs";
import { relative } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import LONG_TESTS from "./long-tests.json" with { type: "json" };

const REST = "";
/** The slow files that `npm test` runs, and the long one that CI must: one that begins last would run alone. */
const SLOW = [
  "libs/simulation/src/simulation.test.ts",
  "tools/nx.test.ts",
  "tools/tidy.test.ts",
  "apps/master/src/run-master.test.ts",
  "libs/auth/src/limits/redis/redis-limits.test.ts",
  "apps/master/src/acceptance/models/stage-workers.test.ts",
  "apps/master/src/acceptance/models/continued-answers.test.ts",
  "apps/master/src/console/session/session.test.ts",
  "libs/engines/src/llama/parent/engine-child.test.ts",
  "apps/console/src/session/provider-session.test.ts",
  "apps/cli/src/up/whole-cluster.test.ts",
  "apps/worker/src/logs/full-disk.test.ts",
  "apps/master/src/acceptance/api/openai-sdk.test.ts",
  "apps/cli/src/main.test.ts",
  "apps/cli/src/up/up-training.test.ts",
  "apps/parameter-server/src/parameter-server.test.ts",
  "apps/master/src/api/jobs/jobs.controller.test.ts",
  "libs/engines/src/grammar/schema-grammar.test.ts",
  "libs/engines/src/llama/parent/smollm.test.ts",
  "tools/docs/pages.test.ts",
];
const UNTIL_S = process.env["HEDDLE_TESTS_UNTIL"];
/**
 * The long tests take more than about ten seconds of CPU each. What may be left out begins last, and each
 * run begins with another of them: so none is left out by all runs.
 */
const ORDER =
  UNTIL_S === undefined
    ? [...LONG_TESTS, ...SLOW, REST]
    : [...SLOW, REST, ...rotated(LONG_TESTS, Number(UNTIL_S) % LONG_TESTS.length)];

function rotated(list: readonly string[], start: number): string[] {
  return [...list.slice(start), ...list.slice(0, start)];
}

/** Files that may share a process with others, which loads modules once; they leave nothing behind in it. */
const TOGETHER = [
  "apps/*/src/**/*.test.ts",
  "bench/**/*.test.ts",
  "tools/{docs,mutation}/**/*.test.ts",
  "tools/{launch,programs,proto-types,setup,summarize-tests}.test.ts",
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
