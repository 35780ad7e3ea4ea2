import type { QueryOf } from "@heddle/contracts/api/operation";
import { pipelineOperations } from "@heddle/contracts/api/pipelines/operations";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { JobList } from "../jobs/job-list.ts";
import { PipelineBlocks } from "./pipeline-blocks.ts";
import { PipelineService } from "./pipeline-service.ts";
import { LABELS, viewSummary } from "./pipeline-view.ts";
import { PIPELINE } from "./stored-plan.ts";

@Controller()
export class PipelinesController {
  readonly #pipelines: PipelineService;
  readonly #list: JobList;
  readonly #blocks: PipelineBlocks;

  constructor(
    @Inject(PipelineService) pipelines: PipelineService,
    @Inject(JobList) list: JobList,
    @Inject(PipelineBlocks) blocks: PipelineBlocks,
  ) {
    this.#pipelines = pipelines;
    this.#list = list;
    this.#blocks = blocks;
  }

  @Serves(pipelineOperations.create)
  async submit(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Query() { dry_run }: QueryOf<typeof pipelineOperations.create>,
  ) {
    if (dry_run) {
      reply.code(200);
      return this.#pipelines.dryRun(request);
    }
    const pipeline = await this.#pipelines.submit(request, reply);
    reply.header("location", `/api/v1/pipelines/${pipeline.id}`);
    return pipeline;
  }

  @Serves(pipelineOperations.list)
  async list(
    @Req() request: CallerRequest,
    @Query() { name, ...query }: QueryOf<typeof pipelineOperations.list>,
  ) {
    const { grants } = requestCaller(request);
    const label = [`${LABELS.name}${name === undefined ? "" : `=${name}`}`];
    const page = await this.#list.page({ ...query, algorithm: PIPELINE, label }, (project) =>
      grants.may("jobs:read", project),
    );
    return { ...page, data: page.data.map(viewSummary) };
  }

  @Serves(pipelineOperations.blocks)
  blocks() {
    return { object: "list" as const, data: this.#blocks.list() };
  }

  @Serves(pipelineOperations.get)
  get(@Req() request: CallerRequest, @Param("id") id: string) {
    return this.#pipelines.find(id, requestCaller(request));
  }

  @Serves(pipelineOperations.cancel)
  cancel(@Req() request: CallerRequest, @Param("id") id: string) {
    return this.#pipelines.cancel(id, requestCaller(request));
  }
}
