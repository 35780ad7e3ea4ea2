import { AppError } from "@heddle/base/errors";
import { type RoleView, roleOperations } from "@heddle/contracts/api/access/roles";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { Page } from "@heddle/contracts/api/parameters";
import { SHIPPED_ROLES } from "@heddle/contracts/roles";
import type { RoleRecord } from "@heddle/control/access/records";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../page.ts";
import { viewOwnRole, viewRole } from "./access-view.ts";
import { checkBindsRoles, refuseEscalation } from "./escalation.ts";

/** Roles: those of every cluster, and the cluster's own. */
@Controller()
export class RolesController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#changes = changes;
  }

  @Serves(roleOperations.list)
  list(@Query() query: QueryOf<typeof roleOperations.list>): Page<RoleView> {
    const { roles } = this.#control.state;
    const names = [...Object.keys(SHIPPED_ROLES), ...[...roles.keys()].sort()];
    return pageOf(
      names.map((name) => this.#find(name)),
      query,
    );
  }

  @Serves(roleOperations.get)
  get(@Param("name") name: string): RoleView {
    return this.#find(name);
  }

  @Serves(roleOperations.set)
  set(
    @Param("name") name: string,
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<RoleView> {
    const requested = () => this.#change(name, request);
    return this.#changes.make(request, reply, requested, (answer) => answer);
  }

  #change(name: string, request: CallerRequest): RequestedChange<RoleView> {
    checkBindsRoles(this.#control.state);
    const { permissions, description } = bodyOf(roleOperations.set, request);
    refuseEscalation(requestCaller(request), permissions, "permissions");
    const atMs = Date.now();
    const role: RoleRecord = { description, permissions, updatedAtMs: atMs };
    return { command: { type: "role.set", atMs, name, role }, answer: viewOwnRole(name, role) };
  }

  @Serves(roleOperations.remove)
  async remove(@Param("name") name: string): Promise<RoleView> {
    const role = this.#find(name);
    await propose(this.#control, { type: "role.remove", atMs: Date.now(), name });
    return role;
  }

  #find(name: string): RoleView {
    const role = viewRole(this.#control.state, name);
    if (!role) throw new AppError("not_found", `No role has the name ${name.slice(0, 50)}.`);
    return role;
  }
}
