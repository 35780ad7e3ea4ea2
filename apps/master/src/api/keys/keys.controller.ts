import type { KeyObject } from "node:crypto";
import { createApiKey, hashApiKey } from "@heddle/auth/api-key";
import { AppError } from "@heddle/base/errors";
import {
  type ApiKey,
  type CreatedApiKey,
  type KeySpec,
  keyOperations,
  type RotatedApiKey,
} from "@heddle/contracts/api/keys";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { Page } from "@heddle/contracts/api/parameters";
import type { ApiKeyRecord } from "@heddle/control/state";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { PEPPER } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { LastUsed } from "../../http/last-used.ts";
import { DEFAULT_PROJECT } from "../../http/limits/call-reservation.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { checkBindsRoles, checkHasServices, refuseKeyEscalation } from "../access/escalation.ts";
import { limitsOf } from "../limits/limits-view.ts";
import { pageOf } from "../page.ts";
import { successors, viewKey } from "./key-view.ts";

@Controller()
export class KeysController {
  readonly #control: ControlPlane;
  readonly #pepper: KeyObject;
  readonly #lastUsed: LastUsed;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(PEPPER) pepper: KeyObject,
    @Inject(LastUsed) lastUsed: LastUsed,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#pepper = pepper;
    this.#lastUsed = lastUsed;
    this.#changes = changes;
  }

  /** The only answer with the key's text. */
  @Serves(keyOperations.create)
  create(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<CreatedApiKey> {
    const requested = () => this.#creation(request);
    return this.#changes.make(request, reply, requested, (answer) => answer);
  }

  #creation(request: CallerRequest): RequestedChange<CreatedApiKey> {
    const body = bodyOf(keyOperations.create, request);
    const now = Date.now();
    const expiresAtMs = futureMs(body.expires_at, now);
    const scopes = this.#scopesOf(body);
    const { id, text } = createApiKey(body.environment);
    const key: ApiKeyRecord = {
      id,
      name: body.name,
      hash: hashApiKey(text, this.#pepper),
      scopes,
      ...(body.role !== undefined && { role: body.role }),
      ...(body.owner !== undefined && { owner: body.owner }),
      ...(body.service_account !== undefined && { service: body.service_account }),
      models: body.models,
      limits: limitsOf(body.limits),
      ...(body.project !== DEFAULT_PROJECT && { project: body.project }),
      ...(body.deterministic && { deterministic: true }),
      createdAtMs: now,
      expiresAtMs,
    };
    refuseKeyEscalation(requestCaller(request), this.#control.state, key);
    const answer = { ...this.#view(key), key: text };
    return { command: { type: "key.create", atMs: now, key }, answer };
  }

  /** A replacement with the same permissions; the old key stays valid for the overlap. */
  @Serves(keyOperations.rotate)
  rotate(
    @Param("id") id: string,
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<RotatedApiKey> {
    const requested = () => this.#rotation(id, request);
    const answer = (created: CreatedApiKey) => ({
      ...created,
      replaces: this.#view(this.#find(id)),
    });
    return this.#changes.make(request, reply, requested, answer);
  }

  #rotation(id: string, request: CallerRequest): RequestedChange<CreatedApiKey> {
    const body = bodyOf(keyOperations.rotate, request);
    const now = Date.now();
    const old = this.#find(id);
    const { role, project, scopes } = old;
    const { id: nextId, text } = createApiKey(body.environment);
    const key: ApiKeyRecord = {
      id: nextId,
      name: old.name,
      hash: hashApiKey(text, this.#pepper),
      scopes,
      ...(role !== undefined && { role }),
      ...(old.owner !== undefined && { owner: old.owner }),
      ...(old.service !== undefined && { service: old.service }),
      models: old.models,
      limits: old.limits,
      ...(project !== undefined && { project }),
      ...(old.deterministic && { deterministic: true }),
      createdAtMs: now,
      rotatedFrom: id,
      expiresAtMs: futureMs(body.expires_at, now) ?? old.expiresAtMs,
    };
    refuseKeyEscalation(requestCaller(request), this.#control.state, key);
    const expiresAtMs = now + body.overlap_seconds * 1000;
    const answer = { ...this.#view(key), key: text };
    return { command: { type: "key.rotate", atMs: now, id, key, expiresAtMs }, answer };
  }

  @Serves(keyOperations.list)
  list(@Query() query: QueryOf<typeof keyOperations.list>): Page<ApiKey> {
    const keys = [...this.#control.state.keys.values()]
      .filter(({ service }) => (query.service_account ?? service) === service)
      .reverse();
    const page = pageOf(keys, query);
    const rotatedTo = successors(this.#control.state.keys.values());
    return { ...page, data: page.data.map((key) => this.#view(key, rotatedTo)) };
  }

  @Serves(keyOperations.revoke)
  async revoke(@Param("id") id: string): Promise<ApiKey> {
    await propose(this.#control, { type: "key.revoke", atMs: Date.now(), id });
    return this.#view(this.#find(id));
  }

  #view(key: ApiKeyRecord, rotatedTo = successors(this.#control.state.keys.values())): ApiKey {
    const lastUsedAtMs = this.#lastUsed.of(key.id);
    const { models: registered, services } = this.#control.state;
    return viewKey(key, { lastUsedAtMs, now: Date.now(), services, registered, rotatedTo });
  }

  /** The scopes of a new key: none where it has a role, or only those of its service account. */
  #scopesOf(body: Pick<KeySpec, "scopes" | "role" | "service_account">): string[] {
    if (body.service_account !== undefined) checkHasServices(this.#control.state);
    if (body.role === undefined) {
      return [...(body.scopes ?? (body.service_account === undefined ? DEFAULT_SCOPES : []))];
    }
    if (body.scopes !== undefined) {
      const message = "Invalid value for 'scopes': a key has a role or scopes, not both.";
      throw new AppError("invalid_value", message, { param: "scopes" });
    }
    checkBindsRoles(this.#control.state);
    return [];
  }

  #find(id: string): ApiKeyRecord {
    const key = this.#control.state.keys.get(id);
    if (!key) throw new AppError("not_found", `No key has the id ${id}.`);
    return key;
  }
}

/** To call and list models, files and batches. */
const DEFAULT_SCOPES = ["inference:create", "models:read", "files:*", "batches:*"];

function futureMs(text: string | undefined, now: number): number | undefined {
  const atMs = text === undefined ? undefined : Date.parse(text);
  if (atMs === undefined || atMs > now) return atMs;
  throw new AppError("invalid_value", "Invalid value for 'expires_at': it has passed.", {
    param: "expires_at",
  });
}
