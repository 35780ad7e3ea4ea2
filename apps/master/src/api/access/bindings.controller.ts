import {
  type AccessMethods,
  type AccessPolicy,
  accessOperations,
  type Binding,
  bindingOperations,
  type CallerView,
} from "@heddle/contracts/api/access/bindings";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { Page } from "@heddle/contracts/api/parameters";
import type { SubjectKind } from "@heddle/contracts/roles";
import {
  type AccessPolicyRecord,
  type BindingName,
  bindingKey,
} from "@heddle/control/access/records";
import { Controller, Inject, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { AuthSettings } from "../../config/auth-file.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { AUTH_SETTINGS } from "../../http/identity/open-authenticator.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../page.ts";
import { viewBinding, viewPolicy } from "./access-view.ts";
import { checkBindsRoles, refuseEscalation, refuseRoleEscalation } from "./escalation.ts";

/** Who has which role, the access policy, and who calls. */
@Controller()
export class BindingsController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;
  readonly #settings: AuthSettings | null;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
    @Inject(AUTH_SETTINGS) settings: AuthSettings | null,
  ) {
    this.#control = control;
    this.#changes = changes;
    this.#settings = settings;
  }

  @Serves(bindingOperations.list)
  list(@Query() query: QueryOf<typeof bindingOperations.list>): Page<Binding> {
    return pageOf([...this.#bindings(query)], query);
  }

  @Serves(bindingOperations.add)
  add(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<Binding> {
    const requested = () => this.#addition(request);
    return this.#changes.make(request, reply, requested, (binding) => this.#view(binding));
  }

  #addition(request: CallerRequest): RequestedChange<BindingName> {
    const { state } = this.#control;
    checkBindsRoles(state);
    const binding = bodyOf(bindingOperations.add, request);
    refuseRoleEscalation(requestCaller(request), state, binding);
    return { command: { type: "binding.add", atMs: Date.now(), binding }, answer: binding };
  }

  @Serves(bindingOperations.remove)
  async remove(@Query() binding: QueryOf<typeof bindingOperations.remove>): Promise<Binding> {
    checkBindsRoles(this.#control.state);
    const view = this.#view(binding);
    await propose(this.#control, { type: "binding.remove", atMs: Date.now(), binding });
    return view;
  }

  @Serves(accessOperations.methods)
  methods(): AccessMethods {
    const oauth2 = this.#settings?.oauth2;
    if (!oauth2) return { object: "access_methods", methods: ["api_key"], oauth2: null };
    const { issuer, client_id = null, audience, scopes, parameters } = oauth2;
    const provider = { issuer, client_id, audience: [audience].flat(), scopes, parameters };
    return { object: "access_methods", methods: ["api_key", "oauth2"], oauth2: provider };
  }

  @Serves(accessOperations.policy)
  policy(): AccessPolicy {
    return viewPolicy(this.#control.state.access.get("policy"));
  }

  @Serves(accessOperations.setPolicy)
  setPolicy(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<AccessPolicy> {
    const requested = () => this.#requestedPolicy(request);
    return this.#changes.make(request, reply, requested, (answer) => answer);
  }

  #requestedPolicy(request: CallerRequest): RequestedChange<AccessPolicy> {
    checkBindsRoles(this.#control.state);
    const { default_role, admin_roles } = bodyOf(accessOperations.setPolicy, request);
    // Each caller with one of these roles gets everything.
    refuseEscalation(requestCaller(request), ["*"], "admin_roles");
    const atMs = Date.now();
    const policy: AccessPolicyRecord = {
      ...(default_role !== null && { defaultRole: default_role }),
      adminRoles: admin_roles,
      updatedAtMs: atMs,
    };
    return { command: { type: "access.set", atMs, policy }, answer: viewPolicy(policy) };
  }

  @Serves(accessOperations.whoami)
  whoami(@Req() request: CallerRequest): CallerView {
    const { id, kind, name, project, scopes, grants } = requestCaller(request);
    const fields = { object: "caller", id, kind, name, project } as const;
    return { ...fields, permissions: scopes, projects: grants.projects ?? null };
  }

  #view(binding: BindingName): Binding {
    const { kind, subject, role, project } = binding;
    const roles = this.#control.state.bindings.get(bindingKey(kind, subject))?.roles ?? [];
    const bound = roles.find((each) => each.role === role && each.project === project);
    return viewBinding(binding, bound ?? { role, project, atMs: Date.now() });
  }

  *#bindings(wanted: Partial<BindingName>): Generator<Binding, void> {
    for (const [key, { roles }] of this.#control.state.bindings) {
      const at = key.indexOf(":");
      const [kind, subject] = [key.slice(0, at) as SubjectKind, key.slice(at + 1)];
      if ((wanted.kind ?? kind) !== kind || (wanted.subject ?? subject) !== subject) continue;
      for (const bound of roles) {
        if ((wanted.role ?? bound.role) !== bound.role) continue;
        if (wanted.project !== undefined && wanted.project !== bound.project) continue;
        yield viewBinding({ kind, subject }, bound);
      }
    }
  }
}
