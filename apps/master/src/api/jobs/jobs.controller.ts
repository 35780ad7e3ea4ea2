import { AppError } from "@heddle/base/errors";
import { type EventQuery, eventOperations } from "@heddle/contracts/api/events";
import { jobOperations } from "@heddle/contracts/api/job-operations";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { RequestJobCommand } from "@heddle/control/jobs/records/commands";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { closedSignal } from "../../http/drained.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { EventWatch } from "./event-watch.ts";
import { JobList } from "./job-list.ts";
import { JobService } from "./job-service.ts";

@Controller()
export class JobsController {
  readonly #jobs: JobService;
  readonly #list: JobList;
  readonly #events: EventWatch;

  constructor(
    @Inject(JobService) jobs: JobService,
    @Inject(JobList) list: JobList,
    @Inject(EventWatch) events: EventWatch,
  ) {
    this.#jobs = jobs;
    this.#list = list;
    this.#events = events;
  }

  @Serves(jobOperations.create)
  async submit(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Query() { dry_run }: QueryOf<typeof jobOperations.create>,
  ) {
    if (dry_run) {
      reply.code(200);
      return this.#jobs.dryRun(request);
    }
    const answer = await this.#jobs.submit(request, reply);
    reply.header("location", `/api/v1/jobs/${answer.job_id}`);
    return answer;
  }

  @Serves(jobOperations.list)
  list(@Req() request: CallerRequest, @Query() query: QueryOf<typeof jobOperations.list>) {
    const { grants } = requestCaller(request);
    return this.#list.page(query, (project) => grants.may("jobs:read", project));
  }

  @Serves(jobOperations.get)
  async get(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("id") id: string,
    @Query() { wait }: QueryOf<typeof jobOperations.get>,
  ) {
    const known = request.headers["if-none-match"];
    const caller = requestCaller(request);
    const job = await this.#jobs.changed({ id, caller }, known, wait * 1_000, closedSignal(reply));
    reply.header("etag", etagOf(job));
    if (known !== undefined && matches(known, job)) {
      reply.code(304);
      return undefined;
    }
    return this.#jobs.view(job, caller);
  }

  @Serves(jobOperations.cancel)
  cancel(@Req() request: CallerRequest, @Res({ passthrough: true }) reply: FastifyReply) {
    return this.#request("cancel", request, reply);
  }

  @Serves(jobOperations.suspend)
  suspend(@Req() request: CallerRequest, @Res({ passthrough: true }) reply: FastifyReply) {
    return this.#request("suspend", request, reply);
  }

  @Serves(jobOperations.resume)
  resume(@Req() request: CallerRequest, @Res({ passthrough: true }) reply: FastifyReply) {
    return this.#request("resume", request, reply);
  }

  @Serves(eventOperations.ofJob)
  async events(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Query() query: EventQuery,
    @Param("id") id: string,
  ): Promise<void> {
    this.#jobs.find(id, requestCaller(request));
    await this.#events.answer({ request, reply, query, jobId: id });
  }

  async #request(what: RequestJobCommand["request"], request: CallerRequest, reply: FastifyReply) {
    const { id: jobId } = request.params as { id: string };
    const ifIndex = indexOf(request.headers["if-match"]);
    const job = await this.#jobs.request(
      { type: "job.request", atMs: Date.now(), jobId, request: what, ifIndex },
      request,
      reply,
    );
    reply.header("etag", etagOf(job));
    return this.#jobs.view(job, requestCaller(request));
  }
}

function etagOf(job: JobRecord): string {
  return `"${job.changedIndex}"`;
}

function matches(ifNoneMatch: string, job: JobRecord): boolean {
  if (ifNoneMatch === "*") return true;
  const tags = ifNoneMatch.split(",").map((tag) => tag.trim().replace(/^W\//, ""));
  return tags.includes(etagOf(job));
}

/** The log index in an ETag; undefined if any matches. */
function indexOf(ifMatch: string | undefined): number | undefined {
  if (ifMatch === undefined || ifMatch === "*") return undefined;
  const index = /^"(\d{1,15})"$/.exec(ifMatch)?.[1];
  if (index !== undefined) return Number(index);
  const message = `Invalid value for the header 'If-Match': expected a job's ETag such as "1042", with its quotes.`;
  throw new AppError("invalid_value", message, { param: "If-Match" });
}
