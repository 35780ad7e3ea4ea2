import { AppError } from "@heddle/base/errors";
import { type DeletedModel, type Model, modelOperations } from "@heddle/contracts/api/models";
import {
  PLACES_STAGES,
  RECORDS_EVENTS,
  STANDARD_TERMS,
  versionOf,
} from "@heddle/control/cluster-version";
import { modelKey } from "@heddle/control/model-names";
import type { ControlState, DeploymentRecord } from "@heddle/control/state";
import { Controller, Inject, Param, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { scaledCount, toRecords } from "../../control-plane/catalog/registration.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { ModelCatalog, requireListed } from "../../models/model-catalog.ts";
import { ModelPulls } from "./model-pulls.ts";
import { requireReadableSources } from "./readable-sources.ts";

/** GET /models serves both APIs: OpenAI's list, with the platform's own members in each model. */
@Controller()
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

  @Serves(modelOperations.list)
  async list(@Req() request: CallerRequest): Promise<{ object: "list"; data: Model[] }> {
    await this.#models.refreshed();
    return { object: "list", data: this.#models.list(requestCaller(request)) };
  }

  @Serves(modelOperations.get)
  async get(@Req() request: CallerRequest, @Param("id") id: string): Promise<Model> {
    await this.#models.refreshed();
    return this.#models.view(id, requestCaller(request));
  }

  @Serves(modelOperations.register)
  register(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<Model> {
    const requested = () => this.#registration(request);
    return this.#changes.make(request, reply, requested, (answer) => answer);
  }

  #registration(request: CallerRequest): RequestedChange<Model> {
    const body = bodyOf(modelOperations.register, request);
    const caller = requestCaller(request);
    requireListed(body.id, caller);
    const { state } = this.#control;
    const project = body.visibility === "project" ? caller.project : undefined;
    const known = state.models.get(modelKey(state, body.id, project));
    // A repeated registration must give the same record, including its time.
    const createdAtMs = known?.createdAtMs ?? Date.now();
    const baseOf = (id: string) => this.#models.find(id, caller);
    const { model, deployment } = toRecords(body, state, { atMs: createdAtMs, project, baseOf });
    requireReadableSources(body, caller, state);
    if (project !== undefined && versionOf(state) < RECORDS_EVENTS) throw tooOld("visibility");
    requireVersion(state, deployment);
    const command = { type: "model.register" as const, atMs: Date.now(), model, deployment };
    return { command, answer: this.#models.viewOf(model, caller, deployment) };
  }

  @Serves(modelOperations.scale)
  async scale(@Req() request: CallerRequest, @Param("id") id: string): Promise<Model> {
    const { replicas, scaling } = bodyOf(modelOperations.scale, request);
    const { state } = this.#control;
    const { deployment: key } = this.#models.resolve(id, requestCaller(request));
    const present = state.deployments.get(key);
    if (!present) throw new AppError("not_found", `The model \`${id}\` has no deployment.`);
    if ((replicas === undefined) === (scaling === undefined)) {
      const message = "Give either `replicas` or `scaling`.";
      throw new AppError("invalid_value", message, { param: "scaling" });
    }
    if (versionOf(state) < STANDARD_TERMS) throw tooOld("scaling");
    const count = scaling ? scaledCount(present.replicas, scaling) : { replicas: replicas ?? 0 };
    const change = { type: "deployment.configure" as const, deployment: key, ...count };
    await propose(this.#control, { ...change, atMs: Date.now() });
    return this.#models.view(id, requestCaller(request));
  }

  @Serves(modelOperations.remove)
  async remove(@Req() request: CallerRequest, @Param("id") id: string): Promise<DeletedModel> {
    const caller = requestCaller(request);
    requireListed(id, caller);
    const { project } = this.#models.resolve(id, caller);
    await propose(this.#control, { type: "model.remove", atMs: Date.now(), id, project });
    return { id, object: "model", deleted: true };
  }

  @Serves(modelOperations.pull)
  async pull(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Param("id") id: string,
  ): Promise<void> {
    const model = this.#models.resolve(id, requestCaller(request));
    const deployment = this.#control.state.deployments.get(model.deployment)?.spec;
    if (!deployment) throw new AppError("not_found", `The model \`${id}\` has no weights.`);
    // The file of an adapter is pulled beside its base's: workers load it at the first call.
    const { adapter } = model;
    const pulled = adapter ? { ...deployment, weights: adapter.weights } : deployment;
    await this.#pulls.stream(pulled, request.id, reply);
  }
}

/**
 * Masters of earlier versions read the weights of every deployment, and place a model that workers
 * divide over GPUs whole.
 */
function requireVersion(state: ControlState, deployment: DeploymentRecord): void {
  const { spec, scaling, resources } = deployment;
  if (versionOf(state) >= PLACES_STAGES) return;
  if (spec.engine === "llama" && spec.placement?.mode === "sharded") {
    if (resources || (spec.options.device ?? "cpu") !== "cpu") throw tooOld("placement");
  }
  if (versionOf(state) >= STANDARD_TERMS) return;
  if (spec.engine !== "llama") throw tooOld("engine");
  if (scaling) throw tooOld("scaling");
}

function tooOld(param: string): AppError {
  const message = `Some masters are too old for '${param}': upgrade all of them first.`;
  return new AppError("conflict", message, { param });
}
