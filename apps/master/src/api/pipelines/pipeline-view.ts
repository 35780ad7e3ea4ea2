import type { JobSummary } from "@heddle/contracts/api/job-replies";
import {
  type Block,
  blockId,
  type InputPort,
  type OutputPort,
} from "@heddle/contracts/api/pipelines/blocks";
import type {
  BlockView,
  PipelineJob,
  PipelineSummary,
  PipelineView,
} from "@heddle/contracts/api/pipelines/operations";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import type { ControlState } from "@heddle/control/state";
import { z } from "zod";
import { isSkipped, lastTasks } from "../../orchestration/tasks/input-orders.ts";
import type { PlannedJob } from "./plan.ts";
import type { StoredJob, StoredPlan } from "./stored-plan.ts";

/** Labels of a pipeline's jobs. */
export const LABELS = {
  pipeline: "heddle/pipeline",
  name: "heddle/pipeline-name",
  step: "heddle/step",
  key: "heddle/step-key",
} as const;

type State = Pick<ControlState, "jobs" | "tasks">;

export function viewPipeline(
  state: State,
  root: JobRecord,
  { name, jobs }: StoredPlan,
): PipelineView {
  return {
    id: root.id,
    object: "pipeline",
    name,
    project: root.project,
    state: root.state,
    submitted_at: timeOf(root.submittedAtMs),
    ended_at: root.endedAtMs === undefined ? null : timeOf(root.endedAtMs),
    jobs: jobs.map((each) => viewStored(state, root, each)),
  };
}

function viewStored(state: State, root: JobRecord, stored: StoredJob): PipelineJob {
  const { shard, job, ...rest } = stored;
  const record = state.jobs.get(job);
  // Anyone may submit a job that names others' jobs in its config.
  const own = record?.project === root.project ? record : undefined;
  const skipped = own?.state === "succeeded" && lastTasks(state, job).find(isSkipped);
  const message = skipped ? skipped.exit?.message : own?.failure?.message;
  return {
    ...rest,
    shard: shard ?? null,
    job,
    state: own?.state ?? null,
    skipped: Boolean(skipped),
    message: message ?? null,
  };
}

/** A pipeline that was not submitted. */
export function viewPlanned(
  name: string,
  project: string,
  jobs: readonly (PlannedJob & { readonly reused?: string })[],
): PipelineView {
  return {
    id: "",
    object: "pipeline",
    name,
    project,
    state: "accepted",
    submitted_at: timeOf(Date.now()),
    ended_at: null,
    jobs: jobs.map(({ step, shard, block, key, needs, reused }) => ({
      step,
      shard: shard ?? null,
      block,
      key,
      job: reused ?? null,
      state: null,
      reused: reused !== undefined,
      skipped: false,
      needs: [...needs],
      message: null,
    })),
  };
}

/** The job of a pipeline as the pipeline's line in a list. */
export function viewSummary(job: JobSummary): PipelineSummary {
  const { id, project, state, submitted_at, ended_at, labels } = job;
  const name = labels[LABELS.name] ?? job.name;
  return { id, object: "pipeline", name, project, state, submitted_at, ended_at };
}

export function viewBlock(block: Block): BlockView {
  const { $schema: _, ...config } = z.toJSONSchema(block.config, {
    io: "input",
    unrepresentable: "any",
  });
  const outputs = block.outputs({ outputs: {} } as never);
  return {
    id: blockId(block),
    object: "block",
    summary: block.summary,
    ...viewPorts(block.inputs, outputs),
    config,
  };
}

export function viewPorts(
  inputs: Readonly<Record<string, InputPort>>,
  outputs: Readonly<Record<string, OutputPort>>,
) {
  return {
    inputs: Object.entries(inputs).map(([name, port]) => ({ name, ...port })),
    outputs: Object.entries(outputs).map(([name, { type }]) => ({ name, type })),
  };
}

function timeOf(ms: number): string {
  return new Date(ms).toISOString();
}
