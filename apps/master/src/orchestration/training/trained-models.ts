import type { Clock } from "@heddle/base/clock";
import { AppError, ERROR_TABLE, toAppError } from "@heddle/base/errors";
import { RECORDS_EVENTS, versionOf } from "@heddle/control/cluster-version";
import { MODEL_ARTIFACT, registrationOf } from "@heddle/control/jobs/records/model-registration";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import type { DeploymentRecord, ModelLineageRecord, ModelRecord } from "@heddle/control/state";
import type { Log } from "@heddle/observability/logger";
import { z } from "zod";
import { keyOfProject, weightsKeyOf } from "../../control-plane/catalog/registration.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import { DEFAULT_PROJECT } from "../../http/limits/call-reservation.ts";
import type { ArtifactReader, KnownArtifact } from "../../task-output/artifact-reader.ts";

const LINEAGE_ARTIFACT = "lineage.json";
const MAX_LINEAGE_BYTES = 4 * 1024 * 1024;
/** The retry interval for an unreachable worker, and the time after the job's end for retries. */
const AGAIN_MS = 5_000;
const GIVE_UP_MS = 3_600_000;
const READ_TIMEOUT_MS = 20_000;
/** If neither the job nor its lineage sets it. */
const DEFAULT_CONTEXT_TOKENS = 4_096;

export interface TrainedModelsOptions {
  readonly control: ControlPlane;
  readonly artifacts: ArtifactReader;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The leader's step that registers trained models: the artifact `model.gguf` of each succeeded job
 * that sets `config.register_as`. Both log entries are idempotent, so a new leader just continues.
 * Returns the time of the next check.
 */
export async function registerTrainedModels(
  options: TrainedModelsOptions,
): Promise<number | undefined> {
  const { control, clock } = options;
  let isWaiting = false;
  for (const id of [...control.jobs.unregistered]) {
    const job = control.state.jobs.get(id);
    if (job && !(await settle(options, job))) isWaiting = true;
  }
  return isWaiting ? clock.wallMs() + AGAIN_MS : undefined;
}

/** Whether the outcome for the job's model is recorded. */
async function settle(options: TrainedModelsOptions, job: JobRecord): Promise<boolean> {
  const { control, clock, log } = options;
  const wanted = registrationOf(control.state.specs.get(job.id)!);
  if (!wanted) return true;
  const { modelId } = wanted;
  let fault: string | undefined;
  try {
    const records = await recordsOf(options, job, modelId);
    const atMs = clock.wallMs();
    const { replaces } = wanted;
    await propose(control, { type: "model.register", atMs, ...records, replaces });
  } catch (error) {
    const { code, message } = toAppError(error);
    const isYoung = clock.wallMs() - (job.endedAtMs ?? 0) < GIVE_UP_MS;
    log.warn({ job: job.id, model: modelId, error: message }, "a trained model is not registered");
    if (ERROR_TABLE[code].retryable && isYoung) return false;
    fault = message;
  }
  const atMs = clock.wallMs();
  await propose(control, { type: "job.registered", atMs, jobId: job.id, modelId, fault });
  if (fault === undefined)
    log.info({ job: job.id, model: modelId }, "a trained model is registered");
  return true;
}

async function recordsOf(
  { control, artifacts }: TrainedModelsOptions,
  job: JobRecord,
  modelId: string,
): Promise<{ model: ModelRecord; deployment: DeploymentRecord }> {
  const spec = control.state.specs.get(job.id)!;
  const known = artifacts.find(job.id, MODEL_ARTIFACT);
  const recorded = await readLineage(artifacts, job.id);
  const { sha256 } = known.artifact;
  const lineage: ModelLineageRecord = {
    jobId: job.id,
    jobName: job.name,
    project: job.project,
    attempt: job.attempt,
    algorithm: spec.algorithm ?? "",
    sha256,
    ...(recorded?.data && { dataSha256: recorded.data.sha256 }),
    ...(recorded?.code_version !== undefined && { codeVersion: recorded.code_version }),
    ...(recorded?.step !== undefined && { step: recorded.step }),
    ...(typeof recorded?.loss === "number" && { loss: recorded.loss }),
  };
  const { context_length: given } = { ...recorded?.config, ...spec.config };
  const contextWindow = typeof given === "number" ? given : DEFAULT_CONTEXT_TOKENS;
  const isOfProject = job.project !== DEFAULT_PROJECT && versionOf(control.state) >= RECORDS_EVENTS;
  const key = isOfProject
    ? keyOfProject(job.project, modelId, sha256)
    : `${weightsKeyOf(modelId).slice(0, 100)}-${sha256.slice(0, 12)}`;
  const deployment = deploymentOf(known, key, contextWindow);
  const model: ModelRecord = {
    id: modelId,
    family: "trained",
    contextWindow,
    availability: "Private",
    intendedUse: `What the job ${job.name} has trained.`,
    ownedBy: job.project,
    capabilities: ["chat"],
    deployment: key,
    backing: `${MODEL_ARTIFACT} of the job ${job.name} (${job.id})`,
    standIn: false,
    ...(isOfProject && { project: job.project }),
    createdAtMs: job.endedAtMs ?? job.submittedAtMs,
    lineage,
  };
  return { model, deployment };
}

/** One replica on any worker, which fetches the file by its digest from the worker that has it. */
function deploymentOf(
  { task, artifact }: KnownArtifact,
  key: string,
  contextTokens: number,
): DeploymentRecord {
  const { name, bytes: sizeBytes, sha256 } = artifact;
  const source = `artifact://${task.jobId}/${task.attempt}/${task.rank}/${name}`;
  const weights = { key, file: MODEL_ARTIFACT, sources: [source], sha256, sizeBytes };
  const spec = { key, engine: "llama" as const, weights, options: { contextTokens } };
  return { replicas: 1, spec };
}

const lineageFile = z.looseObject({
  data: z.looseObject({ sha256: z.string().regex(/^[0-9a-f]{64}$/) }).optional(),
  code_version: z.string().max(128).optional(),
  step: z.number().optional(),
  loss: z.number().nullable().optional(),
  config: z.record(z.string(), z.unknown()).optional(),
});

/** The trainer's lineage; undefined if it is missing or malformed. */
async function readLineage(artifacts: ArtifactReader, jobId: string) {
  const known = artifacts.list(jobId).find(({ artifact }) => artifact.name === LINEAGE_ARTIFACT);
  if (!known || known.artifact.bytes > MAX_LINEAGE_BYTES) return undefined;
  const chunks: Buffer[] = [];
  const signal = AbortSignal.timeout(READ_TIMEOUT_MS);
  for await (const chunk of artifacts.read(known, { offset: 0, maxBytes: 0 }, signal)) {
    chunks.push(chunk);
  }
  try {
    return lineageFile.parse(JSON.parse(Buffer.concat(chunks).toString("utf8")));
  } catch (cause) {
    const message = `the artifact ${LINEAGE_ARTIFACT} is not what a trainer writes`;
    throw new AppError("unprocessable", message, { cause });
  }
}
