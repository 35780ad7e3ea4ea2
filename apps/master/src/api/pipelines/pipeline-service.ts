import { AppError, toAppError } from "@heddle/base/errors";
import { type SubmitJob, submitJobRequest } from "@heddle/contracts/api/job-spec";
import type { PipelineView } from "@heddle/contracts/api/pipelines/operations";
import { type PipelineSpec, pipelineRequest } from "@heddle/contracts/api/pipelines/spec";
import { settingValue } from "@heddle/contracts/api/settings";
import { RequestFaults, validate } from "@heddle/contracts/validation";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges } from "../../http/idempotent-changes.ts";
import { type Caller, requestCaller } from "../../http/identity/caller.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { jobOfCaller, noJob } from "../jobs/job-access.ts";
import { newJobId } from "../jobs/job-id.ts";
import { JobService } from "../jobs/job-service.ts";
import { PipelineBlocks } from "./pipeline-blocks.ts";
import { LABELS, viewPipeline, viewPlanned } from "./pipeline-view.ts";
import { type PlannedJob, planPipeline } from "./plan.ts";
import { PIPELINE, type StoredJob, storedPlan } from "./stored-plan.ts";

/** Artifacts are kept for a week: a reused job must still have its own when it is read. */
const MAX_REUSE_MS = 6 * 24 * 3_600_000;
/** The job that waits for all steps does nothing. */
const ROOT_RESOURCES = { cpu_cores: 0.01, memory_gb: 0.01 };

interface Planned {
  readonly spec: PipelineSpec;
  readonly project: string;
  readonly jobs: readonly (PlannedJob & {
    readonly checked: SubmitJob;
    readonly reused?: string;
  })[];
}

/**
 * Pipelines are jobs. There is one for each step and shard, which depends on those before it. One
 * more depends on all of them and has the plan in its config; its id is the pipeline's.
 */
export class PipelineService {
  readonly #control: ControlPlane;
  readonly #jobs: JobService;
  readonly #changes: IdempotentChanges;
  readonly #blocks: PipelineBlocks;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(JobService) jobs: JobService,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
    @Inject(PipelineBlocks) blocks: PipelineBlocks,
  ) {
    this.#control = control;
    this.#jobs = jobs;
    this.#changes = changes;
    this.#blocks = blocks;
  }

  /** Resolves when all its jobs are committed; after a refusal those before it are cancelled. */
  async submit(request: CallerRequest, reply: FastifyReply): Promise<PipelineView> {
    const submitted: string[] = [];
    const requested = async () => {
      const planned = await this.#plan(request, false);
      const atMs = Date.now();
      const id = newJobId(atMs);
      const stored = await this.#submitSteps(planned, id, submitted);
      const root = rootSpec(planned, id, stored);
      return { command: { type: "job.submit", atMs, jobId: id, spec: root } as const, answer: id };
    };
    try {
      return await this.#changes.make(request, reply, requested, (id) => this.#view(id));
    } catch (error) {
      await this.#cancelAll(submitted);
      throw error;
    }
  }

  /** What a submission would run, and what it would reuse. */
  async dryRun(request: CallerRequest): Promise<PipelineView> {
    const { spec, project, jobs } = await this.#plan(request, true);
    return viewPlanned(spec.name, project, jobs);
  }

  find(id: string, caller: Caller): PipelineView {
    jobOfCaller(this.#control.state, id, caller, "jobs:read");
    return this.#view(id);
  }

  async cancel(id: string, caller: Caller): Promise<PipelineView> {
    const { state } = this.#control;
    const { project } = jobOfCaller(state, id, caller, "jobs:cancel");
    const { jobs } = this.#stored(id);
    // Anyone may submit a job that names others' jobs in its config.
    const isOwn = (job: string) => state.jobs.get(job)?.project === project;
    const own = jobs.filter(({ job, reused }) => !reused && isOwn(job)).map(({ job }) => job);
    await this.#cancelAll([id, ...own]);
    return this.#view(id);
  }

  #stored(id: string) {
    const spec = this.#control.state.specs.get(id);
    const plan = spec?.algorithm === PIPELINE ? storedPlan.safeParse(spec.config).data : undefined;
    if (!plan) throw new AppError("not_found", `No pipeline has the id ${id}.`);
    return plan;
  }

  #view(id: string): PipelineView {
    const { state } = this.#control;
    const root = state.jobs.get(id);
    if (!root) throw noJob(id);
    return viewPipeline(state, root, this.#stored(id));
  }

  async #cancelAll(ids: readonly string[]): Promise<void> {
    for (const jobId of ids) {
      const job = this.#control.state.jobs.get(jobId);
      if (job && isTerminal(job.state)) continue;
      const command = { type: "job.request", atMs: Date.now(), jobId, request: "cancel" } as const;
      // It may have ended meanwhile, or never have been accepted.
      await propose(this.#control, command).catch((error: unknown) => {
        const { code } = toAppError(error);
        if (code !== "conflict" && code !== "not_found" && code !== "unprocessable") throw error;
      });
    }
  }

  /** Checks the pipeline and each of its jobs as for a submission. Throws with all faults. */
  async #plan(request: CallerRequest, isDryRun: boolean): Promise<Planned> {
    const body = request.body as Buffer;
    const maxBytes = settingValue(this.#control.state.settings, "job_spec_kib") * 1_024;
    if (body.length > maxBytes) {
      const message = `The body has ${body.length} bytes, and a pipeline's may have ${maxBytes}, as a job's.`;
      throw new AppError("request_too_large", message);
    }
    const spec = validate(pipelineRequest, parseJsonBody(body));
    const project = spec.project ?? requestCaller(request).project;
    const known = spec.reuse ? this.#succeeded(project) : new Map<string, string>();
    const jobs: Planned["jobs"][number][] = [];
    for (const planned of planPipeline(spec, await this.#blocks.ofSteps(spec))) {
      const { inputs = [], when, ...rest } = planned.spec;
      const { name, queue } = spec;
      // Inputs and conditions come once its jobs have ids.
      const job = { ...rest, name: `${name}.${planned.step}`, project, queue };
      const checked = await this.#jobs.checked(job, request, isDryRun).catch((error: unknown) => {
        throw ofStep(toAppError(error), planned.step);
      });
      const reused = known.get(planned.key);
      const own = { ...checked, ...(inputs.length > 0 && { inputs: [...inputs] }) };
      const whole = { ...own, ...(when === undefined ? {} : { when: [...when] }) } as SubmitJob;
      jobs.push({ ...planned, checked: whole, ...(reused === undefined ? {} : { reused }) });
    }
    return { spec, project, jobs };
  }

  /** Recent jobs of steps in the project that succeeded, by key; of several the newest. */
  #succeeded(project: string): Map<string, string> {
    const { jobs, specs } = this.#control.state;
    const sinceMs = Date.now() - MAX_REUSE_MS;
    const found = new Map<string, string>();
    for (const job of jobs.values()) {
      if (job.state !== "succeeded" || job.project !== project) continue;
      const key = specs.get(job.id)?.labels[LABELS.key];
      if (key !== undefined && (job.endedAtMs ?? 0) >= sinceMs) found.set(key, job.id);
    }
    return found;
  }

  async #submitSteps({ spec, jobs }: Planned, id: string, submitted: string[]) {
    const stored: StoredJob[] = [];
    for (const { step, shard, block, key, needs, after, inputs, checked, reused } of jobs) {
      const jobId = reused ?? newJobId(Date.now());
      stored.push({
        step,
        ...(shard !== undefined && { shard }),
        block,
        key,
        job: jobId,
        reused: reused !== undefined,
        needs: [...needs],
      });
      if (reused !== undefined) continue;
      const from = inputs.map(({ name, from: at, artifact }) => {
        return { name, job: stored[at]!.job, artifact };
      });
      const before = [...from.map(({ job }) => job), ...after.map((at) => stored[at]!.job)];
      const suffix = shard === undefined ? "" : `.${stored.length}`;
      const labels = {
        ...checked.labels,
        [LABELS.pipeline]: id,
        [LABELS.step]: step,
        [LABELS.key]: key,
      };
      const all = [...(checked.inputs ?? []), ...from];
      const job: SubmitJob = {
        ...checked,
        name: `${spec.name}.${id.slice(-6).toLowerCase()}.${step}${suffix}`,
        labels,
        dependencies: [...new Set(before)],
        ...(all.length > 0 && { inputs: all }),
      };
      await propose(this.#control, { type: "job.submit", atMs: Date.now(), jobId, spec: job });
      submitted.push(jobId);
    }
    return stored;
  }
}

function rootSpec({ spec, project, jobs }: Planned, id: string, stored: readonly StoredJob[]) {
  const { id: _, ...root } = submitJobRequest.parse({
    name: `${spec.name}.${id.slice(-6).toLowerCase()}`,
    project,
    queue: spec.queue,
    labels: { [LABELS.pipeline]: id, [LABELS.name]: spec.name },
    algorithm: PIPELINE,
    config: { name: spec.name, jobs: stored },
    command: ["true"],
    dependencies: stored.filter((_job, at) => jobs[at]?.reused === undefined).map(({ job }) => job),
    resources: ROOT_RESOURCES,
  });
  return root;
}

/** The fault of a step's job, with the step's place in the pipeline. */
function ofStep(error: AppError, step: string): AppError {
  const { code, message, param, cause } = error;
  const at = (inner: string | undefined) => `steps.${step}${inner ? `.${inner}` : ""}`;
  const text = (inner: string) => `The step ${step}: ${inner}`;
  const faults = cause instanceof RequestFaults ? cause.faults : [];
  const moved = faults.map((each) => {
    return { ...each, param: at(each.param), path: undefined, message: text(each.message) };
  });
  return new AppError(code, text(message), { param: at(param), cause: new RequestFaults(moved) });
}
