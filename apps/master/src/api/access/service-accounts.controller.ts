import { AppError } from "@heddle/base/errors";
import {
  type ServiceAccount,
  serviceOperations,
} from "@heddle/contracts/api/access/service-accounts";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { Page } from "@heddle/contracts/api/parameters";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../page.ts";
import { viewService } from "./access-view.ts";
import { checkHasServices } from "./escalation.ts";

/** Service accounts: programs with keys and roles of their own. */
@Controller()
export class ServiceAccountsController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#changes = changes;
  }

  @Serves(serviceOperations.list)
  list(@Query() query: QueryOf<typeof serviceOperations.list>): Page<ServiceAccount> {
    const names = [...this.#control.state.services.keys()].sort();
    return pageOf(
      names.map((name) => this.#find(name)),
      query,
    );
  }

  @Serves(serviceOperations.get)
  get(@Param("name") name: string): ServiceAccount {
    return this.#find(name);
  }

  @Serves(serviceOperations.set)
  set(
    @Param("name") name: string,
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<ServiceAccount> {
    const requested = () => this.#change(name, request);
    return this.#changes.make(request, reply, requested, () => this.#find(name));
  }

  #change(name: string, request: CallerRequest): RequestedChange<string> {
    checkHasServices(this.#control.state);
    const { description, disabled } = bodyOf(serviceOperations.set, request);
    const change = { name, description, isDisabled: disabled };
    return { command: { type: "service.set", atMs: Date.now(), ...change }, answer: name };
  }

  @Serves(serviceOperations.remove)
  async remove(@Param("name") name: string): Promise<ServiceAccount> {
    const account = this.#find(name);
    await propose(this.#control, { type: "service.remove", atMs: Date.now(), name });
    return account;
  }

  #find(name: string): ServiceAccount {
    const record = this.#control.state.services.get(name);
    if (record) return viewService(name, record);
    throw new AppError("not_found", `No service account has the name ${name.slice(0, 63)}.`);
  }
}
