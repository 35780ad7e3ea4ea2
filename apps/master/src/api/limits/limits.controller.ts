import { AppError } from "@heddle/base/errors";
import { type LimitedView, limitOperations } from "@heddle/contracts/api/limits/limits";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { Page } from "@heddle/contracts/api/parameters";
import {
  LIMITED_KINDS,
  type LimitedKind,
  type LimitedSubject,
  limitedSubjectOf,
  subjectId,
} from "@heddle/contracts/limits";
import { LIMITS_SUBJECTS, SCOPES_MODELS, versionOf } from "@heddle/control/cluster-version";
import type { LimitsRecord } from "@heddle/control/state";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../page.ts";
import { limitsOf, pricesOf, viewLimited } from "./limits-view.ts";

/** Limits of keys, projects and models, and prices of models. */
@Controller()
export class LimitsController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#changes = changes;
  }

  @Serves(limitOperations.list)
  list(@Query() query: QueryOf<typeof limitOperations.list>): Page<LimitedView> {
    return pageOf([...this.#limited()], query);
  }

  @Serves(limitOperations.get)
  get(
    @Param("kind") kind: string,
    @Param("name") name: string,
    @Query() { project }: QueryOf<typeof limitOperations.get>,
  ): LimitedView {
    const subject = limitedSubject(kind, name, project);
    const { keys, limits } = this.#control.state;
    if (subject.kind !== "key") {
      return viewLimited(subject, limits.get(subjectId(subject)) ?? { limits: {} });
    }
    const key = keys.get(name);
    if (key) return viewLimited(subject, { limits: key.limits });
    throw new AppError("not_found", `No key has the id ${JSON.stringify(name.slice(0, 50))}.`);
  }

  @Serves(limitOperations.set)
  set(
    @Param("kind") kind: string,
    @Param("name") name: string,
    @Query() { project }: QueryOf<typeof limitOperations.set>,
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<LimitedView> {
    const requested = () => this.#change(limitedSubject(kind, name, project), request);
    return this.#changes.make(request, reply, requested, (answer) => answer);
  }

  #change(subject: LimitedSubject, request: CallerRequest): RequestedChange<LimitedView> {
    this.#checkVersion(subject.project === undefined ? LIMITS_SUBJECTS : SCOPES_MODELS);
    const { kind } = subject;
    const { prices, ...limits } = bodyOf(limitOperations.set, request);
    if (prices && kind !== "model") {
      const message = `Invalid value for 'prices': a ${kind} has none, models have.`;
      throw new AppError("invalid_value", message, { param: "prices" });
    }
    const record: LimitsRecord = {
      limits: limitsOf(limits),
      ...(prices && { prices: pricesOf(prices) }),
    };
    const command = { type: "limits.set" as const, atMs: Date.now(), ...subject, record };
    return { command, answer: viewLimited(subject, record) };
  }

  *#limited(): Generator<LimitedView, void> {
    const { keys, limits } = this.#control.state;
    for (const { id: name, limits: own, revokedAtMs } of keys.values()) {
      const isLimited = Object.values(own).some((each) => each !== undefined);
      if (!isLimited || revokedAtMs !== undefined) continue;
      yield viewLimited({ kind: "key", name }, { limits: own });
    }
    for (const [id, record] of limits) yield viewLimited(limitedSubjectOf(id), record);
  }

  #checkVersion(needed: number): void {
    if (versionOf(this.#control.state) >= needed) return;
    const message =
      "The masters set no limits of that kind yet: that begins when all of them run this build.";
    throw new AppError("unavailable", message);
  }
}

function limitedSubject(
  kindText: string,
  name: string,
  project: string | undefined,
): LimitedSubject {
  const kind = kindOf(kindText);
  if (project === undefined) return { kind, name };
  if (kind === "model") return { kind, name, project };
  const message = `Invalid value for 'project': a ${kind} has no project here, models have.`;
  throw new AppError("invalid_value", message, { param: "project" });
}

function kindOf(text: string): LimitedKind {
  const kind = LIMITED_KINDS.find((each) => each === text);
  if (kind) return kind;
  const message = `Limits are of ${LIMITED_KINDS.join(", ")}, not of a ${JSON.stringify(text.slice(0, 50))}.`;
  throw new AppError("not_found", message);
}
