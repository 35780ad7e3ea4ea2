import { createApiKey, hashApiKey } from "@heddle/auth/api-key";
import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import {
  type ApiKey,
  type CreatedApiKey,
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
import { LastUsed } from "../../http/last-used.ts";
import { DEFAULT_PROJECT } from "../../http/limits/call-reservation.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { limitsOf } from "../limits/limits-view.ts";
import { successors, viewKey } from "./key-view.ts";
import { pageOf } from "./page.ts";

@Controller()
export class KeysController {
  readonly #control: ControlPlane;
  readonly #pepper: Uint8Array;
  readonly #lastUsed: LastUsed;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(PEPPER) pepper: Uint8Array,
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
    refuseEscalation(request, body.scopes);
    const { id, text } = createApiKey(body.environment);
    const key: ApiKeyRecord = {
      id,
      name: body.name,
      hash: hashApiKey(text, this.#pepper),
      scopes: body.scopes,
      models: body.models,
      limits: limitsOf(body.limits),
      ...(body.project !== DEFAULT_PROJECT && { project: body.project }),
      createdAtMs: now,
      expiresAtMs,
    };
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
    refuseEscalation(request, old.scopes);
    const { id: nextId, text } = createApiKey(body.environment);
    const key: ApiKeyRecord = {
      id: nextId,
      name: old.name,
      hash: hashApiKey(text, this.#pepper),
      scopes: old.scopes,
      models: old.models,
      limits: old.limits,
      ...(old.project !== undefined && { project: old.project }),
      createdAtMs: now,
      rotatedFrom: id,
      expiresAtMs: futureMs(body.expires_at, now) ?? old.expiresAtMs,
    };
    const expiresAtMs = now + body.overlap_seconds * 1000;
    const answer = { ...this.#view(key), key: text };
    return { command: { type: "key.rotate", atMs: now, id, key, expiresAtMs }, answer };
  }

  @Serves(keyOperations.list)
  list(@Query() query: QueryOf<typeof keyOperations.list>): Page<ApiKey> {
    const keys = [...this.#control.state.keys.values()].reverse();
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
    const registered = this.#control.state.models;
    return viewKey(key, { lastUsedAtMs, now: Date.now(), registered, rotatedTo });
  }

  #find(id: string): ApiKeyRecord {
    const key = this.#control.state.keys.get(id);
    if (!key) throw new AppError("not_found", `No key has the id ${id}.`);
    return key;
  }
}

function futureMs(text: string | undefined, now: number): number | undefined {
  const atMs = text === undefined ? undefined : Date.parse(text);
  if (atMs === undefined || atMs > now) return atMs;
  throw new AppError("invalid_value", "Invalid value for 'expires_at': it has passed.", {
    param: "expires_at",
  });
}

/** A cluster administrator may grant scopes that it lacks, except all permissions. */
function refuseEscalation(request: CallerRequest, scopes: readonly string[]): void {
  if (!scopes.includes("*") || (request.apiKey && grants(request.apiKey.scopes, "*"))) return;
  throw new AppError("permission_denied", "Only a key with the scope `*` may give it.", {
    param: "scopes",
  });
}
