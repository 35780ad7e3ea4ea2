import { AppError } from "@heddle/base/errors";
import {
  SECRET_NAME,
  type SecretView,
  secretOperations,
} from "@heddle/contracts/api/access/secrets";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { Page } from "@heddle/contracts/api/parameters";
import { KEEPS_SECRETS, versionOf } from "@heddle/control/cluster-version";
import { type SecretRecord, secretKey } from "@heddle/control/secrets/records";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { ProjectSecrets } from "../../control-plane/project-secrets.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../page.ts";

/** The secrets of the caller's project. Values go in and never come out. */
@Controller()
export class SecretsController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;
  readonly #secrets: ProjectSecrets;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
    @Inject(ProjectSecrets) secrets: ProjectSecrets,
  ) {
    this.#control = control;
    this.#changes = changes;
    this.#secrets = secrets;
  }

  @Serves(secretOperations.list)
  list(
    @Req() request: CallerRequest,
    @Query() query: QueryOf<typeof secretOperations.list>,
  ): Page<SecretView> {
    const { project } = requestCaller(request);
    const own = [...this.#secrets.all].filter((secret) => secret.project === project);
    return pageOf(own.map(viewSecret).sort(byName), query);
  }

  @Serves(secretOperations.get)
  get(@Param("name") name: string, @Req() request: CallerRequest): SecretView {
    return viewSecret(this.#find(name, request));
  }

  @Serves(secretOperations.set)
  set(
    @Param("name") name: string,
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<SecretView> {
    const requested = () => this.#change(name, request);
    return this.#changes.make(request, reply, requested, ({ project }) => {
      const record = this.#control.state.secrets.get(secretKey({ project, name }));
      if (!record) throw noSecret(name);
      return viewSecret(record);
    });
  }

  #change(name: string, request: CallerRequest): RequestedChange<{ readonly project: string }> {
    checkKeepsSecrets(this.#control.state);
    if (!SECRET_NAME.test(name)) {
      const message =
        "Invalid value for 'name': expected 1 to 63 of a-z, 0-9, `.`, `_`, `-`, with a letter or digit at both ends.";
      throw new AppError("invalid_value", message, { param: "name" });
    }
    const { value } = bodyOf(secretOperations.set, request);
    const { project } = requestCaller(request);
    const sealed = this.#secrets.seal({ project, name }, value);
    const command = { type: "secret.set" as const, atMs: Date.now(), project, name, ...sealed };
    return { command, answer: { project } };
  }

  @Serves(secretOperations.remove)
  async remove(@Param("name") name: string, @Req() request: CallerRequest): Promise<SecretView> {
    const record = this.#find(name, request);
    const { project } = record;
    await propose(this.#control, { type: "secret.remove", atMs: Date.now(), project, name });
    return viewSecret(record);
  }

  #find(name: string, request: CallerRequest): SecretRecord {
    const { project } = requestCaller(request);
    const record = this.#control.state.secrets.get(secretKey({ project, name }));
    if (!record) throw noSecret(name);
    return record;
  }
}

/** Throws `unavailable` while some masters know no secrets. */
export function checkKeepsSecrets(state: Parameters<typeof versionOf>[0]): void {
  if (versionOf(state) >= KEEPS_SECRETS) return;
  const message = "The masters keep no secrets yet: that begins when all of them run this build.";
  throw new AppError("unavailable", message);
}

function noSecret(name: string): AppError {
  return new AppError("not_found", `No secret has the name ${name.slice(0, 63)}.`);
}

function viewSecret({
  name,
  project,
  version,
  createdAtMs,
  updatedAtMs,
}: SecretRecord): SecretView {
  const [created_at, updated_at] = [createdAtMs, updatedAtMs].map((ms) =>
    new Date(ms).toISOString(),
  );
  return {
    object: "secret",
    id: name,
    name,
    project,
    version,
    created_at: created_at!,
    updated_at: updated_at!,
  };
}

function byName({ name: a }: SecretView, { name: b }: SecretView): number {
  return a < b ? -1 : 1;
}
