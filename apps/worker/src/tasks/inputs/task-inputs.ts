import { chmod, mkdir, readFile, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { removeBeneath } from "@heddle/base/beneath";
import { AppError, toAppError } from "@heddle/base/errors";
import {
  type JobCondition,
  jobConditions,
  SKIPPED,
} from "@heddle/contracts/api/pipelines/job-inputs";
import type { TaskInput__Output } from "@heddle/contracts/generated/heddle/v1/TaskInput";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";
import { pullWeights } from "@heddle/engines/weights/pull-weights";
import type { ArtifactStore } from "../../artifacts/artifact-store.ts";
import type { PullAccess } from "../../artifacts/object-source.ts";
import type { TaskDirectory } from "../../records/task-directory.ts";
import type { TaskPlan } from "../../records/task-plan.ts";
import type { DiskFault } from "../disk-fault.ts";
import { LaunchError } from "../executors/executor.ts";

const RUN_AGAIN =
  "Submit the pipeline with `reuse: false`, or run that job again; workers keep artifacts longer with --artifacts-hours and --artifacts-mib";
/** A larger file is no value for a condition. */
const MAX_VALUE_BYTES = 1_048_576;

/** How a worker has what tasks start with. */
export interface InputSources extends PullAccess {
  readonly readArtifact: ArtifactBytes;
}

/** What tasks leave, and what they start with. */
export interface TaskFiles {
  readonly artifacts: ArtifactStore;
  readonly inputs: InputSources;
  /** Whether they can be written. */
  readonly disk: DiskFault;
}

/** The environment of a program with inputs. */
export function withInputs<T extends object>(environment: T, { spec }: TaskPlan, folder: string) {
  return spec.inputs?.length ? { ...environment, HEDDLE_INPUT_DIR: folder } : environment;
}

/**
 * Brings the inputs of a task into its folder, each verified by its digest. Resolves with why the
 * task is skipped, or with undefined where it is to run. Rejects with a LaunchError.
 */
export async function bringInputs(
  { id, spec }: TaskPlan,
  directory: TaskDirectory,
  sources: InputSources,
  signal: AbortSignal,
): Promise<string | undefined> {
  const inputs = spec.inputs ?? [];
  const missing = inputs.find(({ skipped }) => skipped);
  if (missing) return `${SKIPPED}its input ${missing.name} is of a job that was skipped`;
  if (inputs.length > 0) await mkdir(directory.inputs, { recursive: true, mode: 0o755 });
  for (const input of inputs) await bring(input, id.jobId, directory, sources, signal);
  const conditions = jobConditions.parse(JSON.parse(spec.when || "[]"));
  for (const condition of conditions) {
    const fault = await unmet(condition, directory.inputs);
    if (fault !== undefined) return `${SKIPPED}${fault}`;
  }
  return undefined;
}

async function bring(
  { name, source, sha256, bytes }: TaskInput__Output,
  jobId: string,
  directory: TaskDirectory,
  sources: InputSources,
  signal: AbortSignal,
): Promise<void> {
  if (source === "") {
    const message = `its input ${name} is not there: the job that should have left it has no such artifact any more. ${RUN_AGAIN}`;
    throw new LaunchError("Unsatisfiable", message);
  }
  const pulled = join(directory.path, "pulled");
  // A file of weights has such a name; its content may be any.
  const file = "input.gguf";
  const weights = { key: jobId.toLowerCase(), file, sources: [source], sha256, sizeBytes: bytes };
  try {
    const path = await pullWeights(bytes > 0 ? weights : { ...weights, sizeBytes: undefined }, {
      allowedHosts: sources.allowedHosts,
      readers: { artifact: sources.readArtifact, object: sources.readObject },
      cacheDirectory: pulled,
      signal,
    });
    // The user of an image may be any; the folder around has the mode that keeps others out.
    await chmod(path, 0o644);
    await rename(path, join(directory.inputs, name));
  } catch (error) {
    signal.throwIfAborted();
    const { message, code } = toAppError(error);
    if (isGone(error)) {
      const gone = `its input ${name} is gone: its worker has removed ${source}. ${RUN_AGAIN}`;
      throw new LaunchError("Unsatisfiable", gone, error);
    }
    const reason = code === "unavailable" ? "LaunchFailed" : "Unsatisfiable";
    throw new LaunchError(reason, `its input ${name} could not be had: ${message}`, error);
  } finally {
    await removeBeneath(directory.root, `${directory.name}/pulled`);
  }
}

/** Artifacts have an age and a room: the error of their worker is below that of the pull. */
function isGone(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof AppError && at.code === "not_found") return true;
  }
  return false;
}

/** Why the condition does not hold. */
async function unmet(condition: JobCondition, folder: string): Promise<string | undefined> {
  const { input, field, at_least: least, at_most: most, equals } = condition;
  const what = field === undefined ? input : `${field} of ${input}`;
  const value = await valueIn(condition, folder);
  if (equals !== undefined && String(value) !== String(equals)) {
    return `${what} is ${shown(value)}, not ${equals}`;
  }
  if (least === undefined && most === undefined) return undefined;
  const number = typeof value === "number" ? value : Number.parseFloat(String(value));
  if (least !== undefined && !(number >= least))
    return `${what} is ${shown(value)}, below ${least}`;
  if (most !== undefined && !(number <= most)) return `${what} is ${shown(value)}, above ${most}`;
  return undefined;
}

/** The text of the input, or a field of its JSON object. */
async function valueIn({ input, field }: JobCondition, folder: string): Promise<unknown> {
  const path = join(folder, input);
  const { size } = await stat(path);
  if (size > MAX_VALUE_BYTES) {
    const message = `its condition reads ${input}, which has more than ${MAX_VALUE_BYTES} bytes`;
    throw new LaunchError("Unsatisfiable", message);
  }
  const text = (await readFile(path, "utf8")).trim();
  if (field === undefined) return text;
  try {
    return (JSON.parse(text) as Readonly<Record<string, unknown>>)[field];
  } catch (error) {
    const message = `its condition reads the field ${field} of ${input}, which is not a JSON object`;
    throw new LaunchError("Unsatisfiable", message, error);
  }
}

function shown(value: unknown): string {
  return value === undefined ? "missing" : String(value).slice(0, 100);
}
