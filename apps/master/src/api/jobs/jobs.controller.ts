import { AppError } from "@heddle/base/errors";
import type { RequestJobCommand } from "@heddle/control/jobs/records/commands";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import {
  Controller,
  Delete,
  Get,
  HttpCode,
  Inject,
  Param,
  Post,
  Query,
  Req,
  Res,
  UseInterceptors,
} from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { type CallerRequest, Permit } from "../../http/access.ts";
import { Consistency } from "../../http/consistency.ts";
import { EVENT_QUERY, EventWatch } from "./event-watch.ts";
import { JobService } from "./job-service.ts";

@Controller("api/v1/jobs")
export class JobsController {
  readonly #jobs: JobService;
  readonly #events: EventWatch;

  constructor(@Inject(JobService) jobs: JobService, @Inject(EventWatch) events: EventWatch) {
    this.#jobs = jobs;
    this.#events = events;
  }

  @Post()
  @HttpCode(202)
  @Permit("jobs:create", "Submits a job; with `?dry_run=true` says what would become of it.", {
    query: ["dry_run"],
    body: true,
  })
  async submit(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Query("dry_run") dry: unknown,
  ) {
    if (isTrue(dry, "dry_run")) {
      reply.code(200);
      return this.#jobs.dryRun(request);
    }
    const answer = await this.#jobs.submit(request, reply);
    reply.header("location", `/api/v1/jobs/${answer.job_id}`);
    return answer;
  }

  @Get()
  @UseInterceptors(Consistency)
  @Permit("jobs:read", "Lists the jobs, newest first.", { query: "checked" })
  list(@Query() { consistency: _, ...query }: Record<string, unknown>) {
    return this.#jobs.list(query);
  }

  @Get(":id")
  @UseInterceptors(Consistency)
  @Permit("jobs:read", "Shows a job and why it waits; `?wait=SECONDS` waits for a change.", {
    query: ["wait", "consistency"],
  })
  async get(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("id") id: string,
    @Query("wait") wait: unknown,
  ) {
    const known = request.headers["if-none-match"];
    const job = await this.#jobs.changed(id, known, waitMsOf(wait), closed(reply));
    reply.header("etag", etagOf(job));
    if (known !== undefined && matches(known, job)) {
      reply.code(304);
      return undefined;
    }
    return this.#jobs.view(job);
  }

  @Delete(":id")
  @HttpCode(202)
  @Permit("jobs:cancel", "Cancels a job, with `If-Match` only where it is as it was seen.")
  cancel(@Req() request: CallerRequest, @Res({ passthrough: true }) reply: FastifyReply) {
    return this.#request("cancel", request, reply);
  }

  @Post(":id/suspend")
  @HttpCode(202)
  @Permit("jobs:cancel", "Has a job checkpoint and give up its places until it is resumed.")
  suspend(@Req() request: CallerRequest, @Res({ passthrough: true }) reply: FastifyReply) {
    return this.#request("suspend", request, reply);
  }

  @Post(":id/resume")
  @HttpCode(202)
  @Permit("jobs:cancel", "Puts a suspended job back into its queue.")
  resume(@Req() request: CallerRequest, @Res({ passthrough: true }) reply: FastifyReply) {
    return this.#request("resume", request, reply);
  }

  @Get(":id/events")
  @UseInterceptors(Consistency)
  @Permit("jobs:read", "A job's events: a list, or a stream with `Accept: text/event-stream`.", {
    query: EVENT_QUERY,
  })
  async events(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Param("id") id: string,
  ): Promise<void> {
    this.#jobs.find(id);
    await this.#events.answer({ request, reply, jobId: id });
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
    return this.#jobs.view(job);
  }
}

/** The maximum of `?wait=`. */
const MAX_WAIT_SECONDS = 60;

function waitMsOf(given: unknown): number {
  if (given === undefined) return 0;
  const seconds = typeof given === "string" && given !== "" ? Number(given) : Number.NaN;
  if (seconds >= 0 && seconds <= MAX_WAIT_SECONDS) return seconds * 1_000;
  const message = `Invalid value for 'wait': expected 0 to ${MAX_WAIT_SECONDS} seconds.`;
  throw new AppError("invalid_value", message, { param: "wait" });
}

function isTrue(given: unknown, param: string): boolean {
  if (given === undefined || given === "false") return false;
  if (given === "true") return true;
  const message = `Invalid value for '${param}': expected true or false.`;
  throw new AppError("invalid_value", message, { param });
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

function closed(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  reply.raw.once("close", () => gone.abort());
  return gone.signal;
}
