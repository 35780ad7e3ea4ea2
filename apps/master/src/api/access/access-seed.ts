import { setTimeout as sleep } from "node:timers/promises";
import { toAppError } from "@heddle/base/errors";
import type { AccessCommand, ServiceCommand } from "@heddle/control/access/records";
import { bindingKey } from "@heddle/control/access/records";
import { BINDS_ROLES, HAS_SERVICES, versionOf } from "@heddle/control/cluster-version";
import type { Logger } from "@heddle/observability/logger";
import {
  type BeforeApplicationShutdown,
  Inject,
  type OnApplicationBootstrap,
} from "@nestjs/common";
import type { AuthSettings } from "../../config/auth-file.ts";
import { LOGGER } from "../../config/config.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose, untilSettled } from "../../control-plane/propose.ts";
import { AUTH_SETTINGS } from "../../http/identity/open-authenticator.ts";
import { viewPolicy } from "./access-view.ts";

type SeedCommand = AccessCommand | ServiceCommand;

const LOOK_MS = 250;

/**
 * Sets the roles, bindings and policy of the `--auth-file` at each start, once the cluster version
 * has them. What the file does not name stays.
 */
export class AccessSeed implements OnApplicationBootstrap, BeforeApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #rbac: AuthSettings["rbac"];
  readonly #logger: Logger;
  readonly #ended = new AbortController();

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(AUTH_SETTINGS) settings: AuthSettings | null,
    @Inject(LOGGER) logger: Logger,
  ) {
    this.#control = control;
    this.#rbac = settings?.rbac;
    this.#logger = logger;
  }

  onApplicationBootstrap(): void {
    if (this.#rbac) void this.#seed(this.#rbac);
  }

  beforeApplicationShutdown(): void {
    this.#ended.abort();
  }

  async #seed(rbac: NonNullable<AuthSettings["rbac"]>): Promise<void> {
    const { signal } = this.#ended;
    try {
      const since = Object.keys(rbac.service_accounts).length > 0 ? HAS_SERVICES : BINDS_ROLES;
      while (versionOf(this.#control.state) < since) {
        await sleep(LOOK_MS, undefined, { signal, ref: false });
      }
      const commands = seedCommands(rbac, this.#control.state, Date.now());
      for (const command of commands) {
        if (signal.aborted) return;
        await untilSettled(this.#control, () => propose(this.#control, command));
      }
      if (commands.length > 0) {
        this.#logger.info({ changes: commands.length }, "set the roles of the --auth-file");
      }
    } catch (error) {
      if (signal.aborted) return;
      const why = toAppError(error).message;
      this.#logger.error({ why }, "the roles of the --auth-file could not be set");
    }
  }
}

/**
 * What differs from the state: roles and service accounts first, since bindings and the policy name
 * them. A service account that exists stays as it is, disabled or not.
 */
function seedCommands(
  {
    roles,
    service_accounts,
    bindings,
    default_role,
    admin_roles,
  }: NonNullable<AuthSettings["rbac"]>,
  state: ControlPlane["state"],
  atMs: number,
): SeedCommand[] {
  const commands: SeedCommand[] = [];
  for (const [name, { permissions, description }] of Object.entries(roles)) {
    const known = state.roles.get(name);
    const isKnown =
      known?.description === description && known.permissions.join() === permissions.join();
    if (isKnown) continue;
    const role = { permissions, description, updatedAtMs: atMs };
    commands.push({ type: "role.set", atMs, name, role });
  }
  for (const [name, { description, disabled: isDisabled }] of Object.entries(service_accounts)) {
    if (state.services.has(name)) continue;
    commands.push({ type: "service.set", atMs, name, description, isDisabled });
  }
  for (const binding of bindings) {
    const { kind, subject, role, project } = binding;
    const known = state.bindings.get(bindingKey(kind, subject))?.roles ?? [];
    if (known.some((each) => each.role === role && each.project === project)) continue;
    commands.push({ type: "binding.add", atMs, binding });
  }
  const present = viewPolicy(state.access.get("policy"));
  const defaultRole = default_role === undefined ? present.default_role : default_role;
  const adminRoles = admin_roles ?? present.admin_roles;
  const isSame =
    defaultRole === present.default_role && adminRoles.join() === present.admin_roles.join();
  if (isSame) return commands;
  const policy = { ...(defaultRole !== null && { defaultRole }), adminRoles, updatedAtMs: atMs };
  return [...commands, { type: "access.set", atMs, policy }];
}
