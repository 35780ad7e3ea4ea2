import { AppError } from "@heddle/base/errors";
import type { DryRun, Job, SubmittedJob } from "@heddle/contracts/api/job-replies";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { settingValue } from "@heddle/contracts/api/settings";
import type { RequestJobCommand } from "@heddle/control/jobs/records/commands";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import { registrationOf } from "@heddle/control/jobs/records/model-registration";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import type { ControlState } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges } from "../../http/idempotent-changes.ts";
import { type Caller, requestCaller, seesJobsOf } from "../../http/identity/caller.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { callersTrace } from "../../http/trace-hooks.ts";
import { ProgressBook } from "../../nodes/progress/progress-book.ts";
import { viewExplanation } from "../../orchestration/scheduling/explanation-view.ts";
import type { JobExplainer } from "../../orchestration/scheduling/job-explainer.ts";
import { Scheduling } from "../../orchestration/scheduling/scheduling.ts";
import { jobOfCaller, noJob, WAITING } from "./job-access.ts";
import { JobAdmission } from "./job-admission.ts";
import { viewWholeJob } from "./job-view.ts";
import { PluginConfigs } from "./plugin-configs.ts";
import { StateChanges } from "./state-changes.ts";
import {
  checkedSpec,
  dryRun,
  requestedSubmission,
  type Submitter,
  submitted,
} from "./submission.ts";

/** In place of a value that the reader may not see. */
const MASKED = "***";

/** What checks jobs for plugins: schemas of algorithms, and rules. */
export class JobChecks {
  readonly pluginConfigs: PluginConfigs;
  readonly admission: JobAdmission;

  constructor(
    @Inject(PluginConfigs) pluginConfigs: PluginConfigs,
    @Inject(JobAdmission) admission: JobAdmission,
  ) {
    this.pluginConfigs = pluginConfigs;
    this.admission = admission;
  }
}

/** The operations behind the HTTP routes of jobs. */
export class JobService {
  readonly #control: ControlPlane;
  readonly #explainer: JobExplainer;
  readonly #changes: IdempotentChanges;
  readonly #waits: StateChanges;
  readonly #progress: ProgressBook;
  readonly #pluginConfigs: PluginConfigs;
  readonly #admission: JobAdmission;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(Scheduling) { explainer }: Scheduling,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
    @Inject(StateChanges) waits: StateChanges,
    @Inject(ProgressBook) progress: ProgressBook,
    @Inject(JobChecks) { pluginConfigs, admission }: JobChecks,
  ) {
    this.#control = control;
    this.#explainer = explainer;
    this.#changes = changes;
    this.#waits = waits;
    this.#progress = progress;
    this.#pluginConfigs = pluginConfigs;
    this.#admission = admission;
  }

  get state(): ControlState {
    return this.#control.state;
  }

  /** Resolves when the job is committed. */
  submit(request: CallerRequest, reply: FastifyReply): Promise<SubmittedJob> {
    const submitter = this.#submitter(request);
    const body = this.#specBody(request);
    const requested = async () =>
      requestedSubmission(await this.#reviewed(body, submitter, false), submitter);
    return this.#changes.make(request, reply, requested, (answer, { wasThere }) =>
      wasThere ? submitted(this.#find(answer.job_id)) : answer,
    );
  }

  async dryRun(request: CallerRequest): Promise<DryRun> {
    const submitter = this.#submitter(request);
    const body = await this.#reviewed(this.#specBody(request), submitter, true);
    return dryRun(this.#control, this.#explainer, body, submitter);
  }

  /** The spec of a body, checked as a submission is, without what depends on other new jobs. */
  async checked(
    body: Record<string, unknown>,
    request: CallerRequest,
    isDryRun: boolean,
  ): Promise<SubmitJob> {
    const submitter = this.#submitter(request);
    const { caller } = submitter;
    const read = (each: Record<string, unknown>) => checkedSpec(each, submitter);
    const { id: _, ...spec } = read(await this.#admission.review({ body, caller, isDryRun, read }));
    return spec;
  }

  /** The body, as the rules of plugins have changed it. */
  #reviewed(body: Buffer, submitter: Submitter, isDryRun: boolean) {
    const { caller } = submitter;
    const read = (each: Record<string, unknown>) => checkedSpec(each, submitter);
    return this.#admission.review({ body: parseJsonBody(body), caller, isDryRun, read });
  }

  /** The body, within the bound of a job's spec. */
  #specBody(request: CallerRequest): Buffer {
    const body = request.body as Buffer;
    const maxBytes = settingValue(this.state.settings, "job_spec_kib") * 1_024;
    if (body.length <= maxBytes) return body;
    const message = `The body has ${body.length} bytes, and a job's may have ${maxBytes}. Put large data into files, or raise the cluster setting job_spec_kib.`;
    throw new AppError("request_too_large", message);
  }

  #submitter(request: CallerRequest): Submitter {
    const { nodes, servers, models, jobs, specs, cluster } = this.state;
    return {
      nodes,
      servers,
      models,
      jobs,
      specs,
      cluster,
      caller: requestCaller(request),
      trace: callersTrace(request),
      pluginConfigs: this.#pluginConfigs,
    };
  }

  #find(id: string): JobRecord {
    const job = this.state.jobs.get(id);
    if (!job) throw noJob(id);
    return job;
  }

  /** A job that the caller may read; one of another's project is `not_found`. */
  find(id: string, caller: Caller): JobRecord {
    return jobOfCaller(this.state, id, caller, "jobs:read");
  }

  /** Resolves with the job once it differs from `seen`, is final, or the time has passed. */
  async changed(
    { id, caller }: { readonly id: string; readonly caller: Caller },
    seen: string | undefined,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<JobRecord> {
    const first = this.find(id, caller);
    const known = seen ?? `"${first.changedIndex}"`;
    const untilMs = performance.now() + waitMs;
    for (;;) {
      const job = this.#find(id);
      const leftMs = untilMs - performance.now();
      const isDone = leftMs <= 0 || this.#isFinal(job);
      if (signal.aborted || isDone || known !== `"${job.changedIndex}"`) return job;
      await this.#waits.next(leftMs, signal);
    }
  }

  /** Whether the job has ended, and its model is registered or never will be. */
  #isFinal({ id, state, model }: JobRecord): boolean {
    if (!isTerminal(state)) return false;
    const spec = this.state.specs.get(id);
    const leavesModel = state === "succeeded" && spec !== undefined && registrationOf(spec);
    return !leavesModel || model !== undefined;
  }

  async request(
    command: RequestJobCommand,
    request: CallerRequest,
    reply: FastifyReply,
  ): Promise<JobRecord> {
    jobOfCaller(this.state, command.jobId, requestCaller(request), "jobs:cancel");
    const requested = () => ({ command, answer: command.jobId });
    return this.#changes.make(request, reply, requested, (id) => this.#find(id));
  }

  /** The whole job, with the reasons why it waits, if it does. */
  async view(job: JobRecord, caller: Caller): Promise<Job> {
    const view = withoutOthers(viewWholeJob(this.state, job, this.#progress.of(job)), (id) =>
      seesJobsOf(caller, this.state.jobs.get(id)?.project ?? ""),
    );
    const explanation = WAITING.has(job.state) ? await this.#explainer.explain(job) : undefined;
    const spec = readableSpec(view.spec, caller.grants.may("jobs:create", job.project));
    return { ...view, spec, explanation: explanation ? viewExplanation(explanation) : null };
  }
}

/** Values of the environment may be passwords: only those who may submit to the project read them. */
function readableSpec(spec: Job["spec"], maySubmit: boolean): Job["spec"] {
  if (maySubmit) return spec;
  const masked = Object.keys(spec.environment_variables).map((name) => [name, MASKED]);
  return { ...spec, environment_variables: Object.fromEntries(masked) };
}

/** Without the id of a job that the reader does not see, for which this one leaves its place. */
function withoutOthers<View extends Pick<Job, "leaving">>(
  view: View,
  sees: (jobId: string) => boolean,
): View {
  const { leaving } = view;
  if (!leaving?.for_job || sees(leaving.for_job)) return view;
  return { ...view, leaving: { ...leaving, for_job: null } };
}
