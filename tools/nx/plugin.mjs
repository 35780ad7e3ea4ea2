// The targets of every package, inferred from where it is: no package.json lists them.
import { dirname } from "node:path/posix";
import { reportOf } from "./reports.mjs";

const BUILD = {
  executor: "./tools/nx:build",
  cache: true,
  dependsOn: ["^build"],
  inputs: ["default", "^default", "toolchain"],
  outputs: ["{projectRoot}/dist"],
};

/** Tests of an app start the other apps' programs too; the tools' tests read the whole repository. */
const TEST_INPUTS = {
  libs: ["default", "^default", "{workspaceRoot}/proto/**/*"],
  apps: ["{workspaceRoot}/{apps,libs,proto,examples,bin,docs}/**/*"],
  bench: ["{workspaceRoot}/{apps,libs,proto,bench}/**/*"],
  tools: ["{workspaceRoot}/**/*"],
};

/** Variables that select what tests run: a result holds for their values alone. */
export const TEST_ENVIRONMENT = [
  "HEDDLE_ARTIFACT_DIR",
  "HEDDLE_CHROMIUM",
  "HEDDLE_DATA",
  "HEDDLE_DEMO_WEIGHTS",
  "HEDDLE_FAULT_MINUTES",
  "HEDDLE_FAULT_SEED",
  "HEDDLE_FUZZ_REQUESTS",
  "HEDDLE_FUZZ_SEED",
  "HEDDLE_IMAGE_BUILDS",
  "HEDDLE_KEYCLOAK",
  "HEDDLE_KUBECONFIG",
  "HEDDLE_KUBE_AUDIT_LOG",
  "HEDDLE_KUBE_IMAGES",
  "HEDDLE_KUBE_OUTAGE_SECONDS",
  "HEDDLE_KUBE_PREVIOUS",
  "HEDDLE_KUBE_RIG",
  "HEDDLE_KUEUE_DEFINITIONS",
  "HEDDLE_LLAMA_SERVER",
  "HEDDLE_NATS_SERVER",
  "HEDDLE_PROPERTY_RUNS",
  "HEDDLE_PROPERTY_SEED",
  "HEDDLE_PYTHON",
  "HEDDLE_RAFT_SEED",
  "HEDDLE_RAFT_SEEDS",
  "HEDDLE_REDIS_SERVER",
  "HEDDLE_SIMULATION_SEED",
  "HEDDLE_SIMULATION_SEEDS",
  "HEDDLE_LARGE_MODEL",
  "HEDDLE_CLUSTER_SEED",
  "HEDDLE_CLUSTER_SEEDS",
  "HEDDLE_SOAK_JOBS",
  "HEDDLE_SOAK_SHARDS",
  "HEDDLE_SOAK_TASKS",
  "HEDDLE_TESTS",
  "HEDDLE_TESTS_UNTIL",
  "HEDDLE_TEST_DATA",
  "HEDDLE_TURN_NODES",
];

function testTarget(folder) {
  const kind = folder.split("/")[0];
  return {
    executor: "./tools/nx:test",
    cache: true,
    inputs: [...TEST_INPUTS[kind], "toolchain", ...TEST_ENVIRONMENT.map((env) => ({ env }))],
    outputs: [`{workspaceRoot}/${reportOf(folder)}`],
  };
}

function command(line, inputs) {
  const options = { command: line, cwd: "{workspaceRoot}" };
  return { executor: "nx:run-commands", cache: true, inputs, options };
}

function packageProject(file) {
  const folder = dirname(file);
  return { [folder]: { targets: { build: BUILD, test: testTarget(folder) } } };
}

function rootProjects() {
  const everything = ["{workspaceRoot}/**/*"];
  const check = command("tsc -p tsconfig.checks.json", everything);
  return {
    tools: { name: "tools", targets: { test: testTarget("tools") } },
    bench: { name: "bench", targets: { test: testTarget("bench") } },
    ".": {
      name: "heddle",
      targets: {
        lint: command("biome check .", everything),
        typecheck: { ...check, dependsOn: [{ projects: "*", target: "build" }] },
      },
    },
  };
}

export const createNodesV2 = [
  "{nx.json,{apps,libs}/*/package.json}",
  (files) =>
    files.map((file) => {
      const projects = file === "nx.json" ? rootProjects() : packageProject(file);
      return [file, { projects }];
    }),
];
