import { createApiKey, hashApiKey } from "@heddle/auth/api-key";
import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import { createKeyRequest, rotateKeyRequest } from "@heddle/contracts/keys";
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
  Query,
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
import { LastUsed } from "../../http/last-used.ts";
import { type KeyView, successors, viewKey } from "./key-view.ts";
import { type PageView, pageOf } from "./page.ts";

/** The injection token of the cluster's pepper. */
export const PEPPER = Symbol("pepper");

type CreatedKey = KeyView & { readonly key: string };

@Controller("api/v1/keys")
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
  @Post()
  @HttpCode(200)
  @Permit("cluster:admin", "Creates an API key; its text is shown this once.", { body: true })
  create(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<CreatedKey> {
    const requested = () => this.#creation(request);
    return this.#changes.make(request, reply, requested, (answer) => answer);
  }

  #creation(request: CallerRequest): RequestedChange<CreatedKey> {
    const body = validate(createKeyRequest, parseJsonBody(request.body as Buffer));
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
      limits: {
        requestsPerMinute: body.limits.requests_per_minute,
        tokensPerMinute: body.limits.tokens_per_minute,
        concurrency: body.limits.concurrency,
      },
      createdAtMs: now,
      expiresAtMs,
    };
    const answer = { ...this.#view(key), key: text };
    return { command: { type: "key.create", atMs: now, key }, answer };
  }

  /** A replacement with the same permissions; the old key stays valid for the overlap. */
  @Post(":id/rotate")
  @HttpCode(200)
  @Permit("cluster:admin", "Makes a new key in place of one, which still works for an overlap.", {
    body: true,
  })
  rotate(
    @Param("id") id: string,
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<CreatedKey & { replaces: KeyView }> {
    const requested = () => this.#rotation(id, request);
    const answer = (created: CreatedKey) => ({ ...created, replaces: this.#view(this.#find(id)) });
    return this.#changes.make(request, reply, requested, answer);
  }

  #rotation(id: string, request: CallerRequest): RequestedChange<CreatedKey> {
    const body = validate(rotateKeyRequest, optionalJsonBody(request.body as Buffer | undefined));
    const now = Date.now();
    const old = this.#find(id);
    refuseEscalation(request, old.scopes);
    const { id: nextId, text } = createApiKey(body.environment);
    const key: ApiKeyRecord = {
      ...{ id: nextId, name: old.name, hash: hashApiKey(text, this.#pepper) },
      ...{ scopes: old.scopes, models: old.models, limits: old.limits, createdAtMs: now },
      rotatedFrom: id,
      expiresAtMs: futureMs(body.expires_at, now) ?? old.expiresAtMs,
    };
    const expiresAtMs = now + body.overlap_seconds * 1000;
    const answer = { ...this.#view(key), key: text };
    return { command: { type: "key.rotate", atMs: now, id, key, expiresAtMs }, answer };
  }

  @Get()
  @UseInterceptors(Consistency)
  @Permit("cluster:admin", "Lists the API keys, newest first, without their texts.", {
    query: ["limit", "cursor", "consistency"],
  })
  list(@Query() query: Record<string, unknown>): PageView<KeyView> {
    const keys = [...this.#control.state.keys.values()].reverse();
    const page = pageOf(keys, query);
    const rotatedTo = successors(this.#control.state.keys.values());
    return { ...page, data: page.data.map((key) => this.#view(key, rotatedTo)) };
  }

  @Delete(":id")
  @Permit("cluster:admin", "Revokes an API key at once.")
  async revoke(@Param("id") id: string): Promise<KeyView> {
    await propose(this.#control, { type: "key.revoke", atMs: Date.now(), id });
    return this.#view(this.#find(id));
  }

  #view(key: ApiKeyRecord, rotatedTo = successors(this.#control.state.keys.values())): KeyView {
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

/** A body may be omitted if every member has a default. */
function optionalJsonBody(body: Buffer | undefined): Record<string, unknown> {
  return body === undefined || body.length === 0 ? {} : parseJsonBody(body);
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
