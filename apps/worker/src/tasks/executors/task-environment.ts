import { isTrainerVariable } from "@heddle/contracts/trainer-environment";
import type { TaskPlan } from "../../records/task-plan.ts";

/** The variables of this worker's environment that a task inherits; others may be secrets. */
export const INHERITED: readonly string[] = [
  "PATH",
  "HOME",
  "USER",
  "LANG",
  "LC_ALL",
  "TZ",
  "SHELL",
  "LD_LIBRARY_PATH",
];
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export interface EnvironmentFacts {
  readonly plan: TaskPlan;
  readonly nodeName: string;
  /** `host:port` by rank. */
  readonly peers: readonly string[];
  readonly checkpointDirectory: string;
  readonly progressFile: string;
  readonly artifactDirectory: string;
  /** The file of hyperparameters, if the job names an algorithm. */
  readonly configFile: string;
  /** The node's devices; simulated ones are never exposed to CUDA. */
  readonly gpus: readonly { readonly index: number; readonly simulated: boolean }[];
  readonly own: NodeJS.ProcessEnv;
  /** The job's variables whose values are secrets. */
  readonly secretVariables: Readonly<Record<string, string>>;
  /** What names the task's span; empty where traces are off. */
  readonly trace?: Readonly<Record<string, string>>;
}

/** The environment of a task: inherited variables, then the job's own, then the worker's. */
export function taskEnvironment(facts: EnvironmentFacts): Record<string, string> {
  const { plan, peers, own } = facts;
  const { spec, id } = plan;
  const inherited = INHERITED.flatMap((name) => {
    const value = own[name] ?? (name === "PATH" ? DEFAULT_PATH : undefined);
    return value === undefined ? [] : [[name, value]];
  });
  const [host, port] = splitAddress(peers[0] ?? "");
  return {
    ...Object.fromEntries(inherited),
    ...jobVariables(spec, facts.secretVariables),
    ...facts.trace,
    HEDDLE_JOB_ID: id.jobId,
    HEDDLE_JOB_NAME: spec.jobName,
    HEDDLE_PROJECT: spec.project,
    HEDDLE_ATTEMPT: String(id.attempt),
    HEDDLE_RANK: String(id.rank),
    HEDDLE_TASKS: String(spec.tasks),
    HEDDLE_NODE: facts.nodeName,
    HEDDLE_PEERS: peers.join(","),
    HEDDLE_RENDEZVOUS: peers[0] ?? "",
    HEDDLE_CHECKPOINT_DIR: facts.checkpointDirectory,
    HEDDLE_RESUME_FROM: spec.resumeFrom,
    HEDDLE_PROGRESS_FILE: facts.progressFile,
    HEDDLE_ARTIFACT_DIR: facts.artifactDirectory,
    ...(spec.algorithm !== "" && {
      HEDDLE_ALGORITHM: spec.algorithm,
      HEDDLE_CONFIG_FILE: facts.configFile,
    }),
    RANK: String(id.rank),
    WORLD_SIZE: String(spec.tasks),
    // A task sees only its own devices, so that its local rank is 0.
    LOCAL_RANK: "0",
    MASTER_ADDR: host,
    MASTER_PORT: port,
    ...gpuEnvironment(facts),
  };
}

/**
 * The trainer gets only permitted variables: submission refuses others, but an old log may have
 * some.
 */
function jobVariables(
  { executor, environment }: TaskPlan["spec"],
  secrets: Readonly<Record<string, string>>,
): Record<string, string> {
  const all = { ...environment, ...secrets };
  if (executor !== "training") return all;
  return Object.fromEntries(Object.entries(all).filter(([name]) => isTrainerVariable(name)));
}

function gpuEnvironment({ plan, gpus }: EnvironmentFacts): Record<string, string> {
  const devices = plan.devices.join(",");
  const own = {
    HEDDLE_GPUS: devices,
    ...(plan.gpuMilli % 1_000 !== 0 && { HEDDLE_GPU_SHARE: String(plan.gpuMilli / 1_000) }),
  };
  if (gpus.length === 0) return own;
  if (gpus.some(({ simulated }) => simulated)) return { ...own, HEDDLE_GPUS_SIMULATED: "1" };
  // The order of nvidia-smi, which counts by bus; without devices the empty list hides them all.
  return { ...own, CUDA_DEVICE_ORDER: "PCI_BUS_ID", CUDA_VISIBLE_DEVICES: devices };
}

function splitAddress(address: string): [host: string, port: string] {
  const colon = address.lastIndexOf(":");
  if (colon < 0) return ["", ""];
  return [address.slice(0, colon).replace(/^\[|\]$/g, ""), address.slice(colon + 1)];
}
