import { AppError } from "@heddle/base/errors";
import { registerModelRequest } from "@heddle/contracts/models";
import { validate } from "@heddle/contracts/validation";
import type { ApiKeyRecord } from "@heddle/control/state";
import {
  Controller,
  Delete,
  Get,
  HttpCode,
  Inject,
  Param,
  Post,
  Req,
  Res,
  UseInterceptors,
} from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import { type CallerRequest, Permit } from "../../http/access.ts";
import { Consistency } from "../../http/consistency.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { ModelCatalog, requireListed } from "../../models/model-catalog.ts";
import type { ModelView } from "../../models/model-view.ts";
import { toRecords } from "../../models/registration.ts";
import { ModelPulls } from "./model-pulls.ts";

/** GET /models serves both APIs: OpenAI's list, with the platform's own members in each model. */
@Controller("api/v1/models")
export class ModelsController {
  readonly #control: ControlPlane;
  readonly #models: ModelCatalog;
  readonly #pulls: ModelPulls;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ModelCatalog) models: ModelCatalog,
    @Inject(ModelPulls) pulls: ModelPulls,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#models = models;
    this.#pulls = pulls;
    this.#changes = changes;
  }

  @Get()
  @UseInterceptors(Consistency)
  @Permit("models:read", "Lists the models that the caller may use.")
  list(@Req() request: CallerRequest): { object: "list"; data: ModelView[] } {
    return { object: "list", data: this.#models.list(callerOf(request)) };
  }

  @Get(":id")
  @UseInterceptors(Consistency)
  @Permit("models:read", "Shows one model.")
  get(@Req() request: CallerRequest, @Param("id") id: string): ModelView {
    return this.#models.view(id, callerOf(request));
  }

  @Post()
  @HttpCode(200)
  @Permit("models:deploy", "Registers a model and the weights that answer for it.")
  register(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<ModelView> {
    const requested = () => this.#registration(request);
    return this.#changes.make(request, reply, requested, (answer) => answer);
  }

  #registration(request: CallerRequest): RequestedChange<ModelView> {
    const body = validate(registerModelRequest, parseJsonBody(request.body as Buffer));
    requireListed(body.id, callerOf(request));
    const known = this.#control.state.models.get(body.id);
    // A repeated registration must give the same record, including its time.
    const createdAtMs = known?.createdAtMs ?? Date.now();
    const { model, deployment } = toRecords(body, this.#control.state, createdAtMs);
    const command = { type: "model.register" as const, atMs: Date.now(), model, deployment };
    return { command, answer: this.#models.viewOf(model, deployment) };
  }

  @Delete(":id")
  @Permit("models:deploy", "Removes a model, and its replicas where no other model uses them.")
  async remove(
    @Req() request: CallerRequest,
    @Param("id") id: string,
  ): Promise<{ id: string; object: string; deleted: boolean }> {
    requireListed(id, callerOf(request));
    await propose(this.#control, { type: "model.remove", atMs: Date.now(), id });
    return { id, object: "model", deleted: true };
  }

  @Post(":id/pull")
  @Permit(
    "models:deploy",
    "Pulls a model's weights to a worker, telling the progress as events; where the model has failed, to the workers that have it, which try it anew.",
  )
  async pull(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Param("id") id: string,
  ): Promise<void> {
    const model = this.#models.resolve(id, callerOf(request));
    const deployment = this.#control.state.deployments.get(model.deployment)?.spec;
    if (!deployment) throw new AppError("not_found", `The model \`${id}\` has no weights.`);
    await this.#pulls.stream(deployment, request.id, reply);
  }
}

function callerOf(request: CallerRequest): ApiKeyRecord {
  if (!request.apiKey) throw new Error("no call gets here without a key");
  return request.apiKey;
}
