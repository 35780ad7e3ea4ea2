import { statSync } from "node:fs";
import { AppError, toAppError } from "@heddle/base/errors";
import { SHIPPED_ADMIN_ROLES } from "@heddle/contracts/roles";
import type { AccessCommand, ServiceCommand } from "@heddle/control/access/records";
import { bindingKey } from "@heddle/control/access/records";
import { BINDS_ROLES, HAS_SERVICES, versionOf } from "@heddle/control/cluster-version";
import type { Logger } from "@heddle/observability/logger";
import {
  type BeforeApplicationShutdown,
  Inject,
  type OnApplicationBootstrap,
} from "@nestjs/common";
import { type AuthSettings, readAuthFile } from "../config/auth-file.ts";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "./control-plane.ts";
import { propose, untilSettled } from "./propose.ts";

type SeedCommand = AccessCommand | ServiceCommand;
type Rbac = NonNullable<AuthSettings["rbac"]>;

/** How often the file is read. Events of file systems miss what Kubernetes or NFS replace. */
const POLL_MS = 1_000;
/** The most faults that are reported. */
const MAX_FAULTS = 8;

/**
 * Sets the roles, bindings and policy of the `--auth-file` at each start and after each change of
 * the file. What it does not name stays. What was refused is tried again under the next leader.
 */
export class AccessSeed implements OnApplicationBootstrap, BeforeApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #file: string | undefined;
  readonly #logger: Logger;
  readonly #ended = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #isRunning = false;
  #tried: Attempt | undefined;
  #fault: string | undefined;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(MASTER_CONFIG) { authFile }: Pick<MasterConfig, "authFile">,
    @Inject(LOGGER) logger: Logger,
  ) {
    this.#control = control;
    this.#file = authFile;
    this.#logger = logger;
  }

  /** Why the cluster lacks what the file has; undefined where it lacks nothing. */
  get fault(): string | undefined {
    return this.#fault;
  }

  onApplicationBootstrap(): void {
    const file = this.#file;
    if (file === undefined) return;
    this.#timer = setInterval(() => void this.#poll(file), POLL_MS).unref();
    void this.#poll(file);
  }

  beforeApplicationShutdown(): void {
    clearInterval(this.#timer);
    this.#ended.abort();
  }

  async #poll(file: string): Promise<void> {
    const attempt = { content: stampOf(file), term: this.#control.group?.status().term };
    if (this.#isRunning || this.#isDone(attempt)) return;
    this.#isRunning = true;
    try {
      if (await this.#seed(file)) this.#tried = attempt;
      this.#fault = undefined;
    } catch (error) {
      if (this.#ended.signal.aborted) return;
      this.#tried = attempt;
      this.#fault = toAppError(error).message;
      const fields = { why: this.#fault, file };
      this.#logger.error(
        fields,
        "the roles of the --auth-file are not all set: correct the file, or what refuses them",
      );
    } finally {
      this.#isRunning = false;
    }
  }

  #isDone({ content, term }: Attempt): boolean {
    if (this.#tried?.content !== content) return false;
    return this.#fault === undefined || this.#tried.term === term;
  }

  /** False while the cluster version has no roles yet. */
  async #seed(file: string): Promise<boolean> {
    const { rbac } = readAuthFile(file);
    if (!rbac) return true;
    const since = Object.keys(rbac.service_accounts).length > 0 ? HAS_SERVICES : BINDS_ROLES;
    if (versionOf(this.#control.state) < since) return false;
    const commands = seedCommands(rbac, this.#control.state, Date.now());
    const faults: string[] = [];
    for (const command of commands) {
      this.#ended.signal.throwIfAborted();
      const settled = untilSettled(this.#control, () => propose(this.#control, command));
      await settled.catch((error) => faults.push(toAppError(error).message));
    }
    if (faults.length > 0) {
      const message = `${faults.slice(0, MAX_FAULTS).join(" ")} (${faults.length} of ${commands.length} changes)`;
      throw new AppError("conflict", message);
    }
    if (commands.length > 0) {
      this.#logger.info({ changes: commands.length }, "set the roles of the --auth-file");
    }
    return true;
  }
}

/** What was tried: another content or another term of the leader asks for another attempt. */
interface Attempt {
  readonly content: string;
  readonly term: number | undefined;
}

/** Another text where the file was replaced or changed. */
function stampOf(file: string): string {
  const found = statSync(file, { throwIfNoEntry: false });
  return found ? `${found.ino} ${found.mtimeMs} ${found.size}` : "";
}

/**
 * What differs from the state: roles and service accounts first, since bindings and the policy name
 * them. A service account that exists stays as it is, disabled or not.
 */
function seedCommands(
  { roles, service_accounts, bindings, default_role, admin_roles }: Rbac,
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
  const known = state.access.get("policy");
  const presentRoles = known?.adminRoles ?? SHIPPED_ADMIN_ROLES;
  const defaultRole = default_role === undefined ? known?.defaultRole : (default_role ?? undefined);
  const adminRoles = admin_roles ?? presentRoles;
  const isSame = defaultRole === known?.defaultRole && adminRoles.join() === presentRoles.join();
  if (isSame) return commands;
  const policy = {
    ...(defaultRole !== undefined && { defaultRole }),
    adminRoles,
    updatedAtMs: atMs,
  };
  return [...commands, { type: "access.set", atMs, policy }];
}
