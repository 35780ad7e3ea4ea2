/** Code that is held by mutation testing, and the tests that are to kill its mutants. */
export interface MutationTarget {
  /** Its directory. */
  readonly name: string;
  readonly tests: readonly string[];
  /** Settings of tests that take long. */
  readonly env?: Readonly<Record<string, string>>;
}

export const TARGETS: readonly MutationTarget[] = [
  { ...library("raft"), env: { HEDDLE_RAFT_SEEDS: "3" } },
  // Without the members' transport and thread, whose tests open connections and processes.
  ...["proposals", "replica", "snapshots"].map((room) => ({
    name: `libs/consensus/src/${room}`,
    tests: ["libs/consensus/src/{proposals,replica,snapshots}/**/*.test.ts"],
  })),
  library("storage"),
  // Programs are written as ONNX models, which the runtime of another package reads.
  {
    name: "libs/training",
    tests: ["libs/training/src/**/*.test.ts", "libs/backends/src/conformance.test.ts"],
  },
  // Changes of a spec are tried by the scheduler, which the master joins to the state.
  {
    name: "libs/control",
    tests: ["libs/control/src/**/*.test.ts", "apps/master/src/api/jobs/spec-changes.test.ts"],
    env: { HEDDLE_PROPERTY_RUNS: "12" },
  },
  { ...library("scheduler"), env: { HEDDLE_PROPERTY_RUNS: "12" } },
  // The client of the parameter servers is tested with real servers, but for those that are processes.
  {
    name: "libs/parameters",
    tests: [
      "libs/parameters/src/**/*.test.ts",
      "apps/parameter-server/src/{refusals,node-group,pull-compression,consistency,elastic,exchanges,lagging-shard}.test.ts",
    ],
  },
  library("auth"),
  // Not those with workers and engines, which take minutes for what the others hold in seconds.
  {
    name: "apps/master/src/inference/dispatch",
    tests: ["apps/master/src/inference/dispatch/!(inference-dispatch).test.ts"],
  },
];

/** Throws an Error that names all targets. */
export function targetOf(name: string): MutationTarget {
  const target = TARGETS.find((each) => each.name === name);
  if (target) return target;
  const all = TARGETS.map((each) => each.name).join(", ");
  throw new Error(`there is no package "${name}": use one of ${all}`);
}

function library(name: string): MutationTarget {
  return { name: `libs/${name}`, tests: [`libs/${name}/src/**/*.test.ts`] };
}
