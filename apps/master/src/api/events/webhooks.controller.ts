import { type KeyObject, randomUUID } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import {
  type WebhookView,
  type WebhookWithSecret,
  webhookOperations,
} from "@heddle/contracts/api/events/webhooks";
import type { WebhookRecord } from "@heddle/control/audit/webhook-records";
import { Controller, Inject, Param, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { PEPPER } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import {
  secretText,
  WebhookHosts,
  webhookSecret,
} from "../../control-plane/event-log/webhook-post.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";

/** How long the secret before signs too. */
const OVERLAP_MS = 86_400_000;

/** Where events are sent. */
@Controller()
export class WebhooksController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;
  readonly #pepper: KeyObject;
  readonly #hosts: WebhookHosts;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
    @Inject(PEPPER) pepper: KeyObject,
    @Inject(WebhookHosts) hosts: WebhookHosts,
  ) {
    this.#control = control;
    this.#changes = changes;
    this.#pepper = pepper;
    this.#hosts = hosts;
  }

  @Serves(webhookOperations.create)
  create(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<WebhookWithSecret> {
    reply.header("cache-control", "no-store");
    return this.#changes.make(
      request,
      reply,
      () => this.#creation(request),
      ({ id }) => this.#withSecret(id),
    );
  }

  #creation(request: CallerRequest): RequestedChange<{ readonly id: string }> {
    const { url, types, project } = bodyOf(webhookOperations.create, request);
    this.#hosts.check(new URL(url));
    const id = `wh_${randomUUID().replaceAll("-", "")}`;
    const atMs = Date.now();
    const webhook: WebhookRecord = {
      url,
      types,
      ...(project !== undefined && { project }),
      secret: 1,
      createdAtMs: atMs,
    };
    return { command: { type: "webhook.set", atMs, id, webhook }, answer: { id } };
  }

  @Serves(webhookOperations.list)
  list() {
    const ids = [...this.#control.state.webhooks.keys()];
    return { object: "list" as const, data: ids.map((id) => this.#view(id)) };
  }

  @Serves(webhookOperations.remove)
  async remove(@Param("id") id: string): Promise<WebhookView> {
    const view = this.#view(id);
    await propose(this.#control, { type: "webhook.remove", atMs: Date.now(), id });
    return view;
  }

  @Serves(webhookOperations.rotateSecret)
  async rotateSecret(
    @Param("id") id: string,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<WebhookWithSecret> {
    reply.header("cache-control", "no-store");
    const { secret, ...rest } = this.#find(id);
    const atMs = Date.now();
    const webhook = { ...rest, secret: secret + 1, overlapUntilMs: atMs + OVERLAP_MS };
    await propose(this.#control, { type: "webhook.set", atMs, id, webhook });
    return this.#withSecret(id);
  }

  @Serves(webhookOperations.retry)
  async retry(@Param("id") id: string): Promise<WebhookView> {
    this.#find(id);
    await propose(this.#control, { type: "webhook.retry", atMs: Date.now(), id });
    return this.#view(id);
  }

  #withSecret(id: string): WebhookWithSecret {
    const { secret } = this.#find(id);
    return { ...this.#view(id), secret: secretText(webhookSecret(this.#pepper, id, secret)) };
  }

  #view(id: string): WebhookView {
    const { url, types, project, createdAtMs } = this.#find(id);
    const { webhookProgress } = this.#control.state;
    const { next, waiting, failed } = webhookProgress.get(id) ?? {
      next: 0,
      waiting: [],
      failed: [],
    };
    return {
      object: "webhook",
      id,
      url,
      types,
      project: project ?? null,
      created_at: new Date(createdAtMs).toISOString(),
      next_sequence: String(next),
      waiting: waiting.length,
      failed: failed.map((each) => ({ ...each, sequence: String(each.sequence) })),
    };
  }

  #find(id: string): WebhookRecord {
    const webhook = this.#control.state.webhooks.get(id);
    if (!webhook) throw new AppError("not_found", `No webhook has the id ${id.slice(0, 50)}.`);
    return webhook;
  }
}
